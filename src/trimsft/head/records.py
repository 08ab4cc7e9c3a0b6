"""Launches of the Triton kernels: the records of the rows in one call of the head, and how they are made.

Shapes: T trained tokens, V vocabulary, C rows of a chunk, K rows and S columns of any piece of the logits.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from trimsft.head import kernels
from trimsft.head.problem import Problem, copy_to_host
from trimsft.objectives import PAPER_OBJECTIVES, AutoTrim, Objective, TokenStats


def find_trained(labels_N: Tensor, ignore_index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return indices of the labels that are not ignored, their number, and that of those outside the vocabulary."""
    rows_N = torch.empty_like(labels_N)
    counts = torch.empty(2, dtype=torch.int32, device=labels_N.device)
    with torch.cuda.device_of(labels_N):
        kernels.find_trained[(1,)](
            labels_N, rows_N, counts, len(labels_N), ignore_index, vocabulary, BLOCK=4096, num_warps=8
        )
    return rows_N, counts


def scale_(tensor: Tensor, factor: Tensor) -> None:
    """Multiply a tensor by a scalar on the device; one short launch where that is 1."""
    with torch.cuda.device_of(tensor):
        kernels.scale_in_place[(1024,)](tensor, factor, tensor.numel(), BLOCK=4096, num_warps=8)


@dataclass(frozen=True)
class Rows:
    """Statistics and weights of some rows, and the slot that the gradient of each goes to; -1: none."""

    tokens: TokenStats
    weights: Tensor
    labels: Tensor
    slots: Tensor


class Ledger(NamedTuple):
    """Counts and sums over the rows so far, in the order in which the kernel `claim_slots` has them."""

    kept: float
    broken: float  # rows with a statistic or weight that is not finite
    mass: float
    mass_skipped: float
    squares: float  # of the mass
    squares_skipped: float
    divisor: float
    """Normalizer, read with the others so that it costs no wait of its own to learn whether it is 0."""

    @property
    def masses(self) -> tuple[float, float, float, float]:
        """Return the sums in the order of `too_much_skipped`."""
        return self.mass, self.mass_skipped, self.squares, self.squares_skipped

    @property
    def is_sound(self) -> bool:
        """Return whether every row is finite, and the normalizer a number above 0."""
        return not self.broken and 0 < self.divisor < float("inf")


