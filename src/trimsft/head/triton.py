"""CUDA: cuBLAS matmuls, Triton row kernels, and a backward pass over the rows that matter only.

With a fraction f of the rows kept there are two ways (one matmul = 2*T*H*V operations):

    buffered    1 + 2f matmuls: logits in chunks of rows; the logit gradients of kept rows are collected in one
                compact buffer, which then feeds a single matmul for each gradient
    recomputed  1 + 3f matmuls: the logits of kept rows are computed again, one slice of the vocabulary at a time,
                so that each slice of the weight's gradient is complete in one matmul, without an accumulator

Rows go through the buffer as long as it has room; `low_memory` does without it. The host waits for the device
twice a call: after the first chunk, to size the buffer, and at the end. The weight's gradient is written last,
and until then its memory holds the logits of a chunk.

Shapes: T trained tokens, C rows of a chunk, B rows of the buffer, K kept rows, S columns of a vocabulary slice.
"""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from trimsft.head import kernels
from trimsft.head.problem import SKIPPED_MASS, Problem, Solution, gradient_mass, rows_to_keep, weigh
from trimsft.objectives import TokenStats

CHUNK_ROWS = 1024
"""Rows of a chunk; up to four times as many where the weight's gradient has room for them."""
SLICE_BYTES = 48 << 20
"""Size of one slice of recomputed logits: about what the L2 cache holds."""
MEMORY_SHARE = 0.5
"""The buffer takes at most this share of the memory that is free."""


def solve(problem: Problem) -> Solution:
    return _Solver(problem).run()


def require_usable(hidden: Tensor) -> None:
    """Raise where the kernels cannot run on such a tensor."""
    if hidden.dtype == torch.float64:
        raise ValueError("backend: 'triton' takes no float64; use 'chunked' or 'reference'")
    if not hidden.is_cuda and not triton.knobs.runtime.interpret:
        raise ValueError(
            f"backend: 'triton' needs CUDA tensors, hidden is on {hidden.device}; use 'chunked' "
            "(or set TRITON_INTERPRET=1 before the first import to run the kernels, slowly, on the CPU)"
        )


def scale_(tensor: Tensor, factor: Tensor) -> None:
    """tensor *= factor (a scalar on the device); one short launch where the factor is 1."""
    if not tensor.is_contiguous():
        tensor.mul_(factor)
        return
    kernels.scale_in_place[(1024,)](tensor, factor, tensor.numel(), BLOCK=4096, num_warps=8)


