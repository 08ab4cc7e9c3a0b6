"""What the commands need of a machine, whether it is here, and what to do if not.

    {"name": "vllm", "here": "not installed", "verdict": "optional", "remedy": "eval generates with ..."}

`ok` is as it should be, `optional` is missing without harm to the rest, `wrong` will make commands fail.
"""

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

import torch
from packaging.requirements import Requirement

from trimsft.hub import why_unreachable
from trimsft.train.attention import has_flash_attention

SHOWN = ("transformers", "trl", "accelerate", "datasets", "peft")
"""Packages that get a line of their own even if nothing is wrong with them."""
LEAST_FREE = 2 * 2**30
"""Bytes; a checkpoint of the smallest recipe takes 1.6e9: 135 million parameters, each with two moments, in float32."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """One thing that commands need."""

    name: str
    here: str
    verdict: Literal["ok", "optional", "wrong"] = "ok"
    remedy: str = ""


def examine_needs() -> list[Need]:
    """Packages, optional ones, the GPU, the disk and the hub, in this order."""
    return [*_packages(), _vllm(), _flash_attention(), _gpu(), _disk(Path()), _hub()]


def _requirements() -> list[Requirement]:
    try:
        return [Requirement(line) for line in requires("trimsft") or []]
    except PackageNotFoundError:  # run from its source, without being installed
        return []


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _packages() -> list[Need]:
    """The packages that every installation has; of those that are as they should be, only the known ones."""
    needed = [one for one in _requirements() if one.marker is None]
    if not needed:
        remedy = "pip install -c constraints.txt -e . in a clone of its repository"
        here = "trimsft is not installed, so versions are not checked"
        return [Need(name="packages", here=here, verdict="optional", remedy=remedy)]
    needs = [_package(one) for one in needed]
    return [need for need in needs if need.verdict != "ok" or need.name in SHOWN]


def _package(needed: Requirement) -> Need:
    here = _installed(needed.name)
    if here is not None and needed.specifier.contains(here, prereleases=True):
        return Need(name=needed.name, here=here)
    remedy = f"pip install '{needed.name}{needed.specifier}'"
    return Need(name=needed.name, here=here or "not installed", verdict="wrong", remedy=remedy)


def _vllm() -> Need:
    window = next((one.specifier for one in _requirements() if one.name == "vllm"), None)
    install = f"pip install 'vllm{window or ''}'"
    here = _installed("vllm")
    if here is None:
        remedy = f"eval generates with transformers, or a server; faster on a GPU: {install}"
        return Need(name="vllm", here="not installed", verdict="optional", remedy=remedy)
    if window is None or window.contains(here, prereleases=True):
        return Need(name="vllm", here=here)
    return Need(name="vllm", here=here, verdict="wrong", remedy=f"trimsft needs vllm{window}: {install}")


def _flash_attention() -> Need:
    if has_flash_attention():
        return Need(name="flash attention", here="installed")
    remedy = "the paper's recipes ask for it: pip install kernels, or train with --attn_implementation sdpa"
    return Need(name="flash attention", here="not installed", verdict="optional", remedy=remedy)


def _gpu() -> Need:
    if torch.cuda.is_available():
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
        count = torch.cuda.device_count()
        here = f"{count} x {torch.cuda.get_device_name()}, {free:.1f} of {total:.1f} GiB free on the first"
        return Need(name="gpu", here=here)
    if shutil.which("nvidia-smi") is None:
        remedy = "the quickstart and the lab run on a CPU; models of a billion parameters need a GPU"
        return Need(name="gpu", here="none", verdict="optional", remedy=remedy)
    if torch.version.cuda is None:
        here, remedy = "a driver, but torch was built without CUDA", "install a build of torch for CUDA"
    else:
        here, cuda = "a driver, but torch sees no device", torch.version.cuda
        remedy = f"nvidia-smi must list it, its driver must know CUDA {cuda}, CUDA_VISIBLE_DEVICES must not hide it"
    return Need(name="gpu", here=here, verdict="wrong", remedy=remedy)


def _disk(folder: Path) -> Need:
    """Room in the folder where runs are written."""
    if not os.access(folder, os.W_OK):
        remedy = "run commands elsewhere, or name another place with --out"
        return Need(name="disk", here=f"{folder.resolve()} cannot be written", verdict="wrong", remedy=remedy)
    free = shutil.disk_usage(folder).free
    here = f"{free / 2**30:.1f} GiB free in {folder.resolve()}"
    if free >= LEAST_FREE:
        return Need(name="disk", here=here)
    remedy = "make room, or name another place with --out; a checkpoint takes 12 bytes a parameter"
    return Need(name="disk", here=here, verdict="wrong", remedy=remedy)


def _hub() -> Need:
    from huggingface_hub import get_token

    if (reason := why_unreachable()) is not None:
        remedy = "name models and data by their paths, or fetch them with hf download where there is a network"
        return Need(name="hub", here=f"cannot be reached ({reason})", verdict="optional", remedy=remedy)
    if get_token() is None:
        remedy = "models behind a licence, such as Llama, need one: hf auth login"
        return Need(name="hub", here="can be reached, without a token", verdict="optional", remedy=remedy)
    return Need(name="hub", here="can be reached, with a token")
