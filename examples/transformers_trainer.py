"""Fine-tune with transformers' own `Trainer`: `trimsft.patch` gives the model the weighted loss, nothing else changes.

    python examples/transformers_trainer.py
    python examples/transformers_trainer.py --model HuggingFaceTB/SmolLM2-360M --data train.jsonl --objective dft

A row of the data: {"problem": "What is 1+1?", "solution": "It is \\boxed{2}."}
"""

import argparse
from typing import Any

import torch
from datasets import Dataset, load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

import trimsft

SUMS = [
    {"problem": f"What is {a} + {b}?", "solution": f"{a} + {b} = \\boxed{{{a + b}}}"}
    for a, b in zip(range(3, 50, 4), range(2, 80, 7), strict=True)
]


def main() -> None:
    options = parse()
    on_gpu = torch.cuda.is_available()
    tokenizer, model = load_model(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    trimsft.patch(model, trimsft.make_objective(options.objective))
    rows = load_dataset("json", data_files=options.data, split="train") if options.data else Dataset.from_list(SUMS)
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
        train_dataset=rows.map(encode, fn_kwargs={"tokenizer": tokenizer}, remove_columns=rows.column_names),
        data_collator=DataCollatorForSeq2Seq(tokenizer),  # pads labels with -100
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    print(f"saved in {options.out}")


def load_model(name: str) -> tuple[Any, Any]:
    """Tokenizer and model; one line instead of a traceback where they cannot be had."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        return tokenizer, AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise SystemExit(f"--model: cannot load {name!r}: {reason} Without network, name a folder.") from None


def encode(row: dict[str, str], tokenizer: Any) -> dict[str, list[int]]:
    """Labels stand where their tokens do: the model shifts them. The prompt is not trained."""
    prompt = tokenizer(f"Problem: {row['problem']}\nSolution:")["input_ids"]
    solution = tokenizer(f" {row['solution']}", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {"input_ids": prompt + solution, "labels": [-100] * len(prompt) + solution}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M", help="name on the hub, or a folder")
    parser.add_argument("--data", help="JSON Lines with problem and solution; a dozen sums if not given")
    parser.add_argument("--objective", choices=list(trimsft.OBJECTIVES), default="trim")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--out", default="runs/transformers_trainer", help="folder for the model")
    return parser.parse_args()


if __name__ == "__main__":
    main()
