"""`trimsft doctor`: what commands need and whether it is here, and which backends of the head are right.

A need is `ok`, `optional` (missing without harm to the rest) or `wrong` (commands will fail). A check of a backend:

    {"backend": "chunked", "dtype": "float32", "tolerance": 7.6e-06, "error": 2.9e-07, "verdict": "passed"}
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import platform
import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from trimsft.cli.terminal import JsonFlag, ending, make_console, make_table
from trimsft.errors import FAILED, one_line

if TYPE_CHECKING:
    import torch

SHOWN = ("transformers", "trl", "accelerate", "datasets", "peft", "vllm")
"""Packages that get a line of their own even if nothing is wrong with them."""
LEAST_FREE = 2 * 2**30
"""Bytes; a checkpoint of the smallest recipe takes 1.6e9: 135 million parameters, each with two moments, in float32."""


@dataclass(frozen=True)
class Need:
    """One thing that commands need."""

    name: str
    here: str
    verdict: Literal["ok", "optional", "wrong"] = "ok"
    remedy: str = ""


def doctor(as_json: JsonFlag = False) -> None:
    """Check this machine, and say what to do about problems.

    Looks for what the commands need: packages and their versions, vLLM, flash attention, a GPU, room on the disk, the
    hub. Checks every backend of the head against float64, and says which one is taken here.

    Exits with 1 if something will make commands fail.

    \b
    Example:
      trimsft doctor
    """
    with ending({}):
        facts = check_backends()
        facts["needs"] = [asdict(need) for need in check_needs()]
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _print_facts(facts)
    if any(one["verdict"] in ("failed", "wrong") for one in (*facts["checks"], *facts["needs"])):
        raise typer.Exit(FAILED)


def check_needs() -> Iterator[Need]:
    """Look for packages, flash attention, the GPU, room on the disk and the hub."""
    yield from _check_packages()
    if importlib.util.find_spec("transformers"):
        from trimsft.train.attention import has_flash_attention

        advice = "the paper's recipes ask for it: pip install kernels, or train with --attn_implementation sdpa"
        absent = Need("flash attention", "not installed", "optional", advice)
        yield Need("flash attention", "installed") if has_flash_attention() else absent
    yield _check_gpu()
    yield _check_disk(Path())
    if importlib.util.find_spec("huggingface_hub"):
        yield _check_hub()


def _check_packages() -> Iterator[Need]:
    """Compare the packages here with what the core and the extras ask for; say what is known or not as it should be."""
    from packaging.requirements import Requirement

    try:
        lines = requires("trimsft") or []
    except PackageNotFoundError:  # run from its source, without being installed
        remedy = "pip install -c constraints.txt -e '.[all]' in a clone of its repository"
        yield Need("packages", "trimsft is not installed, so versions are not checked", "optional", remedy)
        return
    seen = set()
    for needed in map(Requirement, lines):
        extra = re.search(r"extra == .(\w+)", str(needed.marker))
        if needed.name in seen or (extra and extra[1] in ("all", "study", "dev", "docs", "ray")):
            continue
        seen.add(needed.name)
        try:
            here = version(needed.name)
        except PackageNotFoundError:
            remedy = f"pip install '{f'trimsft[{extra[1]}]' if extra else needed}'"
            yield Need(needed.name, "not installed", "optional" if extra else "wrong", remedy)
            continue
        if not needed.specifier.contains(here, prereleases=True):
            yield Need(needed.name, here, "wrong", f"pip install '{needed.name}{needed.specifier}'")
        elif needed.name in SHOWN:
            yield Need(needed.name, here)


def _check_gpu() -> Need:
    import torch

    if torch.cuda.is_available():
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
        devices = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
        return Need("gpu", f"{devices}, {free:.1f} of {total:.1f} GiB free on the first")
    if shutil.which("nvidia-smi") is None:
        remedy = "the quickstart and the lab run on a CPU; models of a billion parameters need a GPU"
        return Need("gpu", "none", "optional", remedy)
    cuda = torch.version.cuda
    if cuda is None:
        return Need("gpu", "a driver, but torch was built without CUDA", "wrong", "install a build of torch for CUDA")
    remedy = f"nvidia-smi must list it, its driver must know CUDA {cuda}, CUDA_VISIBLE_DEVICES must not hide it"
    return Need("gpu", "a driver, but torch sees no device", "wrong", remedy)


def _check_disk(folder: Path) -> Need:
    """Look for room in the folder where runs are written."""
    if not os.access(folder, os.W_OK):
        remedy = "run commands elsewhere, or name another place with --out"
        return Need("disk", f"{folder.resolve()} cannot be written", "wrong", remedy)
    free = shutil.disk_usage(folder).free
    here = f"{free / 2**30:.1f} GiB free in {folder.resolve()}"
    if free >= LEAST_FREE:
        return Need("disk", here)
    remedy = "make room, or name another place with --out; a checkpoint takes 12 bytes a parameter"
    return Need("disk", here, "wrong", remedy)


def _check_hub() -> Need:
    from huggingface_hub import get_token

    from trimsft.hub import why_unreachable

    if (reason := why_unreachable()) is not None:
        remedy = "name models and data by their paths, or fetch them with hf download where there is a network"
        return Need("hub", f"cannot be reached ({reason})", "optional", remedy)
    if get_token() is None:
        remedy = "models behind a licence, such as Llama, need one: hf auth login"
        return Need("hub", "can be reached, without a token", "optional", remedy)
    return Need("hub", "can be reached, with a token")


def check_backends() -> dict[str, Any]:
    """Return versions, the device, the backend that `auto` takes, and a check of every backend."""
    import torch

    from trimsft import __version__
    from trimsft.head import BACKENDS
    from trimsft.head.problem import auto_backend

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        triton: str | None = version("triton")
    except PackageNotFoundError:
        triton = None
    facts: dict[str, Any] = {"python": platform.python_version(), "trimsft": __version__, "torch": torch.__version__}
    facts |= {"triton": triton, "cuda": None}
    if device.type == "cuda":
        free, total = (round(size / 2**30, 1) for size in torch.cuda.mem_get_info())
        facts["cuda"] = {"device": torch.cuda.get_device_name(), "free_gib": free, "total_gib": total}
    because = "CUDA and Triton are here" if triton else "Triton is not installed"
    facts["auto"] = {
        "backend": auto_backend(torch.empty(1, 1, device=device)),
        "because": "torch sees no CUDA device" if device.type == "cpu" else because,
    }
    pairs = itertools.product(BACKENDS[1:], (torch.float32, torch.bfloat16))  # all but auto
    facts["checks"] = [_check_backend(backend, dtype, device) for backend, dtype in pairs]
    return facts


def _check_backend(backend: Any, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Measure the largest relative error of loss and gradients on a small batch, against torch in float64.

    The gaps of the batch spread from about -5 to 9.
    """
    import torch
    import torch.nn.functional as F

    from trimsft import TrimSFT, linear_cross_entropy
    from trimsft.head import BackendUnavailable

    rows, width, vocabulary = 256, 64, 1000
    # sums of 64 products in float32, and results rounded to the dtype
    tolerance = max(width * torch.finfo(torch.float32).eps, 2 * torch.finfo(dtype).eps)
    check = {"backend": backend, "dtype": str(dtype).removeprefix("torch."), "tolerance": tolerance}
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(vocabulary, width, generator=generator) / width**0.5
    labels = torch.randint(vocabulary, (rows,), generator=generator)
    strength = 12 * torch.rand(rows, 1, generator=generator)
    hidden = torch.randn(rows, width, generator=generator) + strength * weight[labels]
    hidden, weight, labels = hidden.to(device, dtype), weight.to(device, dtype), labels.to(device)
    objective = TrimSFT()

    # the loss of TrimSFT without any code of the head
    exact = [hidden.double().requires_grad_(), weight.double().requires_grad_()]
    logits, gold = exact[0] @ exact[1].T, labels[:, None]
    others = logits.detach().scatter(1, gold, -torch.inf).amax(dim=1)
    distance = (logits.detach().gather(1, gold).squeeze(1) - others - objective.margin) / objective.bandwidth
    loss = (torch.exp(-(distance**2) / 2) * F.cross_entropy(logits, labels, reduction="none")).mean()
    expected = [loss.detach(), *torch.autograd.grad(loss, exact)]
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    try:
        loss = linear_cross_entropy(inputs[0], inputs[1], labels, objective, skip_below=0.0, backend=backend).loss
        actual = [loss.detach(), *torch.autograd.grad(loss, inputs)]
    except BackendUnavailable as error:
        return {**check, "verdict": "not here", "reason": one_line(error)}
    except Exception as error:  # whatever breaks a backend is what the reader wants to know
        return {**check, "verdict": "failed", "reason": f"{type(error).__name__}: {error}".partition("\n")[0]}
    pairs = zip(actual, expected, strict=True)
    largest = max(float((ours.double() - true).norm() / true.norm()) for ours, true in pairs)
    return {**check, "error": largest, "verdict": "passed" if largest <= tolerance else "failed"}


def _print_facts(facts: dict[str, Any]) -> None:
    for key in ("python", "trimsft", "torch", "triton"):
        typer.echo(f"{key:16} {facts[key] or 'not installed'}")
    for need in facts["needs"]:
        mark = "" if need["verdict"] == "ok" else f" ({need['verdict']})"
        typer.echo(f"{need['name']:16} {need['here']}{mark}")
        if need["remedy"]:
            typer.echo(textwrap.fill(need["remedy"], 80, initial_indent=" " * 19, subsequent_indent=" " * 19))
    typer.echo("{:16} 'auto' is {backend}: {because}".format("backend", **facts["auto"]))
    table = make_table("backend", "dtype", "error", "tolerance", "verdict")
    for check in facts["checks"]:
        error = f"{check['error']:.1e}" if "error" in check else ""
        table.add_row(check["backend"], check["dtype"], error, f"{check['tolerance']:.1e}", check["verdict"])
    make_console().print(table)
    reasons = {check["backend"]: check["reason"] for check in facts["checks"] if "reason" in check}
    for backend, reason in reasons.items():
        typer.echo(f"{backend}: {reason}")
