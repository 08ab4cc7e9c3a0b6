"""`trimsft doctor`: versions, the device, the hub, and whether each backend of the head is right."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from trimsft.cli.terminal import JsonFlag, Output, ending, print_output
from trimsft.errors import one_line
from trimsft.runs import environment

if TYPE_CHECKING:
    import torch


def doctor(as_json: JsonFlag = False) -> None:
    """Check this machine.

    Names versions, the device and the hub, and checks every backend of the head against float64; exits
    with 1 if one is wrong. Whether the installed packages fit each other, pip check says.

    \b
    Example:
      trimsft doctor
    """
    import torch

    from trimsft.head import BACKENDS
    from trimsft.head.problem import auto_backend
    from trimsft.models import why_unreachable

    with ending():
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        about, reason = environment(), why_unreachable()
        facts = {name: version or "not installed" for name, version in about["versions"].items()}
        facts["platform"] = about["platform"]
        facts["device"] = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
        facts["hub"] = f"cannot be reached ({reason})" if reason else "can be reached"
        facts["backend"] = auto_backend(torch.empty(1, 1, device=device))
        for backend, dtype in itertools.product(BACKENDS[1:], (torch.float32, torch.bfloat16)):
            facts[f"{backend} {dtype}"] = _check_backend(backend, dtype, device)
    lines = [f"{name:24} {fact}" for name, fact in facts.items()]
    failures = [f"{name} {fact}" for name, fact in facts.items() if fact.startswith("failed")]
    print_output(Output(facts, lines=lines, failures=failures), as_json)


def _check_backend(backend: Any, dtype: torch.dtype, device: torch.device) -> str:
    """Measure the largest relative error of loss and gradients on a small batch."""
    import torch

    from trimsft import TrimSFT, linear_cross_entropy
    from trimsft.head import BackendUnavailable

    width, vocabulary = 64, 1000
    # sums of 64 products in float32, and results rounded to the dtype
    tolerance = max(width * torch.finfo(torch.float32).eps, 2 * torch.finfo(dtype).eps)
    torch.manual_seed(0)
    weight, labels = torch.randn(vocabulary, width) / width**0.5, torch.randint(vocabulary, (256,))
    # gaps from -5 to 9
    hidden = torch.randn(256, width) + 12 * torch.rand(256, 1) * weight[labels]

    def solve(backend: Any, exact: bool) -> list[torch.Tensor]:
        rounded = [tensor.to(device, dtype) for tensor in (hidden, weight)]
        ours, head = ((tensor.double() if exact else tensor).requires_grad_() for tensor in rounded)
        loss = linear_cross_entropy(ours, head, labels.to(device), TrimSFT(), skip_below=0.0, backend=backend).loss
        return [loss.detach(), *torch.autograd.grad(loss, (ours, head))]

    try:
        pairs = zip(solve(backend, exact=False), solve("reference", exact=True), strict=True)
        error = max(float((ours.double() - true).norm() / true.norm()) for ours, true in pairs)
    except BackendUnavailable as reason:
        return f"not here: {one_line(reason)}"
    except Exception as reason:  # whatever breaks a backend is what the reader wants to know
        return f"failed: {type(reason).__name__}: {one_line(reason)}"
    return f"{'passed' if error <= tolerance else 'failed'}: error {error:.1e}, at most {tolerance:.1e}"
