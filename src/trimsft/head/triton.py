"""CUDA: cuBLAS matmuls, Triton row kernels, and a backward pass over the rows that matter only.

With a fraction f of the rows kept there are two ways (one matmul = 2*T*H*V operations):

    buffered    1 + 2f matmuls: logits in chunks of rows; the logit gradients of kept rows are collected in one
                compact buffer, which then feeds a single matmul for each gradient
    recomputed  1 + 3f matmuls: the logits of kept rows are computed again, one slice of the vocabulary at a time,
                so that each slice of the weight's gradient is complete in one matmul, without an accumulator

Rows go through the buffer as long as it has room, which `memory.py` measures out; `low_memory` does without it. Where
nothing is skipped and the buffer has no room for all, `parts.py` computes one part after the other. The host asks the
device twice a call: after the first chunk, how many rows are kept, which sizes the buffer and says whether skipping
pays at all; and after the last. Both times the device has work in the meantime: the logits of the second chunk, the
logit gradients of the last. The weight's gradient is written last; until then its memory holds the logits of a chunk.

Shapes: T trained tokens, C rows of a chunk, B rows of the buffer, K kept rows, S columns of a vocabulary slice.
"""

import math
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import torch
import triton
from torch import Tensor

from trimsft.head import kernels
from trimsft.head.memory import room_for_logit_gradients
from trimsft.head.problem import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    SLICE_BYTES,
    BackendUnavailable,
    Problem,
    Solution,
    copy_to_host,
    gradient_mass,
    rows_to_keep,
    threshold_for,
    too_much_skipped,
    weigh,
)
from trimsft.objectives import PAPER_OBJECTIVES, AutoTrim, Objective, TokenStats

# what a Hopper chip does in practice; on slower ones skipping pays sooner
MATMUL_RATE = 6e14  # operations a second
MEMORY_RATE = 3e12  # bytes a second
SORTING_SECONDS = 1e-4  # of the host and of small kernels, beside copying kept rows


def solve(problem: Problem) -> Solution:
    from trimsft.head.parts import InParts, rows_of_a_part

    if problem.low_memory is None and problem.wants_gradient:
        room = room_for_logit_gradients(problem.hidden_TH, problem.weight_VH, problem.wants_weight)
        problem = replace(problem, buffer_bytes=room)
    in_parts = problem.skip_below == 0 and rows_of_a_part(problem) < len(problem.hidden_TH)
    # Triton launches on the current device, whichever the tensors are on
    with torch.cuda.device_of(problem.hidden_TH):
        try:
            return (InParts if in_parts else _Solver)(problem).run()
        except torch.OutOfMemoryError:
            if problem.low_memory:
                raise
        # out of the handler, whose traceback holds the memory
        return _Solver(replace(problem, low_memory=True)).run()


def require_usable(hidden: Tensor) -> None:
    """Raise where the kernels cannot run on such a tensor."""
    if hidden.dtype == torch.float64:
        raise BackendUnavailable("backend: 'triton' takes no float64; use 'chunked' or 'reference'")
    if not hidden.is_cuda and not triton.knobs.runtime.interpret:
        raise BackendUnavailable(
            f"backend: 'triton' needs CUDA tensors, hidden is on {hidden.device}; use 'chunked' "
            "(or set TRITON_INTERPRET=1 before the first import to run the kernels, slowly, on the CPU)"
        )


