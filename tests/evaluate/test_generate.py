"""Filling a record: the protocol, going on after a kill, failures, and what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.processes import start, wait_for
from trimsft.errors import RunError, RunInUse
from trimsft.evaluate import run as run_module
from trimsft.evaluate.prompts import make_prompts
from trimsft.evaluate.run import fill, sample_seed
from trimsft.evaluate.samples import IncompleteEvaluation, Key, SampleRecord

from .scripted import PROBLEMS, ScriptedEngine, all_requests, answer, complete, evaluation, run

TOTAL = 6 * 4


def lines(folder: Path) -> list[bytes]:
    return (folder / "samples.jsonl").read_bytes().splitlines()


def test_every_sample_is_recorded_once_with_a_seed_of_its_own(tmp_path: Path) -> None:
    _, engine = run(tmp_path)
    samples = complete(tmp_path)
    assert len(samples) == len({sample.key for sample in samples}) == len({sample.seed for sample in samples}) == TOTAL
    assert all(sample.text == answer(request) for sample, request in zip(samples, engine.requests, strict=True))
    again, idle = run(tmp_path)
    assert again == 0 and idle.requests == []


def test_seeds_depend_on_problem_and_sample_only() -> None:
    wide = all_requests(samples=8)
    narrow = all_requests(samples=2)
    assert all(request.seed == wide[key].seed for key, request in narrow.items())
    assert sample_seed(0, Key("a", 1)) != sample_seed(1, Key("a", 1))
    assert sample_seed(0, Key("a", 11)) != sample_seed(0, Key("a1", 1))
    assert all(0 <= request.seed < 2**31 for request in wide.values())


def test_a_kill_costs_what_was_in_flight(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    folder, path = tmp_path / "killed", tmp_path / "killed/samples.jsonl"
    process = start("tests.evaluate.scripted", str(folder), "0.2")
    try:
        wait_for(process, lambda: path.exists() and len(lines(folder)) >= 3)
        with pytest.raises(RunInUse, match=f"in use by process {process.pid}"):
            run(folder)
    finally:
        process.kill()
        process.communicate()
    os.truncate(path, path.stat().st_size - 100)  # what no kill can be timed to do: half of a line
    before = lines(folder)[:-1]
    run(folder)
    assert lines(folder)[: len(before)] == before and 2 <= len(before) < TOTAL
    assert sorted(lines(folder)) == sorted(lines(tmp_path / "whole"))


def test_without_a_sample_there_is_no_score(tmp_path: Path) -> None:
    broken = ScriptedEngine(answer, fails=lambda r: "no luck" if "What is 2+1?" in r.prompt else None)
    record = SampleRecord(tmp_path)
    assert fill(record, evaluation(), broken) == TOTAL - 4
    with pytest.raises(IncompleteEvaluation, match=r"4 of 24 samples are missing, .*no luck"):
        record.require_complete(record.protocol().keys(PROBLEMS))
    later, engine = run(tmp_path)
    assert later == len(engine.requests) == 4


def test_what_has_grown_is_what_would_have_been_asked_at_once(tmp_path: Path) -> None:
    """First the greedy answers to two problems, then samples, then all of it: the same as in one go."""
    few: dict[str, Any] = {"problems": PROBLEMS[:2]}
    few["prompts"] = make_prompts([p.problem for p in PROBLEMS[:2]], template="plain")
    steps: list[dict[str, Any]] = [few | {"samples": 0}, few, {}]
    grown = SampleRecord(tmp_path / "grown")
    for step, generated in zip(steps, (2, 6, TOTAL - 8), strict=True):
        assert fill(grown, evaluation(**step), ScriptedEngine(answer)) == generated
        assert not (grown.folder / "scores.json").exists()  # of another number of samples
        (grown.folder / "scores.json").write_text("{}")
    run(tmp_path / "whole")
    assert complete(tmp_path / "grown") == complete(tmp_path / "whole")
    names = ("settings.json", "problems.jsonl")
    assert all((tmp_path / "grown" / n).read_bytes() == (tmp_path / "whole" / n).read_bytes() for n in names)


def test_a_dead_server_is_not_asked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "GIVE_UP_AFTER", 5)
    engine = ScriptedEngine(answer, fails=lambda request: "gone")
    assert fill(SampleRecord(tmp_path), evaluation(), engine) == 0
    assert len(engine.requests) == 5


def test_settings_bind_nobody_before_the_first_sample(tmp_path: Path) -> None:
    """A refused first request, or a kill during the first load of a model, must not block the corrected command."""
    fill(SampleRecord(tmp_path), evaluation(), ScriptedEngine(answer, fails=lambda request: "refused"))
    assert fill(SampleRecord(tmp_path), evaluation(seed=4), ScriptedEngine(answer)) == TOTAL


def test_samples_of_unknown_origin_are_refused(tmp_path: Path) -> None:
    run(tmp_path)
    record, settings = SampleRecord(tmp_path), tmp_path / "settings.json"
    settings.write_text("{")
    with pytest.raises(RunError, match=r"settings\.json: invalid JSON"):
        run(tmp_path)
    settings.unlink()
    with pytest.raises(FileNotFoundError, match=r"settings\.json"):  # what is recorded here is not known
        run(tmp_path)
    record.samples_path.write_bytes(record.samples_path.read_bytes() * 2)
    with pytest.raises(RunError, match=r"samples\.jsonl, line 25: sample -1 of 'p0' occurs twice"):
        list(record)


@pytest.mark.parametrize("place", ["run/eval/mine/samples.jsonl", "run/eval/mine/.lock", "run/eval", "run/eval/mine"])
def test_a_record_is_not_written_through_links(tmp_path: Path, place: str) -> None:
    link, target = tmp_path / place, tmp_path / "target"
    link.parent.mkdir(parents=True)
    if link.suffix or link.name == ".lock":
        target.write_text("kept")
    else:
        target.mkdir()
    link.symlink_to(target)
    match = f"^{link}: is a link, which is not written through"
    with pytest.raises(RunError, match=match), SampleRecord(tmp_path / "run/eval/mine").lock():
        pass
    assert target.read_text() == "kept" if target.is_file() else not any(target.iterdir())
