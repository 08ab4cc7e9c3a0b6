"""`token_statistics`: everything the head says about each token, for whoever looks at tokens and trains nothing.

    found = token_statistics(hidden_TH, weight_VH, labels_T, top=5)
    found.tokens.gap, found.rank, found.gradient_norm, found.top_ids

One matmul for each chunk of rows, into float32, then one pass over the chunk that adds up, of all logits z but the
gold token's, relative to the largest of them, c (s = z - c):

    total = sum e^s     moment = sum s e^s     squares = sum e^2s     above = how many z > z_gold

The rest follows from these, row by row, and nothing waits for the device.

Shapes: T tokens, R rows of a chunk, H hidden size, V vocabulary, K alternatives, B blocks of a row.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trimsft.head.problem import Matmul, auto_backend, softcapped
from trimsft.objectives import TokenStats

CHUNK_BYTES = {"cpu": 24 << 20, "cuda": 640 << 20}
"""Size of one chunk of float32 logits: small enough for the cache of a CPU, large enough for a full-speed matmul."""
_BLOCK = 256  # neighbours of which only the largest is looked at first, in the search for alternatives

Backend = Literal["auto", "torch", "triton"]


@dataclass(frozen=True)
class TokenStatistics:
    """One entry per token, in order; on the device of the hidden states."""

    tokens: TokenStats  # nll, gap, gold logit, competitor and entropy
    rank: Tensor  # 1 + how many logits are larger than the gold token's; int32
    gradient_norm: Tensor  # ||softmax(z) - onehot(gold)||_2; float32
    top_ids: Tensor | None = None  # [T, K] the most probable tokens, the gold one among them, largest first; int32
    top_logprobs: Tensor | None = None  # [T, K] float32


@torch.no_grad()
def token_statistics(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    labels_T: Tensor,
    *,
    bias: Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    top: int = 0,
    backend: Backend = "auto",
) -> TokenStatistics:
    """Statistics of every label, from logits z = softcap * tanh(logit_scale * (hidden @ weight.T + bias) / softcap).

    `hidden_TH[i]` predicts `labels_T[i]`; all labels lie within the vocabulary, which is not checked on a device that
    would have to be waited for. Logits that are not finite make the nll or the gap so.

    Args:
        top: how many of the most probable tokens to name.
        backend: auto is triton for CUDA tensors, torch elsewhere and for float64.
    """
    vocabulary, tokens = len(weight_VH), len(labels_T)
    if labels_T.shape != hidden_TH.shape[:1]:
        raise ValueError(f"labels_T: must have shape ({len(hidden_TH)},), got {tuple(labels_T.shape)}")
    if labels_T.device.type == "cpu" and tokens and not 0 <= labels_T.min() <= labels_T.max() < vocabulary:
        low, high = int(labels_T.min()), int(labels_T.max())
        raise ValueError(f"labels_T: must be 0 to {vocabulary - 1}, got {low if low < 0 else high}")
    kernel = (auto_backend(hidden_TH) if backend == "auto" else backend) == "triton"
    matmul = Matmul(hidden_TH, weight_VH, bias, CHUNK_BYTES, multiple=128)
    sums, tops = [], []
    for start in range(0, max(tokens, 1), matmul.chunk_rows):
        labels_R = labels_T[start : start + matmul.chunk_rows]
        logits_RV = matmul.logits(hidden_TH[start : start + matmul.chunk_rows])
        if top:
            tops.append(_largest(logits_RV, min(top, vocabulary)))
        if kernel:
            sums.append(_add_up_in_one_pass(logits_RV, labels_R, logit_scale, softcap))
        else:
            spare_RV = matmul.space("spare", len(labels_R))
            sums.append(_add_up_in_torch(logits_RV, labels_R, logit_scale, softcap, spare_RV))
        del logits_RV  # before the next one is made
    found = _finished(_Sums(*(torch.cat(parts) for parts in zip(*sums, strict=True))))
    if not top:
        return found
    highest_TK, ids_TK = (torch.cat(parts) for parts in zip(*tops, strict=True))
    log_total_T1 = (found.tokens.nll + found.tokens.gold_logit)[:, None]
    logprobs_TK = softcapped(highest_TK, logit_scale, softcap).float() - log_total_T1
    return TokenStatistics(found.tokens, found.rank, found.gradient_norm, ids_TK.int(), logprobs_TK)


class _Sums(NamedTuple):
    """What one pass over the logits of some rows leaves; see the head of this file."""

    gold: Tensor
    competitor_logit: Tensor
    competitor: Tensor
    above: Tensor
    total: Tensor
    moment: Tensor
    squares: Tensor


def _add_up_in_torch(
    logits_RV: Tensor, labels_R: Tensor, logit_scale: float, softcap: float | None, spare_RV: Tensor
) -> _Sums:
    """On any device, pass by pass; over the logits themselves."""
    logits_RV = softcapped(logits_RV, logit_scale, softcap)
    gold_R1 = logits_RV.gather(1, labels_R[:, None])
    logits_RV.scatter_(1, labels_R[:, None], -torch.inf)
    # as floats, which are added faster than truth values, and exactly
    above_R = torch.gt(logits_RV, gold_R1, out=spare_RV).sum(dim=1)
    highest_R, competitor_R = logits_RV.max(dim=1)
    exps_RV = torch.exp(logits_RV.sub_(highest_R[:, None]), out=spare_RV)
    total_R = exps_RV.sum(dim=1)
    moment_R = logits_RV.clamp_(min=-1e4).mul_(exps_RV).sum(dim=1)  # s * e^s is 0 far above, and at -inf
    squares_R = torch.linalg.vector_norm(exps_RV, dim=1).square()
    return _Sums(gold_R1[:, 0], highest_R, competitor_R, above_R, total_R, moment_R, squares_R)


def _add_up_in_one_pass(logits_RV: Tensor, labels_R: Tensor, logit_scale: float, softcap: float | None) -> _Sums:
    """In a kernel that reads every logit once."""
    from trimsft.head.kernels import row_sums

    floats = torch.empty(5, len(labels_R), device=logits_RV.device)
    counts = torch.empty(2, len(labels_R), dtype=torch.int32, device=logits_RV.device)
    labels_R = labels_R.contiguous()
    if len(labels_R):
        with torch.cuda.device_of(logits_RV):  # Triton launches on the current device
            row_sums[(len(labels_R),)](
                logits_RV, logits_RV.stride(0), labels_R, floats, counts, len(labels_R), logits_RV.shape[1],
                float(logit_scale), float(softcap or 1.0), HAS_SOFTCAP=softcap is not None,
                LANES=256, WIDTH=8, STAGES=4, num_warps=8,
            )  # fmt: skip
    gold_R, highest_R, total_R, moment_R, squares_R = floats
    competitor_R, above_R = counts
    return _Sums(gold_R, highest_R, competitor_R.long(), above_R, total_R, moment_R, squares_R)


def _finished(sums: _Sums) -> TokenStatistics:
    """From the sums to the statistics, each in the form that keeps its digits however sure the model is.

    With g = gap and Z = total + e^g, the softmax's denominator over e^c:

        nll      = log(1 + total e^-g)
        entropy  = log Z - (moment + g e^g) / Z        where g <= 0
                 = nll + (g total - moment) / Z        elsewhere
        gradient = sqrt(squares / Z^2 + (1 - p)^2)     not from sum p^2 - 2p + 1: no digit is left of it near p = 1
    """
    gap, total = sums.gold - sums.competitor_logit, sums.total
    nll = torch.logaddexp(total.log() - gap, torch.zeros_like(gap))
    partition = total + gap.exp()
    low = gap.clamp(max=0)
    unsure = partition.log() - (sums.moment + low * low.exp()) / partition
    entropy = torch.where(gap <= 0, unsure, nll + (gap * total - sums.moment) / partition)
    norm = (sums.squares / partition.square() + torch.expm1(-nll).square()).sqrt()
    tokens = TokenStats(
        nll=nll.float(),
        gap=gap.float(),
        gold_logit=sums.gold.float(),
        competitor=sums.competitor,
        entropy=entropy.float(),
    )
    return TokenStatistics(tokens, (1 + sums.above).int(), norm.float())


def _largest(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest logits of each row and their ids, found in the blocks whose own largest are largest."""
    vocabulary = logits_RV.shape[1]
    blocks = vocabulary // _BLOCK
    if blocks <= 2 * count:
        return logits_RV.topk(count, dim=1)
    whole = blocks * _BLOCK
    peaks_RB = logits_RV[:, :whole].unflatten(1, (blocks, _BLOCK)).amax(dim=2)
    blocks_RK1 = peaks_RB.topk(count, dim=1).indices[:, :, None]
    within = torch.arange(_BLOCK, device=logits_RV.device)
    rest = torch.arange(whole, vocabulary, device=logits_RV.device).expand(len(logits_RV), -1)
    columns = torch.cat([(blocks_RK1 * _BLOCK + within).flatten(1), rest], dim=1)
    highest_RK, places_RK = logits_RV.gather(1, columns).topk(count, dim=1)
    return highest_RK, columns.gather(1, places_RK)
