"""CUDA: cuBLAS matmuls, Triton row kernels, and a backward pass over the rows that matter only.

With a fraction f of the rows kept there are two ways (one matmul = 2*T*H*V operations):

    buffered    1 + 2f matmuls: logits in chunks of rows; the logit gradients of kept rows are collected in one
                compact buffer, which then feeds a single matmul for each gradient
    recomputed  1 + 3f matmuls: the logits of kept rows are computed again, one slice of the vocabulary at a time,
                so that each slice of the weight's gradient is complete in one matmul, without an accumulator

Rows go through the buffer as long as it has room, which `memory.py` measures out; `low_memory` does without it. Where
little or nothing is skipped and the buffer has no room for it, `InParts` computes one part after the other. The host
asks the device twice a call: after the first chunk, how many rows are kept, which sizes the buffer and says whether
skipping pays at all; and after the last. Both times the device has work in the meantime: the logits of the second
chunk, the logit gradients of the last. The weight's gradient is written last; until then its memory holds the logits of
a chunk.

Shapes: T trained tokens, C rows of a chunk, B rows of the buffer, K kept rows, S columns of a vocabulary slice.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import torch
import triton
from torch import Tensor

from trimsft.head.memory import SLICE_BYTES, padded, room_for_logit_gradients, rows_of_a_chunk, rows_of_a_part
from trimsft.head.problem import Problem, Solution, gradient_mass, rows_to_keep, threshold_for, too_much_skipped
from trimsft.head.triton_kernels import Ledger, RowRecords

# what a Hopper chip does in practice; on slower ones skipping pays sooner
MATMUL_RATE = 6e14  # operations a second
MEMORY_RATE = 3e12  # bytes a second
SORTING_SECONDS = 2e-4  # of the host and of small kernels, beside copying kept rows
CHUNK_SECONDS = 7e-5  # the same of each chunk; measured with 15 to 79 % of the rows kept (docs/performance.md)


def solve(problem: Problem) -> Solution:
    """Solve a problem at once, in parts, or with as little memory as can be, whichever has room."""
    if problem.low_memory is None and problem.wants_gradient:
        problem = replace(problem, buffer_bytes=room_for_logit_gradients(problem))
    in_parts = problem.skip_below == 0 and rows_of_a_part(problem) < len(problem.hidden_TH)
    # Triton launches on the current device, whichever the tensors are on
    with torch.cuda.device_of(problem.hidden_TH):
        try:
            return InParts(problem).run() if in_parts else Solver(problem).run()
        except torch.OutOfMemoryError:
            if problem.low_memory:
                raise
        # out of the handler, whose traceback holds the memory
        return Solver(replace(problem, low_memory=True)).run()


class Solver:
    """One call of the head."""

    def __init__(self, problem: Problem) -> None:
        whole = {name: getattr(problem, name).contiguous() for name in ("hidden_TH", "weight_VH", "labels_T")}
        bias_V = None if problem.bias_V is None else problem.bias_V.contiguous()
        self.problem = problem = replace(problem, bias_V=bias_V, **whole)
        self.hidden_TH, self.weight_VH = problem.hidden_TH, problem.weight_VH
        self.T, self.V = self.hidden_TH.shape[0], self.weight_VH.shape[0]
        self.skip_below = problem.skip_below
        self.wants_buffer = problem.wants_gradient and not problem.low_memory
        self.room = self.T  # how many rows of logits the buffer may hold
        if problem.buffer_bytes is not None:
            self.room = problem.buffer_bytes // (padded(self.V, self.hidden_TH) * self.hidden_TH.itemsize)
        self.buffer_BV: Tensor | None = None
        self.grad_hidden_TH: Tensor | None = None
        self.grad_weight_VH: Tensor | None = None
        # the first matmul starts before everything else is made ready
        self.space_CV = self._chunk_space()
        self.chunk_rows = self.space_CV.shape[0]
        stops = list(range(self.chunk_rows, self.T, self.chunk_rows))
        if stops and self.wants_buffer and problem.skip_below > 0:
            # two share the first space, so that the device works while the host learns of the first
            stops = [self.chunk_rows // 2, *stops]
        self.chunks = [slice(start, stop) for start, stop in zip([0, *stops], [*stops, self.T], strict=True)]
        self.launched = 0  # chunks whose logits are under way
        self._chunk_logits(0)
        self.grad_bias_V = self.weight_VH.new_zeros(self.V, dtype=torch.float32) if problem.wants_bias else None
        self.records = RowRecords(problem)

    def run(self) -> Solution:
        ledger = self._forward()
        if not self.problem.wants_gradient:
            return self._solution(kept=0, finite=ledger().is_sound)
        # what the backward pass needs in any case is made ready while the device is still at the forward pass
        if self.problem.wants_weight and self.grad_weight_VH is None:
            self.grad_weight_VH = torch.empty_like(self.weight_VH)
        slots = self.records.row_of_slot_T[: self._capacity]
        copy_rows = self.problem.wants_weight and not self._is_exact
        hidden_BH = self.hidden_TH[slots] if copy_rows else self.hidden_TH
        if self._is_exact:
            self._backward(self.T, hidden_BH, rest=slots[:0])
            return self._solution(kept=self.T, finite=ledger().is_sound)
        counts = ledger()
        if not counts.is_sound:
            return self._solution(kept=0, finite=False)
        buffered = min(int(counts.kept), self._capacity)
        rest = self.records.row_of_slot_T[buffered : int(counts.kept)]
        if too_much_skipped(counts[2:6]):
            keep_T = rows_to_keep(gradient_mass(self.records.tokens, self.records.weights_T), self.problem.skip_below)
            rest = keep_T.index_fill_(0, slots[:buffered], False).nonzero().flatten()
        self._backward(buffered, hidden_BH, rest)
        return self._solution(kept=buffered + rest.shape[0], finite=True)

    def _forward(self) -> Callable[[], Ledger]:
        """Find statistics, weights, and gradients of rows that fit the buffer; return what waits for the counts."""
        ledger, everything = None, self.records.rows(self.records.slots_T)
        for number in itertools.count():  # the first chunk may change what follows
            rows = self.chunks[number]
            logits_CV = self._space_of(number) if number < self.launched else self._chunk_logits(number)
            self.records.find_statistics(logits_CV, rows)
            if self.wants_buffer:
                self.records.weigh(rows)
                self._claim_slots(rows)
                if number == 0 and self.buffer_BV is None:
                    counts = self.records.ledger()
                    if self.chunks[-1].start and self.chunks[1].start < self.chunk_rows:
                        self._chunk_logits(1)
                    self._make_buffer(seen=rows.stop, counts=counts())
                if rows.stop == self.T:
                    ledger = self.records.ledger()
            if self.buffer_BV is not None:
                self.records.logit_gradients(logits_CV, everything, self.buffer_BV, first_row=rows.start)
            if rows.stop == self.T:
                break
        if ledger is None:
            self.records.weigh(slice(0, self.T))
            self._claim_slots(slice(0, self.T))
            ledger = self.records.ledger()
        del self.space_CV
        return ledger

    def _space_of(self, number: int) -> Tensor:
        """Return the place for the logits of a chunk."""
        rows = self.chunks[number]
        if self.buffer_BV is not None and self._is_exact and number >= self.launched:
            return self.buffer_BV[rows]  # every row has its own place there
        first = rows.start if rows.start < self.chunk_rows else 0
        return self.space_CV[first : first + rows.stop - rows.start]

    def _chunk_logits(self, number: int) -> Tensor:
        """Start to compute the logits of a chunk."""
        logits_CV = self._space_of(number)
        self._logits(self.hidden_TH[self.chunks[number]], slice(0, self.V), logits_CV)
        self.launched = number + 1
        return logits_CV

    def _chunk_space(self) -> Tensor:
        """Return the place for logits of any chunk: the buffer itself, the weight's gradient, or space of their own."""
        problem = self.problem
        if self.wants_buffer and problem.skip_below == 0:
            self.buffer_BV = self._allocate(self.T, least=self.T)
            if self.buffer_BV is not None:
                return self.buffer_BV
        stride = padded(self.V, self.weight_VH)
        at_once = rows_of_a_chunk(stride * self.weight_VH.itemsize, low_memory=not self.wants_buffer)
        rows = min(self.T, at_once)
        if problem.wants_weight and self.weight_VH.numel() >= rows * stride:
            self.grad_weight_VH = torch.empty_like(self.weight_VH)
            return self.grad_weight_VH.view(-1)[: rows * stride].view(rows, stride)[:, : self.V]
        space_CV = self._matrix(rows)
        if self.wants_buffer and problem.skip_below == 0 and rows == self.T:
            self.buffer_BV = space_CV  # all logits are there anyway: no need to compute them again
        return space_CV

    def _logits(self, hidden_KH: Tensor, columns: slice, out_KS: Tensor) -> None:
        """Compute raw logits of some rows and columns, in the dtype of the hidden states."""
        if self.problem.bias_V is None:
            torch.mm(hidden_KH, self.weight_VH[columns].T, out=out_KS)
        else:
            torch.addmm(self.problem.bias_V[columns], hidden_KH, self.weight_VH[columns].T, out=out_KS)

    def _claim_slots(self, rows: slice) -> None:
        # before the buffer exists, every row of the first chunk gets a slot: the buffer will have room for those
        capacity = self.T if rows.start == 0 and self.wants_buffer else self._capacity
        self.records.claim_slots(rows, self.skip_below, capacity, block=self.chunk_rows)

    @property
    def _is_exact(self) -> bool:
        """Return whether every row is kept and in the buffer: then nothing is asked before the backward pass."""
        return self.skip_below == 0 and self._capacity == self.T

    @property
    def _capacity(self) -> int:
        return 0 if self.buffer_BV is None else self.buffer_BV.shape[0]

    def _make_buffer(self, seen: int, counts: Ledger) -> None:
        """Size the buffer by the share of kept rows in the first chunk, and room for chance."""
        kept, unseen = int(counts.kept), self.T - seen
        # where more rows follow, room for chance; without it the rows missing at the end would be computed again
        if too_much_skipped(counts[2:6], slack=0.8 if unseen else 1.0):
            # small rows are so many that they matter: keep more of the first chunk, and of the others
            mass_C = gradient_mass(self.records.tokens[:seen], self.records.weights_T[:seen])
            self.skip_below = min(self.skip_below, threshold_for(mass_C, slack=0.5 if unseen else 1.0))
            kept = self._claim_again(seen)
        share = (kept + 1) / (seen + 2)
        if not self._skipping_pays(share):
            # where the space is not the weight's gradient and holds all logits, they need not move
            stays = unseen == 0 and self.grad_weight_VH is None
            self.buffer_BV = self.space_CV if stays else self._allocate(self.T, least=self.T)
            if self.buffer_BV is not None:
                self.skip_below = 0.0
                self._claim_again(seen)
                self.chunks[self.launched :] = [slice(self.chunks[self.launched - 1].stop, self.T)]
                return
        spread = math.sqrt(share * (1 - share) * (1 / seen + 1 / max(1, unseen)))
        likely = math.ceil(unseen * min(1.0, share + 2.5 * spread))
        self.buffer_BV = self._allocate(kept + likely, least=kept)

    def _skipping_pays(self, share: float) -> bool:
        """Return whether leaving rows out saves more than sorting them costs, if this share of them is kept."""
        matmul = 2 * self.T * self.V * self.hidden_TH.shape[1] / MATMUL_RATE
        sorting = SORTING_SECONDS + CHUNK_SECONDS * len(self.chunks) + 8 * self.hidden_TH.nbytes / MEMORY_RATE
        return 2 * (1 - share) * matmul > sorting

    def _claim_again(self, seen: int) -> int:
        """Return how many of the rows seen are kept with the threshold as it is now."""
        self.records.counts[:-1].zero_()
        self._claim_slots(slice(0, seen))
        return seen if self.skip_below == 0 else int(self.records.ledger()().kept)

    def _allocate(self, rows: int, least: int) -> Tensor | None:
        """Return space for the logits of that many rows, or for as many as fit; None if that is fewer than `least`."""
        rows = min(rows, self.room)
        while rows >= least:
            try:
                return self._matrix(rows)
            except torch.OutOfMemoryError:
                rows //= 2
        return None

    def _matrix(self, rows: int) -> Tensor:
        """Return an empty [rows, V], its rows aligned whatever V is."""
        return self.hidden_TH.new_empty((rows, padded(self.V, self.hidden_TH)))[:, : self.V]

    def _backward(self, buffered: int, hidden_BH: Tensor, rest: Tensor) -> None:
        """Take `buffered` rows from the buffer, and compute the logits of the `rest` again."""
        if buffered:
            assert self.buffer_BV is not None
            grad_KV = self.buffer_BV[:buffered]
            if self.grad_weight_VH is not None:
                torch.mm(grad_KV.T, hidden_BH[:buffered], out=self.grad_weight_VH)
            if self.problem.wants_hidden:
                self.grad_hidden_TH = torch.mm(grad_KV, self.weight_VH)
                if buffered < self.T:
                    rows_K, whole_TH = self.records.row_of_slot_T[:buffered], torch.zeros_like(self.hidden_TH)
                    self.grad_hidden_TH = whole_TH.index_copy_(0, rows_K, self.grad_hidden_TH)
            self._add_to_bias(grad_KV, slice(0, self.V))
            del grad_KV
        elif self.grad_weight_VH is not None and rest.shape[0] == 0:
            self.grad_weight_VH.zero_()
        self.buffer_BV = None
        if self.problem.wants_hidden and self.grad_hidden_TH is None:
            self.grad_hidden_TH = torch.zeros_like(self.hidden_TH)
        if rest.shape[0]:
            self._backward_recomputed(rest, onto_buffered=buffered > 0)

    def _backward_recomputed(self, rows_K: Tensor, onto_buffered: bool) -> None:
        hidden_KH = self.hidden_TH[rows_K]
        places_K = torch.arange(len(rows_K), dtype=torch.int32, device=rows_K.device)
        picked = self.records.rows(places_K, rows_K)
        sum_KH = torch.zeros_like(hidden_KH, dtype=torch.float32)
        # slices of about SLICE_BYTES, as even as alignment allows
        slices = triton.cdiv(self.V, max(1024, SLICE_BYTES // (len(rows_K) * self.hidden_TH.itemsize)))
        width = triton.cdiv(self.V, slices * 128) * 128
        space_KS = self.hidden_TH.new_empty((len(rows_K), width))
        for start in range(0, self.V, width):
            columns = slice(start, min(start + width, self.V))
            grad_KS = space_KS[:, : columns.stop - start]
            self._logits(hidden_KH, columns, grad_KS)
            self.records.logit_gradients(grad_KS, picked, grad_KS, first_column=start)
            if self.grad_weight_VH is not None:
                out_SH = self.grad_weight_VH[columns]
                torch.addmm(out_SH, grad_KS.T, hidden_KH, beta=float(onto_buffered), out=out_SH)
            if self.grad_hidden_TH is not None:
                add_matmul(sum_KH, grad_KS, self.weight_VH[columns])
            self._add_to_bias(grad_KS, columns)
        if self.grad_hidden_TH is not None:
            self.grad_hidden_TH.index_copy_(0, rows_K, sum_KH.to(self.grad_hidden_TH.dtype))

    def _add_to_bias(self, grad_KS: Tensor, columns: slice) -> None:
        if self.grad_bias_V is not None:
            self.grad_bias_V[columns] += grad_KS.sum(dim=0, dtype=torch.float32)

    def _solution(self, kept: int, finite: bool) -> Solution:
        return Solution(
            tokens=self.records.tokens,
            weights=self.records.weights_T,
            kept=kept,
            finite=finite,
            grad_hidden_TH=self.grad_hidden_TH,
            grad_weight_VH=self.grad_weight_VH,
            grad_bias_V=None if self.grad_bias_V is None else self.grad_bias_V.to(self.weight_VH.dtype),
        )


class InParts(Solver):
    """A call that keeps every row, but never the logit gradients of all: part by part, with three matmuls in all.

    What it costs is to add up the weight's gradient in float32.
    """

    def _chunk_space(self) -> Tensor:
        return self._matrix(rows_of_a_part(self.problem))

    def run(self) -> Solution:
        problem, weight_VH = self.problem, self.weight_VH
        places_T = torch.arange(self.T, dtype=torch.int32, device=weight_VH.device) % self.chunk_rows
        everything = self.records.rows(places_T)
        sum_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if problem.wants_weight else None
        if problem.wants_hidden:
            self.grad_hidden_TH = torch.empty_like(self.hidden_TH)
        for number, rows in enumerate(self.chunks):
            grad_CV = self._chunk_logits(number) if number else self._space_of(0)
            self.records.find_statistics(grad_CV, rows)
            self.records.weigh(rows)
            self._claim_slots(rows)  # for what it counts
            if rows.stop == self.T:
                ledger = self.records.ledger()
            self.records.logit_gradients(grad_CV, everything, grad_CV, first_row=rows.start)
            if sum_VH is not None:
                add_matmul(sum_VH, grad_CV.T, self.hidden_TH[rows])
            if self.grad_hidden_TH is not None:
                torch.mm(grad_CV, self.weight_VH, out=self.grad_hidden_TH[rows])
            self._add_to_bias(grad_CV, slice(0, self.V))
        del grad_CV, self.space_CV
        if sum_VH is not None:
            self.grad_weight_VH = sum_VH.to(weight_VH.dtype)
        return self._solution(kept=self.T, finite=ledger().is_sound)


def add_matmul(sum_KH: Tensor, a_KS: Tensor, b_SH: Tensor) -> None:
    """Add a @ b to a sum in float32."""
    if a_KS.is_cuda and a_KS.dtype != torch.float32:
        torch.addmm(sum_KH, a_KS, b_SH, out_dtype=torch.float32, out=sum_KH)
    else:
        sum_KH.addmm_(a_KS.float(), b_SH.float())
