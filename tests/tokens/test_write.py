"""`write_token_table`: its numbers, what rows and models it takes, and how runs are rendered."""

import copy
import json
import os
from dataclasses import asdict

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tokens.tiny import CONFIGS, ROWS, make_folder
from trimsft.data.encode import Encoder, encode
from trimsft.data.load import DataConfig
from trimsft.data.templates import TRAINED_LENGTH, Rendering, choose_template
from trimsft.errors import RunError, UsageError
from trimsft.head import chunked
from trimsft.tokens import forward, write
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import write_token_table
from trimsft.train import TrimSFTConfig

NUMBERS = ("nll", "gap", "entropy", "gradient_norm")


def examples_of(folder, rows=ROWS, **truncation):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Encoder(tokenizer, template=choose_template("auto", tokenizer), **truncation).examples(rows)


def plain_statistics(model, examples):
    """Row by row, from all logits, in the model's own precision up to the logits and in float64 from there."""
    found = {name: [] for name in (*NUMBERS, "competitor_id", "rank")}
    for example in examples:
        with torch.no_grad():
            logits = model(torch.tensor([example.prompt + example.completion])).logits[0].double()
        logits = logits[len(example.prompt) - 1 : -1]
        gold = torch.tensor(example.completion)[:, None]
        chances = logits.softmax(-1)
        others = logits.scatter(1, gold, -torch.inf)
        found["nll"] += (-logits.log_softmax(-1).gather(1, gold)[:, 0]).tolist()
        found["gap"] += (logits.gather(1, gold)[:, 0] - others.max(1).values).tolist()
        found["entropy"] += (-(chances * chances.log()).sum(1)).tolist()
        onehot = torch.zeros_like(chances).scatter(1, gold, 1.0)
        found["gradient_norm"] += (chances - onehot).norm(dim=1).tolist()
        found["competitor_id"] += others.argmax(1).tolist()
        found["rank"] += (1 + (logits > logits.gather(1, gold)).sum(1)).tolist()
    return {name: np.array(values) for name, values in found.items()}


def assert_exact(table, folder, examples) -> None:
    """As near to float64 as plain float32 logits are."""
    # eager: it alone applies the soft caps of Gemma-2's attention
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    plain = plain_statistics(model, examples)
    exact = plain_statistics(copy.deepcopy(model).double(), examples)
    assert table["token_id"].tolist() == [token for example in examples for token in example.completion]
    for name in NUMBERS:
        scale = max(1.0, np.abs(exact[name]).max())
        allowed = 4 * np.abs(plain[name] - exact[name]).max() + 8 * np.finfo(np.float32).eps * scale
        assert allowed < 1e-3 * scale, name
        assert np.abs(table[name] - exact[name]).max() <= allowed, name
    assert table["competitor_id"].tolist() == exact["competitor_id"].tolist()
    assert table["rank"].tolist() == exact["rank"].tolist()
    assert np.ptp(exact["gap"]) > 1 and exact["rank"].max() > 10  # or the test would show little


@pytest.mark.parametrize("kind", CONFIGS)
def test_statistics_are_those_of_float64(kind, tmp_path) -> None:
    """Softcap, scale and bias included."""
    folder = make_folder(tmp_path / kind, kind)
    table = read_token_table(write_token_table(folder, ROWS, tmp_path / "tokens.parquet"))
    assert_exact(table, folder, examples_of(folder))


def test_batches_windows_and_chunks_change_nothing(folder, tmp_path, monkeypatch) -> None:
    whole = read_token_table(write_token_table(folder, ROWS, tmp_path / "a.parquet"), examples=range(99))
    monkeypatch.setattr(forward, "WINDOW", 5)
    monkeypatch.setattr(chunked, "CHUNK_BYTES", {"cpu": 1})
    write_token_table(folder, ROWS, tmp_path / "b.parquet", batch_tokens=1)
    parts = read_token_table(tmp_path / "b.parquet", examples=range(99))
    assert parts.texts == whole.texts
    for name, values in whole.columns.items():
        if name not in NUMBERS:
            assert parts[name].tolist() == values.tolist(), name
    assert_exact(parts, folder, examples_of(folder))


def test_lines_are_in_order_texts_make_up_the_solution_and_progress_counts_rows(folder, tmp_path) -> None:
    progress, out = [], tmp_path / "new" / "tokens.parquet"
    write_token_table(folder, ROWS, out, limit=7, batch_tokens=200, on_progress=lambda *counts: progress.append(counts))
    table = read_token_table(out, examples=range(99))
    assert table["example"].tolist() == sorted(table["example"].tolist())
    for example in range(7):
        mine = np.flatnonzero(table["example"] == example)
        assert table["position"][mine].tolist() == list(range(len(mine)))
        assert "".join(table.texts["text"][row] for row in mine) == ROWS[example]["solution"] + "<eos>"
    assert ((table["rank"] == 1) == (table["gap"] >= 0)).all()
    assert len(progress) > 1 and progress[-1] == (7, 7)
    facts = table.metadata
    assert facts["model"] == str(folder) and facts["template"] == "plain" and facts["data"]["rows"] == 7
    assert facts["prompts"][3].endswith("What is 3+3?\n\nSolution:\n")


