"""The record: what may go on, what is refused, and what a kill leaves behind."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import Problem, fingerprint, read_problems
from trimsft.evaluate.samples import GREEDY, Key, Protocol, Sample, SampleRecord

from .scripted import complete

PROBLEMS = [Problem("a", "1+1?", "2"), Problem("b", "2+2?", "4")]
SETTINGS = Protocol(
    benchmark="mine",
    problems={"count": 2, "sha256": fingerprint(PROBLEMS)},
    prompt={"example": "x" * 500 + "one"},
    sampling={"temperature": 1.0, "stop": []},
    samples=2,
    temperatures=[],
    temperature_samples=0,
    seed=0,
    details={"versions": "1"},
)


def settings_of(problems: list[Problem], **changes: Any) -> Protocol:
    return replace(SETTINGS, problems={"count": len(problems), "sha256": fingerprint(problems)}, **changes)


def sample(problem: str, number: int, text: str = "It is 2.") -> Sample:
    return Sample(problem, number, seed=7, text=text, tokens=3, finish="stop", prompt_sha="0f")


@pytest.fixture
def record(tmp_path: Path) -> SampleRecord:
    record = SampleRecord(tmp_path / "eval" / "mine")
    record.settle(SETTINGS, PROBLEMS)
    return record


@pytest.fixture
def begun(record: SampleRecord) -> SampleRecord:
    """With a first sample, from which on its settings bind."""
    record.append(sample("b", 1))
    return record


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


def test_what_is_recorded_is_not_missing(record: SampleRecord) -> None:
    keys = SETTINGS.keys(PROBLEMS)
    assert [key[:2] for key in keys] == [("a", GREEDY), ("a", 0), ("a", 1), ("b", GREEDY), ("b", 0), ("b", 1)]
    assert Key("b", 1) in keys and Key("b", 2) not in keys and Key("c", 0) not in keys
    record.append(sample("a", 1))
    record.append(sample("b", GREEDY))
    for reader in (record, SampleRecord(record.folder)):
        assert reader.missing(keys) == [Key("a", GREEDY), Key("a", 0), Key("b", 0), Key("b", 1)]
    assert list(record) == [sample("a", 1), sample("b", GREEDY)]
    record.close()
    record.samples_path.write_bytes(record.samples_path.read_bytes() * 2)
    with pytest.raises(RunError, match=r"samples\.jsonl, line 3: sample 1 of 'a' occurs twice"):
        list(SampleRecord(record.folder))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 4, "seed": 1}, "seed: was 0, now 1"),  # what is asked for is not complained about
        ({"sampling": {"temperature": 0.6, "stop": []}}, "sampling.temperature: was 1.0, now 0.6"),
        ({"sampling": {"temperature": 1.0, "stop": ["\n"]}}, r"sampling.stop: was \[\], now"),
        ({"prompt": {"example": "x" * 500 + "two"}}, r"prompt.example: was 'x+\.\.\.x+one', now"),
    ],
)
def test_other_settings_are_refused(begun: SampleRecord, change: dict[str, Any], says: str) -> None:
    before = begun.settings_path.read_bytes()
    with pytest.raises(RunError, match=f"holds an evaluation with other settings: {says}") as error:
        begun.settle(replace(SETTINGS, **change), PROBLEMS)
    assert len(str(error.value)) < 800 and begun.settings_path.read_bytes() == before


def test_settings_bind_nobody_before_the_first_sample(record: SampleRecord) -> None:
    """A refused first request, or a kill during the first load of a model, must not block the corrected command."""
    other = settings_of(PROBLEMS[:1], seed=4, samples=1)
    record.settle(other, PROBLEMS[:1])
    assert record.protocol() == other and read_problems(record.problems_path) == PROBLEMS[:1]


def test_samples_of_unknown_origin_are_refused(record: SampleRecord) -> None:
    record.append(sample("a", 0))
    record.settings_path.unlink()
    for refuse in (lambda: record.settle(SETTINGS, PROBLEMS), lambda: complete(record.folder)):
        with pytest.raises(RunError, match=r"settings\.json is missing, so it is not known what is recorded here"):
            refuse()
    record.settings_path.write_text("{")
    with pytest.raises(RunError, match=r"settings\.json: invalid JSON"):
        record.settle(SETTINGS, PROBLEMS)
