"""What a causal LM says about each token it is trained on, without logits of all of them.

The model's own forward runs with its output embedding replaced, so that the hidden states are those the head would
get, whatever the model does before it; the statistics come from them in float32, chunk by chunk.

Shapes: N tokens of a batch, T trained ones, R rows of a chunk, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimsft.head import linear_cross_entropy
from trimsft.head.problem import softcapped
from trimsft.head.transform import PROBE, check_transform, logit_transform
from trimsft.objectives import SFT, TokenStats

_CHUNK_BYTES = {"cpu": 24 << 20, "cuda": 512 << 20}


@dataclass(frozen=True)
class Look:
    """What one forward pass says about the trained tokens of a batch, in order."""

    tokens: TokenStats
    rank: Tensor
    """1 where no logit is larger than the gold token's; int32."""
    gradient_norm: Tensor
    """||softmax(z) - onehot(gold)||_2; float32."""


class Reader:
    """A model and its head."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.head = model.get_output_embeddings()
        if self.head is None:
            raise TypeError(f"model: {type(model).__name__} has no output embedding (lm_head)")
        self.scale, self.softcap = logit_transform(model)

    @torch.no_grad()
    def look(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Look:
        """Statistics of every label that is not -100; labels stand under their own token, as in training."""
        hidden = self._hidden_states(input_ids, attention_mask)
        gold = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        hidden_TH, gold_T = hidden[gold != -100], gold[gold != -100]
        weight, bias = self.head.weight, getattr(self.head, "bias", None)
        tokens = linear_cross_entropy(
            hidden_TH,
            weight,
            gold_T,
            SFT(),
            bias=bias,
            logit_scale=self.scale,
            softcap=self.softcap,
            entropy=True,
        ).tokens
        rank_T = torch.empty(len(gold_T), dtype=torch.int32, device=gold_T.device)
        norm_T = torch.empty_like(tokens.nll)
        wide = torch.promote_types(hidden_TH.dtype, torch.float32)
        size = _CHUNK_BYTES["cuda" if hidden_TH.is_cuda else "cpu"]
        step = max(16, size // (len(weight) * wide.itemsize))
        weight_HV = weight.to(wide).T
        for start in range(0, len(gold_T), step):
            rows = slice(start, start + step)
            logits_RV = hidden_TH[rows].to(wide) @ weight_HV
            logits_RV = logits_RV if bias is None else logits_RV.add_(bias.to(wide))
            logits_RV = softcapped(logits_RV, self.scale, self.softcap)
            rank_T[rows], norm_T[rows] = _rank_and_norm(logits_RV, gold_T[rows], tokens[rows])
        return Look(tokens, rank_T, norm_T)

    def _hidden_states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        seen: list[Tensor] = []
        with _in_place_of_the_head(self.head, seen):
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        if len(seen) != 1:
            raise NotImplementedError(
                f"{type(self.model).__name__} uses its output embedding {len(seen)} times a pass; "
                "the token table needs models that use it once"
            )
        name, harm = type(self.model).__name__, "its token table would be wrong"
        check_transform(out.logits, self.scale, self.softcap, name, harm=harm)
        return seen[0]


@contextmanager
def _in_place_of_the_head(head: Any, seen: list[Tensor]) -> Iterator[None]:
    def catch(hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        seen.append(hidden)
        return hidden.new_tensor(PROBE).reshape(1, 1, -1)

    own = head.__dict__.get("forward")
    head.forward = catch
    try:
        yield
    finally:
        del head.forward
        if own is not None:
            head.forward = own


def _rank_and_norm(logits_RV: Tensor, gold_R: Tensor, tokens: TokenStats) -> tuple[Tensor, Tensor]:
    gold_R1 = gold_R[:, None]
    above_R = (logits_RV > logits_RV.gather(1, gold_R1)).sum(dim=1, dtype=torch.int32)
    # two matmuls may round a near tie differently; the gap decides which side it is on
    rank_R = torch.where(tokens.gap >= 0, 1, above_R.clamp(min=1) + 1)
    total_R = tokens.nll + tokens.gold_logit  # log of the sum of exponentials
    logits_RV.sub_(total_R[:, None]).scatter_(1, gold_R1, -torch.inf)
    others_R = logits_RV.mul_(2).exp_().sum(dim=1)
    # not sum p^2 - 2p + 1, which loses all digits where p is near 1
    return rank_R, (others_R + tokens.doubt.square()).sqrt().float()
