"""Fine-tune with transformers' own `Trainer`: `trimsft.patch` gives the model the weighted loss.

    python examples/transformers_trainer.py
    python examples/transformers_trainer.py --model HuggingFaceTB/SmolLM2-360M --data train.jsonl --objective dft

A row of the data: {"problem": "What is 1+1?", "solution": "It is \\boxed{2}."}
"""

from typing import Any

import torch
from common import load_model, load_rows, parse, tokenize
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

import trimsft


def main() -> None:
    options = parse(__doc__, out="runs/transformers_trainer")
    on_gpu = torch.cuda.is_available()
    rows = load_rows(options.data)
    tokenizer, model = load_model(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    trimsft.patch(model, trimsft.make_objective(options.objective))
    arguments = TrainingArguments(
        options.out,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        bf16=on_gpu,
        dataloader_pin_memory=on_gpu,
        logging_steps=max(1, options.steps // 10),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Dataset.from_list([encode(row, tokenizer) for row in rows]),
        data_collator=DataCollatorForSeq2Seq(tokenizer),  # pads labels with -100
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    print(f"saved in {options.out}")


def encode(row: dict[str, str], tokenizer: Any) -> dict[str, list[int]]:
    """Labels stand where their tokens do: the model shifts them. The prompt is not trained."""
    prompt, completion = tokenize(row, tokenizer)
    return {"input_ids": prompt + completion, "labels": [-100] * len(prompt) + completion}


if __name__ == "__main__":
    main()
