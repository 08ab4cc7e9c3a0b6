"""The command that runs all measurements of a GPU: what was done stays done, what fails or hangs stops nothing else."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu import PARTS, Part, main

WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('1'); print('said')"


def part(name: str, code: str, *words: str, seconds: int = 60, needs: tuple[str, ...] = ()) -> Part:
    return Part(name, ("-c", code, *words), seconds, needs)


def test_a_part_is_done_once(tmp_path, capsys) -> None:
    parts = [part("one", WRITES, "{out}"), part("two", WRITES, "{folder}/two.json")]
    assert main(["--out", str(tmp_path)], parts) == 0
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text() == "1"
    assert (tmp_path / "one.log").read_text() == "said\n"
    assert json.loads((tmp_path / "one.done").read_text())["seconds"] >= 0
    (tmp_path / "one.json").write_text("as it was")
    assert main(["--out", str(tmp_path)], parts) == 0
    assert (tmp_path / "one.json").read_text() == "as it was"
    assert capsys.readouterr().out.splitlines()[-2:] == ["one: done before", "two: done before"]


def test_a_failure_stops_nothing_else_and_is_tried_again(tmp_path, capsys) -> None:
    parts = [
        part("fails", "import sys; sys.exit(3)"),
        part("hangs", "import signal; signal.pause()", seconds=1),
        part("works", WRITES, "{out}"),
    ]
    assert main(["--out", str(tmp_path)], parts) == 1
    fails, hangs, works = capsys.readouterr().out.splitlines()
    assert fails.startswith("fails: failed") and fails.endswith("code 3, see fails.log")
    assert hangs.startswith("hangs: failed") and works.startswith("works: done in")
    assert main(["--out", str(tmp_path), "--only", "fail"], parts) == 1
    assert {path.name for path in tmp_path.glob("*.done")} == {"works.done"}


def test_nothing_is_begun_that_lacks_time_or_files(tmp_path, capsys) -> None:
    parts = [part("long", WRITES, "{out}", seconds=90), part("needs", WRITES, "{out}", needs=("states.npz",))]
    assert main(["--out", str(tmp_path), "--minutes", "1"], parts) == 0
    long, needs = capsys.readouterr().out.splitlines()
    assert "for want of time" in long and "for want of states.npz" in needs
    (tmp_path / "states.npz").touch()
    assert main(["--out", str(tmp_path), "--list"], parts) == 0
    assert not list(tmp_path.glob("*.json"))
    assert main(["--out", str(tmp_path), "--only", "needs"], parts) == 0
    assert (tmp_path / "needs.json").exists()


@pytest.mark.parametrize("one", PARTS, ids=[one.name for one in PARTS])
def test_every_part_is_a_command_of_the_repository(one) -> None:
    first, second, *_ = one.words
    root = Path(gpu.__file__).parents[1]
    module = root / second.replace(".", "/")
    assert (root / first).is_file() or second == "pytest" or module.with_suffix(".py").is_file() or module.is_dir()
    assert one.name == "tests" or "{out}" in one.words