class RowRecords:
    """Statistics, weight and slot of each row of a problem, whose tensors must be contiguous."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        labels_T, hidden_TH = problem.labels_T, problem.hidden_TH
        floats_5T = hidden_TH.new_empty((5, len(labels_T)), dtype=torch.float32)
        self.tokens = TokenStats(
            nll=floats_5T[0],
            gap=floats_5T[1],
            gold_logit=floats_5T[2],
            competitor=torch.empty_like(labels_T),
            entropy=floats_5T[3] if problem.with_entropy else None,
            gold=labels_T,
        )
        self.weights_T = floats_5T[4]
        self.slots_T = torch.empty_like(labels_T, dtype=torch.int32)
        self.row_of_slot_T = torch.zeros_like(labels_T)
        self._ledger = hidden_TH.new_zeros(len(Ledger._fields), dtype=torch.float64)
        self._ledger[-1:] = problem.divisor
        self._objective, self._parameters = _as_kernel(problem.objective)
        self.rank_and_norm = (self.slots_T, self.weights_T)  # written where the problem asks for them
        if problem.with_rank:
            self.rank_and_norm = (torch.empty_like(self.slots_T), torch.empty_like(self.weights_T))
        self._normalizer = problem.early_divisor
        self._compiled: dict[Any, Any] = {}

    def find_statistics(self, logits_CV: Tensor, rows: slice) -> None:
        """Find statistics of some rows from their logits, and weights under objectives that the kernel knows."""
        problem, tokens, bias_V = self.problem, self.tokens, self.problem.bias_V
        vocabulary, hidden_size = problem.weight_VH.shape
        self._launch(
            kernels.row_statistics, (rows.stop - rows.start, 1, 1),
            logits_CV, logits_CV.stride(0), problem.hidden_TH, problem.weight_VH,
            problem.weight_VH if bias_V is None else bias_V, problem.labels_T,
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor,
            tokens.nll if tokens.entropy is None else tokens.entropy, self.weights_T,
            *self.rank_and_norm,
            rows.start, vocabulary, hidden_size, problem.logit_scale, problem.softcap or 1.0, *self._parameters,
            bias_V is not None, problem.softcap is not None, problem.with_entropy, problem.with_rank,
            self._objective, 256, 8, 512, 4,
        )  # fmt: skip

    def weigh(self, rows: slice) -> None:
        """Find weights under any other objective, and multiply by those that were given; once for each row."""
        if self._objective == "function":
            self.weights_T[rows] = self.problem.weights_of(self.tokens[rows], rows)
        elif self.problem.token_weights_T is not None:
            self.weights_T[rows] *= self.problem.token_weights_T[rows]

    def claim_slots(self, rows: slice, skip_below: float, capacity: int, block: int) -> None:
        """Number the rows worth a backward pass, after those of earlier calls, and count them in the ledger."""
        self._launch(
            kernels.claim_slots, (1, 1, 1),
            self.weights_T, self.tokens.nll, self.tokens.gap, self.slots_T, self.row_of_slot_T, self._ledger,
            rows.start, rows.stop, skip_below, capacity, min(8192, triton.next_power_of_2(block)),
        )  # fmt: skip

    def ledger(self) -> Callable[[], Ledger]:
        """Start to copy the counts so far; the function returned waits for that."""
        numbers = copy_to_host(self._ledger)
        return lambda: Ledger(*numbers())

    def forget_slots(self) -> None:
        """Count from the first row on again."""
        self._ledger[:-1].zero_()

    def picked(self, rows_K: Tensor) -> Rows:
        """Return some rows, each with a slot of its own."""
        places_K = torch.arange(len(rows_K), dtype=torch.int32, device=rows_K.device)
        return Rows(self.tokens[rows_K], self.weights_T[rows_K], self.problem.labels_T[rows_K], places_K)

    def all(self, slots_T: Tensor) -> Rows:
        return Rows(self.tokens, self.weights_T, self.problem.labels_T, slots_T)

    def logit_gradients(
        self, logits_KS: Tensor, rows: Rows, out: Tensor, *, first_row: int = 0, first_column: int = 0
    ) -> None:
        """Write gradients of K of the rows, from the first one given on, and of S columns into their slots of `out`."""
        problem, tokens = self.problem, rows.tokens
        (count, columns), block = logits_KS.shape, 4096
        self._launch(
            kernels.logit_gradients, (count, triton.cdiv(columns, block), 1),
            logits_KS, logits_KS.stride(0), out, out.stride(0), rows.slots, rows.weights, rows.labels,
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor, self._normalizer,
            first_row, columns, first_column, problem.logit_scale, problem.softcap or 1.0,
            problem.softcap is not None, block,
        )  # fmt: skip

    def _launch(self, kernel: Any, grid: tuple[int, int, int], *arguments: Any) -> None:
        """Launch a kernel of 8 warps.

        Only the first launch of a call goes through Triton's slow lookup: the later ones differ in nothing it looks at
        (integers that vary are marked `do_not_specialize`).
        """
        compiled = self._compiled.get(kernel)
        if compiled is None:
            self._compiled[kernel] = kernel[grid](*arguments, num_warps=8)
        else:
            compiled[grid](*arguments)


def _as_kernel(objective: Objective) -> tuple[str, tuple[float, float]]:
    """Return name and parameters of an objective that the kernel computes itself; "function" for any other."""
    for name, kind in {**PAPER_OBJECTIVES, "auto-trim": AutoTrim}.items():
        if type(objective) is kind:
            first, second, *_ = (*map(float, astuple(objective)), 0.0, 0.0)
            # a bandwidth that float32 rounds to 0 would make 0/0 of a gap on the margin
            return name, (first, max(second, torch.finfo(torch.float32).tiny))
    return "function", (0.0, 0.0)
