"""How a model of the lab stands: greedy, scattered at temperature 1, and where its gaps are.

    {"lab-easy": {"greedy": 0.99, "sampled": 0.61, "forced greedy": 1.0, "forced sampled": 0.8}, ...}

`forced` lets the model begin with the first piece of the target format. A quick look for pre-training, by equality of
the boxed number; `trimsft eval` is the measurement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trimsft.lab.task import TIERS, LabProblem, benchmark, write_solution
from trimsft.lab.wording import TARGET

from .tokenizer import render_prompt, split

NEW_TOKENS = 112
ROWS = {"cuda": 2048, "cpu": 64}
"""Rows that are completed together."""
_BOX = re.compile(r"\\boxed\{(\d+)\}")


def probe(model: Any, tokenizer: Any, *, problems: int = 64, samples: int = 4) -> dict[str, dict[str, float]]:
    """Accuracy on each tier, free and in the target format, and the figures of `gap_figures`."""
    report: dict[str, dict[str, float]] = {}
    for tier in TIERS:
        chosen = benchmark(tier, problems)
        report[tier] = {}
        for kind, prefix in (("", ""), ("forced ", first_piece(chosen[0]))):
            report[tier][f"{kind}greedy"] = _accuracy(model, tokenizer, chosen, 0, prefix)
            report[tier][f"{kind}sampled"] = _accuracy(model, tokenizer, chosen * samples, 1, prefix)
    columns = list(report["lab-easy"])
    report["mean"] = {name: sum(report[tier][name] for tier in TIERS) / len(TIERS) for name in columns}
    report["gaps"] = gap_figures(model, tokenizer, [p for tier in TIERS for p in benchmark(tier, problems)])
    return report


def first_piece(problem: LabProblem) -> str:
    """What a solution in the target format begins with."""
    return split(write_solution(problem, TARGET).text)[0]


def complete(model: Any, tokenizer: Any, prompts: Sequence[str], temperature: float) -> list[str]:
    """One continuation of each prompt: greedy at temperature 0, else sampled from the whole distribution."""
    rows = ROWS.get(model.device.type, ROWS["cpu"])
    parts = [prompts[at : at + rows] for at in range(0, len(prompts), rows)]
    return [text for part in parts for text in _complete(model, tokenizer, part, temperature)]


def _complete(model: Any, tokenizer: Any, prompts: Sequence[str], temperature: float) -> list[str]:
    encoded = tokenizer(list(prompts), return_tensors="pt", padding=True, padding_side="left")
    ids = encoded["input_ids"].to(model.device)
    chosen = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=encoded["attention_mask"].to(model.device),
            max_new_tokens=NEW_TOKENS,
            pad_token_id=tokenizer.pad_token_id,
            **(chosen if temperature else {"do_sample": False}),
        )
    texts: list[str] = tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)
    return texts


def gap_figures(model: Any, tokenizer: Any, problems: Sequence[LabProblem]) -> dict[str, float]:
    """Logit gaps of right solutions in the target format: the first token's, and where the others are."""
    firsts, gaps = [], []
    for problem in problems:
        prompt = tokenizer(render_prompt(problem.problem))["input_ids"]
        solution = tokenizer(write_solution(problem, TARGET).text)["input_ids"] + [tokenizer.eos_token_id]
        ids = torch.tensor([prompt + solution], device=model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
        gap = _gaps(logits, ids[0, len(prompt) :])
        firsts.append(gap[:1])
        gaps.append(gap[1:])
    first, gap = torch.cat(firsts), torch.cat(gaps)
    return {
        "first": first.mean().item(),
        "below 0": (gap < 0).float().mean().item(),
        "0 to 3": ((gap >= 0) & (gap < 3)).float().mean().item(),
        "3 to 6": ((gap >= 3) & (gap < 6)).float().mean().item(),
        "median": gap.median().item(),
    }


def _gaps(logits_NV: Tensor, gold_N: Tensor) -> Tensor:
    gold_N1 = logits_NV.gather(1, gold_N[:, None])
    others = logits_NV.scatter(1, gold_N[:, None], float("-inf"))
    return (gold_N1[:, 0] - others.max(dim=1).values).cpu()


def _accuracy(model: Any, tokenizer: Any, problems: Sequence[LabProblem], temperature: float, prefix: str) -> float:
    prompts = [render_prompt(problem.problem) + prefix for problem in problems]
    texts = complete(model, tokenizer, prompts, temperature)
    return sum(_answer(text) == p.answer for text, p in zip(texts, problems, strict=True)) / len(problems)


def _answer(text: str) -> str | None:
    boxes = _BOX.findall(text)
    return boxes[-1] if boxes else None
