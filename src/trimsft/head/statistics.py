"""`token_statistics`: everything the head says about each token, for whoever looks at tokens and trains nothing.

    seen = token_statistics(hidden_TH, weight_VH, labels_T, top=5)
    seen.tokens.gap, seen.rank, seen.gradient_norm, seen.top_ids

One matmul for each chunk of rows, into float32; then, with Triton, the kernel that training uses, or in torch a few
passes that add up, of all logits z but the gold token's, relative to the largest of them, c (s = z - c):

    total = sum e^s     moment = sum s e^s     squares = sum e^2s     above = how many z > z_gold

Shapes: T tokens, R rows of a chunk, H hidden size, V vocabulary, K alternatives, B blocks of a row.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from trimsft.head.problem import Matmul, Problem, auto_backend, joined, softcapped
from trimsft.objectives import SFT, TokenStats

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
    """Return statistics of every label, from logits softcap * tanh(logit_scale * (hidden @ weight.T + bias) / softcap).

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
    problem = Problem(
        hidden_TH=hidden_TH.contiguous(),
        weight_VH=weight_VH.contiguous(),
        bias_V=None if bias is None else bias.contiguous(),
        labels_T=labels_T.long().contiguous(),
        objective=SFT(),
        logit_scale=float(logit_scale),
        softcap=None if softcap is None else float(softcap),
        with_entropy=True,
        with_rank=True,
    )
    matmul = Matmul(problem.hidden_TH, problem.weight_VH, problem.bias_V, CHUNK_BYTES, multiple=128)
    uses_kernel = (auto_backend(hidden_TH) if backend == "auto" else backend) == "triton"
    records = None
    if uses_kernel:
        from trimsft.head.records import RowRecords

        records = RowRecords(problem)
    chunks, tops = [], []
    for start in range(0, max(tokens, 1), matmul.chunk_rows):
        rows = slice(start, min(start + matmul.chunk_rows, tokens))
        logits_RV = matmul.logits(problem.hidden_TH[rows])
        if top:
            tops.append(_largest(logits_RV, min(top, vocabulary)))
        if records is None:
            spare_RV = matmul.space("spare", len(logits_RV))
            chunks.append(_statistics_of(logits_RV, problem.labels_T[rows], logit_scale, softcap, spare_RV))
        elif tokens:
            with torch.cuda.device_of(logits_RV):  # Triton launches on the current device
                records.find_statistics(logits_RV, rows)
        del logits_RV  # before the next one is made
    if records is None:
        rank_T, norm_T = (torch.cat([getattr(one, name) for one in chunks]) for name in ("rank", "gradient_norm"))
        seen = TokenStatistics(joined(one.tokens for one in chunks), rank_T, norm_T)
    else:
        seen = TokenStatistics(records.tokens, *records.rank_and_norm)
    if not top:
        return seen
    highest_TK, ids_TK = (torch.cat(parts) for parts in zip(*tops, strict=True))
    log_total_T1 = (seen.tokens.nll + seen.tokens.gold_logit)[:, None]
    logprobs_TK = softcapped(highest_TK, logit_scale, softcap).float() - log_total_T1
    return replace(seen, top_ids=ids_TK.int(), top_logprobs=logprobs_TK)


def _statistics_of(
    logits_RV: Tensor, labels_R: Tensor, logit_scale: float, softcap: float | None, spare_RV: Tensor
) -> TokenStatistics:
    """Return statistics of some rows, each in the form that keeps its digits however sure the model is.

    With g = gap and Z = total + e^g, the softmax's denominator over e^c:

        nll      = log(1 + total e^-g)
        entropy  = log Z - (moment + g e^g) / Z        where g <= 0
                 = nll + (g total - moment) / Z        elsewhere
        gradient = sqrt(squares / Z^2 + (1 - p)^2)     not from sum p^2 - 2p + 1: no digit is left of it near p = 1
    """
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

    gold_R = gold_R1[:, 0]
    gap_R = gold_R - highest_R
    nll_R = torch.logaddexp(total_R.log() - gap_R, torch.zeros_like(gap_R))
    partition_R = total_R + gap_R.exp()
    low_R = gap_R.clamp(max=0)
    unsure_R = partition_R.log() - (moment_R + low_R * low_R.exp()) / partition_R
    entropy_R = torch.where(gap_R <= 0, unsure_R, nll_R + (gap_R * total_R - moment_R) / partition_R)
    norm_R = (squares_R / partition_R.square() + torch.expm1(-nll_R).square()).sqrt()
    tokens = TokenStats(
        nll=nll_R.float(),
        gap=gap_R.float(),
        gold_logit=gold_R.float(),
        competitor=competitor_R,
        entropy=entropy_R.float(),
    )
    return TokenStatistics(tokens, (1 + above_R).int(), norm_R.float())


def _largest(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest logits of each row and their ids, found in the blocks whose own largest are largest."""
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
