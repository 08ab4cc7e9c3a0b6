"""Fine-tune with `TrimSFTTrainer`, TRL's `SFTTrainer` with the fused head and any of the objectives.

    python examples/trl_trainer.py
    python examples/trl_trainer.py --model HuggingFaceTB/SmolLM2-360M --data train.jsonl --objective dft --steps 500

A row of the data: {"problem": "What is 1+1?", "solution": "It is \\boxed{2}."}
"""

import logging

from common import load_model, load_rows, parse
from datasets import Dataset

from trimsft.train import TrimSFTConfig, TrimSFTTrainer


def main() -> None:
    options = parse(__doc__, out="runs/trl_trainer")
    config = TrimSFTConfig(
        options.out,
        objective=options.objective,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        per_device_train_batch_size=4,
        logging_steps=max(1, options.steps // 10),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    # TRL trains the completion only, and puts the end-of-sequence token behind it
    rows = Dataset.from_list(load_rows(options.data))
    tokenizer, model = load_model(options.model)
    trainer = TrimSFTTrainer(model, config, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    trainer.create_model_card(dataset_name=options.data)
    print(f"saved in {options.out}, with a model card and telemetry.jsonl")


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")  # trimsft warns through logging
    main()
