"""What `trimsft watch` knows of trainings: lines that arrive, states, several runs; and how letters draw it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import RunError
from trimsft.report.watch.follow import AT_WORK, FINEST, MOST_RUNS, SILENT, Snapshot, Training, Watched
from trimsft.report.watch.text import sparkline, text_of
from trimsft.runs import RunLock

NOW = 1_800_000_000.0


class Clock:
    """The time, as far as the watch knows."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def line(step: int, **more: Any) -> dict[str, Any]:
    time = f"2026-11-16T08:00:{step:02d}+0000"
    return {"step": step, "time": time, "loss": 1 / step, "nll": 2 / step, "epoch": step / 10, **more}


def write(folder: Path, *records: Mapping[str, Any] | str) -> Path:
    """Append lines, as a training does at NOW; a text is written as it is."""
    path = folder / "train" / "telemetry.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records)
    os.utime(path, (NOW, NOW))
    return path


def begin(folder: Path, objective: str = "trim", **config: Any) -> Path:
    folder.mkdir(parents=True)
    settings = {"objective": objective, "num_train_epochs": 1, **config}
    (folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    return folder


def only(snapshot: Snapshot) -> Training:
    (run,) = snapshot.runs
    return run


def test_a_training_from_nothing_to_its_end(tmp_path: Path) -> None:
    clock = Clock()
    run = tmp_path / "later"
    watched = Watched(run, clock=clock)
    assert only(watched.look()).state == "waiting" and f"waits for a training in {run}" in only(watched.look()).said
    begin(run, margin=1.0, bandwidth=0.5)
    with RunLock(run / ".lock"):
        assert only(watched.look()).said == "has begun; nothing is logged yet"
        write(run, line(1))
        first = watched.look()
        assert only(first).said == "running, step 1, 10 %" and only(first).label == "TrimSFT"
        assert only(first).band == (0.5, 1.5)
        assert watched.look().version == first.version
        write(run, line(2), '{"step": 3, "lo')  # half of a line
        second = watched.look()
        assert second.version != first.version and [one.step for one in only(second).course] == [1, 2]
        assert only(second).said == "running, step 2, 20 %, about 0:00:08 left"  # a second for each tenth
        clock.now += 10 * SILENT
        assert only(watched.look()).state == "running"  # its lock is held, however quiet it is
    write(run, 'ss": 1, "nll": 1}\n', {"step": 3, "eval_nll": 0.7}, {"step": 3, "train_runtime": 61.5})
    done = watched.look()
    assert done.is_over and only(done).said == "finished at step 3, after 0:01:01"
    assert only(done).evaluations == [(3, 0.7)]


def test_an_interrupted_training_is_asked_for_its_lock_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trimsft.report.watch import follow

    clock = Clock()
    clock.now += 2 * AT_WORK
    run = begin(tmp_path / "run")
    write(run, line(1))
    (run / ".lock").write_text('{"host": "here", "pid": 1, "since": "today"}\n')  # of a process that was killed
    asked = []
    monkeypatch.setattr(follow, "holder_of", asked.append)  # nobody
    watched = Watched(run, clock=clock)
    for _ in range(3):
        assert only(watched.look()).said == "interrupted at step 1; rerun its command to resume"
    assert len(asked) == 1
    os.utime(write(run, line(2)), (NOW + 1, NOW + 1))
    watched.look()
    assert len(asked) == 2


def test_a_trainer_in_python_has_no_lock_to_ask(tmp_path: Path) -> None:
    clock = Clock()
    folder = write(tmp_path / "run", line(1)).parent
    assert [only(Watched(path, clock=clock).look()).state for path in (folder, folder / "telemetry.jsonl")] == [
        "running"
    ] * 2
    clock.now += 2 * SILENT
    assert only(Watched(folder, clock=clock).look()).said == "at step 1; no line for 0:20:00"


def test_a_resumed_training_is_read_again(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    path = write(run, line(1), line(2), line(3))
    watched = Watched(run)
    assert [one.step for one in only(watched.look()).course] == [1, 2, 3]
    path.write_text(json.dumps(line(1)) + "\n")  # cut to its checkpoint
    write(run, line(2, nll=9.0))
    assert [(one.step, one.nll) for one in only(watched.look()).course] == [(1, 2.0), (2, 9.0)]


def test_runs_of_a_folder_by_method_and_the_latest_of_many(tmp_path: Path) -> None:
    for name, objective in {"a": "sft", "b": "trim", "c": "trim"}.items():
        write(begin(tmp_path / "runs" / "lab" / name / "seed0", objective), line(1))
    runs = Watched(tmp_path).look().runs
    assert [run.label for run in runs] == ["SFT", "runs/lab/b/seed0", "runs/lab/c/seed0"]
    for number in range(MOST_RUNS):
        path = write(begin(tmp_path / f"{number}", "dft"), line(1))
        os.utime(path, (NOW + 60 + number,) * 2)
    snapshot = Watched(tmp_path).look()
    assert len(snapshot.runs) == MOST_RUNS and snapshot.left_out == 3
    assert {run.objective for run in snapshot.runs} == {"dft"}


def test_the_default_objective_is_known_from_the_manifest(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    write(run, line(1))
    (run / "manifest.json").write_text('{"objective": {"name": "trim", "fingerprint": null}}')
    assert only(Watched(run).look()).label == "TrimSFT"


def test_long_courses_are_thinned_and_keep_their_end(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    path = write(run)
    count = 3 * FINEST - 1
    path.write_text("".join(json.dumps({"step": n, "loss": 1.0, "nll": 1.0}) + "\n" for n in range(1, count + 1)))
    course = only(Watched(run).look()).course
    assert len(course) == FINEST and course[-1].step == count


def test_damage_is_said_with_its_file(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    path = write(run, "no json\n")
    with pytest.raises(RunError, match="a line is not JSON"):
        Watched(run).look()
    run = only(Watched(run).look_kindly())
    assert str(path) in run.said and run.state == "silent"


def test_letters_for_a_terminal(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", "auto-trim")
    moving = [line(n, gate=1 / n, exponent=1.0, gap_p05=-n, gap_p50=n, gap_p95=2 * n) for n in range(1, 5)]
    write(run, *moving, {"step": 4, "eval_nll": 0.25}, {"step": 4, "train_runtime": 3.0})
    text = text_of(Watched(run).look(), 60)
    assert text.splitlines()[0] == "AutoTrim  finished at step 4, after 0:00:03"
    assert "  gap: median         ▁▃▆█           4\n" in text and "nll held out        0.25 at step 4" in text
    assert max(map(len, text.splitlines())) <= 60
    assert "\x1b" not in text_of(Snapshot("", (Training("\x1b[31m", None, "running", "\n"),)), 60)
    assert len(sparkline([float(n) for n in range(1000)], 40)) == 40
