"""How much memory the fused head may take: no more than other heads, or than the rest of the step takes anyway.

The head is at work when all activations are held, so what it takes on top may well be the peak of a training step. The
logit gradients of all tokens would be the largest part of it: 9.3 GiB for 32,768 tokens of a vocabulary of 151,936.
"""

import torch
from torch import Tensor

SHARE = 1 / 64
"""This share of what is held already may come on top: the peak of a step then rises by less than 2 %."""


def most_bytes(weight_size: int, itemsize: int, held: int, spare: int = 0) -> int:
    """The most that a head may hold beside what is held already.

    As much as a head that adds up the gradient of its weight in float32 and rounds it in the end, as TRL's does, and
    `SHARE` of what is held; or what is spare, if that is more.

    Args:
        weight_size: elements of the head's weight; 0 if it is not trained.
        itemsize: bytes of one of them in the matmuls.
        held: bytes in use without the head.
        spare: bytes between those and the highest mark so far, which the backward pass of the layers may have set.
    """
    summed = weight_size * (4 if itemsize >= 4 else 4 + itemsize)
    return max(summed + int(SHARE * held), spare)


def room_for_logit_gradients(hidden_TH: Tensor, weight_VH: Tensor, wants_weight: bool) -> int | None:
    """How many bytes of logit gradients the head may keep at a time; None where all of them are little.

    How a sum is cut up changes its rounding, so where torch is to be deterministic, what is held does not count.
    """
    if not hidden_TH.is_cuda:
        return None
    size, itemsize = weight_VH.numel() if wants_weight else 0, weight_VH.itemsize
    # beside them: the weight's gradient, that of the hidden states, and copies of kept rows of both
    taken = size * itemsize + 3 * hidden_TH.nbytes
    everything = len(hidden_TH) * len(weight_VH) * itemsize
    if everything + taken <= most_bytes(size, itemsize, held=0):
        return None
    held = spare = 0
    if not torch.are_deterministic_algorithms_enabled():  # a run that is resumed has other marks than one that is not
        allocated = torch.cuda.memory.memory_stats_as_nested_dict(hidden_TH.device)["allocated_bytes"]["all"]
        held, spare = allocated["current"], allocated["peak"] - allocated["current"]
    return max(0, most_bytes(size, itemsize, held, spare) - taken)
