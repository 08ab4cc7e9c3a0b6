"""Triton kernels of the head: one program looks at one row of logits, or at one block of it.

Raw logits come from a matmul in the input's dtype. At |z| in [16, 32) one bfloat16 step is 0.125, too coarse for
the gap, so the gold and the competitor logit are computed again as float32 dot products, tied candidates
included; everything else only needs the softmax sums, for which the rounded logits serve.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
MAX_TIES = tl.constexpr(8)


@triton.jit
def _transform(raw, logit_scale, softcap, HAS_SOFTCAP: tl.constexpr):
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
def _dot(hidden_row, weight_row, H, BLOCK_H: tl.constexpr):
    """float32 dot product of one hidden state and one row of the head's weight."""
    total = tl.zeros([BLOCK_H], tl.float32)
    for start in range(0, H, BLOCK_H):
        column = start + tl.arange(0, BLOCK_H)
        x = tl.load(hidden_row + column, mask=column < H, other=0.0).to(tl.float32)
        w = tl.load(weight_row + column, mask=column < H, other=0.0).to(tl.float32)
        total += x * w
    return tl.sum(total)


@triton.jit
def row_statistics(
    logits, logits_stride, hidden, weight, bias, labels,
    nll_out, gap_out, gold_out, competitor_out, entropy_out,
    V, H, logit_scale, softcap,
    HAS_BIAS: tl.constexpr, HAS_SOFTCAP: tl.constexpr, WITH_ENTROPY: tl.constexpr,
    LANES: tl.constexpr, WIDTH: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """nll, gap, gold logit, competitor (and entropy) of one row in a single pass over its logits.

    Each of LANES lanes keeps its own running maximum and sum over the vocabulary without the gold token, so the
    loop needs no exchange between threads; WIDTH neighbouring logits share one rescaling of the sum.
    """
    row = tl.program_id(0).to(tl.int64)
    gold = tl.load(labels + row)
    logits_row = logits + row * logits_stride
    inside = tl.arange(0, LANES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]

    top = tl.full([LANES], float("-inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    where_top = tl.zeros([LANES], tl.int32)
    for start in range(0, V, LANES * WIDTH):
        column = start + inside
        raw = tl.load(logits_row + column, mask=column < V, other=0.0).to(tl.float32)
        z = _transform(raw, logit_scale, softcap, HAS_SOFTCAP)
        z = tl.where((column == gold) | (column >= V), float("-inf"), z)
        highest = tl.max(z, axis=1)
        where_top = tl.where(highest > top, start, where_top)
        new_top = tl.maximum(top, highest)
        anchor = tl.where(new_top == float("-inf"), 0.0, new_top)
        decay = _exp(top - anchor)
        shifted = z - anchor[:, None]
        e = _exp(shifted)
        if WITH_ENTROPY:
            moved = tl.where(top == float("-inf"), 0.0, top - anchor)
            moment = (moment + moved * total) * decay
            moment += tl.sum(e * tl.where(z == float("-inf"), 0.0, shifted), axis=1)
        total = total * decay + tl.sum(e, axis=1)
        top = new_top
    rounded = tl.max(top)
    moved = tl.where(top == float("-inf"), 0.0, top - rounded)
    total_row = tl.sum(total * _exp(moved))

    # candidates for the competitor: every lane's own maximum that equals the row's
    column = where_top[:, None] + inside
    raw = tl.load(logits_row + column, mask=column < V, other=0.0).to(tl.float32)
    z = _transform(raw, logit_scale, softcap, HAS_SOFTCAP)
    tied = (z == rounded) & (column != gold) & (column < V)
    ties = tl.minimum(tl.sum(tied.to(tl.int32)), MAX_TIES)

    hidden_row = hidden + row * H
    last = -1
    competitor = 0
    best = -float("inf")
    for _ in range(ties):
        candidate = tl.min(tl.where(tied & (column > last), column, V))
        exact = _dot(hidden_row, weight + candidate.to(tl.int64) * H, H, BLOCK_H)
        if HAS_BIAS:
            exact += tl.load(bias + candidate).to(tl.float32)
        exact = _transform(exact, logit_scale, softcap, HAS_SOFTCAP)
        competitor = tl.where(exact > best, candidate, competitor)
        best = tl.maximum(exact, best)
        last = candidate
    gold_logit = _dot(hidden_row, weight + gold * H, H, BLOCK_H)
    if HAS_BIAS:
        gold_logit += tl.load(bias + gold).to(tl.float32)
    gold_logit = _transform(gold_logit, logit_scale, softcap, HAS_SOFTCAP)

    # the competitor's own term in the sum is exp(0) = 1: put the exact one in its place
    correction = _exp(best - rounded)
    others = total_row - 1 + correction
    log_odds = rounded + tl.log(others) - gold_logit
    # softplus
    nll = tl.maximum(log_odds, 0.0) + _log1p(_exp(-tl.abs(log_odds)))
    # max drops NaN; the sum does not
    nll = tl.where(total_row == total_row, nll, float("nan"))

    tl.store(nll_out + row, nll)
    tl.store(gap_out + row, gold_logit - best)
    tl.store(gold_out + row, gold_logit)
    tl.store(competitor_out + row, competitor.to(tl.int64))
    if WITH_ENTROPY:
        # lse - sum p z, with all logits relative to the rounded competitor
        moment_row = tl.sum((moment + moved * total) * _exp(moved)) + correction * (best - rounded)
        others_mean = _exp(rounded - gold_logit - nll) * (others * (gold_logit - rounded) - moment_row)
        tl.store(entropy_out + row, nll + others_mean)


@triton.jit
def claim_slots(
    weights, nll, gap, slot_out, row_of_slot, ledger, first_row, rows, skip_below, capacity,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Give each row worth a backward pass the next free row of the gradient buffer, in order; -1 to the others.

    `ledger` (float64) adds up over the chunks: rows kept, mass of all rows, mass of skipped rows, rows with a
    statistic or weight that is not finite. One program, so that the order never changes.
    """
    kept = tl.load(ledger)
    mass_all = tl.load(ledger + 1)
    mass_skipped = tl.load(ledger + 2)
    broken = tl.load(ledger + 3)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < rows
        w = tl.load(weights + row, mask=inside, other=0.0)
        row_nll = tl.load(nll + row, mask=inside, other=0.0)
        row_gap = tl.load(gap + row, mask=inside, other=0.0)
        mass = tl.abs(w) * _one_minus_exp(row_nll)
        keep = inside & (mass >= skip_below)
        slot = kept.to(tl.int32) + tl.cumsum(keep.to(tl.int32), axis=0) - 1
        fits = keep & (slot < capacity)
        tl.store(slot_out + row, tl.where(fits, slot, -1), mask=inside)
        tl.store(row_of_slot + slot, (first_row + row).to(tl.int64), mask=fits)
        # x - x is 0 for every finite x, NaN otherwise
        doubtful = (w - w) + (row_nll - row_nll) + (row_gap - row_gap)
        kept += tl.sum(keep.to(tl.float64))
        mass_all += tl.sum(mass.to(tl.float64))
        mass_skipped += tl.sum(tl.where(keep, 0.0, mass).to(tl.float64))
        broken += tl.sum((inside & (doubtful != 0.0)).to(tl.float64))
    tl.store(ledger, kept)
    tl.store(ledger + 1, mass_all)
    tl.store(ledger + 2, mass_skipped)
    tl.store(ledger + 3, broken)


@triton.jit
def logit_gradients(
    logits, logits_stride, out, out_stride, slots,
    labels, nll, gap, gold_logit, competitor, row_scale,
    columns, first_column, logit_scale, softcap,
    HAS_SOFTCAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """row_scale * d(nll)/d(raw logits) of one block of one row, written to the row's slot; nothing if it has none."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    row_nll = tl.load(nll + row)
    gold = tl.load(labels + row) - first_column
    rival = tl.load(competitor + row) - first_column
    gold_z = tl.load(gold_logit + row)
    log_sum = gold_z + row_nll
    rival_z = gold_z - tl.load(gap + row)
    scale = tl.load(row_scale + row)

    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    raw = tl.load(logits + row * logits_stride + column, mask=inside, other=0.0).to(tl.float32)
    z = _transform(raw, logit_scale, softcap, HAS_SOFTCAP)
    z = tl.where(column == rival, rival_z, z)
    gradient = tl.where(column == gold, -_one_minus_exp(row_nll), _exp(z - log_sum)) * (scale * logit_scale)
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
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        index = start.to(tl.int64) + tl.arange(0, BLOCK)
        value = tl.load(tensor + index, mask=index < size).to(tl.float32)
        tl.store(tensor + index, (value * by).to(tensor.dtype.element_ty), mask=index < size)
