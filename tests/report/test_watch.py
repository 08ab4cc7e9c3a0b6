"""`trimsft watch`: a training from nothing to its end, and one that was killed."""

import json
import os
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from trimsft import cli
from trimsft.report.watch import QUIET, look
from trimsft.runs import locked


def line(step: int, **more: Any) -> str:
    figures = {"loss": 1 / step, "nll": 2.0, "skipped": None, "tokens_per_second": 31200.0, "epoch": step / 10}
    return json.dumps({"step": step, "time": f"2026-11-16T08:00:{step:02d}+0000", **figures, **more}) + "\n"


def begin(folder: Path, *lines: str) -> Path:
    path = folder / "train" / "telemetry.jsonl"
    path.parent.mkdir(parents=True)
    (folder / "config.yaml").write_text("objective: trim\nnum_train_epochs: 1\n")
    path.write_text("".join(lines))
    return path


def test_a_training_from_nothing_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert look(folder, 60) == (f"waiting for the first line of a training in {folder}", False)
    path = begin(folder, line(1), line(2), line(3), line(4), '{"step": 5, "lo')  # half of a line
    text, has_ended = look(folder, 60)
    head, *rows = text.splitlines()
    assert (head, has_ended) == (f"{folder}  running, 40 %, step 4", False)
    assert [row.split()[0] for row in rows] == ["loss", "nll", "tokens_per_second"]  # skipped was no number
    assert rows[0].split() == ["loss", "█▃▂▁", "0.25"] and all(len(row) <= 60 for row in rows)
    path.write_text(line(4) + json.dumps({"step": 4, "train_runtime": 61.4, "train_loss": 0.4}) + "\n")
    assert look(folder, 60)[0].startswith(f"{folder}  finished after 0:01:01, step 4\n") and look(path.parent, 60)[1]
    done = CliRunner().invoke(cli.app, ["watch", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0 and "finished after 0:01:01, step 4" in " ".join(done.stdout.split())


def test_a_quiet_training_without_a_lock_has_stopped(tmp_path: Path) -> None:
    path = begin(tmp_path / "a", line(1))
    os.utime(path, (0, path.stat().st_mtime - 2 * QUIET))
    with locked(tmp_path / "a" / ".lock"):
        text, has_ended = look(tmp_path / "a", 80)
        assert not has_ended and re.search(r"a  no line for 0:02:0\d, step 1\n", text)
    text, has_ended = look(tmp_path / "a", 80)
    assert has_ended and "stopped; rerun its command to resume, step 1\n" in text
