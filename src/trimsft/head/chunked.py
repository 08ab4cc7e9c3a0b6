"""Torch only, any device, bounded memory: rows in chunks, gradients in the forward pass.

Per chunk of R rows: logits, statistics, weights; then, for the rows worth it, the logit gradient
w * (softmax - onehot) and its two matmuls. Nothing of size [tokens, vocabulary] ever exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimsft.head.problem import Matmul, Problem, Solution, all_finite, gradient_mass, joined, rows_to_keep, softcapped
from trimsft.objectives import TokenStats

CHUNK_BYTES = {"cpu": 24 << 20, "cuda": 512 << 20}
"""Size of one chunk of logits: small enough for the last-level cache, large enough for the matmul."""


def solve(problem: Problem) -> Solution:
    matmuls = _Matmuls(problem)
    chunks: list[TokenStats] = []
    weights: list[Tensor] = []
    keeps: list[Tensor] = []
    for start in range(0, len(problem.labels_T), matmuls.chunk_rows):
        rows = slice(start, start + matmuls.chunk_rows)
        chunk = _Chunk.of(problem, matmuls, rows)
        chunks.append(chunk.tokens)
        weights.append(problem.weights_of(chunk.tokens, rows))
        keeps.append(gradient_mass(chunk.tokens, weights[-1]) >= problem.skip_below)
        if problem.wants_gradient:
            matmuls.add_rows(problem, chunk, weights[-1], rows, keeps[-1])
        del chunk  # before the next one is made
    tokens, weights_T, kept_T = joined(chunks), torch.cat(weights), torch.cat(keeps)
    kept = int(kept_T.sum())
    if problem.wants_gradient:
        kept += _revive(problem, matmuls, tokens, weights_T, kept_T)
    gradients = (matmuls.grad_weight_VH, matmuls.grad_bias_V)
    grad_weight_VH, grad_bias_V = (None if one is None else one.to(problem.weight_VH.dtype) for one in gradients)
    return Solution(
        tokens=tokens,
        weights=weights_T,
        kept=kept,
        finite=all_finite(problem, tokens, weights_T),
        grad_hidden_TH=matmuls.grad_hidden_TH,
        grad_weight_VH=grad_weight_VH,
        grad_bias_V=grad_bias_V,
    )


def _revive(problem: Problem, matmuls: _Matmuls, tokens: TokenStats, weights_T: Tensor, kept_T: Tensor) -> int:
    """Run the rows that the chunk by chunk threshold skipped, but that hold too much of the batch's mass."""
    wanted_T = rows_to_keep(gradient_mass(tokens, weights_T), problem.skip_below)
    revived = (wanted_T & ~kept_T).nonzero().flatten()
    for rows in revived.split(matmuls.chunk_rows):
        chunk = _Chunk.of(problem, matmuls, rows)
        matmuls.add_rows(problem, chunk, weights_T[rows], rows, torch.ones_like(rows, dtype=torch.bool))
    return len(revived)


@dataclass
class _Chunk:
    """R rows of the problem, after the softmax."""

    tokens: TokenStats
    exps_RV: Tensor  # exp(z - competitor logit), 0 at the gold token
    competitor_prob_R: Tensor  # what they are multiplied by to become probabilities
    slope_RV: Tensor | None  # derivative of the softcap, where there is one

    @classmethod
    def of(cls, problem: Problem, matmuls: _Matmuls, rows: slice | Tensor) -> _Chunk:
        gold_R1 = problem.labels_T[rows][:, None]
        logits_RV = matmuls.logits(problem.hidden_TH[rows])
        logits_RV = softcapped(logits_RV, problem.logit_scale, problem.softcap)
        slope_RV = None
        if problem.softcap is not None and problem.wants_gradient:
            slope_RV = 1 - (logits_RV / problem.softcap) ** 2
        gold_R = logits_RV.gather(1, gold_R1).squeeze(1)
        logits_RV.scatter_(1, gold_R1, -torch.inf)
        top_R, competitor_R = logits_RV.max(dim=1)
        logits_RV.sub_(top_R[:, None])
        if problem.with_entropy:
            # sum_v exp(s_v) * s_v, with 0 where s_v = -inf
            moment_R = (logits_RV.exp() * logits_RV.clamp(min=-1e4)).sum(dim=1)
        exps_RV = logits_RV.exp_()
        sum_R = exps_RV.sum(dim=1)
        # softplus of the log-odds keeps 1-p exact where p rounds to 1
        nll_R = torch.logaddexp(top_R + sum_R.log() - gold_R, torch.zeros_like(gold_R))
        competitor_prob_R = 1 / (sum_R + torch.exp(gold_R - top_R))
        entropy_R = None
        if problem.with_entropy:
            entropy_R = (nll_R + competitor_prob_R * ((gold_R - top_R) * sum_R - moment_R)).float()
        tokens = TokenStats(
            nll=nll_R.float(),
            gap=(gold_R - top_R).float(),
            gold_logit=gold_R.float(),
            competitor=competitor_R,
            entropy=entropy_R,
            gold=gold_R1.squeeze(1),
        )
        return cls(tokens, exps_RV, competitor_prob_R, slope_RV)