def find_trained(labels_N: Tensor, ignore_index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Indices of the labels that are not ignored; how many these are, and how many of them outside the vocabulary."""
    rows_N = torch.empty_like(labels_N)
    counts = torch.empty(2, dtype=torch.int32, device=labels_N.device)
    with torch.cuda.device_of(labels_N):
        kernels.find_trained[(1,)](
            labels_N, rows_N, counts, len(labels_N), ignore_index, vocabulary, BLOCK=4096, num_warps=8
        )
    return rows_N, counts


def scale_(tensor: Tensor, factor: Tensor) -> None:
    """tensor *= factor (a scalar on the device); one short launch where the factor is 1."""
    with torch.cuda.device_of(tensor):
        kernels.scale_in_place[(1024,)](tensor, factor, tensor.numel(), BLOCK=4096, num_warps=8)


class _Solver:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.hidden_TH = problem.hidden_TH.contiguous()
        self.weight_VH = problem.weight_VH.contiguous()
        self.labels_T = problem.labels_T.contiguous()
        self.bias_V = None if problem.bias_V is None else problem.bias_V.contiguous()
        self.T, self.V = self.hidden_TH.shape[0], self.weight_VH.shape[0]
        self.buffer_BV: Tensor | None = None
        self.grad_hidden_TH: Tensor | None = None
        self.grad_weight_VH: Tensor | None = None
        self.grad_bias_V: Tensor | None = None
        self.compiled: dict[Any, Any] = {}
        # the first matmul starts before everything else is made ready
        self.space_CV = self._chunk_space()
        self.chunk_rows = self.space_CV.shape[0]
        self.chunks = self._cut_into_chunks()
        self._chunk_logits(0)

        floats_5T = self.hidden_TH.new_empty((5, self.T), dtype=torch.float32)
        self.tokens = TokenStats(
            nll=floats_5T[0],
            gap=floats_5T[1],
            gold_logit=floats_5T[2],
            competitor=torch.empty_like(self.labels_T),
            entropy=floats_5T[3] if problem.with_entropy else None,
            gold=self.labels_T,
            reference=problem.reference_T,
        )
        self.weights_T = floats_5T[4]
        self.slots_T = torch.empty_like(self.labels_T, dtype=torch.int32)
        self.row_of_slot_T = torch.zeros_like(self.labels_T)
        # rows kept, rows that are not finite, mass of all rows and of skipped ones, the same of squares; and the
        # normalizer: read with them, it costs no wait for the device to learn whether it is 0
        self.ledger = self.hidden_TH.new_zeros(7, dtype=torch.float64)
        self.ledger[6:] = problem.divisor
        self.objective, self.parameters = _as_kernel(problem.objective)
        self.gates_T = self.exponent = self.weights_T
        if isinstance(problem.objective, AutoTrim):
            self.gates_T = problem.objective.gates(self.weights_T, self.labels_T).contiguous()
            self.exponent = problem.objective.exponent_now(self.weights_T)
        self.skip_below = problem.skip_below
        self.normalizer = problem.early_divisor

    def run(self) -> Solution:
        ledger = self._forward()
        if not self.problem.wants_gradient:
            return self._solution(kept=0, finite=_is_sound(ledger()))
        # what the backward pass needs in any case is made ready while the device is still at the forward pass
        if self.problem.wants_weight and self.grad_weight_VH is None:
            self.grad_weight_VH = torch.empty_like(self.weight_VH)
        slots = self.row_of_slot_T[: self._capacity]
        copy_rows = self.problem.wants_weight and not self._is_exact
        hidden_BH = self.hidden_TH[slots] if copy_rows else self.hidden_TH
        if self._is_exact:
            self._backward(self.T, hidden_BH, rest=slots[:0])
            return self._solution(kept=self.T, finite=_is_sound(ledger()))
        kept, _, *masses, _ = sums = ledger()
        if not _is_sound(sums):
            return self._solution(kept=0, finite=False)
        buffered = min(int(kept), self._capacity)
        rest = self.row_of_slot_T[buffered : int(kept)]
        if too_much_skipped(masses):
            keep_T = rows_to_keep(gradient_mass(self.tokens, self.weights_T), self.problem.skip_below)
            rest = keep_T.index_fill_(0, slots[:buffered], False).nonzero().flatten()
        self._backward(buffered, hidden_BH, rest)
        return self._solution(kept=buffered + rest.shape[0], finite=True)

    _copy_to_host = staticmethod(copy_to_host)

    # ---- forward: statistics, weights, and the logit gradients of the rows that fit the buffer

    def _forward(self) -> Callable[[], list[float]]:
        """What is returned waits for the ledger."""
        ledger = None
        for number, rows in enumerate(self.chunks):
            logits_CV = self._space_of(number) if number < self.launched else self._chunk_logits(number)
            self._statistics(logits_CV, rows)
            if self._wants_buffer:
                self._weigh(rows)
                self._claim_slots(rows)
                if number == 0 and self.buffer_BV is None:
                    counts = self._copy_to_host(self.ledger)
                    if self.chunks[-1].start and self.chunks[1].start < self.chunk_rows:
                        self._chunk_logits(1)
                    self._make_buffer(seen=rows.stop, counts=counts())
                if number + 1 == len(self.chunks):
                    ledger = self._copy_to_host(self.ledger)
            if self.buffer_BV is not None:
                self._logit_gradients(
                    logits_CV, self.buffer_BV, self.slots_T, self.weights_T, self.tokens, self.labels_T, rows.start
                )
        if ledger is None:
            self._weigh(slice(0, self.T))
            self._claim_slots(slice(0, self.T))
            ledger = self._copy_to_host(self.ledger)
        del self.space_CV
        return ledger

    def _cut_into_chunks(self) -> list[slice]:
        """Of several the first two share the space: the second is under way while the host learns of the first."""
        stops = list(range(self.chunk_rows, self.T, self.chunk_rows))
        if stops and self._wants_buffer and self.problem.skip_below > 0:
            stops = [self.chunk_rows // 2, *stops]
        return [slice(start, stop) for start, stop in zip([0, *stops], [*stops, self.T], strict=True)]

    def _space_of(self, number: int) -> Tensor:
        """Where the logits of a chunk go."""
        rows = self.chunks[number]
        first = rows.start if rows.start < self.chunk_rows else 0
        return self.space_CV[first : first + rows.stop - rows.start]

    def _chunk_logits(self, number: int) -> Tensor:
        logits_CV = self._space_of(number)
        self._logits(self.hidden_TH[self.chunks[number]], slice(0, self.V), logits_CV)
        self.launched = number + 1
        return logits_CV

    def _chunk_space(self) -> Tensor:
        """Where the logits of a chunk go: the buffer itself, the weight's gradient, or space of their own."""
        problem = self.problem
        if self._wants_buffer and problem.skip_below == 0:
            self.buffer_BV = self._allocate(self.T, least=self.T)
            if self.buffer_BV is not None:
                return self.buffer_BV
        stride = _padded(self.V, self.weight_VH)
        least_bytes = CHUNK_BYTES if self._wants_buffer else 3 * CHUNK_BYTES // 2
        rows = min(max(CHUNK_ROWS, least_bytes // (stride * self.weight_VH.itemsize)), self.T)
        if problem.wants_weight and self.weight_VH.numel() >= rows * stride:
            self.grad_weight_VH = torch.empty_like(self.weight_VH)
            return self.grad_weight_VH.view(-1)[: rows * stride].view(rows, stride)[:, : self.V]
        return self._matrix(rows)

    def _logits(self, hidden_KH: Tensor, columns: slice, out_KS: Tensor) -> None:
        """Raw logits of some rows and columns, in the dtype of the hidden states."""
        if self.bias_V is None:
            torch.mm(hidden_KH, self.weight_VH[columns].T, out=out_KS)
        else:
            torch.addmm(self.bias_V[columns], hidden_KH, self.weight_VH[columns].T, out=out_KS)

    def _statistics(self, logits_CV: Tensor, rows: slice) -> None:
        problem, tokens = self.problem, self.tokens
        self._launch(
            kernels.row_statistics, (rows.stop - rows.start, 1, 1),
            logits_CV, logits_CV.stride(0), self.hidden_TH, self.weight_VH,
            self.weight_VH if self.bias_V is None else self.bias_V, self.labels_T, self.gates_T, self.exponent,
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor,
            tokens.nll if tokens.entropy is None else tokens.entropy, self.weights_T,
            rows.start, self.V, self.hidden_TH.shape[1], problem.logit_scale, problem.softcap or 1.0, *self.parameters,
            self.bias_V is not None, problem.softcap is not None, problem.with_entropy, self.objective,
            256, 8, 512, 4,
        )  # fmt: skip

    def _weigh(self, rows: slice) -> None:
        if self.objective == "function":
            self.weights_T[rows] = weigh(self.problem.objective, self.tokens[rows])

    def _claim_slots(self, rows: slice) -> None:
        # before the buffer exists, every row of the first chunk gets a slot: the buffer will have room for those
        capacity = self.T if rows.start == 0 and self._wants_buffer else self._capacity
        self._launch(
            kernels.claim_slots, (1, 1, 1),
            self.weights_T, self.tokens.nll, self.tokens.gap, self.slots_T, self.row_of_slot_T, self.ledger,
            rows.start, rows.stop, self.skip_below, capacity,
            min(8192, triton.next_power_of_2(self.chunk_rows)),
        )  # fmt: skip

    def _logit_gradients(
        self, logits_KS: Tensor, out: Tensor, slots: Tensor, weights: Tensor,
        tokens: TokenStats, labels: Tensor, first_row: int, first_column: int = 0,
    ) -> None:  # fmt: skip
        problem = self.problem
        (rows, columns), block = logits_KS.shape, 4096
        self._launch(
            kernels.logit_gradients, (rows, triton.cdiv(columns, block), 1),
            logits_KS, logits_KS.stride(0), out, out.stride(0), slots, weights, labels,
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor, self.normalizer,
            first_row, columns, first_column, problem.logit_scale, problem.softcap or 1.0,
            problem.softcap is not None, block,
        )  # fmt: skip

    def _launch(self, kernel: Any, grid: tuple[int, int, int], *arguments: Any) -> None:
        """Launch a kernel of 8 warps. Only the first launch of a call goes through Triton's slow lookup: the later
        ones differ in nothing it looks at (integers that vary are marked `do_not_specialize`)."""
        compiled = self.compiled.get(kernel)
        if compiled is None:
            self.compiled[kernel] = kernel[grid](*arguments, num_warps=8)
        else:
            compiled[grid](*arguments)

    # ---- the buffer

    @property
    def _wants_buffer(self) -> bool:
        return self.problem.wants_gradient and not self.problem.low_memory

    @property
    def _is_exact(self) -> bool:
        """Every row is kept and in the buffer: no need to ask the device before the backward pass."""
        return self.skip_below == 0 and self._capacity == self.T

    @property
    def _capacity(self) -> int:
        return 0 if self.buffer_BV is None else self.buffer_BV.shape[0]

    def _make_buffer(self, seen: int, counts: list[float]) -> None:
        """Size the buffer by the share of kept rows in the first chunk, and room for chance."""
        counted, _, *masses, _ = counts
        kept, unseen = int(counted), self.T - seen
        # where more rows follow, room for chance; without it the rows missing at the end would be computed again
        if too_much_skipped(masses, slack=0.8 if unseen else 1.0):
            # small rows are so many that they matter: keep more of the first chunk, and of the others
            mass_C = gradient_mass(self.tokens[:seen], self.weights_T[:seen])
            self.skip_below = min(self.skip_below, threshold_for(mass_C, slack=0.5 if unseen else 1.0))
            kept = self._claim_again(seen)
        share = (kept + 1) / (seen + 2)
        if not self._skipping_pays(share):
            self.buffer_BV = self._allocate(self.T, least=self.T)
            if self.buffer_BV is not None:
                self.skip_below = 0.0
                self._claim_again(seen)
                return
        spread = math.sqrt(share * (1 - share) * (1 / seen + 1 / max(1, unseen)))
        likely = math.ceil(unseen * min(1.0, share + 2.5 * spread))
        self.buffer_BV = self._allocate(kept + likely, least=kept)

    def _skipping_pays(self, share: float) -> bool:
        """Whether leaving rows out saves more than sorting them costs, if this share of them is kept."""
        matmul = 2 * self.T * self.V * self.hidden_TH.shape[1] / MATMUL_RATE
        sorting = SORTING_SECONDS + 8 * self.hidden_TH.nbytes / MEMORY_RATE
        return 2 * (1 - share) * matmul > sorting

    def _claim_again(self, seen: int) -> int:
        """How many of the rows seen are kept with the threshold as it is now."""
        self.ledger[:6].zero_()
        self._claim_slots(slice(0, seen))
        return seen if self.skip_below == 0 else int(self.ledger[0])

    def _allocate(self, rows: int, least: int) -> Tensor | None:
        """Space for the logits of that many rows, or for as many as fit; None if that is fewer than `least`."""
        if self.problem.buffer_bytes is not None:
            rows = min(rows, self.problem.buffer_bytes // (_padded(self.V, self.hidden_TH) * self.hidden_TH.itemsize))
        while rows >= least:
            try:
                return self._matrix(rows)
            except torch.OutOfMemoryError:
                rows //= 2
        return None

    def _matrix(self, rows: int) -> Tensor:
        """[rows, V], its rows aligned whatever V is."""
        return self.hidden_TH.new_empty((rows, _padded(self.V, self.hidden_TH)))[:, : self.V]

    # ---- backward: the two gradients

    def _backward(self, buffered: int, hidden_BH: Tensor, rest: Tensor) -> None:
        """`buffered` rows from the buffer, the `rest` by computing their logits again."""
        if self.problem.wants_bias:
            self.grad_bias_V = self.weight_VH.new_zeros(self.V, dtype=torch.float32)
        if buffered:
            self._backward_buffered(buffered, hidden_BH)
        elif self.grad_weight_VH is not None and rest.shape[0] == 0:
            self.grad_weight_VH.zero_()
        self.buffer_BV = None
        if self.problem.wants_hidden and self.grad_hidden_TH is None:
            self.grad_hidden_TH = torch.zeros_like(self.hidden_TH)
        if rest.shape[0]:
            self._backward_recomputed(rest, onto_buffered=buffered > 0)

    def _backward_buffered(self, kept: int, hidden_BH: Tensor) -> None:
        assert self.buffer_BV is not None
        grad_KV = self.buffer_BV[:kept]
        if self.grad_weight_VH is not None:
            torch.mm(grad_KV.T, hidden_BH[:kept], out=self.grad_weight_VH)
        if self.problem.wants_hidden:
            self.grad_hidden_TH = torch.mm(grad_KV, self.weight_VH)
            if kept < self.T:
                rows_K, grad_hidden_KH = self.row_of_slot_T[:kept], self.grad_hidden_TH
                self.grad_hidden_TH = torch.zeros_like(self.hidden_TH).index_copy_(0, rows_K, grad_hidden_KH)
        if self.grad_bias_V is not None:
            self.grad_bias_V += grad_KV.sum(dim=0, dtype=torch.float32)

    def _backward_recomputed(self, rows_K: Tensor, onto_buffered: bool) -> None:
        hidden_KH, tokens, labels_K = self.hidden_TH[rows_K], self.tokens[rows_K], self.labels_T[rows_K]
        weights_K = self.weights_T[rows_K]
        in_place_K = torch.arange(len(rows_K), dtype=torch.int32, device=rows_K.device)
        sum_KH = torch.zeros_like(hidden_KH, dtype=torch.float32)
        # slices of about SLICE_BYTES, as even as alignment allows
        slices = triton.cdiv(self.V, max(1024, SLICE_BYTES // (len(rows_K) * self.hidden_TH.itemsize)))
        width = triton.cdiv(self.V, slices * 128) * 128
        space_KS = self.hidden_TH.new_empty((len(rows_K), width))
        for start in range(0, self.V, width):
            columns = slice(start, min(start + width, self.V))
            grad_KS = space_KS[:, : columns.stop - start]
            self._logits(hidden_KH, columns, grad_KS)
            self._logit_gradients(grad_KS, grad_KS, in_place_K, weights_K, tokens, labels_K, 0, first_column=start)
            if self.grad_weight_VH is not None:
                out_SH = self.grad_weight_VH[columns]
                torch.addmm(out_SH, grad_KS.T, hidden_KH, beta=float(onto_buffered), out=out_SH)
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


def _is_sound(ledger: list[float]) -> bool:
    """Whether every row is finite, and the normalizer a number above 0."""
    return not ledger[1] and 0 < ledger[6] < math.inf


def _as_kernel(objective: Objective) -> tuple[str, tuple[float, float]]:
    """Name and parameters of an objective that the kernel computes itself; "function" for any other."""
    for name, kind in PAPER_OBJECTIVES.items():
        if type(objective) is kind:
            first, second, *_ = (*map(float, astuple(objective)), 0.0, 0.0)
            # a bandwidth that float32 rounds to 0 would make 0/0 of a gap on the margin
            return name, (first, max(second, torch.finfo(torch.float32).tiny))
    if type(objective) is AutoTrim:
        return "auto-trim", (0.0, 0.0)
    return "function", (0.0, 0.0)


def _padded(columns: int, like: Tensor) -> int:
    """The row stride at which every row of a matrix starts on a 128-byte line."""
    line = 128 // like.itemsize
    return int(triton.cdiv(columns, line)) * line


def _add_matmul(sum_KH: Tensor, a_KS: Tensor, b_SH: Tensor) -> None:
    """sum += a @ b, added up in float32."""
    if a_KS.is_cuda and a_KS.dtype != torch.float32:
        torch.addmm(sum_KH, a_KS, b_SH, out_dtype=torch.float32, out=sum_KH)
    else:
        sum_KH.addmm_(a_KS.float(), b_SH.float())
