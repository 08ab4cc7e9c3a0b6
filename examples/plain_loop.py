"""Fine-tune in a loop of your own: hidden states, `linear_cross_entropy`, optimizer.

    python examples/plain_loop.py
    python examples/plain_loop.py --model HuggingFaceTB/SmolLM2-360M --data train.jsonl --objective dft --steps 500

A row of the data: {"problem": "What is 1+1?", "solution": "It is \\boxed{2}."}
"""

import random
from typing import Any

import torch
from common import load_model, load_rows, parse, tokenize
from torch.nn.utils.rnn import pad_sequence

from trimsft import linear_cross_entropy, make_objective

ROWS, MICRO_BATCHES = 2, 2  # rows of a micro-batch, and how many of those make a step


def main() -> None:
    options = parse(__doc__, out="runs/plain_loop")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = load_rows(options.data)
    tokenizer, model = load_model(options.model)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    objective = make_objective(options.objective)
    encoded = [encode(row, tokenizer) for row in rows]
    draw = random.Random(0)
    for step in range(1, options.steps + 1):
        batches = [collate(draw.sample(encoded, ROWS), device) for _ in range(MICRO_BATCHES)]
        # what divides the loss: the trained tokens of the whole step, not those of one micro-batch
        count = sum(int((labels != -100).sum()) for _, labels in batches)
        nll, mean_weight, kept = 0.0, 0.0, 0
        for ids, labels in batches:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                # padding stands on the right, where causal attention never looks: no mask is needed
                hidden = model.base_model(ids).last_hidden_state
                weight = model.get_output_embeddings().weight
                # Gemma 2, Granite, Cohere and others scale or cap their logits: logit_scale=, softcap=
                out = linear_cross_entropy(hidden, weight, labels, objective, normalizer=count)
            out.loss.backward()
            nll += out.tokens.nll.sum().item() / count
            mean_weight += out.weights.sum().item() / count
            kept += out.kept
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}/{options.steps}  nll {nll:.4f}  weight {mean_weight:.3f}  kept {kept} of {count}")
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"saved in {options.out}")


def encode(row: dict[str, str], tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens, and for each position the label that it predicts: the next token, where that is of the completion."""
    prompt, completion = tokenize(row, tokenizer)
    return prompt + completion, [-100] * (len(prompt) - 1) + completion + [-100]


def collate(rows: list[tuple[list[int], list[int]]], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    ids, labels = ([torch.tensor(row[part]) for row in rows] for part in (0, 1))
    pad = {"batch_first": True, "padding_side": "right"}
    return (
        pad_sequence(ids, padding_value=0, **pad).to(device),
        pad_sequence(labels, padding_value=-100, **pad).to(device),
    )


if __name__ == "__main__":
    main()