class _Matmuls(Matmul):
    """The three matmuls of a linear head, and the gradients that they add up to."""

    def __init__(self, problem: Problem) -> None:
        hidden_TH, weight_VH = problem.hidden_TH, problem.weight_VH
        super().__init__(hidden_TH, weight_VH, problem.bias_V, CHUNK_BYTES, multiple=1)
        self.grad_hidden_TH = torch.zeros_like(hidden_TH) if problem.wants_hidden else None
        self.grad_weight_VH = torch.zeros_like(weight_VH, dtype=self.wide) if problem.wants_weight else None
        self.grad_bias_V = weight_VH.new_zeros(len(weight_VH), dtype=self.wide) if problem.wants_bias else None

    def add_rows(
        self, problem: Problem, chunk: _Chunk, weights_R: Tensor, rows: slice | Tensor, keep_R: Tensor
    ) -> None:
        """Add the gradients of the kept rows of one chunk."""
        kept = keep_R.nonzero().flatten()
        if len(kept) == 0:
            return
        scale_R = weights_R.to(self.wide) * (problem.logit_scale / problem.early_divisor)
        # subnormal numbers take the processor ten times as long, and change no sum
        scale_R.masked_fill_(~keep_R | (scale_R.abs() < 1e-20 * scale_R.abs().max()), 0)
        if 4 * len(kept) > 3 * len(keep_R):
            # to move most of the rows costs more than to multiply the others by 0
            kept = torch.arange(len(keep_R), device=kept.device)
            grad_KV = chunk.exps_RV
        else:
            grad_KV = torch.index_select(chunk.exps_RV, 0, kept, out=self.space("kept", len(kept)))
        scale_K = scale_R[kept]
        grad_KV.mul_((scale_K * chunk.competitor_prob_R[kept])[:, None])
        gold_K1 = problem.labels_T[rows][kept][:, None]
        grad_KV.scatter_(1, gold_K1, -(scale_K * chunk.tokens.doubt[kept])[:, None].to(self.wide))
        if chunk.slope_RV is not None:
            grad_KV.mul_(chunk.slope_RV[kept])
        rows_K = kept + rows.start if isinstance(rows, slice) else rows[kept]
        self._accumulate(grad_KV, problem.hidden_TH[rows][kept], rows_K)

    def _accumulate(self, grad_KV: Tensor, hidden_KH: Tensor, rows_K: Tensor) -> None:
        if self.grad_bias_V is not None:
            self.grad_bias_V += grad_KV.sum(dim=0)
        if self.mixed:
            grad_KV = grad_KV.to(hidden_KH.dtype)
        if self.grad_hidden_TH is not None:
            grad_hidden_KH = grad_KV @ self.weight_VH
            self.grad_hidden_TH.index_copy_(0, rows_K, grad_hidden_KH.to(self.grad_hidden_TH.dtype))
        if self.grad_weight_VH is None:
            return
        if self.mixed:
            torch.addmm(self.grad_weight_VH, grad_KV.T, hidden_KH, out_dtype=self.wide, out=self.grad_weight_VH)
        else:
            self.grad_weight_VH.addmm_(grad_KV.T, hidden_KH.to(self.wide))
