"""`trimsft audit` and `audit`, as a user calls them."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import datasets
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.data.toys import write
from tests.tokens.tiny import ROWS, make_folder
from tests.train.test_batches import CHAT
from trimsft import cli
from trimsft.audit import suspects
from trimsft.audit.run import AuditFolder, AuditSettings, audit
from trimsft.audit.suspects import deal, read_gaps
from trimsft.errors import DataError, RunError
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import write_token_table

LOW = -100.0  # a threshold that every token reaches


def quick(data, model, **options) -> AuditSettings:
    given = {"training": False, "device": "cpu", "out": Path("audit"), **options}
    return AuditSettings(data=str(data), model=str(model), **given)


def run(*arguments):
    return CliRunner().invoke(cli.app, ["audit", *map(str, arguments)], catch_exceptions=False)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_suspects_are_ranked_and_found_in_the_data(data, model) -> None:
    before = data.read_bytes()
    result = audit(quick(data, model, threshold=LOW))
    assert result.flagged == list(range(len(ROWS)))
    scores = sorted({one.row: one.score for one in reversed(result.suspects)}.values(), reverse=True)
    threshold = (scores[2] + scores[3]) / 2  # three rows are above it
    result = audit(quick(data, model, threshold=threshold))
    assert len(result.flagged) == 3
    assert [one.score for one in result.suspects] == sorted((one.score for one in result.suspects), reverse=True)
    assert result.folder.read_suspects() == result.suspects
    assert all(ROWS[one.row]["solution"][one.start : one.end] == one.text for one in result.suspects)
    assert data.read_bytes() == before


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory) -> tuple[AuditSettings, Path]:
    """An audit with training; not to be written to."""
    folder = tmp_path_factory.mktemp("trained")
    data = write(folder / "rows.jsonl", ROWS)
    settings = AuditSettings(
        data=data, model=str(model), out=folder / "audit", device="cpu", learning_rate=0.02, threshold=LOW
    )
    with redirect_stdout(io.StringIO()) as printed:
        audit(settings)
    assert printed.getvalue() == ""  # that is for the command
    return settings, folder / "audit"


def test_a_row_is_judged_by_a_training_on_the_others(trained) -> None:
    settings, path = trained
    folder, parts = AuditFolder(path), deal(len(ROWS), settings.seed)
    for number, part in enumerate(parts, start=1):
        seen = [row["problem"] for row in lines(folder.fold(number).path / "rows.jsonl")]
        assert seen == [row["problem"] for place, row in enumerate(ROWS) if place not in part]
        assert not folder.fold(number).model_dir.exists()
    given, after = read_gaps(folder, settings, len(ROWS))
    table = read_token_table(folder.fold(2).tokens_path)
    is_second = np.isin(given["example"], parts[1])
    assert np.array_equal(after["gap"][is_second], table["gap"]) and np.isfinite(after["gap"]).all()
    # every solution ends alike, which the other rows teach
    assert after["gap"].mean() > given["gap"].mean() + 1


def test_an_audit_that_was_killed_continues(data, model, monkeypatch) -> None:
    settings = quick(data, model, training=True, threshold=LOW)
    trained = []

    def train(run, pairs, settings, rendering):
        trained.append(len(pairs))
        if len(trained) == 2:
            raise KeyboardInterrupt
        (run.path / "model").mkdir(parents=True, exist_ok=True)

    def measure(model, pairs, out, **options):
        return write_token_table(settings.model if Path(model).name == "model" else model, pairs, out, **options)

    monkeypatch.setattr(suspects, "_train", train)
    monkeypatch.setattr(suspects, "write_token_table", measure)
    with pytest.raises(KeyboardInterrupt):
        audit(settings)
    assert not (settings.out / "suspects.jsonl").exists()
    result = audit(settings)
    assert trained == [6, 6, 6] and len(result.flagged) == len(ROWS)  # the first part was not trained again


def test_suspects_are_placed_by_file_and_line(model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "x.jsonl", [{"problem": "no solution"}, *ROWS[:3]])
    with pytest.raises(DataError, match="line 1: 'problem' or 'solution' is missing") as refused:
        audit(quick(data, model))
    assert "drop_incomplete" in (refused.value.hint or "")
    result = audit(quick(data, model, drop_incomplete=True, limit=2, threshold=LOW))
    assert {(one.row, one.place) for one in result.suspects} == {(0, "x.jsonl, line 2"), (1, "x.jsonl, line 3")}
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: datasets.Dataset.from_list(ROWS[:2]))
    result = audit(quick("someone/something", model, threshold=LOW, out=Path("hub")))
    assert {one.place for one in result.suspects} == {f"something (train), row {row}" for row in (0, 1)}


def test_an_audit_of_something_else_is_refused(data, model) -> None:
    settings = quick(data, model)
    audit(settings)
    with pytest.raises(RunError, match="holds a run with other settings: limit"):
        audit(quick(data, model, limit=3))
    write(data, ROWS[:5])
    with pytest.raises(RunError, match="holds a run with other settings: data_sha256"):
        audit(settings)


def test_the_table_fits_80_columns_and_hides_nothing(model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"problem": "?", "solution": "\x1b[31m[bold]so\u202e[/bold] " * 3 + "it is so\n" * 5}] * 2
    result = run(write(tmp_path / "x.jsonl", rows), "--model", model, "--no-training", "--threshold", LOW)
    assert result.exit_code == 0 and "flagged" in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout
    assert "\ufffd" in result.stdout and "[bold" in result.stdout
    told = json.loads(run(tmp_path / "x.jsonl", "--model", model, "--no-training", "--threshold", 90, "--json").stdout)
    assert told["suspects"] == [] and told["rows"] == 2 and Path(told["ranking"]).exists()


# ---- other forms than problem and solution

CHATS = [
    {"conversations": [{"from": "human", "value": row["problem"]}, {"from": "gpt", "value": row["solution"]}], "id": 7}
    for row in ROWS[:6]
]


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("models") / "chatty", chat=CHAT)


@pytest.mark.parametrize("training", [False, True])
def test_the_answers_of_chats_are_judged_and_found_again(training, chatty, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "chats.jsonl", CHATS)
    result = audit(quick(data, chatty, threshold=LOW, training=training, train_on="assistant"))
    assert result.flagged == list(range(len(CHATS))) and result.suspects[0].place.startswith("chats.jsonl, line ")
    for one in result.suspects:
        solution = CHATS[one.row]["conversations"][1]["value"]  # type: ignore[index, union-attr]
        assert (solution + "<end>")[one.start : one.end] == one.text
    assert all((one.gap_after is None) != training for one in result.suspects)
    if training:
        kept = lines(result.folder.fold(1).path / "rows.jsonl")
        assert [list(row) for row in kept] == [["messages"]] * 3
