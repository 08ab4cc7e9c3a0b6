"""Memory of the fused head: no more than other heads, unless the device is nearly empty.

The head is at work when all activations are held, so what it takes on top may well be the peak of a training step. The
logit gradients of all tokens would be the largest part of it: 9.3 GiB for 32,768 tokens of a vocabulary of 151,936.
"""

import torch
from torch import Tensor

from trimsft.head.problem import Problem

# sizes of the Triton backend, here so that an estimate can be made where there is no Triton
CHUNK_ROWS = 1536  # least number of rows in a chunk of logits: enough for a full-speed matmul
CHUNK_BYTES = 160 << 20  # least size of a chunk, so that launching kernels does not take longer than running them
SLICE_BYTES = 96 << 20  # size of a slice of recomputed logits

SHARE = 1 / 64  # of what is held already, which may come on top: the peak of a step rises by less than 2 %
FREELY = 1 / 8  # of the device's memory, which may be in use with the head, whatever other heads take
TILE = (4096, 32_768)  # rows and columns of the logits that TRL's head computes at a time


def most_bytes(
    tokens: int,
    hidden_size: int,
    vocabulary: int,
    itemsize: int,
    *,
    held: int,
    wants_weight: bool = True,
    device_bytes: int = 0,
) -> int:
    """Return the most that a head may hold beside what is held already, gradients included.

    As much as a head that adds up its gradients in float32 and rounds them in the end, as TRL's does, and `SHARE` of
    what is held; or what is missing to `FREELY`, if that is more.

    Args:
        itemsize: bytes of a number in the matmuls.
        held: bytes in use without the head.
        device_bytes: memory of the device, used or not; 0 if that does not count.
    """
    gradients = hidden_size * (tokens + vocabulary if wants_weight else tokens)
    summed = gradients * (4 if itemsize >= 4 else 4 + itemsize)
    tile = itemsize * min(tokens, TILE[0]) * min(vocabulary, TILE[1])
    return max(summed + tile + int(SHARE * held), int(FREELY * device_bytes) - held)


def padded(columns: int, like: Tensor) -> int:
    """Return the row stride at which every row of a matrix starts on a 128-byte line."""
    line = 128 // like.itemsize
    return -(-columns // line) * line


def rows_of_a_chunk(row_bytes: int, *, low_memory: bool = False) -> int:
    """Return how many rows have their logits computed at a time, where there are so many."""
    return max(CHUNK_ROWS, (3 * CHUNK_BYTES // 2 if low_memory else CHUNK_BYTES) // row_bytes)


def room_for_logit_gradients(problem: Problem) -> int | None:
    """Return how many bytes of logit gradients the head may keep at a time; None where all of them are little.

    How a sum is cut up changes its rounding, so where torch is to be deterministic, what is held does not count.
    """
    hidden_TH, weight_VH, wants_weight = problem.hidden_TH, problem.weight_VH, problem.wants_weight
    if not hidden_TH.is_cuda:
        return None
    sizes = (*hidden_TH.shape, len(weight_VH), weight_VH.itemsize)
    # beside them: the weight's gradient, that of the hidden states, and copies of kept rows of both
    taken = 3 * hidden_TH.nbytes + (weight_VH.nbytes if wants_weight else 0)
    if problem.skip_below > 0:  # then the logits of a chunk stand beside the gradients that are kept
        row_bytes = padded(len(weight_VH), weight_VH) * weight_VH.itemsize
        chunk = min(len(hidden_TH), rows_of_a_chunk(row_bytes)) * row_bytes
        # in the memory of the weight's gradient, which is written last, or else beside it and before it
        taken = taken if wants_weight and chunk <= weight_VH.nbytes else max(taken, chunk)
    everything = len(hidden_TH) * len(weight_VH) * weight_VH.itemsize
    least = most_bytes(*sizes, held=0, wants_weight=wants_weight)
    if everything + taken <= least:
        return None
    if torch.are_deterministic_algorithms_enabled():  # a run that is resumed may hold more than one that is not
        return max(0, least - taken)
    # memory_allocated, without the time it takes to sort all other figures
    held = torch.cuda.memory.memory_stats_as_nested_dict(hidden_TH.device)["allocated_bytes"]["all"]["current"]
    whole = torch.cuda.get_device_properties(hidden_TH.device).total_memory
    return max(0, most_bytes(*sizes, held=held, wants_weight=wants_weight, device_bytes=whole) - taken)


def rows_of_a_part(problem: Problem) -> int:
    """Return how many rows are computed at a time: all of them, if their logit gradients have room."""
    rows, weight_VH, room = len(problem.hidden_TH), problem.weight_VH, problem.buffer_bytes
    row_bytes = padded(len(weight_VH), weight_VH) * weight_VH.itemsize
    if room is None or rows * row_bytes <= room:
        return rows
    if problem.wants_weight:  # the sum takes more than the gradient
        room -= weight_VH.numel() * max(0, 4 - weight_VH.itemsize)
    least = rows_of_a_chunk(row_bytes)
    multiple = min(128, least)
    parts = -(-rows // (max(least, room // row_bytes) // multiple * multiple))
    return min(rows, -(-rows // (parts * multiple)) * multiple)
