"""Triton kernels of the head, and `RowRecords`, which launches them for the rows of one call.

One program looks at one row of logits, or at one block of it. Raw logits come from a matmul in the input's dtype. At
|z| in [16, 32) one bfloat16 step is 0.125, too coarse for the gap, so the gold and the competitor logit are computed
again as float32 dot products, tied candidates included; everything else only needs the softmax sums, for which the
rounded logits serve.

Shapes: T trained tokens, V vocabulary, C rows of a chunk, K rows and S columns of any piece of the logits.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from trimsft.head.problem import Problem, copy_to_host
from trimsft.objectives import PAPER_OBJECTIVES, AutoTrim, TokenStats

LOG2E = tl.constexpr(1.4426950408889634)
MAX_TIES = tl.constexpr(8)


@triton.jit
def transform(raw, logit_scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """softcap * tanh(scale * raw / softcap), or scale * raw."""
    z = raw * logit_scale
    if HAS_SOFTCAP:
        z = softcap * (2 * tl.sigmoid(2 * z / softcap) - 1)
    return z


@triton.jit
def _exp(x):
    return tl.exp2(x * LOG2E)


@triton.jit
def _log1p(x):
    """log(1 + x) for x in [0, 1] as 2 artanh(x / (2 + x)); hardware log loses the digits of a small x."""
    s = x / (2 + x)
    q = s * s
    return 2 * s * (1 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11))))))


@triton.jit
def _one_minus_exp(n):
    """1 - exp(-n) for n >= 0; 1 - p from the nll, without cancellation."""
    series = n * (1 - n / 2 * (1 - n / 3 * (1 - n / 4 * (1 - n / 5 * (1 - n / 6 * (1 - n / 7))))))
    return tl.where(n < 0.35, series, 1 - _exp(-n))


@triton.jit
def _absorb(
    z, start, gold_z, top, total, moment, squares, above, first_top, last_top, to_log2,
    WITH_ENTROPY: tl.constexpr, WITH_RANK: tl.constexpr,
):  # fmt: skip
    """Take a block of logits [LANES, WIDTH] into each lane's maximum, where it was met first and last, and sums."""
    highest = tl.max(z, axis=1)
    first_top = tl.where(highest > top, start, first_top)
    last_top = tl.where(highest >= top, start, last_top)
    new_top = tl.maximum(top, highest)
    anchor = tl.where(new_top == float("-inf"), 0.0, new_top)
    decay = tl.exp2((top - anchor) * to_log2)
    e = tl.exp2(z * to_log2 - (anchor * to_log2)[:, None])
    if WITH_ENTROPY:
        moved = tl.where(top == float("-inf"), 0.0, top - anchor)
        moment = (moment + moved * total) * decay
        moment += tl.sum(e * tl.where(z == float("-inf"), 0.0, z - anchor[:, None]), axis=1)
    if WITH_RANK:
        squares = squares * decay * decay + tl.sum(e * e, axis=1)
        above += tl.sum((z > gold_z).to(tl.int32), axis=1)
    total = total * decay + tl.sum(e, axis=1)
    return new_top, total, moment, squares, above, first_top, last_top


