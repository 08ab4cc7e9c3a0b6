"""`trimsft tokens` and `trimsft report`, as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import disable_progress_bars
from typer.testing import CliRunner

from tests.tokens.tiny import CHAT, ROWS, make_folder, make_table
from trimsft import cli
from trimsft.errors import RunError
from trimsft.report.command import named_runs, place_for_report, places_for, write_all
from trimsft.tokens import read_token_table

disable_progress_bars()


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data file, with the current directory beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), catch_exceptions=False)


@pytest.mark.parametrize("command", ["tokens", "report"])
def test_help_has_an_example(command) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0 and f"  trimsft {command}" in result.stdout


def test_a_table_and_what_it_says(folder, data, tmp_path) -> None:
    result = run("tokens", folder, "--data", data, "--limit", 5, "--top", 2, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(result.stdout)["tables"]
    assert told["path"] == "tokens-llama.parquet"
    table = read_token_table(tmp_path / "tokens-llama.parquet", first_examples=99)
    assert told["tokens"] == len(table) and told["examples"] == 5
    assert told["mean_nll"] == pytest.approx(table["nll"].mean())
    assert told["median_gap"] == pytest.approx(np.median(table["gap"]))
    assert told["first_choice"] == pytest.approx(100 * (table["rank"] == 1).mean())
    weights = np.exp(-((table["gap"].astype(float) - 1.5) ** 2) / (2 * 0.8**2))
    assert told["effective_ratio"] == pytest.approx(weights.sum() ** 2 / (len(weights) * (weights**2).sum()), rel=1e-4)
    assert told["high_weight"] == pytest.approx(100 * (weights > 0.5).mean())
    assert table["top_ids"].shape[1] == 2
    again = run("tokens", folder, "--data", data, "--limit", 5, "--top", 2)
    assert again.exit_code == 0 and "R_eff" in again.stdout
    assert result.stderr.endswith("Wrote tokens-llama.parquet\n") and told["is_new"]
    assert "Wrote" not in again.stderr
    assert "tokens-llama.parquet is there already, made with the same inputs; left as it is" in again.stderr
    other = run("tokens", folder, "--data", data, "--limit", 6)
    assert other.exit_code == 2
    assert "tokens-llama.parquet: is there, made with other inputs (data: was 5 rows" in other.stderr
    assert "name another file, or replace it with --overwrite\n" in other.stderr
    assert run("tokens", folder, "--data", data, "--limit", 6, "--overwrite").exit_code == 0


def test_several_models_and_a_sample(folder, data, tmp_path) -> None:
    other = make_folder(tmp_path / "phi", "phi")
    result = run("tokens", folder, other, "--data", data, "--sample", 4, "--seed", 3, "--out", "both", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["comparable"] and [Path(one["path"]).parent.name for one in told["tables"]] == [
        "llama",
        "phi",
    ]
    one, two = (read_token_table(tmp_path / "both" / name / "tokens.parquet") for name in ("llama", "phi"))
    assert one.metadata["data"] == two.metadata["data"] and one.metadata["data"]["rows"] == 4
    assert one["token_id"].tolist() == two["token_id"].tolist() and one["gap"].tolist() != two["gap"].tolist()


def test_the_last_share_makes_the_table(folder, data, monkeypatch) -> None:
    monkeypatch.setattr("trimsft.tokens.passes.WINDOW", 6)
    result = run("tokens", folder, "--data", data, "--shard", "2/2", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["pending"] == ["tokens-llama.parquet"]
    assert "this share is done; tokens-llama.parquet is made with the last one" in result.stderr
    assert "R_eff" in run("tokens", folder, "--data", data, "--shard", "1/2").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "none.jsonl"], "trimsft: --data: no such file or folder: 'none.jsonl'"),
        (["--data", "rows.jsonl", "--seed", "1"], "trimsft: --seed: 1 has no effect without --sample"),
        (["--data", "rows.jsonl", "--limit", "0"], "trimsft: --limit: '0' must be a whole number"),
        (
            ["--data", "rows.jsonl", "--template", "chatty"],
            "trimsft: --template: unknown name 'chatty'; did you",
        ),
        (["--data", "rows.jsonl", "--device", "gpu9x:"], "trimsft: --device: 'gpu9x:' must be auto, cpu"),
        (["--data", "rows.jsonl", "--device", "foo"], "trimsft: --device: 'foo' must be auto, cpu, cuda or"),
        (["--data", "rows.jsonl", "--top", "5000"], "trimsft: --top: 5,000 is more than the 288 tokens"),
        (["--data", "rows.jsonl", "--out", "rows.jsonl"], "trimsft: --out: 'rows.jsonl' is a file; name a"),
        (["--data", "rows.jsonl", "--out", "rows.jsonl/x"], "trimsft: --out: 'rows.jsonl' is a file; name a"),
        (["--data", "rows.jsonl", "--out", "dir.parquet"], "trimsft: --out: 'dir.parquet' is a folder"),
        (["--data", "gaps.jsonl"], "more rows); correct them, or drop them with --drop-incomplete\n"),
        (["--data", "rows.jsonl", "--shard", "3/2"], "trimsft: --shard: '3/2' must be K/N"),
        (
            ["--data", "rows.jsonl", "--max-length", "5", "--out", "new/t.parquet"],
            "trimsft: --max-length: 5 leaves no token",
        ),
        (
            ["--data", "chat.jsonl"],
            "trimsft: --data: 'chat.jsonl' has the columns messages; a token table needs",
        ),
        (
            ["--data", "rows.jsonl", "--problem-column", "question"],
            "trimsft: rows.jsonl: no column 'question'; it has problem, solution. Name the right ones with "
            "--problem-column and --solution-column\n",
        ),
    ],
)
def test_bad_usage_gets_one_line(arguments, message, folder, data, tmp_path) -> None:
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    (tmp_path / "gaps.jsonl").write_text(GAPS)
    (tmp_path / "dir.parquet").mkdir()
    before = sorted(tmp_path.iterdir())
    result = run("tokens", folder, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert sorted(tmp_path.iterdir()) == before


GAPS = "".join(json.dumps(row) + "\n" for row in [*ROWS, {"problem": "x"}, {"problem": "y"}])


def test_incomplete_rows_are_dropped_where_asked_for(folder, data, tmp_path) -> None:
    (tmp_path / "gaps.jsonl").write_text(GAPS)
    result = run("tokens", folder, "--data", "gaps.jsonl", "--drop-incomplete", "--json")
    assert json.loads(result.stdout)["tables"][0]["examples"] == len(ROWS)
    assert "trimsft: dropped 2 of 14 rows" in result.stderr


def test_what_a_maximum_length_takes_is_said(folder, data, tmp_path) -> None:
    result = run("tokens", folder, "--data", data, "--max-length", 100, "--json")
    (told,) = json.loads(result.stdout)["tables"]
    assert told["cut"]["rows_cut"] > 0 and told["cut"] == read_token_table(Path(told["path"])).metadata["cut"]
    assert told["max_length"] == 100 and told["template"] == "plain"
    rows, tokens = told["cut"]["rows_cut"], told["cut"]["tokens_cut"]
    said = f"trimsft: {told['path']}: --max-length=100 cuts {rows} rows by {tokens} tokens"
    assert said in result.stderr
    assert said in run("tokens", folder, "--data", data, "--max-length", 100).stderr


def test_tables_that_cannot_be_compared_say_why(folder, data, tmp_path) -> None:
    other = make_folder(tmp_path / "chatty", chat=CHAT)
    result = run("tokens", folder, other, "--data", data, "--out", "both", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and not told["comparable"]
    assert "template is 'plain' and 'chat'; make both with the same one" in told["reason"]
    assert "--template is 'plain' and 'chat'" in result.stderr
    alike = run("tokens", folder, other, "--data", data, "--out", "alike", "--template", "plain", "--json")
    assert json.loads(alike.stdout)["comparable"] and json.loads(alike.stdout)["reason"] is None


def test_models_that_are_not_there(data) -> None:
    for model in ("./nowhere", "no-such-model-anywhere"):
        result = run("tokens", model, "--data", data)
        assert result.exit_code == 2
        assert result.stderr.startswith("trimsft: model: ")


def test_logits_that_are_not_finite_fail(folder, data, monkeypatch) -> None:
    from trimsft.tokens import measure as tokens

    load = tokens.load_model

    def broken(*args):
        model = load(*args)
        model.get_output_embeddings().weight.data[3] = torch.nan
        return model

    monkeypatch.setattr(tokens, "load_model", broken)
    result = run("tokens", folder, "--data", data)
    assert result.exit_code == 1 and "non-finite logits" in result.stderr


def test_where_tables_go(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run/model", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/manifest.json").write_text("{}")
    assert places_for(["run", "plain", "org/hub-name"], None) == {
        "run": Path("run/tokens.parquet"),
        "plain": Path("tokens-plain.parquet"),
        "org/hub-name": Path("tokens-hub-name.parquet"),
    }
    assert places_for(["run/model"], None) == {"run/model": Path("tokens-run.parquet")}
    assert places_for(["run"], Path("x.parquet")) == {"run": Path("x.parquet")}
    assert places_for(["run"], Path("x")) == {"run": Path("x/tokens.parquet")}
    assert places_for(["run", "plain"], Path("x"))["plain"] == Path("x/plain/tokens.parquet")
    with pytest.raises(ValueError, match=r"'x\.parquet' is one file for 2 models"):
        places_for(["run", "plain"], Path("x.parquet"))
    for twice in (["run", "run"], ["a/m", "b/m"]):
        with pytest.raises(ValueError, match="name it once"):
            places_for(twice, None)


TEXTS = [["It", " is", " \\", "boxed", "{", "4", "}", "<eos>"], ["So", " 1", "+", "1", "=", "2", "<eos>"]]


def test_a_report_of_tables_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "tokens-base.parquet", TEXTS, prompts=("What is 2+2?",))
    (tmp_path / "runs/trim").mkdir(parents=True)
    make_table(tmp_path / "runs/trim/tokens.parquet", TEXTS, shift=1.0)
    result = run("report", "Base=tokens-base.parquet", "runs/trim", "--out", "out", "--title", "Two of them", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["page"] == "out/report.html" and "Two of them" in Path("out/report.html").read_text()
    assert all(Path(path).is_file() for path in told["files"]) and len(told["files"]) > 1
    assert run("report", "runs/trim").exit_code == 0
    assert Path("runs/trim/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "trimsft: runs: no such run directory or token table: 'nowhere'"),
        (["a.parquet", "--bandwidth", "0"], "trimsft: TrimSFT: bandwidth must be a finite number > 0"),
        (["a.parquet", "--gamma", "-1"], "trimsft: FSFT: gamma must be a finite number >= 0"),
        (["a.parquet", "--out", "b.html"], "trimsft: out: 'b.html' must be a folder"),
        (["a.parquet", "--sweep", "none.json"], "trimsft: none.json: not readable"),
    ],
)
def test_reports_that_cannot_be_made(arguments, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "a.parquet", TEXTS)
    result = run("report", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet"]


def test_labels(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/sft", "runs/a=b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs/sft/tokens.parquet").touch()
    (tmp_path / "tokens-base.parquet").touch()
    (tmp_path / "runs/a=b/eval/amc").mkdir(parents=True)
    (tmp_path / "runs/a=b/eval/amc/scores.json").touch()
    assert named_runs(["tokens-base.parquet", "runs/sft", "X=runs/sft/tokens.parquet", "runs/a=b"]) == {
        "base": Path("tokens-base.parquet"),
        "sft": Path("runs/sft"),
        "X": Path("runs/sft/tokens.parquet"),
        "a=b": Path("runs/a=b"),
    }
    with pytest.raises(RunError, match="two are called 'sft'"):
        named_runs(["runs/sft", "runs/sft/tokens.parquet"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match=r"'notes\.txt' must be a run directory or a token table"):
        named_runs(["notes.txt"])
    assert place_for_report({"a": Path("runs/sft")}, None) == Path("runs/sft")
    assert place_for_report({"a": Path("tokens-base.parquet")}, None) == Path("report")
    assert place_for_report({"a": Path("runs/sft"), "b": Path("x")}, None) == Path("report")


@pytest.mark.parametrize("inside", ["", "eval/amc/samples.jsonl", "tokens.parquet/part"])
def test_folders_that_are_no_runs(inside, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "nd.parquet"):
        place = tmp_path / name / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch() if inside else place.mkdir()
        before = sorted(tmp_path.rglob("*"))
        result = run("report", name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"trimsft: runs: '{name}' has neither tokens.parquet nor eval/" in result.stderr
        assert sorted(tmp_path.rglob("*")) == before


def test_a_report_draws_the_sweep(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "a.parquet", TEXTS)
    points = [{"margin": m, "bandwidth": 0.8, "value": 0.5, "low": 0.4, "high": 0.6, "seeds": 1} for m in (1, 2)]
    sweep = {"metric": "average@8", "benchmarks": ["amc"], "points": points}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    assert run("report", "a.parquet", "--sweep", "sweep.json").exit_code == 0
    assert Path("report/figures/ablation.png").is_file()


def test_tables_that_cannot_be_compared_are_told(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [make_table(tmp_path / f"{count}.parquet", TEXTS[:count]) for count in (1, 2)]
    told: list[str] = []
    runs = {path.stem: path for path in tables}
    write_all(runs, Path("out"), title=None, parameters={}, warn=told.append)
    assert len(told) == 1 and "'1' and '2' are not about the same tokens" in told[0]
