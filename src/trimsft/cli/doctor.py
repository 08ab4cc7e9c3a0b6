"""`trimsft doctor`: the facts that a report of a bug needs, and a check of the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimsft.cli.terminal import JsonFlag, Output, ending, print_output
from trimsft.runs import environment

if TYPE_CHECKING:
    import torch


def doctor(as_json: JsonFlag = False) -> None:
    """Check this machine.

    Names versions and the device, and compares the head with float64; exits with 1 if it is wrong.
    Whether the installed packages fit each other, pip check says.

    \b
    Example:
      trimsft doctor
    """
    import torch

    from trimsft.head.problem import auto_backend

    with ending():
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        about = environment()
        facts = {name: version or "not installed" for name, version in about["versions"].items()}
        facts["platform"] = about["platform"]
        facts["device"] = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
        facts["backend"] = auto_backend(torch.empty(1, 1, device=device))
        facts["head"] = _check_head(device)
    failures = [f"head {facts['head']}"] if facts["head"].startswith("failed") else []
    print_output(Output(facts, lines=[f"{name:14} {fact}" for name, fact in facts.items()], failures=failures), as_json)


def _check_head(device: torch.device) -> str:
    """Measure the largest relative error of loss and gradients of a small batch in float32."""
    import torch

    from trimsft import TrimSFT, linear_cross_entropy

    torch.manual_seed(0)
    weight, labels = torch.randn(1000, 64) / 8, torch.randint(1000, (256,))
    hidden = torch.randn(256, 64) + 12 * torch.rand(256, 1) * weight[labels]  # gaps from -5 to 9
    results = []
    options: dict[str, Any] = {"objective": TrimSFT(), "skip_below": 0.0}
    for dtype, backend in ((torch.float32, "auto"), (torch.float64, "reference")):
        ours, head = (tensor.to(device, dtype).requires_grad_() for tensor in (hidden, weight))
        out = linear_cross_entropy(ours, head, labels.to(device), **options | {"backend": backend})
        results.append([out.loss.detach(), *torch.autograd.grad(out.loss, (ours, head))])
    error = max(float((one - true).norm() / true.norm()) for one, true in zip(*results, strict=True))
    tolerance = 64 * torch.finfo(torch.float32).eps  # sums of 64 products
    return f"{'passed' if error <= tolerance else 'failed'}: error {error:.1e}, at most {tolerance:.1e}"