def test_what_is_cut_is_counted(folder, tmp_path, monkeypatch, caplog) -> None:
    """Over several windows, and where the table is there already."""
    rows = [{"problem": "x" * 300, "solution": "It is so."}, *ROWS]
    monkeypatch.setattr(forward, "WINDOW", 5)
    lengths = list(map(len, examples_of(folder, rows)))
    length = sorted(lengths)[6]
    for _ in range(2):
        path = write_token_table(folder, rows, tmp_path / "t.parquet", max_length=length)
    table = read_token_table(path)
    over = [size - length for size in lengths if size > length]
    assert 1 < len(over) < len(rows)
    assert table.metadata["cut"] == {"rows_cut": len(over), "tokens_cut": sum(over), "rows_lost": 1}
    assert table.metadata["longest"] == length
    line = f"a maximum length of {length} cuts {len(over)} rows by {sum(over)} tokens; 1 row of them with all"
    assert [line in message for message in caplog.messages] == [True, True]


def trained_run(folder, run, **config):
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    (run / "config.yaml").write_text(json.dumps({"objective": "trim", **config}))
    os.symlink(folder, run / "model")
    return run


def test_a_run_is_rendered_as_it_was_trained(folder, tmp_path) -> None:
    def rendering(run, **options):
        path = write_token_table(run, ROWS, tmp_path / "t.parquet", overwrite=True, **options)
        metadata = read_token_table(path).metadata
        return [metadata[name] for name in ("template", "system_prompt", "max_length")]

    plain = trained_run(folder, tmp_path / "a", template="plain", system_prompt="Think.", max_length=90)
    assert rendering(plain) == ["plain", "Think.", 90]
    assert read_token_table(tmp_path / "t.parquet").metadata["prompts"][0].startswith("Think.\n")
    assert rendering(plain, system_prompt="", max_length=0) == ["plain", "", None]
    assert rendering(plain, template="deepseek", max_length=180) == ["deepseek", None, 180]
    assert rendering(trained_run(folder, tmp_path / "b", template="deepseek")) == ["deepseek", None, 1024]
    assert TrimSFTConfig(output_dir=str(tmp_path / "x"), bf16=False).max_length == TRAINED_LENGTH
    assert rendering(trained_run(folder, tmp_path / "c", max_length=None)) == ["plain", None, None]
    packed = {"packing": True, "packing_strategy": "wrapped", "max_length": 90}
    assert rendering(trained_run(folder, tmp_path / "d", **packed)) == ["plain", None, None]


def test_a_run_that_kept_the_ends_of_rows_is_measured_on_them(folder, tmp_path) -> None:
    """The tokens are those that the trainer is left with, their numbers those of the model after what is left."""
    length = sorted(map(len, examples_of(folder)))[0] - 2
    run = trained_run(folder, tmp_path / "run", max_length=length, truncation_mode="keep_end")
    table = read_token_table(write_token_table(run, ROWS, tmp_path / "t.parquet"))
    config = DataConfig(dataset_name="x.jsonl")
    trained = encode(Dataset.from_list(ROWS), AutoTokenizer.from_pretrained(folder), config)
    left = [label for labels in trained["labels"] for label in labels[-length:][1:] if label != -100]
    assert table["token_id"].tolist() == left and set(table["example"].tolist()) == set(range(12))
    assert (table["token_id"][table["position"] == 0] != 1).all()  # positions are those of the whole completion
    assert_exact(table, folder, examples_of(folder, max_length=length, keep="end"))
    assert table.metadata["truncation_mode"] == "keep_end" and table.metadata["cut"]["rows_cut"] == 12
    packed = trained_run(folder, tmp_path / "packed", max_length=length, truncation_mode="keep_end", packing=True)
    cut = read_token_table(write_token_table(packed, ROWS, tmp_path / "packed.parquet"))
    assert cut.metadata["truncation_mode"] == "keep_start"  # packing cuts the end
    options = asdict(Rendering().as_trained([folder, run]))  # as the command measures several
    beside = write_token_table(folder, ROWS, tmp_path / "beside.parquet", **options)
    assert read_token_table(beside)["token_id"].tolist() == left


def test_a_model_that_does_something_else_to_its_logits_is_refused(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(forward, "logit_transform", lambda model: (0.5, None))
    with pytest.raises(UsageError, match=r"model: .* changes its logits in a way"):
        write_token_table(folder, ROWS, tmp_path / "t.parquet")


def test_a_table_that_is_there_is_kept_or_refused(folder, tmp_path, monkeypatch) -> None:
    out = write_token_table(folder, ROWS, tmp_path / "t.parquet")
    before = out.read_bytes()
    for says, model, rows, options in [
        ("max_length: was None, now 99", folder, ROWS, {"max_length": 99}),
        ("data: was 12 rows, .*, now 11 rows", folder, ROWS[:-1], {}),
        ("model_sha256: was", make_folder(tmp_path / "phi", "phi"), ROWS, {}),
    ]:
        with pytest.raises(RunError, match=rf"is there, made with other inputs \({says}.*by overwrite"):
            write_token_table(model, rows, out, **options)
    with monkeypatch.context() as patch:
        patch.setattr(write, "load_model", None)
        write_token_table(folder, ROWS, out)  # is not measured again
    assert out.read_bytes() == before
    write_token_table(folder, ROWS, out, max_length=99, overwrite=True)
    assert read_token_table(out).metadata["max_length"] == 99
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="it says nothing about how it was made"):
        write_token_table(folder, ROWS, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_logits_that_are_not_finite_leave_no_table(folder, tmp_path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.get_output_embeddings().weight.data[3] = torch.nan
    with pytest.raises(FloatingPointError):
        write_token_table(model, ROWS, tmp_path / "new" / "t.parquet", tokenizer=AutoTokenizer.from_pretrained(folder))
    assert list(tmp_path.iterdir()) == []
