"""Torch only, any device, bounded memory: rows in chunks, gradients in the forward pass.

Per chunk of R rows: logits, statistics, weights; then, for the rows worth it, the logit gradient
w * (softmax - onehot) and its two matmuls. Nothing of size [tokens, vocabulary] ever exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimsft.head.problem import Problem, Solution, all_finite, gradient_mass, joined, rows_to_keep, softcapped
from trimsft.objectives import TokenStats

CHUNK_BYTES = {"cpu": 24 << 20, "cuda": 512 << 20}
"""Size of one chunk of logits: small enough for the last-level cache, large enough for the matmul."""


def solve(problem: Problem) -> Solution:
    matmuls = Matmuls(problem)
    chunks: list[TokenStats] = []
    weights: list[Tensor] = []
    keeps: list[Tensor] = []
    for start in range(0, len(problem.labels_T), matmuls.chunk_rows):
        rows = slice(start, start + matmuls.chunk_rows)
        chunk = Softmax.of(problem, matmuls, matmuls.logits(problem.hidden_TH[rows]), problem.labels_T[rows])
        chunks.append(chunk.tokens)
        weights.append(problem.weights_of(chunk.tokens, rows))
        keeps.append(gradient_mass(chunk.tokens, weights[-1]) >= problem.skip_below)
        if problem.wants_gradient:
            matmuls.add_rows(problem, chunk, weights[-1], rows, keeps[-1])
        del chunk  # before the next one is made
    tokens, weights_T, kept_T = joined(chunks), torch.cat(weights), torch.cat(keeps)
    if problem.wants_gradient:
        # rows that were skipped chunk by chunk, but that hold too much of the batch's mass together
        wanted_T = rows_to_keep(gradient_mass(tokens, weights_T), problem.skip_below)
        for rows_R in (wanted_T & ~kept_T).nonzero().flatten().split(matmuls.chunk_rows):
            chunk = Softmax.of(problem, matmuls, matmuls.logits(problem.hidden_TH[rows_R]), problem.labels_T[rows_R])
            matmuls.add_rows(problem, chunk, weights_T[rows_R], rows_R, torch.ones_like(rows_R, dtype=torch.bool))
        kept_T |= wanted_T
    gradients = (matmuls.grad_weight_VH, matmuls.grad_bias_V)
    grad_weight_VH, grad_bias_V = (None if one is None else one.to(problem.weight_VH.dtype) for one in gradients)
    return Solution(
        tokens=tokens,
        weights=weights_T,
        kept=int(kept_T.sum()),
        finite=all_finite(problem, tokens, weights_T),
        grad_hidden_TH=matmuls.grad_hidden_TH,
        grad_weight_VH=grad_weight_VH,
        grad_bias_V=grad_bias_V,
    )


@dataclass
class Softmax:
    """R rows after the softmax."""

    tokens: TokenStats
    exps_RV: Tensor  # exp(z - competitor logit), 0 at the gold token
    competitor_prob_R: Tensor  # what they are multiplied by to become probabilities
    slope_RV: Tensor | None  # derivative of the softcap, where there is one

    @classmethod
    def of(cls, problem: Problem, matmuls: Matmuls, logits_RV: Tensor, labels_R: Tensor) -> Softmax:
        """Find statistics of some rows from their logits, which it writes over.

        Each has the form that keeps its digits however sure the model is: with the gap g, and of all other tokens
        total = sum e^s, moment = sum s e^s and squares = sum e^2s, where s = z - competitor logit, and Z = total + e^g

            nll      = log(1 + total e^-g)
            entropy  = log Z - (moment + g e^g) / Z        where g <= 0
                     = nll + (g total - moment) / Z        elsewhere
            gradient = sqrt(squares / Z^2 + (1 - p)^2)     not from sum p^2 - 2p + 1: no digit is left near p = 1
        """
        gold_R1 = labels_R[:, None]
        logits_RV = softcapped(logits_RV, problem.logit_scale, problem.softcap)
        slope_RV = None
        if problem.softcap is not None and problem.wants_gradient:
            slope_RV = 1 - (logits_RV / problem.softcap) ** 2
        gold_R = logits_RV.gather(1, gold_R1).squeeze(1)
        logits_RV.scatter_(1, gold_R1, -torch.inf)
        top_R, competitor_R = logits_RV.max(dim=1)
        gap_R = gold_R - top_R
        rank_R = entropy_R = gradient_norm_R = None
        # beside the logits, which the entropy needs
        exps_RV = matmuls.space("exps", len(logits_RV)) if problem.with_entropy else logits_RV
        if problem.with_rank:  # as floats, which are added faster than truth values, and exactly
            rank_R = (1 + torch.gt(logits_RV, gold_R[:, None], out=exps_RV).sum(dim=1)).int()
        torch.exp(logits_RV.sub_(top_R[:, None]), out=exps_RV)
        total_R = exps_RV.sum(dim=1)
        partition_R = total_R + gap_R.exp()
        # softplus of the log-odds keeps 1-p exact where p rounds to 1
        nll_R = torch.logaddexp(top_R + total_R.log() - gold_R, torch.zeros_like(gold_R))
        if problem.with_entropy:
            moment_R = logits_RV.clamp_(min=-1e4).mul_(exps_RV).sum(dim=1)  # s * e^s is 0 far above, and at -inf
            low_R = gap_R.clamp(max=0)
            unsure_R = partition_R.log() - (moment_R + low_R * low_R.exp()) / partition_R
            sure_R = nll_R + (gap_R * total_R - moment_R) / partition_R
            entropy_R = torch.where(gap_R <= 0, unsure_R, sure_R).float()
        if problem.with_rank:
            squares_R = torch.linalg.vector_norm(exps_RV, dim=1).square()
            gradient_norm_R = (squares_R / partition_R.square() + torch.expm1(-nll_R).square()).sqrt().float()
        facts = (competitor_R, entropy_R, labels_R, rank_R, gradient_norm_R)
        return cls(TokenStats(nll_R.float(), gap_R.float(), gold_R.float(), *facts), exps_RV, 1 / partition_R, slope_RV)


class Matmuls:
    """The three matmuls of a linear head, in float32 (float64 for float64), and the gradients that they add up to."""

    def __init__(self, problem: Problem) -> None:
        hidden_TH, weight_VH = problem.hidden_TH, problem.weight_VH
        self.wide = torch.promote_types(hidden_TH.dtype, torch.float32)
        # cuBLAS multiplies bf16 into float32; elsewhere the operands are widened first
        self.mixed = hidden_TH.is_cuda and hidden_TH.dtype != self.wide
        self.weight_VH = weight_VH if self.mixed else weight_VH.to(self.wide)
        self.bias_V = None if problem.bias_V is None else problem.bias_V.to(self.wide)
        rows = CHUNK_BYTES["cuda" if hidden_TH.is_cuda else "cpu"] // (len(weight_VH) * self.wide.itemsize)
        self.chunk_rows = max(16, min(len(hidden_TH), rows))
        self._spaces: dict[str, Tensor] = {}
        self.grad_hidden_TH = torch.zeros_like(hidden_TH) if problem.wants_hidden else None
        self.grad_weight_VH = torch.zeros_like(weight_VH, dtype=self.wide) if problem.wants_weight else None
        self.grad_bias_V = weight_VH.new_zeros(len(weight_VH), dtype=self.wide) if problem.wants_bias else None

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Return those of a chunk of rows, before scale and softcap; the next call writes over them."""
        if self.mixed:
            logits_RV = torch.mm(hidden_RH, self.weight_VH.T, out_dtype=self.wide)
        else:
            out_RV = self.space("logits", len(hidden_RH))
            logits_RV = torch.mm(hidden_RH.to(self.wide), self.weight_VH.T, out=out_RV)
        return logits_RV if self.bias_V is None else logits_RV.add_(self.bias_V)

    def space(self, name: str, rows: int) -> Tensor:
        """Return room for a chunk, used again by all.

        On a CPU new memory takes longer than the sums, and blocks of changing size leave holes behind.
        """
        if name not in self._spaces:
            self._spaces[name] = self.weight_VH.new_empty((self.chunk_rows, len(self.weight_VH)), dtype=self.wide)
        return self._spaces[name][:rows]

    def add_rows(
        self, problem: Problem, chunk: Softmax, weights_R: Tensor, rows: slice | Tensor, keep_R: Tensor
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
        hidden_KH = problem.hidden_TH[rows][kept]
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
