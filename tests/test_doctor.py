"""What `doctor` says of a machine: each thing that commands need, whether it is here, and the remedy."""

from collections import namedtuple
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trimsft import cli
from trimsft.cli.doctor import Need, check_needs

NEEDED = [
    "numpy>=1.26",
    "trl<2,>=1.16; extra == 'all'",
    "trl<2,>=1.16; extra == 'train'",
    "transformers<6,>=5.16; extra == 'models'",
    "transformers<6,>=5.16; extra == 'train'",
    "vllm==0.32.*; extra == 'vllm'",
    "ruff>=0.15; extra == 'dev'",
]
HERE = {"trl": "1.16.2", "transformers": "5.17.0", "numpy": "2.4.6", "vllm": "0.32.1"}
Usage = namedtuple("Usage", "total used free")


class Machine:
    """A machine where all is well; a test changes what it wants to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packages: dict[str, str] = dict(HERE)
        self.patch = monkeypatch.setattr
        self.patch("trimsft.cli.doctor.requires", lambda name: NEEDED)
        self.patch("trimsft.cli.doctor.version", self._version)
        self.patch("trimsft.train.attention.has_flash_attention", lambda: True)
        self.patch("trimsft.hub.why_unreachable", lambda: None)
        self.patch("huggingface_hub.get_token", lambda: "a token")
        self.patch("shutil.disk_usage", lambda folder: Usage(100 * 2**30, 0, 100 * 2**30))
        self.patch("torch.cuda.is_available", lambda: True)
        self.patch("torch.cuda.device_count", lambda: 8)
        self.patch("torch.cuda.get_device_name", lambda: "NVIDIA H200")
        self.patch("torch.cuda.mem_get_info", lambda: (130 * 2**30, 140 * 2**30))

    def _version(self, name: str) -> str:
        if name not in self.packages:
            raise PackageNotFoundError(name)
        return self.packages[name]


@pytest.fixture
def machine(monkeypatch) -> Machine:
    return Machine(monkeypatch)


def found() -> dict[str, Need]:
    return {need.name: need for need in check_needs()}


def test_a_machine_that_has_everything_needs_no_remedy(machine: Machine) -> None:
    assert list(found()) == ["trl", "transformers", "vllm", "flash attention", "gpu", "disk", "hub"]
    assert {(need.verdict, need.remedy) for need in found().values()} == {("ok", "")}
    assert found()["gpu"].here == "8 x NVIDIA H200, 130.0 of 140.0 GiB free on the first"


@pytest.mark.parametrize(
    ("name", "here", "verdict", "remedy"),
    [
        ("trl", "1.15.0", "wrong", "pip install 'trl<2,>=1.16'"),
        ("trl", None, "optional", "pip install 'trimsft[train]'"),
        ("transformers", "6.0.0", "wrong", "pip install 'transformers<6,>=5.16'"),
        ("numpy", None, "wrong", "pip install 'numpy>=1.26'"),
        ("vllm", "0.31.0", "wrong", "pip install 'vllm==0.32.*'"),
        ("vllm", None, "optional", "pip install 'trimsft[vllm]'"),
    ],
)
def test_packages_outside_their_window_are_named(machine: Machine, name, here, verdict, remedy) -> None:
    machine.packages.pop(name)
    machine.packages |= {name: here} if here else {}
    need = found()[name]
    assert (need.here, need.verdict) == (here or "not installed", verdict) and need.remedy.startswith(remedy)


def changed(machine: Machine, change: str) -> None:
    if change == "flash":
        machine.patch("trimsft.train.attention.has_flash_attention", lambda: False)
    elif change == "offline":
        machine.patch("trimsft.hub.why_unreachable", lambda: "no route")
    elif change == "no token":
        machine.patch("huggingface_hub.get_token", lambda: None)
    elif change == "full":
        machine.patch("shutil.disk_usage", lambda folder: Usage(2**40, 2**40, 2**30))
    elif change == "read-only":
        machine.patch("os.access", lambda folder, mode: False)
    else:
        machine.patch("torch.cuda.is_available", lambda: False)
        machine.patch("shutil.which", lambda name: None if change == "no gpu" else f"/usr/bin/{name}")
        machine.patch("torch.version.cuda", None if change == "cpu build" else "13.0")


@pytest.mark.parametrize(
    ("change", "name", "here", "verdict", "remedy"),
    [
        ("flash", "flash attention", "not installed", "optional", "--attn_implementation sdpa"),
        ("offline", "hub", "cannot be reached (no route)", "optional", "hf download"),
        ("no token", "hub", "can be reached, without a token", "optional", "hf auth login"),
        ("full", "disk", f"1.0 GiB free in {Path.cwd()}", "wrong", "--out"),
        ("read-only", "disk", f"{Path.cwd()} cannot be written", "wrong", "--out"),
        ("no gpu", "gpu", "none", "optional", "run on a CPU"),
        ("cpu build", "gpu", "a driver, but torch was built without CUDA", "wrong", "a build of torch for CUDA"),
        ("old driver", "gpu", "a driver, but torch sees no device", "wrong", "its driver must know CUDA 13.0"),
    ],
)
def test_what_is_missing_comes_with_a_remedy(machine: Machine, change, name, here, verdict, remedy) -> None:
    changed(machine, change)
    need = found()[name]
    assert (need.here, need.verdict) == (here, verdict) and remedy in need.remedy
    assert [one.name for one in found().values() if one.verdict != "ok"] == [name]


def test_from_its_source_versions_are_not_checked(machine: Machine) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    machine.patch("trimsft.cli.doctor.requires", absent)
    assert found()["packages"].verdict == "optional"
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert found()["packages"].remedy.removesuffix(" in a clone of its repository") in readme


@pytest.mark.parametrize(("verdict", "code"), [("optional", 0), ("wrong", 1)])
def test_the_command_ends_by_what_it_finds(verdict, code: int, monkeypatch) -> None:
    need = Need(name="trl", here="1.0", verdict=verdict, remedy="pip install 'trl==1.16.*'")
    facts = {"python": "3", "trimsft": "0", "torch": "2", "triton": None, "checks": []}
    facts["auto"] = {"backend": "chunked", "because": "torch sees no CUDA device"}
    monkeypatch.setattr("trimsft.cli.doctor.check_needs", lambda: [need])
    monkeypatch.setattr("trimsft.cli.doctor.check_backends", lambda: dict(facts))
    result = CliRunner().invoke(cli.app, ["doctor"], catch_exceptions=False)
    assert result.exit_code == code and "triton           not installed\n" in result.stdout
    assert f"trl              1.0 ({verdict})\n                   pip install 'trl==1.16.*'\n" in result.stdout
