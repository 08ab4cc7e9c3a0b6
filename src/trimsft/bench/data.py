"""Inputs for benchmarks of the head: hidden states whose logit gaps have a known distribution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def synthetic_head(
    tokens: int,
    hidden_size: int,
    vocabulary: int,
    *,
    lowest_gap: float = -2.0,
    highest_gap: float = 14.0,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, lm_head weight and labels whose gaps spread evenly over (lowest_gap, highest_gap).

    Each hidden state is noise plus as much of its gold token's row of the weight as the wanted gap takes. With the
    default range 39 % of the tokens have a TrimSFT(1.5, 0.8) weight above 1e-3, as the paper's diagnostics imply
    for Qwen2.5-Math-1.5B.
    """
    generator = torch.Generator(device).manual_seed(seed)
    options: dict[str, Any] = {"generator": generator, "device": device}
    weight_VH = (torch.randn(vocabulary, hidden_size, **options) / hidden_size**0.5).to(dtype)
    labels_N = torch.randint(vocabulary, (tokens,), **options)
    gaps_N = lowest_gap + (highest_gap - lowest_gap) * torch.rand(tokens, **options)
    hidden_NH = torch.randn(tokens, hidden_size, **options)
    for rows in torch.arange(tokens, device=device).split(1024):
        gold_RH = weight_VH[labels_N[rows]].float()
        # twice: the added direction moves the other logits a little, too
        for _ in range(2):
            logits_RV = (hidden_NH[rows].to(dtype) @ weight_VH.T).float()
            gold_R = logits_RV.gather(1, labels_N[rows, None]).squeeze(1)
            best_R = logits_RV.scatter(1, labels_N[rows, None], -torch.inf).amax(dim=1)
            missing_R = gaps_N[rows] - (gold_R - best_R)
            hidden_NH[rows] += (missing_R / gold_RH.square().sum(dim=1))[:, None] * gold_RH
    return hidden_NH.to(dtype), weight_VH, labels_N
