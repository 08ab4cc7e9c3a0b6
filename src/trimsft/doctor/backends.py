"""Which backend of the head runs here, and whether each one is right.

One check of the result:

    {"backend": "chunked", "dtype": "float32", "tolerance": 7.6e-06, "error": 2.9e-07, "verdict": "passed"}
"""

import itertools
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trimsft import TrimSFT, __version__, linear_cross_entropy
from trimsft.errors import one_line
from trimsft.head import BACKENDS, BackendUnavailable
from trimsft.head.problem import auto_backend
from trimsft.objectives import BANDWIDTH, MARGIN


def examine() -> dict[str, Any]:
    """Versions, the device, the backend that `auto` takes, and a check of every backend."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    facts: dict[str, Any] = {"python": platform.python_version(), "trimsft": __version__}
    try:
        triton: str | None = version("triton")
    except PackageNotFoundError:
        triton = None
    facts |= {"torch": torch.__version__, "triton": triton, "cuda": None}
    if device.type == "cuda":
        free, total = (round(size / 2**30, 1) for size in torch.cuda.mem_get_info())
        facts["cuda"] = {"device": torch.cuda.get_device_name(), "free_gib": free, "total_gib": total}
    because = "CUDA and Triton are here" if triton else "Triton is not installed"
    facts["auto"] = {
        "backend": auto_backend(torch.empty(1, 1, device=device)),
        "because": "torch sees no CUDA device" if device.type == "cpu" else because,
    }
    pairs = itertools.product(BACKENDS[1:], (torch.float32, torch.bfloat16))  # all but auto
    facts["checks"] = [_check(backend, dtype, device) for backend, dtype in pairs]
    return facts


def _check(backend: Any, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """The largest relative error of loss and gradients of one backend on a small batch, against float64."""
    hidden_size = 64
    # sums of 64 products in float32, and results rounded to the dtype
    tolerance = max(hidden_size * torch.finfo(torch.float32).eps, 2 * torch.finfo(dtype).eps)
    check = {"backend": backend, "dtype": str(dtype).removeprefix("torch."), "tolerance": tolerance}
    hidden, weight, labels = _batch(256, hidden_size, 1000)
    hidden, weight, labels = hidden.to(device, dtype), weight.to(device, dtype), labels.to(device)
    wide = hidden.double().requires_grad_(), weight.double().requires_grad_()
    exact_loss = _plain_loss(*wide, labels)
    exact = (exact_loss.detach(), *torch.autograd.grad(exact_loss, wide))
    try:
        hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
        loss = linear_cross_entropy(hidden, weight, labels, TrimSFT(), skip_below=0.0, backend=backend).loss
        loss.backward()
    except BackendUnavailable as error:
        return {**check, "verdict": "not here", "reason": one_line(error)}
    except Exception as error:  # whatever breaks a backend is what the reader wants to know
        return {**check, "verdict": "failed", "reason": f"{type(error).__name__}: {error}".partition("\n")[0]}
    assert hidden.grad is not None
    assert weight.grad is not None
    pairs = zip((loss.detach(), hidden.grad, weight.grad), exact, strict=True)
    largest = max(float((ours.double() - true).norm() / true.norm()) for ours, true in pairs)
    return {**check, "error": largest, "verdict": "passed" if largest <= tolerance else "failed"}


def _batch(tokens: int, hidden_size: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden states, a head's weight and labels whose gaps spread from about -5 to 9."""
    generator = torch.Generator().manual_seed(0)
    weight_VH = torch.randn(vocabulary, hidden_size, generator=generator) / hidden_size**0.5
    labels_N = torch.randint(vocabulary, (tokens,), generator=generator)
    strength_N1 = 12 * torch.rand(tokens, 1, generator=generator)
    hidden_NH = torch.randn(tokens, hidden_size, generator=generator) + strength_N1 * weight_VH[labels_N]
    return hidden_NH, weight_VH, labels_N


def _plain_loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of TrimSFT, without any code of the head."""
    logits = hidden @ weight.T
    nll, gold = F.cross_entropy(logits, labels, reduction="none"), labels[:, None]
    scores = logits.detach()
    gap = scores.gather(1, gold).squeeze(1) - scores.scatter(1, gold, -torch.inf).amax(dim=1)
    return (torch.exp(-((gap - MARGIN) ** 2) / (2 * BANDWIDTH**2)) * nll).mean()
