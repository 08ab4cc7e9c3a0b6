"""`token_statistics`: everything the head says about each token, for whoever looks at tokens and trains nothing.

    tokens = token_statistics(hidden_TH, weight_VH, labels_T)
    tokens.gap, tokens.rank

One matmul for each chunk of rows, into float32; then what training uses: its Triton kernel, or in torch `Softmax`.

Shapes: T tokens, R rows of a chunk, H hidden size, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor

from trimsft.head.chunked import Matmuls, Softmax
from trimsft.head.problem import Problem, auto_backend, joined
from trimsft.objectives import SFT, TokenStats


@torch.no_grad()
def token_statistics(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    labels_T: Tensor,
    *,
    bias: Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    backend: Literal["auto", "torch", "triton"] = "auto",
) -> TokenStats:
    """Return statistics of every label, from logits softcap * tanh(logit_scale * (hidden @ weight.T + bias) / softcap).

    Entropy, rank and norm of the gradient are among them. `hidden_TH[i]` predicts `labels_T[i]`; all labels lie within
    the vocabulary, which is not checked on a device that would have to be waited for. Logits that are not finite make
    the nll or the gap so.

    Args:
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
    parts = []
    for start in range(0, max(tokens, 1), matmuls.chunk_rows):
        rows = slice(start, min(start + matmuls.chunk_rows, tokens))
        logits_RV = matmuls.logits(problem.hidden_TH[rows])
        if records is None:
            parts.append(Softmax.of(problem, matmuls, logits_RV, problem.labels_T[rows]).tokens)
        elif tokens:
            with torch.cuda.device_of(logits_RV):  # Triton launches on the current device
                records.find_statistics(logits_RV, rows)
        del logits_RV  # before the next one is made
    return joined(parts) if records is None else records.tokens
