"""The record: what may go on, what is refused, and what a kill leaves behind."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import RunError
from trimsft.evaluate import samples as samples_module
from trimsft.evaluate.benchmarks import Problem, fingerprint, write_problems
from trimsft.evaluate.samples import GREEDY, IncompleteEvaluation, Key, ProblemSet, Protocol, Sample, SampleRecord

from .scripted import complete

PROBLEMS = [Problem("a", "1+1?", "2"), Problem("b", "2+2?", "4")]
SETTINGS = Protocol(
    benchmark="mine",
    problems=ProblemSet(2, fingerprint(PROBLEMS)),
    prompt={"example": "x" * 500 + "one"},
    sampling={"temperature": 1.0, "stop": []},
    samples=2,
    greedy=True,
    temperatures=[],
    temperature_samples=0,
    seed=0,
    details={"versions": "1"},
)


def settings_of(problems: list[Problem], **changes: Any) -> Protocol:
    return replace(SETTINGS, problems=ProblemSet(len(problems), fingerprint(problems)), **changes)


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


@pytest.mark.parametrize("place", ["samples.jsonl", ".lock"])
def test_a_record_is_not_written_through_links(tmp_path: Path, place: str) -> None:
    link, target = tmp_path / "run/eval/mine" / place, tmp_path / "target"
    link.parent.mkdir(parents=True)
    target.write_text("kept")
    link.symlink_to(target)
    match = f"^{link}: is a link, which is not written through"
    with pytest.raises(RunError, match=match), SampleRecord(tmp_path / "run/eval/mine").lock():
        pass
    assert target.read_text() == "kept"


@pytest.mark.parametrize("place", ["run/eval", "run/eval/mine"])
def test_a_folder_of_a_run_may_be_no_link(tmp_path: Path, place: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).symlink_to(target)
    match = f"^{tmp_path / place}: is a link, which is not written through"
    with pytest.raises(RunError, match=match), SampleRecord(tmp_path / "run/eval/mine").lock():
        pass
    assert not any(target.iterdir())


def test_a_record_beside_a_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "run/eval/mine").mkdir(parents=True)
    (tmp_path / "run/eval/shared").symlink_to(tmp_path)
    with SampleRecord(tmp_path / "run/eval/mine").lock():
        assert (tmp_path / "run/eval/mine/.lock").is_file()


def test_what_is_recorded_is_not_missing(record: SampleRecord) -> None:
    keys = SETTINGS.keys(PROBLEMS)
    assert [key[:2] for key in keys] == [("a", GREEDY), ("a", 0), ("a", 1), ("b", GREEDY), ("b", 0), ("b", 1)]
    assert Key("b", 1) in keys and Key("b", 2) not in keys and Key("c", 0) not in keys
    record.append(sample("a", 1))
    record.append(sample("b", GREEDY))
    for reader in (record, SampleRecord(record.folder)):
        assert reader.missing(keys) == [Key("a", GREEDY), Key("a", 0), Key("b", 0), Key("b", 1)]
    assert list(record) == [sample("a", 1), sample("b", GREEDY)]
    assert record.problems() == PROBLEMS
    record.close()
    record.samples_path.write_bytes(record.samples_path.read_bytes() * 2)
    with pytest.raises(RunError, match=r"samples\.jsonl, line 3: sample 1 of 'a' occurs twice"):
        list(SampleRecord(record.folder))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 1}, r"samples: was 2, now 1 \(a record never shrinks\)"),
        ({"greedy": False}, r"greedy: was True, now False \(a record never shrinks"),
        ({"samples": 4, "seed": 1}, "seed: was 0, now 1"),  # what may grow is not complained about
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
    assert record.protocol() == other and record.problems() == PROBLEMS[:1]


def test_details_may_differ_and_a_record_may_grow(record: SampleRecord) -> None:
    record.settle(replace(SETTINGS, details={"versions": "2"}), PROBLEMS)
    assert record.protocol().details == {"versions": "2"}
    record.append(sample("a", 0))
    (record.folder / "scores.json").write_text("{}")
    more = [*PROBLEMS, Problem("c", "3+3?", "6")]
    record.settle(settings_of(more, samples=4), more)
    assert record.protocol().samples == 4 and record.problems() == more
    assert list(record) == [sample("a", 0)]
    assert not (record.folder / "scores.json").exists()  # of another number of samples
    with pytest.raises(IncompleteEvaluation, match="14 of 15 samples are missing"):
        complete(record.folder)


@pytest.mark.parametrize(
    ("problems", "says"),
    [
        (PROBLEMS[:1], r"problems: was 2, now 1 \(a record never shrinks"),
        ([*PROBLEMS[::-1], Problem("c", "3+3?", "6")], r"now 3 \(number 1 has another"),
        ([PROBLEMS[0], Problem("b", "2+2?", "5")], "number 2 has another id, text or answer"),
    ],
)
def test_other_problems_are_refused(begun: SampleRecord, problems: list[Problem], says: str) -> None:
    with pytest.raises(RunError, match=says):
        begun.settle(settings_of(problems), problems)
    assert begun.problems() == PROBLEMS
    begun.problems_path.write_bytes(write_problems(problems))
    with pytest.raises(RunError, match=r"problems\.jsonl: holds other problems than those that were asked"):
        begun.problems()


@pytest.mark.parametrize("writes", [0, 1])
def test_killed_while_growing_the_smaller_evaluation_is_whole(
    record: SampleRecord, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before either file is written, or between them: the old settings hold, and both sizes can go on."""
    for key in SETTINGS.keys(PROBLEMS):
        record.append(sample(*key[:2]))
    more = [*PROBLEMS, Problem("c", "3+3?", "6")]
    real, left = samples_module.write_whole, [writes]

    def die(path: Path, content: bytes) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(path, content)

    monkeypatch.setattr(samples_module, "write_whole", die)
    with pytest.raises(KeyboardInterrupt):
        record.settle(settings_of(more, samples=3), more)
    monkeypatch.undo()
    again = SampleRecord(record.folder)
    again.settle(SETTINGS, PROBLEMS)
    assert len(complete(record.folder)) == 6 and again.problems() == PROBLEMS
    again.settle(settings_of(more, samples=3), more)
    assert again.problems() == more and again.protocol().samples == 3


def test_samples_of_unknown_origin_are_refused(record: SampleRecord) -> None:
    record.append(sample("a", 0))
    record.settings_path.unlink()
    for refuse in (lambda: record.settle(SETTINGS, PROBLEMS), lambda: complete(record.folder)):
        with pytest.raises(RunError, match=r"settings\.json is missing, so it is not known what is recorded here"):
            refuse()
    record.settings_path.write_text("{")
    with pytest.raises(RunError, match=r"settings\.json: invalid JSON"):
        record.settle(SETTINGS, PROBLEMS)
