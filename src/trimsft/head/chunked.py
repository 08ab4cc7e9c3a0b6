"""Torch only, any device, bounded memory: rows in chunks, gradients in the forward pass.

Per chunk of R rows: logits, statistics, weights; then, for the rows worth it, the logit gradient
w * (softmax - onehot) and its two matmuls. Nothing of size [tokens, vocabulary] ever exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimsft.head.problem import Problem, Solution, all_finite, gradient_mass, rows_to_keep, softcapped, weigh
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
        weights.append(weigh(problem.objective, chunk.tokens))
        keeps.append(gradient_mass(chunk.tokens, weights[-1]) >= problem.skip_below)
        if problem.wants_gradient:
            matmuls.add_rows(problem, chunk, weights[-1], rows, keeps[-1])
        del chunk  # before the next one is made
    tokens, weights_T, kept_T = _concatenate(chunks), torch.cat(weights), torch.cat(keeps)
    kept = int(kept_T.sum())
    if problem.wants_gradient:
        kept += _revive(problem, matmuls, tokens, weights_T, kept_T)
    return Solution(
        tokens=tokens,
        weights=weights_T,
        kept=kept,
        finite=all_finite(tokens, weights_T),
        grad_hidden_TH=matmuls.grad_hidden_TH,
        grad_weight_VH=_cast(matmuls.grad_weight_VH, problem.weight_VH),
        grad_bias_V=_cast(matmuls.grad_bias_V, problem.weight_VH),
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
    exps_RV: Tensor
    """exp(z - competitor logit), 0 at the gold token."""
    competitor_prob_R: Tensor
    """What they are multiplied by to become probabilities."""
    slope_RV: Tensor | None
    """Derivative of the softcap, where there is one."""

    @classmethod
    def of(cls, problem: Problem, matmuls: _Matmuls, rows: slice | Tensor) -> _Chunk:
        gold_R1 = problem.labels_T[rows][:, None]
        logits_RV = matmuls.logits(problem.hidden_TH[rows])
        slope_RV = None
        if problem.softcap is not None or problem.logit_scale != 1.0:
            logits_RV = softcapped(logits_RV, problem.logit_scale, problem.softcap)
        if problem.softcap is not None and problem.wants_gradient:
            slope_RV = 1 - (logits_RV / problem.softcap) ** 2
        gold_R = logits_RV.gather(1, gold_R1).squeeze(1)
        logits_RV.scatter_(1, gold_R1, -torch.inf)
        top_R, competitor_R = logits_RV.max(dim=1)
        logits_RV.sub_(top_R[:, None])
        moment_R = _first_moment(logits_RV) if problem.with_entropy else None
        exps_RV = logits_RV.exp_()
        sum_R = exps_RV.sum(dim=1)
        # softplus of the log-odds keeps 1-p exact where p rounds to 1
        nll_R = torch.logaddexp(top_R + sum_R.log() - gold_R, torch.zeros_like(gold_R))
        competitor_prob_R = 1 / (sum_R + torch.exp(gold_R - top_R))
        entropy_R = None
        if moment_R is not None:
            entropy_R = nll_R + competitor_prob_R * ((gold_R - top_R) * sum_R - moment_R)
        tokens = TokenStats(
            nll=nll_R.float(),
            gap=(gold_R - top_R).float(),
            gold_logit=gold_R.float(),
            competitor=competitor_R,
            entropy=None if entropy_R is None else entropy_R.float(),
        )
        return cls(tokens, exps_RV, competitor_prob_R, slope_RV)


def _first_moment(shifted_RV: Tensor) -> Tensor:
    """sum_v exp(s_v) * s_v, with 0 where s_v = -inf."""
    return (shifted_RV.exp() * shifted_RV.clamp(min=-1e4)).sum(dim=1)


class _Matmuls:
    """The three matmuls of a linear head, in the precision each device does best, and their accumulators."""

    def __init__(self, problem: Problem) -> None:
        hidden_TH, weight_VH = problem.hidden_TH, problem.weight_VH
        self.wide = torch.promote_types(hidden_TH.dtype, torch.float32)
        # cuBLAS multiplies bf16 into float32; elsewhere the operands are widened first
        self.mixed = hidden_TH.is_cuda and hidden_TH.dtype != self.wide
        self.weight_VH = weight_VH if self.mixed else weight_VH.to(self.wide)
        self.bias_V = None if problem.bias_V is None else problem.bias_V.to(self.wide)
        size = CHUNK_BYTES["cuda" if hidden_TH.is_cuda else "cpu"]
        rows = size // (len(weight_VH) * self.wide.itemsize)
        self.chunk_rows = max(16, min(len(hidden_TH), rows))
        # one space for all chunks: the allocator of the host keeps what blocks of changing size leave behind
        self.spaces: dict[str, Tensor] = {}
        self.grad_hidden_TH = torch.zeros_like(hidden_TH) if problem.wants_hidden else None
        self.grad_weight_VH = torch.zeros_like(weight_VH, dtype=self.wide) if problem.wants_weight else None
        self.grad_bias_V = weight_VH.new_zeros(len(weight_VH), dtype=self.wide) if problem.wants_bias else None

    def logits(self, hidden_RH: Tensor) -> Tensor:
        if self.mixed:
            logits_RV = torch.mm(hidden_RH, self.weight_VH.T, out_dtype=self.wide)
        else:
            out_RV = self._space("logits", len(hidden_RH))
            logits_RV = torch.mm(hidden_RH.to(self.wide), self.weight_VH.T, out=out_RV)
        return logits_RV if self.bias_V is None else logits_RV.add_(self.bias_V)

    def _space(self, name: str, rows: int) -> Tensor:
        if name not in self.spaces:
            shape = (self.chunk_rows, len(self.weight_VH))
            self.spaces[name] = self.weight_VH.new_empty(shape, dtype=self.wide)
        return self.spaces[name][:rows]

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
            grad_KV = torch.index_select(chunk.exps_RV, 0, kept, out=self._space("kept", len(kept)))
        scale_K = scale_R[kept]
        grad_KV.mul_((scale_K * chunk.competitor_prob_R[kept])[:, None])
        gold_K1 = problem.labels_T[rows][kept][:, None]
        grad_KV.scatter_(1, gold_K1, -(scale_K * chunk.tokens.doubt[kept])[:, None].to(self.wide))
        if chunk.slope_RV is not None:
            grad_KV.mul_(chunk.slope_RV[kept])
        self._accumulate(grad_KV, problem.hidden_TH[rows][kept], _absolute(rows, kept))

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


def _absolute(rows: slice | Tensor, kept: Tensor) -> Tensor:
    return kept + rows.start if isinstance(rows, slice) else rows[kept]


def _concatenate(chunks: list[TokenStats]) -> TokenStats:
    entropies = [chunk.entropy for chunk in chunks if chunk.entropy is not None]
    return TokenStats(
        nll=torch.cat([chunk.nll for chunk in chunks]),
        gap=torch.cat([chunk.gap for chunk in chunks]),
        gold_logit=torch.cat([chunk.gold_logit for chunk in chunks]),
        competitor=torch.cat([chunk.competitor for chunk in chunks]),
        entropy=torch.cat(entropies) if entropies else None,
    )


def _cast(gradient: Tensor | None, like: Tensor) -> Tensor | None:
    return None if gradient is None else gradient.to(like.dtype)
