"""`trimsft tokens` and `measure_tokens`, as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import disable_progress_bars
from typer.testing import CliRunner

from tests.tokens.tiny import CHAT, ROWS, make_folder
from trimsft import cli
from trimsft.errors import UsageError
from trimsft.tokens.measure import TokenSettings, measure_tokens
from trimsft.tokens.table import read_token_table

disable_progress_bars()


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data file, with the current directory beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(*arguments):
    return CliRunner().invoke(cli.app, ["tokens", *map(str, arguments)], catch_exceptions=False)


def test_a_table_and_what_it_says(folder, data, tmp_path) -> None:
    words = (folder, "--data", data, "--limit", 5, "--device", "cpu")
    result = run(*words, "--json")
    (said,) = json.loads(result.stdout)["tables"]
    assert said["path"] == "tokens-llama.parquet" and said["is_new"]
    table = read_token_table(tmp_path / "tokens-llama.parquet", examples=range(99))
    assert said["tokens"] == len(table) and said["examples"] == 5
    assert said["mean_nll"] == pytest.approx(table["nll"].mean())
    assert said["median_gap"] == pytest.approx(np.median(table["gap"]))
    assert said["first_choice"] == pytest.approx((table["rank"] == 1).mean())
    weights = np.exp(-((table["gap"].astype(float) - 1.5) ** 2) / (2 * 0.8**2))
    assert said["effective_ratio"] == pytest.approx(weights.sum() ** 2 / (len(weights) * (weights**2).sum()), rel=1e-4)
    assert said["high_weight"] == pytest.approx((weights > 0.5).mean())
    again = run(*words)
    assert again.exit_code == 0 and "R_eff" in again.stdout and "Wrote" not in again.stderr
    assert said["verdict"]["text"] in " ".join(again.stdout.split())
    assert f"  trimsft train --model {folder} --data {data} --objective auto-trim\n" in again.stdout
    assert "tokens-llama.parquet is there already, made with the same inputs; left as it is" in again.stderr
    flat = json.loads(run(*words, "--objective", "trimsft.objectives:SFT", "--json").stdout)["tables"][0]
    assert (flat["objective"], flat["effective_ratio"], flat["high_weight"]) == ("trimsft.objectives:SFT", 1.0, 1.0)
    other = run(folder, "--data", data, "--limit", 6)
    assert other.exit_code == 2 and "replace this one; set --overwrite\n" in other.stderr
    assert run(folder, "--data", data, "--limit", 6, "--overwrite").exit_code == 0


def test_several_models_and_a_sample(folder, phi, data) -> None:
    models, seen = (str(folder), str(phi)), []
    settings = TokenSettings(models=models, data=str(data), sample=4, seed=3, out=Path("both"))
    tables = measure_tokens(settings, on_progress=lambda *progress: seen.append(progress))
    assert tables.incomparable is None and [one.model for one in tables.summaries] == list(models)
    assert {("llama", 4, 4), ("phi", 4, 4)} <= set(seen)
    one, two = (read_token_table(Path("both") / name / "tokens.parquet") for name in ("llama", "phi"))
    assert one.metadata["data"] == two.metadata["data"] and one.metadata["data"]["rows"] == 4
    assert one["token_id"].tolist() == two["token_id"].tolist() and one["gap"].tolist() != two["gap"].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("./nowhere --data rows.jsonl", "model: no such folder: './nowhere'"),
        ("--data rows.jsonl --seed 1", "--seed: has no effect without a sample, got 1"),
        ("--data rows.jsonl --device gpu9x:", "--device: must be auto, cpu, cuda or cuda:N"),
        ("--data rows.jsonl --out rows.jsonl", "--out: must be a folder, or for one model a file that ends in .parq"),
        ("--data rows.jsonl --out dir.parquet", "--out: must be a folder, or for one model a file that ends in .par"),
        ("--data chat.jsonl", "model: its tokenizer has no chat template, which rows of messages need; take a model"),
        ("--data chat.jsonl --template plain", "--template: has no effect on data without problems"),
    ],
)
def test_bad_usage_gets_one_line(arguments, message, folder, data, tmp_path) -> None:
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    (tmp_path / "dir.parquet").mkdir()
    before = sorted(tmp_path.iterdir())
    model = folder if "--data" in arguments.split()[:1] else arguments.split()[0]
    result = run(model, *arguments.removeprefix(str(model)).split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert "trimsft: " in result.stderr and message in result.stderr.splitlines(keepends=True)[-1]
    assert sorted(tmp_path.iterdir()) == before


def test_tables_that_cannot_be_compared_say_why(folder, data, tmp_path) -> None:
    other = make_folder(tmp_path / "chatty", chat=CHAT)
    result = run(folder, other, "--data", data, "--out", "both", "--json")
    said = json.loads(result.stdout)
    assert result.exit_code == 0 and not said["comparable"]
    assert "template is 'plain' and 'chat'; make both with the same one" in said["reason"]
    assert "trimsft: --template: " in result.stderr
    alike = run(folder, other, "--data", data, "--out", "alike", "--template", "plain", "--json")
    assert json.loads(alike.stdout)["comparable"] and json.loads(alike.stdout)["reason"] is None


def test_where_tables_go(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run/model", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/manifest.json").write_text("{}")

    def places(*models, out=None):
        settings = TokenSettings(models=models, data="x.jsonl", out=None if out is None else Path(out))
        return list(map(str, settings.places().values()))

    assert places("run", "plain", "org/hub-name") == [
        "run/tokens.parquet", "tokens-plain.parquet", "tokens-hub-name.parquet",
    ]  # fmt: skip
    assert places("run/model") == ["tokens-run.parquet"]
    (tmp_path / "link").symlink_to("plain")
    assert places("link", "plain/../plain") == ["tokens-link.parquet", "tokens-plain.parquet"], "as the user wrote it"
    assert places(".") == [f"tokens-{tmp_path.name}.parquet"]
    assert places("run", out="x.parquet") == ["x.parquet"] and places("run", out="x") == ["x/tokens.parquet"]
    assert places("run", "plain", out="x") == ["x/run/tokens.parquet", "x/plain/tokens.parquet"]
    with pytest.raises(UsageError, match=r"out: must be a folder, or for one model .*, got 'x\.parquet'"):
        places("run", "plain", out="x.parquet")
    for twice in (("run", "run"), ("a/m", "b/m")):
        with pytest.raises(UsageError, match="name it once"):
            places(*twice)
