"""`trimsft tokens` and `measure_tokens`, as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import disable_progress_bars
from typer.testing import CliRunner

from tests.data.toys import CHAT, write
from tests.tokens.tiny import ROWS, make_folder
from trimsft import cli
from trimsft.errors import UsageError
from trimsft.tokens.measure import TokenSettings, measure_tokens
from trimsft.tokens.table import read_token_table

disable_progress_bars()


def run(*arguments):
    return CliRunner().invoke(cli.app, ["tokens", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data file, with the current directory beside it."""
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "rows.jsonl", ROWS)


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
    assert other.exit_code == 2 and "replace this one by overwrite\n" in other.stderr
    assert run(folder, "--data", data, "--limit", 6, "--overwrite").exit_code == 0


def test_several_models_and_a_sample(folder, data, tmp_path) -> None:
    models, seen = (str(folder), str(make_folder(tmp_path / "phi", "phi"))), []
    settings = TokenSettings(models=models, data=str(data), sample=4, seed=3, out=Path("both"))
    tables = measure_tokens(settings, on_progress=lambda *progress: seen.append(progress))
    assert tables.incomparable is None and [one.model for one in tables.summaries] == list(models)
    assert {("llama", 4, 4), ("phi", 4, 4)} <= set(seen)
    one, two = (read_token_table(Path("both") / name / "tokens.parquet") for name in ("llama", "phi"))
    assert one.metadata["data"] == two.metadata["data"] and one.metadata["data"]["rows"] == 4
    assert one["token_id"].tolist() == two["token_id"].tolist() and one["gap"].tolist() != two["gap"].tolist()


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
    (tmp_path / "run").mkdir()
    (tmp_path / "run/manifest.json").write_text("{}")

    def places(*models, out=None):
        settings = TokenSettings(models=models, data="x.jsonl", out=None if out is None else Path(out))
        return list(map(str, settings.places().values()))

    assert places("run", "org/hub-name") == ["run/tokens.parquet", "tokens-hub-name.parquet"]
    assert places("run", out="x.parquet") == ["x.parquet"] and places("run", out="x") == ["x/tokens.parquet"]
    assert places("run", "plain", out="x") == ["x/run/tokens.parquet", "x/plain/tokens.parquet"]
    for twice in (("run", "run"), ("a/m", "b/m")):
        with pytest.raises(UsageError, match="name it once"):
            places(*twice)
