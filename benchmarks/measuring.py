"""Measure ways to compute a loss from hidden states: time, memory, exactness, all in one process (`head.py`).

One row of the result:

    {"method": "trimsft: TrimSFT", "objective": "trim", "ours": true, "milliseconds": 10.1, "extra_gib": 1.4,
     "hidden_error": 0.002, "weight_error": 0.002, "kept": 0.366, ...}
"""

import gc
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import trimsft
from trimsft.objectives import BANDWIDTH, MARGIN, PAPER_NAMES, display_name

LossFunction = Callable[[Tensor, Tensor, Tensor], Any]
"""(hidden, weight, labels) -> the mean loss, or a `LossOutput` that holds it; labels are shifted, none ignored."""


@dataclass(frozen=True)
class Shape:
    name: str
    tokens: int
    hidden_size: int
    vocabulary: int


@dataclass(frozen=True)
class Method:
    """One way to compute a loss from hidden states, under the name that the tables give it."""

    name: str
    objective: str
    load: Callable[[], LossFunction]
    """Imports what the method needs and returns its loss; raises, with the reason, where it cannot run."""
    ours: bool = False


@dataclass(frozen=True)
class Result:
    method: str
    objective: str
    ours: bool
    milliseconds: float | None = None  # median of the repeats
    fastest: float | None = None
    slowest: float | None = None
    extra_gib: float | None = None
    """Peak memory above inputs and weights, the gradients included; None where it was not measured."""
    hidden_error: float | None = None
    """Relative error of the gradient of the hidden states against the float32 reference."""
    weight_error: float | None = None  # the same for the gradient of the head's weight
    kept: float | None = None  # share of the tokens that took part in the backward pass, for our own
    failed: str | None = None  # why there are no numbers


def chosen(methods: Sequence[Method], only: str) -> list[Method]:
    """Return the methods whose name contains `only`."""
    matching = [method for method in methods if only.lower() in method.name.lower()]
    if not matching:
        names = "; ".join(method.name for method in methods)
        raise SystemExit(f"--only: {only!r} is part of no name; the names: {names}")
    return matching


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "trimsft": trimsft.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu,
    }


# ---- methods: our head, and plain torch with the whole [tokens, vocabulary] logits in float32


def _ours(label: str, objective: str, **options: Any) -> Method:
    def load() -> LossFunction:
        weighing = trimsft.make_objective(objective)
        return lambda hidden, weight, labels: trimsft.linear_cross_entropy(hidden, weight, labels, weighing, **options)

    return Method(f"trimsft: {label}", objective, load, ours=True)


def plain_loss(hidden: Tensor, weight: Tensor, labels: Tensor, objective: str) -> Tensor:
    """Return the loss of SFT, DFT or TrimSFT, written out as one would without a fused head."""
    logits = hidden @ weight.T
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if objective == "sft":
        return F.cross_entropy(logits, labels)
    nll = F.cross_entropy(logits, labels, reduction="none")
    if objective == "dft":
        return (torch.exp(-nll.detach()) * nll).mean()
    scores, gold = logits.detach(), labels[:, None]
    gap = scores.gather(1, gold).squeeze(1) - scores.scatter(1, gold, -torch.inf).amax(dim=1)
    return (torch.exp(-((gap - MARGIN) ** 2) / (2 * BANDWIDTH**2)) * nll).mean()


def _torch(objective: str, compiled: bool) -> LossFunction:
    return partial(torch.compile(plain_loss, dynamic=False) if compiled else plain_loss, objective=objective)


METHODS: tuple[Method, ...] = (
    *(_ours(display_name(name), name) for name in (*PAPER_NAMES, "auto-trim")),
    _ours("TrimSFT, exact", "trim", skip_below=0.0),
    *(
        _ours(f"{PAPER_NAMES[name]}, low_memory={low_memory}", name, low_memory=low_memory)
        for name in ("trim", "sft")
        for low_memory in (True, False)
    ),
    *(Method(f"plain {PAPER_NAMES[name]}", name, partial(_torch, name, False)) for name in ("sft", "dft", "trim")),
    *(Method(f"compiled {PAPER_NAMES[name]}", name, partial(_torch, name, True)) for name in ("sft", "trim")),
)
"""Ours by default, then with one setting changed; SFT, FSFT, DFT, E, H and AutoTrim are exact by default."""


# ---- inputs