@triton.jit
def _exact_logit(
    hidden_row, weight, bias, token, H, logit_scale, softcap,
    HAS_BIAS: tl.constexpr, HAS_SOFTCAP: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """The logit of one token as a float32 dot product."""
    weight_row = weight + token.to(tl.int64) * H
    total = tl.zeros([BLOCK_H], tl.float32)
    for start in range(0, H, BLOCK_H):
        column = start + tl.arange(0, BLOCK_H)
        x = tl.load(hidden_row + column, mask=column < H, other=0.0).to(tl.float32)
        w = tl.load(weight_row + column, mask=column < H, other=0.0).to(tl.float32)
        total += x * w
    raw = tl.sum(total)
    if HAS_BIAS:
        raw += tl.load(bias + token).to(tl.float32)
    return transform(raw, logit_scale, softcap, HAS_SOFTCAP)


@triton.jit
def _weight(nll, gap, first, second, OBJECTIVE: tl.constexpr):
    """The paper's objectives and AutoTrim, by their names and parameters."""
    if OBJECTIVE == "sft":
        w = nll * 0 + 1
    elif OBJECTIVE == "fsft":
        w = tl.where(first == 0, 1.0, tl.exp2(first * tl.log2(_one_minus_exp(nll))))
    elif OBJECTIVE == "dft":
        w = _exp(-nll)
    elif OBJECTIVE == "auto-trim":
        w = first + (1 - first) * _exp(-nll)
    else:
        distance = gap - first
        if OBJECTIVE == "trim-e":
            distance = tl.minimum(distance, 0.0)
        if OBJECTIVE == "trim-h":
            distance = tl.maximum(distance, 0.0)
        w = _exp(-0.5 * (distance / second) * (distance / second))
    return w


@triton.jit(do_not_specialize=["first_row"])
def row_statistics(
    logits, logits_stride, hidden, weight, bias, labels,
    nll_out, gap_out, gold_out, competitor_out, entropy_out, weights_out, rank_out, norm_out,
    first_row, V, H, logit_scale, softcap, first_parameter, second_parameter,
    HAS_BIAS: tl.constexpr, HAS_SOFTCAP: tl.constexpr, WITH_ENTROPY: tl.constexpr, WITH_RANK: tl.constexpr,
    OBJECTIVE: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Find nll, gap, gold logit, competitor, entropy and weight of one row in a single pass over its logits.

    Each of LANES lanes keeps its own running maximum and sum over the vocabulary without the gold token, so the
    loop needs no exchange between threads; WIDTH neighbouring logits share one rescaling of the sum. Without a
    softcap the loop runs on raw logits, and the scale goes into the exponent. WITH_RANK, which comes with the entropy:
    also the rank of the gold token among the logits as they are rounded, and the norm of the logit gradient.
    """
    row = first_row + tl.program_id(0).to(tl.int64)
    gold = tl.load(labels + row).to(tl.int32)
    logits_row = logits + tl.program_id(0).to(tl.int64) * logits_stride
    inside = tl.arange(0, LANES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    to_log2 = LOG2E if HAS_SOFTCAP else logit_scale * LOG2E
    gold_z = 0.0
    if WITH_RANK:
        gold_z = tl.load(logits_row + gold).to(tl.float32)
        if HAS_SOFTCAP:
            gold_z = transform(gold_z, logit_scale, softcap, HAS_SOFTCAP)
        tl.debug_barrier()
    if not HAS_SOFTCAP:
        # out of the scan with the gold token; nobody reads its raw logit again
        tl.store(logits_row + gold, float("-inf"))
        tl.debug_barrier()

    top = tl.full([LANES], float("-inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    squares = tl.zeros([LANES], tl.float32)
    above = tl.zeros([LANES], tl.int32)
    first_top = tl.zeros([LANES], tl.int32)
    last_top = tl.zeros([LANES], tl.int32)
    whole = V // (LANES * WIDTH) * (LANES * WIDTH)
    for start in tl.range(0, whole, LANES * WIDTH, num_stages=STAGES):
        z = tl.load(logits_row + start + inside).to(tl.float32)
        if HAS_SOFTCAP:
            z = transform(z, logit_scale, softcap, HAS_SOFTCAP)
            z = tl.where(start + inside == gold, float("-inf"), z)
        top, total, moment, squares, above, first_top, last_top = _absorb(
            z, start, gold_z, top, total, moment, squares, above, first_top, last_top, to_log2, WITH_ENTROPY, WITH_RANK
        )
    if whole < V:
        z = tl.load(logits_row + whole + inside, mask=whole + inside < V, other=float("-inf")).to(tl.float32)
        if HAS_SOFTCAP:
            z = transform(z, logit_scale, softcap, HAS_SOFTCAP)
            z = tl.where((whole + inside == gold) | (whole + inside >= V), float("-inf"), z)
        top, total, moment, squares, above, first_top, last_top = _absorb(
            z, whole, gold_z, top, total, moment, squares, above, first_top, last_top, to_log2, WITH_ENTROPY, WITH_RANK
        )
    highest_row = tl.max(top)
    moved = tl.where(top == float("-inf"), 0.0, top - highest_row)
    total_row = tl.sum(total * tl.exp2(moved * to_log2))

    # the competitor is the best, exactly, of those whose rounded logit is highest
    hidden_row = hidden + row * H
    competitor = 0
    best = -float("inf")
    for again in range(2):
        block = first_top if again == 0 else last_top
        wanted = (top == highest_row) & ((again == 0) | (first_top != last_top))
        column = block[:, None] + inside
        z = tl.load(logits_row + column, mask=wanted[:, None] & (column < V), other=float("-inf")).to(tl.float32)
        if HAS_SOFTCAP:
            z = tl.where(column < V, transform(z, logit_scale, softcap, HAS_SOFTCAP), float("-inf"))
        tied = wanted[:, None] & (z == highest_row) & (column != gold) & (column < V)
        last = -1
        for _ in range(tl.minimum(tl.sum(tied.to(tl.int32)), MAX_TIES)):
            last = tl.min(tl.where(tied & (column > last), column, V))
            exact = _exact_logit(
                hidden_row, weight, bias, last, H, logit_scale, softcap, HAS_BIAS, HAS_SOFTCAP, BLOCK_H
            )
            competitor = tl.where(exact > best, last, competitor)
            best = tl.maximum(exact, best)
    gold_logit = _exact_logit(hidden_row, weight, bias, gold, H, logit_scale, softcap, HAS_BIAS, HAS_SOFTCAP, BLOCK_H)

    # the competitor's own term in the sum is exp(0) = 1: put the exact one in its place
    unit = 1.0 if HAS_SOFTCAP else logit_scale
    rounded = highest_row * unit
    correction = _exp(best - rounded)
    others = total_row - 1 + correction
    log_odds = rounded + tl.log(others) - gold_logit
    # softplus
    nll = tl.maximum(log_odds, 0.0) + _log1p(_exp(-tl.abs(log_odds)))

    tl.store(nll_out + row, nll)
    tl.store(gap_out + row, gold_logit - best)
    tl.store(gold_out + row, gold_logit)
    tl.store(competitor_out + row, competitor.to(tl.int64))  # type: ignore[attr-defined]
    if OBJECTIVE != "function":
        w = _weight(nll, gold_logit - best, first_parameter, second_parameter, OBJECTIVE)
        tl.store(weights_out + row, w)
    if WITH_ENTROPY:
        # lse - sum p z, with all logits relative to the rounded competitor
        moment_row = tl.sum((moment + moved * total) * tl.exp2(moved * to_log2)) * unit
        moment_row += correction * (best - rounded)
        lead = gold_logit - rounded
        entropy = nll + _exp(-lead - nll) * (others * lead - moment_row)
        if WITH_RANK:
            # of a token out of reach that would be a small difference of two large numbers
            low = tl.minimum(lead, 0.0)
            partition = others + _exp(low)
            entropy = tl.where(lead <= 0, tl.log(partition) - (moment_row + low * _exp(low)) / partition, entropy)
        tl.store(entropy_out + row, entropy)
    if WITH_RANK:
        # rank and gap are of two roundings of the same logits, and must not contradict each other
        above_row = tl.where(gold_logit >= best, 0, tl.maximum(tl.sum(above), 1))
        tl.store(rank_out + row, 1 + above_row)
        # p of the others is their sum times this factor, and 1 - p of the gold token the sum of them all
        squares_row = tl.sum(squares * tl.exp2(2 * moved * to_log2)) - 1 + correction * correction
        tl.store(norm_out + row, _exp(rounded - gold_logit - nll) * tl.sqrt(squares_row + others * others))


@triton.jit(do_not_specialize=["first_row", "end_row", "capacity"])
def claim_slots(
    weights, nll, gap, slots, row_of_slot, ledger, first_row, end_row, skip_below, capacity,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Number the rows worth a backward pass in order: their slots in the gradient buffer, -1 where it has no room.

    `row_of_slot` lists them all. `ledger` (float64) adds up over the chunks: rows kept, rows with a statistic or
    weight that is not finite, mass of all rows, mass of skipped rows, and the same two for squares of the mass. One
    program, so that the order never changes.
    """
    kept = tl.load(ledger)
    broken = tl.load(ledger + 1)
    mass_all = tl.load(ledger + 2)
    mass_skipped = tl.load(ledger + 3)
    squares_all = tl.load(ledger + 4)
    squares_skipped = tl.load(ledger + 5)
    for start in range(first_row, end_row, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < end_row
        w = tl.load(weights + row, mask=inside, other=0.0)
        row_nll = tl.load(nll + row, mask=inside, other=0.0)
        row_gap = tl.load(gap + row, mask=inside, other=0.0)
        mass = tl.abs(w) * _one_minus_exp(row_nll)
        keep = inside & (mass >= skip_below)
        slot = kept.to(tl.int32) + tl.cumsum(keep.to(tl.int32), axis=0) - 1
        tl.store(slots + row, tl.where(keep & (slot < capacity), slot, -1), mask=inside)
        tl.store(row_of_slot + slot, row.to(tl.int64), mask=keep)
        # x - x is 0 for every finite x, NaN otherwise
        doubtful = (w - w) + (row_nll - row_nll) + (row_gap - row_gap)
        kept += tl.sum(keep.to(tl.float64))
        wide = mass.to(tl.float64)
        skipped = tl.where(keep, 0.0, wide)
        mass_all += tl.sum(wide)
        mass_skipped += tl.sum(skipped)
        squares_all += tl.sum(wide * wide)
        squares_skipped += tl.sum(skipped * skipped)
        broken += tl.sum((inside & (doubtful != 0.0)).to(tl.float64))
    tl.store(ledger, kept)
    tl.store(ledger + 1, broken)
    tl.store(ledger + 2, mass_all)
    tl.store(ledger + 3, mass_skipped)
    tl.store(ledger + 4, squares_all)
    tl.store(ledger + 5, squares_skipped)


@triton.jit(do_not_specialize=["first_row", "columns", "first_column"])
def logit_gradients(
    logits, logits_stride, out, out_stride, slots, weights,
    labels, nll, gap, gold_logit, competitor, normalizer,
    first_row, columns, first_column, logit_scale, softcap,
    HAS_SOFTCAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """w/normalizer * d(nll)/d(raw logits) of one block of one row, written to the row's slot; nothing if it has none.

    `logits` begins with the first row of this launch, everything else with row 0.
    """
    index = tl.program_id(0).to(tl.int64)
    row = first_row + index
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    row_nll = tl.load(nll + row)
    gold = (tl.load(labels + row) - first_column).to(tl.int32)
    rival = (tl.load(competitor + row) - first_column).to(tl.int32)
    gold_z = tl.load(gold_logit + row)
    rival_z = gold_z - tl.load(gap + row)
    scale = tl.load(weights + row) / tl.load(normalizer).to(tl.float32) * logit_scale

    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # rows are padded to 128 bytes; a limit that the compiler knows to be a multiple of 32 keeps the accesses wide
    inside = column < (columns + 31) // 32 * 32
    raw = tl.load(logits + index * logits_stride + column, mask=inside, other=0.0).to(tl.float32)
    raw = tl.where(column < columns, raw, 0.0)
    z = transform(raw, logit_scale, softcap, HAS_SOFTCAP)
    z = tl.where(column == rival, rival_z, z)
    gradient = tl.where(column == gold, -_one_minus_exp(row_nll), _exp(z - (gold_z + row_nll))) * scale
    if HAS_SOFTCAP:
        z = tl.where(column == gold, gold_z, z)
        gradient *= 1 - (z / softcap) * (z / softcap)
    tl.store(out + slot * out_stride + column, gradient.to(out.dtype.element_ty), mask=inside)


@triton.jit
def scale_in_place(tensor, factor, size, BLOCK: tl.constexpr):
    """tensor *= factor; costs next to nothing where the factor is 1."""
    by = tl.load(factor).to(tl.float32)
    if by == 1.0:
        return
    # in 64 bits: near 2**31 elements the step beyond the last block would wrap around
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
        index = start + tl.arange(0, BLOCK)
        value = tl.load(tensor + index, mask=index < size).to(tl.float32)
        tl.store(tensor + index, (value * by).to(tensor.dtype.element_ty), mask=index < size)


@triton.jit
def find_trained(labels, rows_out, counts, size, ignore_index, V, BLOCK: tl.constexpr):
    """Indices of the labels that are not ignored, in order; counts of those, and of those outside the vocabulary."""
    trained = 0
    outside = 0
    for start in range(0, size, BLOCK):
        row = start + tl.arange(0, BLOCK)
        label = tl.load(labels + row, mask=row < size, other=0)
        train = (row < size) & (label != ignore_index)
        place = trained + tl.cumsum(train.to(tl.int32), axis=0) - 1
        tl.store(rows_out + place, row.to(tl.int64), mask=train)
        trained += tl.sum(train.to(tl.int32))
        outside += tl.sum((train & ((label < 0) | (label >= V))).to(tl.int32))
    tl.store(counts, trained)
    tl.store(counts + 1, outside)


# ---- launches

NAMES: dict[type, str] = {**{kind: name for name, kind in PAPER_OBJECTIVES.items()}, AutoTrim: "auto-trim"}
"""Objectives that the kernel `row_statistics` computes itself, as it calls them; any other is a "function"."""


class Ledger(NamedTuple):
    """Counts and sums over the rows so far, in the order in which the kernel `claim_slots` has them."""

    kept: float
    broken: float  # rows with a statistic or weight that is not finite
    mass: float
    mass_skipped: float
    squares: float  # of the mass
    squares_skipped: float
    divisor: float  # the normalizer, read with the others so that it costs no wait of its own

    @property
    def is_sound(self) -> bool:  # every row is finite, and the normalizer a number above 0
        return not self.broken and 0 < self.divisor < float("inf")


@dataclass(frozen=True)
class Rows:
    """Statistics and weights of some rows, and the slot that the gradient of each goes to; -1: none."""

    tokens: TokenStats
    weights: Tensor
    labels: Tensor
    slots: Tensor


class RowRecords:
    """Statistics, weight and slot of each row of a problem, whose tensors must be contiguous."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        labels_T, hidden_TH = problem.labels_T, problem.hidden_TH
        floats_5T = hidden_TH.new_empty((5, len(labels_T)), dtype=torch.float32)
        nll_T, gap_T, gold_logit_T, entropy_T, self.weights_T = floats_5T.unbind()
        self.slots_T = torch.empty_like(labels_T, dtype=torch.int32)
        self.row_of_slot_T = torch.zeros_like(labels_T)
        entropy = entropy_T if problem.with_entropy else None
        rank, norm = (torch.empty_like(one) if problem.with_rank else None for one in (self.slots_T, nll_T))
        self.tokens = TokenStats(nll_T, gap_T, gold_logit_T, torch.empty_like(labels_T), entropy, labels_T, rank, norm)
        self.counts = hidden_TH.new_zeros(len(Ledger._fields), dtype=torch.float64)
        self.counts[-1:] = problem.divisor
        self._objective = NAMES.get(type(problem.objective), "function")
        parameters = () if self._objective == "function" else astuple(problem.objective)  # type: ignore[call-overload]
        first, second, *_ = (*map(float, parameters), 0.0, 0.0)
        # a bandwidth that float32 rounds to 0 would make 0/0 of a gap on the margin
        self._parameters = (first, max(second, torch.finfo(torch.float32).tiny))
        self._normalizer = problem.early_divisor
        self._compiled: dict[Any, Any] = {}

    def find_statistics(self, logits_CV: Tensor, rows: slice) -> None:
        """Find statistics of some rows from their logits, and weights under objectives that the kernel knows."""
        problem, tokens, bias_V = self.problem, self.tokens, self.problem.bias_V
        vocabulary, hidden_size = problem.weight_VH.shape
        self._launch(
            row_statistics, (rows.stop - rows.start, 1, 1),
            logits_CV, logits_CV.stride(0), problem.hidden_TH, problem.weight_VH,
            problem.weight_VH if bias_V is None else bias_V, problem.labels_T,
            tokens.nll, tokens.gap, tokens.gold_logit, tokens.competitor,
            tokens.nll if tokens.entropy is None else tokens.entropy, self.weights_T,
            self.slots_T if tokens.rank is None else tokens.rank,
            self.weights_T if tokens.gradient_norm is None else tokens.gradient_norm,
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
            claim_slots, (1, 1, 1),
            self.weights_T, self.tokens.nll, self.tokens.gap, self.slots_T, self.row_of_slot_T, self.counts,
            rows.start, rows.stop, skip_below, capacity, min(8192, triton.next_power_of_2(block)),
        )  # fmt: skip

    def ledger(self) -> Callable[[], Ledger]:
        """Start to copy the counts so far; the function returned waits for that."""
        numbers = copy_to_host(self.counts)
        return lambda: Ledger(*numbers())

    def rows(self, slots: Tensor, chosen: slice | Tensor = slice(None)) -> Rows:
        """Return some of the rows, by default all, with the slot of each."""
        return Rows(self.tokens[chosen], self.weights_T[chosen], self.problem.labels_T[chosen], slots)

    def logit_gradients(
        self, logits_KS: Tensor, rows: Rows, out: Tensor, *, first_row: int = 0, first_column: int = 0
    ) -> None:
        """Write gradients of K of the rows, from the first one given on, and of S columns into their slots of `out`."""
        problem, tokens = self.problem, rows.tokens
        (count, columns), block = logits_KS.shape, 4096
        self._launch(
            logit_gradients, (count, triton.cdiv(columns, block), 1),
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
