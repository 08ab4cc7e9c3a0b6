"""Loading: what is read from files and from the hub, what forms become, and what bad data is told."""

import contextlib
import gzip
import json
import random
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from trimsft.data.encode import encode, load_training_data
from trimsft.data.files import list_files, read_records
from trimsft.data.load import DataConfig, load_rows
from trimsft.errors import DataError, UsageError

from .toys import CHAT, ROWS, local, make_tokenizer, split, write

# ---- files

PLAIN = [{"problem": "a", "solution": "b"}, {"problem": "é\u2028x\x85y", "solution": 'say "hi",\nthen go'}]


def file_of(path: Path, content: bytes) -> Path:
    is_packed = path.suffix == ".gz" and path.stem != "half.jsonl"
    path.write_bytes(gzip.compress(content) if is_packed else content)
    return path


def jsonl(rows: list, end: str = "\n") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


@pytest.mark.parametrize(
    ("name", "content", "numbers"),
    [
        ("a.jsonl", b"\xef\xbb\xbf" + jsonl(PLAIN, "\r\n"), [1, 2]),  # BOM and CRLF, as Windows writes
        ("a.jsonl", b"\n" + jsonl(PLAIN[:1]) + b"  \r\n\n" + jsonl(PLAIN[1:]).rstrip(), [2, 5]),  # blank lines
        ("a.JSONL.gz", jsonl(PLAIN), [1, 2]),
        ("a.json.gz", json.dumps(PLAIN).encode(), [1, 2]),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: bytes, numbers: Any) -> None:
    rows = list(read_records(file_of(tmp_path / name, content)))
    assert rows == list(zip(numbers, PLAIN, strict=True))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"problem": "a"}\n\n{"problem": \n', "a.jsonl, line 3: not usable JSON"),
        ("a.jsonl", b'{"problem": "a"}\n["b"]\n', "a.jsonl, line 2: must be an object, got list"),
        ("a.jsonl", b'{"problem": "a"}\n{"problem": "\xff"}\n', "a.jsonl, line 2: not UTF-8 (byte 0xff)"),
        ("a.json", b'{"rows": []}', "must hold a list of objects"),
        ("a.parquet", b"PAR1 not really", "a.parquet: not usable Parquet"),
        ("a.txt", b"hello", "a.txt: unknown format; the name must end in one of .parquet"),
        ("half.jsonl.gz", gzip.compress(jsonl(PLAIN * 99))[:-20], "half.jsonl.gz: cannot be read"),
    ],
)
def test_errors_name_the_place_in_one_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    with pytest.raises(DataError) as error:
        list(read_records(file_of(tmp_path / name, content)))
    assert says in str(error.value)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_files_folders_and_several_of_them(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.json", "notes.txt", ".hidden.jsonl"):
        (tmp_path / name).touch()
    files = [tmp_path / "a.json", tmp_path / "b.jsonl"]
    assert list_files(str(tmp_path)) == files
    assert list_files(f"{files[1]}, {files[0]}") == files[::-1]
    with pytest.raises(DataError, match=r"no such file or folder, got '.*no.jsonl'"):
        list_files(f"{tmp_path}/no.jsonl")


# ---- settings and rows

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TRL_ROWS = [{"messages": MESSAGES}, {"prompt": "a", "completion": "b"}, {"text": "a"}, {"input_ids": [1, 2, 3]}]


@pytest.mark.parametrize(
    ("rows", "settings", "says"),
    [
        (ROWS, {"sample": 0}, "sample: must be at least 1, got 0"),
        (ROWS, {"template": "chatt"}, "template: unknown name 'chatt'; did you mean 'chat'"),
        (ROWS, {"eval_split": -0.1}, "eval_split: must be between 0 and 1"),
        (ROWS, {"eval_split": 0.1}, "eval_split: has no effect without eval_strategy"),
        (ROWS, {"dataset_revision": "b"}, "dataset_revision: has no effect on local data"),
        ([{"q": "1", "a": "2"}], {}, "problem_column: .* no column 'problem' or 'solution', it has q, a"),
        ([{"text": "a"}], {"template": "plain"}, "template: has no effect on data without problems and solutions"),
        ([{"text": "a"}, {"text": ""}], {}, r"train\.jsonl, line 2: 'text' is missing or blank"),
    ],
)
def test_data_that_settings_do_not_fit(tmp_path: Path, rows: Any, settings: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_training_data(local(tmp_path, rows, **settings), make_tokenizer(), with_eval=False)


def test_other_column_names(tmp_path: Path) -> None:
    rows = [{"question": row["problem"], "answer": row["solution"]} for row in ROWS]
    config = local(tmp_path, rows, problem_column="question", solution_column="answer")
    assert load_rows(config).to_list() == ROWS
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    config.dataset_name = str(tmp_path / "a.parquet")
    tokenizer = make_tokenizer(chat=CHAT)
    assert split(tokenizer, encode(load_rows(config), tokenizer, config)[2])[1] == "It is \\boxed{3}.<eos>"


BAD = [{}, {"solution": None}, {"problem": " \n", "solution": "s"}, {"solution": 3}, {"solution": "\ud800"}]


@pytest.mark.parametrize("bad", BAD)
def test_rows_without_problem_or_solution(tmp_path: Path, bad: dict[str, Any]) -> None:
    bad = {"problem": "p", **bad}
    with pytest.raises(DataError, match=r"train.jsonl, line 2: 'problem' or 'solution' .* \(and 2 more rows\)"):
        load_rows(local(tmp_path, [ROWS[0], bad, ROWS[1], bad, bad]))


def test_a_path_is_not_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: pytest.fail("asked the hub"))
    for name in ("gone.jsonl", "./gone", "~/gone", "/gone", "a/b/c", "x.jsonl,y.jsonl", "gone.JSON.gz"):
        with pytest.raises(DataError, match="no such file or folder"):
            load_rows(DataConfig(dataset_name=name))
    write(tmp_path / "train.jsonl", ROWS)
    with pytest.raises(DataError, match=r"no such file, got 'train\.jsnl'; did you mean 'train\.jsonl'"):
        load_rows(DataConfig(dataset_name="train.jsnl"))


def test_files_are_mixed_by_shares(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", ROWS)
    other = write(tmp_path / "b.jsonl", [{"problem": f"b{n}", "solution": "s"} for n in range(20)])
    for shares, counts in (((0.5, 0.5), (8, 8)), ((3, 1), (8, 3)), ((0.2, 0.8), (5, 20))):
        name = f"{one}:{shares[0]}, {other}:{shares[1]}"
        problems = load_rows(DataConfig(dataset_name=name))["problem"][:]
        assert tuple([text[0] for text in problems].count(letter) for letter in "Wb") == counts
        assert problems == load_rows(DataConfig(dataset_name=name))["problem"][:]
        assert list(map(str, list_files(name))) == [one, other]  # which the manifest names
    for name in (f"{one}:0.5,{other}", f"{tmp_path}:1", f"{one}:0"):
        with pytest.raises(DataError, match="needs a share above 0 for every file"):
            load_rows(DataConfig(dataset_name=name))


def test_a_share_of_the_rows_is_held_out(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    config = local(tmp_path, eval_split=0.25)
    sets = load_training_data(config, tokenizer, with_eval=True)
    texts = [[tokenizer.decode(row["input_ids"]) for row in one] for one in sets if one is not None]
    assert [len(one) for one in texts] == [6, 2] and len({*texts[0], *texts[1]}) == 8
    again = load_training_data(config, tokenizer, with_eval=True)
    assert again[1].to_list() == sets[1].to_list()


@pytest.mark.parametrize("row", TRL_ROWS, ids=lambda row: next(iter(row)))
def test_forms_of_trl_pass_through(tmp_path: Path, row: dict[str, Any]) -> None:
    train = load_rows(local(tmp_path, [row, row]))
    assert train.to_list() == [row, row]
    train.select([0]).to_parquet(tmp_path / "more.parquet")
    assert load_rows(DataConfig(dataset_name=str(tmp_path))).to_list() == [row] * 3
    write(tmp_path / "problems.jsonl", ROWS)
    with pytest.raises(DataError, match=r"(problems\.jsonl|more\.parquet).*: its rows are not of the form"):
        load_rows(DataConfig(dataset_name=str(tmp_path)))


def test_what_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    rows = [{**row, "messages": []} for row in ROWS]

    def load_dataset(*args: Any, **kwargs: Any) -> Dataset:
        asked.append((args, kwargs))
        return Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = DataConfig(dataset_name="some/data", dataset_config="en", dataset_revision="abc")
    assert load_rows(config).column_names == ["problem", "solution"]
    load_rows(config, split="test")
    assert asked == [(("some/data", "en"), {"split": split, "revision": "abc"}) for split in ("train", "test")]
    rows += [{"problem": "p", "solution": None}, {"problem": "", "solution": "s"}]
    with pytest.raises(DataError, match=r"some/data \(train\), row 8: .* \(and 1 more rows\)"):
        load_rows(config)


def test_a_sample_is_the_same_everywhere(tmp_path: Path) -> None:
    """Random(0).random() of the eight rows orders them so, on every machine and Python."""
    chosen = load_rows(local(tmp_path, sample=5))["problem"][:]
    assert chosen == [f"What is {n}+1?" for n in (3, 7, 5, 2, 4)]
    assert load_rows(local(tmp_path, sample=5, sample_seed=1))["problem"][:] != chosen
    assert load_rows(local(tmp_path, sample=1000)).to_list() == ROWS


# ---- forms of others

ALPACA = [
    {"instruction": "Add.", "input": "1 and 2", "output": "3"},
    {"instruction": "Say hello.", "input": "", "output": "Hello."},
]
PAIRS = [{"problem": "Add.\n\n1 and 2", "solution": "3"}, {"problem": "Say hello.", "solution": "Hello."}]
SHAREGPT = [
    {"system": "Be brief.", "conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]},
    {"system": None, "conversations": [{"from": "user", "value": "a"}, {"from": "assistant", "value": ""}]},
]
CHATS = [
    {"messages": [{"role": role, "content": text} for role, text in turns]}
    for turns in ([("system", "Be brief."), ("user", "1+1?"), ("assistant", "2")], [("user", "a"), ("assistant", "")])
]


@pytest.mark.parametrize(("rows", "become"), [(ALPACA, PAIRS), (SHAREGPT, CHATS)], ids=["alpaca", "sharegpt"])
def test_what_the_forms_of_others_become(rows: list[Any], become: list[Any], tmp_path: Path) -> None:
    assert load_rows(local(tmp_path, rows)).to_list() == become
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert load_rows(DataConfig(dataset_name=str(tmp_path / "a.parquet"))).to_list() == become


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"conversations": [{"from": "bird", "value": "x"}]}, "a turn of conversations must have 'from'"),
        ({"conversations": [{"from": "human", "value": "x"}], "images": ["x"]}, "'images' is not read in this"),
    ],
)
def test_chats_that_cannot_be_read(bad: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"line 3: {says}"):
        load_rows(local(tmp_path, [*SHAREGPT, bad]))


@pytest.mark.parametrize("name", ["r.jsonl", "r.json", "r.parquet", "r.jsonl.gz"])
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [{"problem": f"What is {n}?", "solution": "é" * n, "more": n} for n in range(1, 9)]
    content = {"jsonl": jsonl(rows), "json": json.dumps(rows).encode()}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "whole.parquet")
    content["parquet"] = (tmp_path / "whole.parquet").read_bytes()
    whole, path, rng = content[name.split(".")[1]], tmp_path / name, random.Random(name)
    for _ in range(60):
        place = rng.randrange(len(whole))
        inserted = rng.choice([b"", b"\0", bytes([rng.randrange(256)]), b"[" * 50_000, b"9" * 6_000])
        broken = whole[:place] + inserted + rng.choice([b"", whole[place:], whole[place + 1 :]])
        path.write_bytes(gzip.compress(broken) if name.endswith(".gz") and rng.random() < 0.7 else broken)
        with contextlib.suppress(DataError):
            load_rows(DataConfig(dataset_name=str(path)))