def synthetic_head(
    tokens: int,
    hidden_size: int,
    vocabulary: int,
    *,
    lowest_gap: float = -2.0,
    highest_gap: float = 14.0,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden states, lm_head weight and labels whose gaps spread evenly over a range.

    Each hidden state is noise plus as much of its gold token's row of the weight as the wanted gap takes. With the
    default range 39 % of the tokens have a TrimSFT(1.5, 0.8) weight above 1e-3, as the paper's diagnostics imply
    for Qwen2.5-Math-1.5B.
    """
    generator = torch.Generator(device).manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "device": device}
    weight_VH = (torch.randn(vocabulary, hidden_size, **options) / hidden_size**0.5).to(dtype)
    labels_N = torch.randint(vocabulary, (tokens,), **options)
    gaps_N = lowest_gap + (highest_gap - lowest_gap) * torch.rand(tokens, **options)
    hidden_NH = torch.randn(tokens, hidden_size, **options)
    for rows in torch.arange(tokens, device=device).split(1024):
        gold_RH = weight_VH[labels_N[rows]].float()
        # twice: the added direction moves the other logits a little, too
        for _ in range(2):
            logits_RV = (hidden_NH[rows].to(dtype) @ weight_VH.T).float()
            gold_R = logits_RV.gather(1, labels_N[rows, None]).squeeze(1)
            best_R = logits_RV.scatter(1, labels_N[rows, None], -torch.inf).amax(dim=1)
            missing_R = gaps_N[rows] - (gold_R - best_R)
            hidden_NH[rows] += (missing_R / gold_RH.square().sum(dim=1))[:, None] * gold_RH
    return hidden_NH.to(dtype), weight_VH, labels_N


# ---- measuring


def compare(
    shape: Shape,
    methods: Sequence[Method],
    *,
    device: str = "cuda",
    dtype: torch.dtype = torch.bfloat16,
    seconds: float,
) -> Iterator[Result]:
    """Measure one method after the other on the same synthetic inputs."""
    sizes = (shape.tokens, shape.hidden_size, shape.vocabulary)
    hidden, weight, labels = synthetic_head(*sizes, device=device, dtype=dtype)
    hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
    exact = {name: _reference_gradients(hidden, weight, labels, name) for name in ("sft", "dft", "trim")}
    for method in methods:
        yield _measure(method, hidden, weight, labels, exact.get(method.objective), seconds)


def _measure(
    method: Method, hidden: Tensor, weight: Tensor, labels: Tensor, exact: tuple[Tensor, Tensor] | None, seconds: float
) -> Result:
    result = Result(method.name, method.objective, method.ours)
    kept: list[int] = []

    def step() -> Tensor:
        out = run_method(hidden, weight, labels)
        if method.ours:
            kept.append(out.kept)
        loss: Tensor = out.loss if method.ours else out
        return loss

    try:
        run_method = method.load()
        hidden.grad = weight.grad = None
        step().backward()
        if exact is not None and hidden.grad is not None and weight.grad is not None:
            result = replace(
                result,
                hidden_error=_relative_error(hidden.grad, exact[0]),
                weight_error=_relative_error(weight.grad, exact[1]),
            )
        result = replace(result, **measure(step, (hidden, weight), seconds=seconds))
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


def measure(
    step: Callable[[], Tensor], inputs: tuple[Tensor, ...], *, seconds: float = 0.1, warmup: int = 3
) -> dict[str, Any]:
    """Run `step` (which returns the loss) forward and backward again and again; device time on CUDA.

    Returns milliseconds, fastest, slowest and extra_gib, as in `Result`.
    A GPU lowers its clocks under load, so each measurement is short and begins after half a second of rest.
    """
    cuda = inputs[0].is_cuda
    for _ in range(warmup):
        _clear(inputs)
        step().backward()
    _clear(inputs)
    gc.collect()
    extra = _peak_cuda(step) if cuda else _peak_host(step)
    if cuda:
        time.sleep(0.5)
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - started < seconds and len(times) < 200):
        _clear(inputs)
        times.append(_time_cuda(step) if cuda else _time_host(step))
    _clear(inputs)
    median = statistics.median(times)
    return {"milliseconds": median, "fastest": min(times), "slowest": max(times), "extra_gib": extra}


def _clear(inputs: tuple[Tensor, ...]) -> None:
    for tensor in inputs:
        tensor.grad = None


def _time_cuda(step: Callable[[], Tensor]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    step().backward()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def _time_host(step: Callable[[], Tensor]) -> float:
    begin = time.perf_counter()
    step().backward()
    return 1e3 * (time.perf_counter() - begin)


def _peak_cuda(step: Callable[[], Tensor]) -> float:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step().backward()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def _peak_host(step: Callable[[], Tensor]) -> float | None:
    """Return the peak of the resident memory; on Linux alone, whose kernel forgets it on request."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    before = _resident_kib("VmRSS")
    step().backward()
    return (_resident_kib("VmHWM") - before) / 2**20


def _resident_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