class _Solver:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.hidden_TH = problem.hidden_TH.contiguous()
        self.weight_VH = problem.weight_VH.contiguous()
        self.T, self.V = len(self.hidden_TH), len(self.weight_VH)
        floats = self.hidden_TH.new_empty((5, self.T), dtype=torch.float32)
        self.tokens = TokenStats(
            nll=floats[0],
            gap=floats[1],
            gold_logit=floats[2],
            competitor=torch.empty_like(problem.labels_T),
            entropy=floats[3] if problem.with_entropy else None,
        )
        self.weights_T = floats[4]
        self.slots_T = torch.empty_like(problem.labels_T, dtype=torch.int32)
        self.row_of_slot_T = torch.empty_like(problem.labels_T)
        # rows kept, mass of all rows, mass of skipped rows, rows that are not finite
        self.ledger = self.hidden_TH.new_zeros(4, dtype=torch.float64)
        self.buffer_BV: Tensor | None = None
        self.grad_hidden_TH = torch.zeros_like(self.hidden_TH) if problem.wants_hidden else None
        self.grad_weight_VH: Tensor | None = None
        self.grad_bias_V = torch.zeros_like(self.weight_VH[:, 0], dtype=torch.float32) if problem.wants_bias else None

    def run(self) -> Solution:
        self._forward()
        kept, mass_all, mass_skipped, broken = self.ledger.tolist()
        if not self.problem.wants_gradient or broken:
            return self._solution(kept=0, finite=not broken)
        buffered = min(int(kept), self._capacity)
        rest = self.row_of_slot_T[:0]
        if kept > buffered or mass_skipped > SKIPPED_MASS * mass_all:
            keep_T = rows_to_keep(gradient_mass(self.tokens, self.weights_T), self.problem.skip_below)
            rest = keep_T.index_fill_(0, self.row_of_slot_T[:buffered], False).nonzero().flatten()
        self._backward(buffered, rest)
        return self._solution(kept=buffered + len(rest), finite=True)

    # ---- forward: statistics, weights, and the logit gradients of the rows that fit the buffer

    def _forward(self) -> None:
        logits_CV = self._chunk_space()
        for start in range(0, self.T, len(logits_CV)):
            rows = slice(start, min(start + len(logits_CV), self.T))
            chunk_CV = logits_CV[: rows.stop - start]
            self._logits(self.hidden_TH[rows], slice(0, self.V), chunk_CV)
            self._statistics(chunk_CV, rows)
            self.weights_T[rows] = weigh(self.problem.objective, self.tokens[rows])
            self._claim_slots(rows)
            if start == 0 and self._wants_buffer and self.buffer_BV is None:
                self.buffer_BV = self._matrix(self._rows_needed(seen=rows.stop))
            if self.buffer_BV is not None:
                self._logit_gradients(chunk_CV, self.buffer_BV, self.slots_T[rows], rows, first_column=0)

    def _chunk_space(self) -> Tensor:
        """Where the logits of a chunk go: the buffer itself, the weight's gradient, or space of their own."""
        problem = self.problem
        if self._wants_buffer and problem.skip_below == 0 and self._rows_that_fit() >= self.T:
            self.buffer_BV = self._matrix(self.T)
            return self.buffer_BV
        if problem.wants_weight:
            stride = _padded(self.V, self.weight_VH)
            rows = min(self.weight_VH.numel() // stride, 4 * CHUNK_ROWS, self.T)
            if rows >= min(CHUNK_ROWS, self.T):
                self.grad_weight_VH = torch.empty_like(self.weight_VH)
                return self.grad_weight_VH.view(-1)[: rows * stride].view(rows, stride)[:, : self.V]
        return self._matrix(min(CHUNK_ROWS, self.T))

    def _logits(self, hidden_KH: Tensor, columns: slice, out_KS: Tensor) -> None:
        """Raw logits of some rows and columns, in the dtype of the hidden states."""
        if self.problem.bias_V is None:
            torch.mm(hidden_KH, self.weight_VH[columns].T, out=out_KS)
        else:
            torch.addmm(self.problem.bias_V[columns], hidden_KH, self.weight_VH[columns].T, out=out_KS)

    def _statistics(self, logits_CV: Tensor, rows: slice) -> None:
        problem, tokens = self.problem, self.tokens[rows]
        kernels.row_statistics[(len(logits_CV),)](
            logits_CV, logits_CV.stride(0), self.hidden_TH[rows], self.weight_VH,
            self.weight_VH if problem.bias_V is None else problem.bias_V, problem.labels_T[rows],
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor,
            tokens.nll if tokens.entropy is None else tokens.entropy,
            self.V, self.hidden_TH.shape[1], problem.logit_scale, problem.softcap or 1.0,
            HAS_BIAS=problem.bias_V is not None, HAS_SOFTCAP=problem.softcap is not None,
            WITH_ENTROPY=problem.with_entropy, LANES=512, WIDTH=8, BLOCK_H=512, num_warps=8,
        )  # fmt: skip

    def _claim_slots(self, rows: slice) -> None:
        kernels.claim_slots[(1,)](
            self.weights_T[rows], self.tokens.nll[rows], self.tokens.gap[rows], self.slots_T[rows],
            self.row_of_slot_T, self.ledger, rows.start, rows.stop - rows.start, self.problem.skip_below,
            self.T if rows.start == 0 and self._wants_buffer else self._capacity, BLOCK=2048, num_warps=8,
        )  # fmt: skip

    def _logit_gradients(
        self, logits_KS: Tensor, out: Tensor, slots_K: Tensor, rows: slice | Tensor, first_column: int
    ) -> None:
        problem, tokens = self.problem, self.tokens[rows]
        columns, block = logits_KS.shape[1], 4096
        kernels.logit_gradients[(len(logits_KS), triton.cdiv(columns, block))](
            logits_KS, logits_KS.stride(0), out, out.stride(0), slots_K, problem.labels_T[rows],
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor,
            problem.row_scales(self.weights_T[rows]), columns, first_column,
            problem.logit_scale, problem.softcap or 1.0,
            HAS_SOFTCAP=problem.softcap is not None, BLOCK=block, num_warps=8,
        )  # fmt: skip

    # ---- the buffer

    @property
    def _wants_buffer(self) -> bool:
        return self.problem.wants_gradient and not self.problem.low_memory

    @property
    def _capacity(self) -> int:
        return 0 if self.buffer_BV is None else len(self.buffer_BV)

    def _rows_needed(self, seen: int) -> int:
        """How many rows the buffer should have, judging by the share of kept rows among those seen so far."""
        kept = int(self.ledger[0].item())
        share = kept / seen
        spread = math.sqrt(share * (1 - share) / seen)
        likely = math.ceil((self.T - seen) * min(1.0, share + 2 * spread))
        return max(kept, min(kept + likely, self._rows_that_fit()))

    def _rows_that_fit(self) -> int:
        if not self.hidden_TH.is_cuda:
            return self.T
        free, _ = torch.cuda.mem_get_info(self.hidden_TH.device)
        cached = torch.cuda.memory_reserved(self.hidden_TH.device)
        cached -= torch.cuda.memory_allocated(self.hidden_TH.device)
        row_bytes = _padded(self.V, self.hidden_TH) * self.hidden_TH.itemsize
        return int(MEMORY_SHARE * (free + cached)) // row_bytes

    def _matrix(self, rows: int) -> Tensor:
        """[rows, V], its rows aligned whatever V is."""
        return self.hidden_TH.new_empty((rows, _padded(self.V, self.hidden_TH)))[:, : self.V]

    # ---- backward: the two gradients

    def _backward(self, buffered: int, rest: Tensor) -> None:
        if self.problem.wants_weight and self.grad_weight_VH is None:
            self.grad_weight_VH = torch.empty_like(self.weight_VH)
        if buffered:
            assert self.buffer_BV is not None
            self._backward_buffered(self.buffer_BV[:buffered], self.row_of_slot_T[:buffered])
        elif self.grad_weight_VH is not None and len(rest) == 0:
            self.grad_weight_VH.zero_()
        if len(rest):
            self.buffer_BV = None
            self._backward_recomputed(rest, onto_buffered=buffered > 0)

    def _backward_buffered(self, grad_KV: Tensor, rows_K: Tensor) -> None:
        everything = len(rows_K) == self.T
        if self.grad_weight_VH is not None:
            hidden_KH = self.hidden_TH if everything else self.hidden_TH[rows_K]
            torch.mm(grad_KV.T, hidden_KH, out=self.grad_weight_VH)
        if self.grad_hidden_TH is not None and everything:
            torch.mm(grad_KV, self.weight_VH, out=self.grad_hidden_TH)
        elif self.grad_hidden_TH is not None:
            self.grad_hidden_TH.index_copy_(0, rows_K, torch.mm(grad_KV, self.weight_VH))
        if self.grad_bias_V is not None:
            self.grad_bias_V += grad_KV.sum(dim=0, dtype=torch.float32)

    def _backward_recomputed(self, rows_K: Tensor, onto_buffered: bool) -> None:
        hidden_KH = self.hidden_TH[rows_K]
        in_place = torch.arange(len(rows_K), dtype=torch.int32, device=rows_K.device)
        sum_KH = torch.zeros_like(hidden_KH, dtype=torch.float32)
        width = _slice_width(self.V, len(rows_K) * self.hidden_TH.itemsize)
        space = self.hidden_TH.new_empty(len(rows_K) * width)
        for start in range(0, self.V, width):
            columns = slice(start, min(start + width, self.V))
            grad_KS = space.view(len(rows_K), width)[:, : columns.stop - start]
            self._logits(hidden_KH, columns, grad_KS)
            self._logit_gradients(grad_KS, grad_KS, in_place, rows_K, first_column=start)
            if self.grad_weight_VH is not None:
                out = self.grad_weight_VH[columns]
                torch.addmm(out, grad_KS.T, hidden_KH, beta=float(onto_buffered), out=out)
            if self.grad_hidden_TH is not None:
                _add_matmul(sum_KH, grad_KS, self.weight_VH[columns])
            if self.grad_bias_V is not None:
                self.grad_bias_V[columns] += grad_KS.sum(dim=0, dtype=torch.float32)
        if self.grad_hidden_TH is not None:
            self.grad_hidden_TH.index_copy_(0, rows_K, sum_KH.to(self.grad_hidden_TH.dtype))

    def _solution(self, kept: int, finite: bool) -> Solution:
        return Solution(
            tokens=self.tokens,
            weights=self.weights_T,
            kept=kept,
            finite=finite,
            grad_hidden_TH=self.grad_hidden_TH,
            grad_weight_VH=self.grad_weight_VH,
            grad_bias_V=None if self.grad_bias_V is None else self.grad_bias_V.to(self.weight_VH.dtype),
        )


def _padded(columns: int, like: Tensor) -> int:
    """The row stride at which every row of a matrix starts on a 128-byte line."""
    line = 128 // like.itemsize
    return triton.cdiv(columns, line) * line


def _slice_width(columns: int, column_bytes: int) -> int:
    """Split the vocabulary into slices of about SLICE_BYTES, as even as alignment allows."""
    widest = max(1024, SLICE_BYTES // column_bytes)
    return triton.cdiv(triton.cdiv(columns, triton.cdiv(columns, widest)), 128) * 128


def _add_matmul(sum_KH: Tensor, a_KS: Tensor, b_SH: Tensor) -> None:
    """sum += a @ b, added up in float32."""
    if a_KS.is_cuda and a_KS.dtype != torch.float32:
        torch.addmm(sum_KH, a_KS, b_SH, out_dtype=torch.float32, out=sum_KH)
    else:
        sum_KH.addmm_(a_KS.float(), b_SH.float())
