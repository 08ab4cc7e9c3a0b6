import copy
import importlib.metadata
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.analyze.tiny import CONFIGS, ROWS, make_folder
from trimsft.analyze import heads, read_token_table, tokens, write_token_table
from trimsft.analyze.encoding import encode_rows
from trimsft.files import RunError
from trimsft.templates import choose_template

NUMBERS = ("nll", "gap", "entropy", "gradient_norm")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("llama"))


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


@pytest.mark.parametrize("kind", CONFIGS)
def test_statistics_are_those_of_float64(kind, tmp_path) -> None:
    """Softcap, scale and bias included: as near to float64 as plain float32 logits are."""
    folder = make_folder(tmp_path / kind, kind)
    table = read_token_table(write_token_table(folder, ROWS, tmp_path / "tokens.parquet"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    examples = encode_rows(ROWS, tokenizer, choose_template("auto", tokenizer))
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


def test_certain_tokens_keep_their_digits() -> None:
    """With p = 1 in float32 the gradient is tiny, not 0 and not rounding noise."""
    logits, gold = torch.tensor([[20.0, 0.0, 0.0, -5.0]]), torch.tensor([0])
    tokens_ = heads.linear_cross_entropy(
        torch.eye(4)[:1] * 0 + logits, torch.eye(4), gold, heads.SFT()
    ).tokens
    rank, norm = heads._rank_and_norm(logits.clone(), gold, tokens_)
    exact = logits.double().softmax(1) - torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    others = exact[0, 1:]
    right = (others.square().sum() + others.sum() ** 2).sqrt().item()
    assert norm.item() == pytest.approx(right, rel=1e-5, abs=0)
    assert rank.item() == 1


def test_batches_windows_and_chunks_change_nothing(folder, tmp_path, monkeypatch) -> None:
    whole = read_token_table(write_token_table(folder, ROWS, tmp_path / "a.parquet"), first_examples=99)
    monkeypatch.setattr(tokens, "_WINDOW", 5)
    monkeypatch.setattr(heads, "_CHUNK_BYTES", {"cpu": 1})
    write_token_table(folder, ROWS, tmp_path / "b.parquet", batch_tokens=1)
    assert pq.ParquetFile(tmp_path / "b.parquet").num_row_groups == 3
    parts = read_token_table(tmp_path / "b.parquet", first_examples=99)
    assert parts.texts == whole.texts
    for name, values in whole.columns.items():
        if name in NUMBERS:
            assert np.allclose(parts[name], values, rtol=1e-4, atol=1e-5), name
        else:
            assert parts[name].tolist() == values.tolist(), name


def test_lines_are_in_order_and_texts_make_up_the_solution(folder, tmp_path) -> None:
    path = write_token_table(folder, ROWS, tmp_path / "new" / "tokens.parquet", limit=7)
    table = read_token_table(path, first_examples=99)
    assert table["example"].tolist() == sorted(table["example"].tolist())
    for example in range(7):
        mine = np.flatnonzero(table["example"] == example)
        assert table["position"][mine].tolist() == list(range(len(mine)))
        assert "".join(table.texts["text"][row] for row in mine) == ROWS[example]["solution"] + "<eos>"
    assert set(table["example"].tolist()) == set(range(7))
    assert ((table["rank"] == 1) == (table["gap"] >= 0)).all()
    assert read_token_table(path, first_examples=2)["example"].max() == 1


def test_metadata_say_how_it_was_made(folder, tmp_path) -> None:
    def metadata(rows, **options):
        return read_token_table(write_token_table(folder, rows, tmp_path / "t.parquet", **options)).metadata

    one = metadata(ROWS)
    assert one["model"] == str(folder) and one["template"] == "plain"
    assert one["data"]["rows"] == 12 and one["versions"]["torch"] == importlib.metadata.version("torch")
    assert one["prompts"][3].endswith("What is 3+3?\n\nSolution:\n")
    assert metadata(ROWS)["data"] == one["data"]
    assert metadata(ROWS[::-1])["data"]["sha256"] != one["data"]["sha256"]
    assert metadata(ROWS, template="deepseek")["template"] == "deepseek"


def test_progress_counts_rows(folder, tmp_path) -> None:
    seen = []
    write_token_table(
        folder, ROWS, tmp_path / "t.parquet", batch_tokens=200, on_progress=lambda *x: seen.append(x)
    )
    assert len(seen) > 1 and seen[-1] == (12, 12)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_run_directory_stands_for_what_it_trained(folder, tmp_path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match="finish its training first"):
        write_token_table(tmp_path, ROWS, tmp_path / "t.parquet")
    os.symlink(folder, tmp_path / "model")
    write_token_table(tmp_path, ROWS, tmp_path / "t.parquet", limit=1)
    assert read_token_table(tmp_path / "t.parquet").metadata["model"] == str(tmp_path / "model")


def test_a_table_that_cannot_be_finished_leaves_the_old_one(folder, tmp_path) -> None:
    path = write_token_table(folder, ROWS, tmp_path / "t.parquet", limit=1)
    before = path.read_bytes()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_token_table(folder, ROWS, path, on_progress=stop)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_rows_cut_before_their_solution_have_no_lines(folder, tmp_path) -> None:
    long = {"problem": "x" * 300, "solution": "It is so."}
    path = write_token_table(folder, [long, ROWS[0]], tmp_path / "t.parquet", max_length=200)
    assert set(read_token_table(path)["example"].tolist()) == {1}
    with pytest.raises(ValueError, match="max_length: 10 leaves no token"):
        write_token_table(folder, ROWS, tmp_path / "none.parquet", max_length=10)
    assert not (tmp_path / "none.parquet").exists()


def test_numbers_out_of_range_are_named(folder, tmp_path) -> None:
    for name in ("batch_tokens", "limit", "max_length"):
        with pytest.raises(ValueError, match=f"{name}: must be 1 or more, got 0"):
            write_token_table(folder, ROWS, tmp_path / "t.parquet", **{name: 0})
    with pytest.raises(RunError, match="no such folder"):
        write_token_table("/no/where", ROWS, tmp_path / "t.parquet")


def test_non_finite_logits_name_the_rows(folder, tmp_path, monkeypatch) -> None:
    load = tokens._load

    def broken(*args):
        tokenizer, reader = load(*args)
        reader.head.weight.data[3] = torch.nan
        return tokenizer, reader

    monkeypatch.setattr(tokens, "_load", broken)
    with pytest.raises(FloatingPointError, match=r"rows 0, .*non-finite logits"):
        write_token_table(folder, ROWS, tmp_path / "t.parquet")


def test_a_model_that_does_something_else_to_its_logits_is_refused(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(heads, "logit_transform", lambda model: (0.5, None))
    with pytest.raises(NotImplementedError, match="changes its logits in a way"):
        write_token_table(folder, ROWS, tmp_path / "t.parquet")


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


def test_logits_of_all_tokens_never_exist_and_the_model_stays_what_it_was(folder, monkeypatch) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.randint(2, 250, (8, 50))
    monkeypatch.setattr(heads, "_CHUNK_BYTES", {"cpu": 1})
    monkeypatch.setattr("trimsft.head.chunked.CHUNK_BYTES", {"cpu": 1})
    before = model(ids).logits
    with Largest() as largest:
        look = heads.Reader(model).look(ids, torch.ones_like(ids), ids)
    assert len(look.rank) == 8 * 49
    assert largest.numel < before.numel() / 4
    assert torch.equal(model(ids).logits, before)


def test_the_file_is_no_token_table(tmp_path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"nothing")
    with pytest.raises(RunError, match="not readable as a token table"):
        read_token_table(tmp_path / "t.parquet")
