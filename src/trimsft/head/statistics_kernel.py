"""The Triton kernel behind `trimsft.head.statistics`: one program reads one row of float32 logits, once."""

from __future__ import annotations

import triton
import triton.language as tl

from trimsft.head.kernels import LOG2E, transform

FLOOR = tl.constexpr(-1e4)


@triton.jit
def _absorb(z, column, start, gold, gold_logit, top, first_top, above, total, moment, squares):
    """One more block of logits [LANES, WIDTH] into each lane's maximum, where it was met first, count and sums."""
    z = tl.where(column == gold, float("-inf"), z)
    above += tl.sum((z > gold_logit).to(tl.int32), axis=1)
    highest = tl.max(z, axis=1)
    first_top = tl.where(highest > top, start, first_top)
    new_top = tl.maximum(top, highest)
    anchor = tl.where(new_top == float("-inf"), 0.0, new_top)
    decay = tl.exp2((top - anchor) * LOG2E)
    moved = tl.where(top == float("-inf"), 0.0, top - anchor)
    s = z - anchor[:, None]
    e = tl.exp2(s * LOG2E)
    moment = (moment + moved * total) * decay + tl.sum(e * tl.maximum(s, FLOOR), axis=1)
    squares = squares * decay * decay + tl.sum(e * e, axis=1)
    total = total * decay + tl.sum(e, axis=1)
    return new_top, first_top, above, total, moment, squares


@triton.jit(do_not_specialize=["rows"])
def row_sums(
    logits, logits_stride, labels, floats_out, counts_out, rows, V, logit_scale, softcap,
    HAS_SOFTCAP: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gold logit, largest other logit, sum of exponentials, first moment, sum of squares; competitor, count above.

    Each of LANES lanes keeps its own maximum and sums over the vocabulary without the gold token, so the loop needs
    no exchange between threads; WIDTH neighbouring logits share one rescaling of the sums.
    """
    row = tl.program_id(0).to(tl.int64)
    gold = tl.load(labels + row).to(tl.int32)
    logits_row = logits + row * logits_stride
    gold_logit = transform(tl.load(logits_row + gold), logit_scale, softcap, HAS_SOFTCAP)
    inside = tl.arange(0, LANES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    top = tl.full([LANES], float("-inf"), tl.float32)
    first_top = tl.zeros([LANES], tl.int32)
    above = tl.zeros([LANES], tl.int32)
    total = tl.zeros([LANES], tl.float32)
    moment = tl.zeros([LANES], tl.float32)
    squares = tl.zeros([LANES], tl.float32)
    whole = V // (LANES * WIDTH) * (LANES * WIDTH)
    for start in tl.range(0, whole, LANES * WIDTH, num_stages=STAGES):
        column = start + inside
        z = transform(tl.load(logits_row + column), logit_scale, softcap, HAS_SOFTCAP)
        top, first_top, above, total, moment, squares = _absorb(
            z, column, start, gold, gold_logit, top, first_top, above, total, moment, squares
        )
    if whole < V:
        column = whole + inside
        z = transform(tl.load(logits_row + column, mask=column < V, other=0.0), logit_scale, softcap, HAS_SOFTCAP)
        z = tl.where(column < V, z, float("-inf"))
        top, first_top, above, total, moment, squares = _absorb(
            z, column, whole, gold, gold_logit, top, first_top, above, total, moment, squares
        )

    best = tl.max(top)
    moved = tl.where(top == float("-inf"), 0.0, top - best)
    decay = tl.where(top == float("-inf"), 0.0, tl.exp2(moved * LOG2E))
    # of equal logits the first counts, as torch has it
    column = first_top[:, None] + inside
    wanted = (top == best)[:, None] & (column < V) & (column != gold)
    z = transform(tl.load(logits_row + column, mask=wanted, other=0.0), logit_scale, softcap, HAS_SOFTCAP)
    competitor = tl.min(tl.where(wanted & (z == best), column, V - 1))

    tl.store(floats_out + row, gold_logit)
    tl.store(floats_out + rows + row, best)
    tl.store(floats_out + 2 * rows + row, tl.sum(total * decay))
    tl.store(floats_out + 3 * rows + row, tl.sum((moment + moved * total) * decay))
    tl.store(floats_out + 4 * rows + row, tl.sum(squares * decay * decay))
    tl.store(counts_out + row, competitor)
    tl.store(counts_out + rows + row, tl.sum(above))
