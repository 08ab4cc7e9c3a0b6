"""Fine-tune with `TrimSFTTrainer`, TRL's `SFTTrainer` with the fused head and any of the six objectives.

    python examples/trl_trainer.py
    python examples/trl_trainer.py --model HuggingFaceTB/SmolLM2-360M --data train.jsonl --objective dft --steps 500

A row of the data: {"problem": "What is 1+1?", "solution": "It is \\boxed{2}."}
"""

import argparse
import logging

import torch
from datasets import Dataset, load_dataset

from trimsft import OBJECTIVES
from trimsft.train import TrimSFTConfig, TrimSFTTrainer

SUMS = [
    {"problem": f"What is {a} + {b}?", "solution": f"{a} + {b} = \\boxed{{{a + b}}}"}
    for a, b in zip(range(3, 50, 4), range(2, 80, 7), strict=True)
]


def main() -> None:
    options = parse()
    on_gpu = torch.cuda.is_available()
    config = TrimSFTConfig(
        options.out,
        objective=options.objective,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        per_device_train_batch_size=4,
        bf16=on_gpu,
        model_init_kwargs={"dtype": "float32"},
        dataloader_pin_memory=on_gpu,
        logging_steps=max(1, options.steps // 10),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    rows = load(options.data)
    try:
        trainer = TrimSFTTrainer(options.model, config, train_dataset=rows)
    except OSError as error:  # one line instead of a traceback
        reason = str(error).splitlines()[0]
        raise SystemExit(f"--model: cannot load {options.model!r}: {reason} Without network, name a folder.") from None
    trainer.train()
    trainer.save_model()
    trainer.create_model_card(dataset_name=options.data)
    print(f"saved in {options.out}, with a model card and telemetry.jsonl")


def load(path: str | None) -> Dataset:
    rows = load_dataset("json", data_files=path, split="train") if path else Dataset.from_list(SUMS)
    return rows.map(as_prompt, remove_columns=rows.column_names)


def as_prompt(row: dict[str, str]) -> dict[str, str]:
    """TRL trains the completion only, and puts the end-of-sequence token behind it."""
    return {"prompt": f"Problem: {row['problem']}\nSolution:", "completion": f" {row['solution']}"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M", help="name on the hub, or a folder")
    parser.add_argument("--data", help="JSON Lines with problem and solution; a dozen sums if not given")
    parser.add_argument("--objective", choices=list(OBJECTIVES), default="trim")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--out", default="runs/trl_trainer", help="folder for the model")
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")  # trimsft warns through logging
    main()
