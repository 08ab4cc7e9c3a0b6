"""Compare the fused head with its peers on one shape: time, memory, exactness, all in one process.

One row of the result:

    {"method": "TrimSFT, default", "objective": "trim", "ours": true, "milliseconds": 10.1, "extra_gib": 1.4,
     "hidden_error": 0.002, "weight_error": 0.002, "kept": 0.366, ...}
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

import trimsft
from trimsft.bench.data import synthetic_head
from trimsft.bench.measure import measure
from trimsft.bench.peers import PEERS


@dataclass(frozen=True)
class Shape:
    name: str
    tokens: int
    hidden_size: int
    vocabulary: int

    @property
    def matmul_tflop(self) -> float:
        return 2e-12 * self.tokens * self.hidden_size * self.vocabulary


SHAPES = (
    Shape("Qwen2.5-1.5B", 8192, 1536, 151_936),
    Shape("Llama-3.1-8B", 8192, 4096, 128_256),
    Shape("SmolLM2-135M", 16_384, 576, 49_152),
)


@dataclass(frozen=True)
class Result:
    method: str
    objective: str
    ours: bool
    milliseconds: float | None = None
    fastest: float | None = None
    slowest: float | None = None
    extra_gib: float | None = None
    hidden_error: float | None = None
    """Relative error of the gradient of the hidden states against float32 reference; the next likewise."""
    weight_error: float | None = None
    kept: float | None = None
    """Share of the tokens that took part in the backward pass, for our own."""
    failed: str | None = None
    """Why there are no numbers."""


@dataclass(frozen=True)
class _Method:
    name: str
    objective: str
    load: Callable[[], Callable[[Tensor, Tensor, Tensor], Any]]
    ours: bool = False


def our_methods(
    objectives: tuple[str, ...] = ("trim", "sft", "fsft", "dft", "trim-e", "trim-h"),
) -> list[_Method]:
    """TrimSFT and SFT in every mode, the other objectives exact."""
    methods = [_ours("TrimSFT, default skip", "trim"), _ours("TrimSFT, low memory", "trim", low_memory=True)]
    methods += [_ours("SFT, default skip", "sft"), _ours("SFT, low memory", "sft", low_memory=True)]
    methods += [_ours(f"{name}, exact", name, skip_below=0.0) for name in objectives]
    return methods


def _ours(label: str, objective: str, **options: Any) -> _Method:
    def load() -> Callable[[Tensor, Tensor, Tensor], Any]:
        weighing = trimsft.make_objective(objective)
        return lambda hidden, weight, labels: trimsft.linear_cross_entropy(hidden, weight, labels, weighing, **options)

    return _Method(f"trimsft: {label}", objective, load, ours=True)


def compare(
    shape: Shape,
    *,
    device: str = "cuda",
    dtype: torch.dtype = torch.bfloat16,
    only: str = "",
    seconds: float = 0.1,
    inputs: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Iterator[Result]:
    """Measure our methods and every peer whose name contains `only`, one after the other."""
    hidden, weight, labels = inputs or synthetic_head(
        shape.tokens, shape.hidden_size, shape.vocabulary, device=device, dtype=dtype
    )
    hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
    exact = {name: _reference_gradients(hidden, weight, labels, name) for name in ("sft", "dft", "trim")}
    peers = [_Method(peer.name, peer.objective, peer.load) for peer in PEERS]
    for method in our_methods() + peers:
        if only.lower() in method.name.lower():
            yield _measure(method, hidden, weight, labels, exact.get(method.objective), seconds)


def _measure(
    method: _Method,
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    exact: tuple[Tensor, Tensor] | None,
    seconds: float,
) -> Result:
    result = Result(method.name, method.objective, method.ours)
    kept: list[int] = []

    def step() -> Tensor:
        out = run(hidden, weight, labels)
        if method.ours:
            kept.append(out.kept)
        loss: Tensor = out.loss if method.ours else out
        return loss

    try:
        run = method.load()
        hidden.grad = weight.grad = None
        step().backward()
        if exact is not None and hidden.grad is not None and weight.grad is not None:
            result = replace(
                result,
                hidden_error=_relative_error(hidden.grad, exact[0]),
                weight_error=_relative_error(weight.grad, exact[1]),
            )
        measured = measure(step, (hidden, weight), seconds=seconds)
        result = replace(result, **asdict(measured))
    except Exception as error:  # a peer may fail in any way; the others still run
        result = replace(result, failed=f"{type(error).__name__}: {error}".splitlines()[0][:300])
    finally:
        hidden.grad = weight.grad = None
        if hidden.is_cuda:
            torch.cuda.empty_cache()
    return replace(result, kept=kept[-1] / len(labels)) if kept else result


def _reference_gradients(hidden: Tensor, weight: Tensor, labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Gradients of the same loss in float32 throughout, a few rows at a time, on the host to leave memory alone."""
    wide_hidden = hidden.detach().float().requires_grad_()
    wide_weight = weight.detach().float().requires_grad_()
    for rows in torch.arange(len(labels), device=labels.device).split(1024):
        trimsft.linear_cross_entropy(
            wide_hidden[rows], wide_weight, labels[rows], trimsft.make_objective(name),
            normalizer=len(labels), skip_below=0.0, backend="reference",
        ).loss.backward()  # fmt: skip
    assert wide_hidden.grad is not None and wide_weight.grad is not None
    return wide_hidden.grad.cpu(), wide_weight.grad.cpu()


def _relative_error(gradient: Tensor, exact: Tensor) -> float:
    exact = exact.to(gradient.device)
    return float((gradient.float() - exact).norm() / exact.norm())


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    facts: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    facts["trimsft"] = trimsft.__version__
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
    else:
        facts["device"] = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return facts
