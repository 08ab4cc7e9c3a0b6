"""`attention.attend` and `drawing.Drawer.choose` as Triton kernels: each reads what it needs once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

KEYS_AT_ONCE = 64
TOKENS_AT_ONCE = 2048


def attend(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, window: int | None) -> Tensor:
    """Return what `attention.attend` does, by a program for each row and key head, which reads the keys that count."""
    rows, heads, width = query.shape
    key_heads, positions = key.shape[1:3]
    out = torch.empty(rows, heads, width, dtype=query.dtype, device=query.device)
    shared = heads // key_heads
    _attend_row[(rows, key_heads)](
        *(query.contiguous(), key, value, lengths, out),
        scale,
        positions if window is None else window,
        *key.stride()[:3],
        *value.stride()[:3],
        SHARED=shared,
        WIDTH=width,
        BLOCK_SHARED=max(16, triton.next_power_of_2(shared)),  # the least that tl.dot takes
        BLOCK_WIDTH=max(16, triton.next_power_of_2(width)),
        BLOCK_KEYS=KEYS_AT_ONCE,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
    )
    return out


@triton.jit
def _attend_row(
    query_ptr, key_ptr, value_ptr, lengths_ptr, out_ptr, scale, window,
    key_row_stride, key_head_stride, key_stride, value_row_stride, value_head_stride, value_stride,
    SHARED: tl.constexpr, WIDTH: tl.constexpr, BLOCK_SHARED: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    BLOCK_KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend with the queries that share a key head of one row, over its keys in blocks, with a running softmax."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    queries = tl.arange(0, BLOCK_SHARED)
    columns = tl.arange(0, BLOCK_WIDTH)
    offsets = ((row * tl.num_programs(1) + head) * SHARED + queries[:, None]) * WIDTH + columns[None, :]
    is_query = (queries[:, None] < SHARED) & (columns[None, :] < WIDTH)
    query = tl.load(query_ptr + offsets, mask=is_query, other=0.0)
    length = tl.load(lengths_ptr + row)
    first = tl.maximum(length - window, 0)
    key_ptr += row * key_row_stride + head * key_head_stride
    value_ptr += row * value_row_stride + head * value_head_stride

    largest = tl.full((BLOCK_SHARED,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_SHARED,), tl.float32)
    mixed = tl.zeros((BLOCK_SHARED, BLOCK_WIDTH), tl.float32)
    for start in range(first // BLOCK_KEYS * BLOCK_KEYS, length, BLOCK_KEYS):
        keys = start + tl.arange(0, BLOCK_KEYS)
        is_seen = (keys >= first) & (keys < length)
        is_key = is_seen[:, None] & (columns[None, :] < WIDTH)
        key = tl.load(key_ptr + keys[:, None] * key_stride + columns[None, :], mask=is_key, other=0.0)
        value = tl.load(value_ptr + keys[:, None] * value_stride + columns[None, :], mask=is_key, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        scores = tl.where(is_seen[None, :], scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        shares = tl.exp(scores - larger[:, None])
        kept = tl.exp(largest - larger)
        total = total * kept + tl.sum(shares, axis=1)
        mixed = mixed * kept[:, None] + tl.dot(shares.to(value.dtype), value, input_precision=PRECISION)
        largest = larger
    tl.store(out_ptr + offsets, (mixed / total[:, None]).to(out_ptr.dtype.element_ty), mask=is_query)


def choose(logits: Tensor, keys: Tensor, steps: Tensor, inverse: Tensor) -> Tensor:
    """Return (rows) the token with the largest noisy score: as `drawing` has it, with no noise written to memory."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    chosen = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    _choose_row[(len(logits),)](
        logits, keys, steps, inverse, chosen, logits.shape[1], logits.stride(0), BLOCK=TOKENS_AT_ONCE
    )
    return chosen


@triton.jit
def _choose_row(logits_ptr, keys_ptr, steps_ptr, inverse_ptr, chosen_ptr, size, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    inverse = tl.load(inverse_ptr + row)
    shift = tl.load(steps_ptr + row).to(tl.uint32) * 0x9E3779B9
    first = _mix(tl.load(keys_ptr + 2 * row).to(tl.uint32, bitcast=True) + shift)
    second = _mix(tl.load(keys_ptr + 2 * row + 1).to(tl.uint32, bitcast=True) + shift)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, size, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        scores = tl.load(logits_ptr + row * stride + tokens, mask=tokens < size, other=float("-inf"))
        scores = scores.to(tl.float32)
        if inverse > 0:
            bits = _mix(_mix(tokens.to(tl.uint32) * 0x9E3779B1 + first) ^ second) & 0x7FFFFFFF
            share = tl.minimum((bits.to(tl.float32) + 0.5) * (0.5 / 2**30), 1 - 0.5 / 2**23)
            scores = scores * inverse - tl.log(_exponential(share))
        is_better = scores > best
        best = tl.where(is_better, scores, best)
        where = tl.where(is_better, tokens, where)
    largest = tl.max(best, axis=0)
    # of equals the first, as argmax has it
    tl.store(chosen_ptr + row, tl.min(tl.where(best == largest, where, size - 1), axis=0))


@triton.jit
def _mix(value):
    """Scramble as `drawing._mix` does."""
    value ^= value >> 16
    value *= 0x85EBCA6B
    value ^= value >> 13
    value *= 0xC2B2AE35
    value ^= value >> 16
    return value


@triton.jit
def _exponential(share):
    """Return -log(1 - share), exact for shares so small that 1 - share is 1."""
    rest = 1 - share
    return tl.where(rest == 1, share, -tl.log(rest) * (share / (1 - rest)))
