"""`token_statistics`: everything the head says about each token, for whoever looks at tokens and trains nothing.

    seen = token_statistics(hidden_TH, weight_VH, labels_T, top=5)
    seen.tokens.gap, seen.tokens.rank, seen.top_ids

One matmul for each chunk of rows, into float32; then what training uses: its Triton kernel, or in torch `Softmax`.

Shapes: T tokens, R rows of a chunk, H hidden size, V vocabulary, K alternatives, B blocks of a row.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimsft.head.chunked import Matmuls, Softmax
from trimsft.head.problem import Problem, auto_backend, joined, softcapped
from trimsft.objectives import SFT, TokenStats

_BLOCK = 256  # neighbours of which only the largest is looked at first, in the search for alternatives


@dataclass(frozen=True)
class TokenStatistics:
    """One entry per token, in order; on the device of the hidden states."""

    tokens: TokenStats  # with entropy, rank and norm of the gradient
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
    backend: Literal["auto", "torch", "triton"] = "auto",
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
    matmuls = Matmuls(problem)
    records = None
    if (auto_backend(hidden_TH) if backend == "auto" else backend) == "triton":
        from trimsft.head.triton_kernels import RowRecords

        records = RowRecords(problem)
    parts, tops = [], []
    for start in range(0, max(tokens, 1), matmuls.chunk_rows):
        rows = slice(start, min(start + matmuls.chunk_rows, tokens))
        logits_RV = matmuls.logits(problem.hidden_TH[rows])
        if top:
            tops.append(_largest(logits_RV, min(top, vocabulary)))
        if records is None:
            parts.append(Softmax.of(problem, matmuls, logits_RV, problem.labels_T[rows]).tokens)
        elif tokens:
            with torch.cuda.device_of(logits_RV):  # Triton launches on the current device
                records.find_statistics(logits_RV, rows)
        del logits_RV  # before the next one is made
    seen = joined(parts) if records is None else records.tokens
    if not top:
        return TokenStatistics(seen)
    highest_TK, ids_TK = (torch.cat(parts) for parts in zip(*tops, strict=True))
    log_total_T1 = (seen.nll + seen.gold_logit)[:, None]
    logprobs_TK = softcapped(highest_TK, logit_scale, softcap).float() - log_total_T1
    return TokenStatistics(seen, ids_TK.int(), logprobs_TK)


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
