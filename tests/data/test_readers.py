"""Local files: what is read from each format, and what an error says about the place."""

import contextlib
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.data.load import DataConfig, list_files, load_rows, read_file
from trimsft.errors import DataError

ROWS = [{"problem": "a", "solution": "b"}, {"problem": "é\u2028x\x85y", "solution": 'say "hi",\nthen go'}]


def write(path: Path, content: bytes) -> Path:
    is_packed = path.suffix == ".gz" and path.stem != "half.jsonl"
    path.write_bytes(gzip.compress(content) if is_packed else content)
    return path


def jsonl(rows: list, end: str = "\n") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


CSV = 'problem,solution\r\na,b\r\n"é\u2028x\x85y","say ""hi"",\nthen go"\r\n'.encode()


@pytest.mark.parametrize(
    ("name", "content", "numbers"),
    [
        ("a.jsonl", jsonl(ROWS), [1, 2]),
        ("a.jsonl", b"\xef\xbb\xbf" + jsonl(ROWS, "\r\n"), [1, 2]),  # BOM and CRLF, as Windows writes
        ("a.jsonl", b"\n" + jsonl(ROWS[:1]) + b"  \r\n\n" + jsonl(ROWS[1:]).rstrip(), [2, 5]),  # blank lines
        ("a.JSONL.gz", jsonl(ROWS), [1, 2]),
        ("a.json", json.dumps(ROWS, indent=1).encode(), [1, 2]),
        ("a.json", b"\xef\xbb\xbf" + json.dumps({"data": ROWS, "version": 1}).encode(), [1, 2]),
        ("a.json.gz", json.dumps(ROWS).encode(), [1, 2]),
        ("a.csv", CSV, [2, 3]),
        ("a.csv", b"\xef\xbb\xbf" + CSV.replace(b"\r\na", b"\r\n\r\na"), [3, 4]),
        ("a.csv.gz", CSV, [2, 3]),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: bytes, numbers: list[int]) -> None:
    rows = read_file(write(tmp_path / name, content))
    assert rows.columns == ["problem", "solution"]
    assert [*rows.records] == ROWS
    assert list(rows.numbers) == numbers


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_any_text_survives_json_lines(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("any") / "a.jsonl", jsonl([{"problem": text} for text in texts]))
    assert [*read_file(path).column("problem")] == texts


def test_parquet_and_rows_with_different_fields(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    rows = read_file(tmp_path / "a.parquet")
    assert (rows.columns, [*rows.column("solution")]) == (["problem", "solution"], ["b", ROWS[1]["solution"]])
    long = read_file(write(tmp_path / "a.csv", b"problem,solution\na," + b"x" * 200_000 + b"\n"))  # csv takes 128 KiB
    assert len(*long.column("solution")) == 200_000
    rows = read_file(write(tmp_path / "a.jsonl", jsonl([{"problem": "a"}, {"solution": "b"}])))
    assert (rows.columns, [*rows.column("solution")]) == (["problem", "solution"], [None, "b"])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"problem": "a"}\n\n{"problem": \n', "a.jsonl, line 3: not JSON"),
        ("a.jsonl", b'{"problem": "a"}\n["b"]\n', "a.jsonl, line 2: must be an object with named fields, got list"),
        ("a.jsonl", b'{"problem": "a"}\n{"problem": "\xff"}\n', "a.jsonl, line 2: not UTF-8 (byte 0xff)"),
        ("a.jsonl", b"[" * 200_000, "a.jsonl, line 1: not usable JSON (nested too deeply)"),
        ("a.jsonl", b'{"problem": ' + b"1" * 9000 + b"}", "a.jsonl, line 1: not usable JSON"),
        ("a.jsonl", b"\n\n", "a.jsonl: holds no rows"),
        ("a.json", b'[{"problem": "a"},\n {"problem" "b"}]', "a.json, line 2: not JSON"),
        ("a.json", jsonl(ROWS), "one object a line is .jsonl"),
        ("a.json", b'{"rows": []}', 'must hold a list of objects or {"data": [...]}'),
        ("a.json", b'[{"problem": "a"}, 3]', "a.json, item 2: must be an object with named fields, got int"),
        ("a.json", b'[\n"\xff"]', "a.json, line 2: not UTF-8"),
        ("a.csv", b'problem,solution\n"a\nb",c\nd\n', "a.csv, line 4: 1 cells where the header has 2"),
        ("a.csv", b'problem,solution\na,b\n"c,d\n', "a.csv, line 3: not CSV"),
        ("a.csv", b"problem,problem\na,b\n", "a.csv, line 1: the header names a column twice"),
        ("a.csv", b"problem,solution\n", "a.csv: holds no rows"),
        ("a.parquet", b"PAR1 not really", "a.parquet: not Parquet"),
        ("a.txt", b"hello", "a.txt: unknown format; the name must end in one of .jsonl"),
        ("a.parquet.gz", b"", "a.parquet.gz: unknown format"),
        ("half.jsonl.gz", gzip.compress(jsonl(ROWS * 99))[:-20], "half.jsonl.gz: cannot be read"),
    ],
)
def test_errors_name_the_place_in_one_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    with pytest.raises(DataError) as error:
        read_file(write(tmp_path / name, content))
    assert says in str(error.value)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_files_folders_and_several_of_them(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.csv", "notes.txt", ".hidden.jsonl", "with,comma.json"):
        (tmp_path / name).touch()
    (tmp_path / "folder.jsonl").mkdir()
    folder = [tmp_path / "a.csv", tmp_path / "b.jsonl", tmp_path / "with,comma.json"]
    assert list_files(str(tmp_path)) == folder
    assert list_files(f"{tmp_path / 'b.jsonl'}, {tmp_path / 'a.csv'}") == [folder[1], folder[0]]
    assert list_files(str(folder[2])) == [folder[2]]
    (tmp_path / "empty").mkdir()
    for where, says in (("no.jsonl", "no such file or folder, got '.*no.jsonl'"), ("empty", "no file ending in")):
        with pytest.raises(DataError, match=says):
            list_files(f"{tmp_path}/{where}")


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The same bytes with one thing wrong."""
    place = rng.randrange(len(content))
    changes = (
        lambda: content[:place],
        lambda: content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
        lambda: content[:place] + b"\0" + content[place:],
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content.decode("utf-8", "replace").encode("utf-16"),
        lambda: content[:place] + b"[" * 50_000,
        lambda: content[:place] + b"9" * 6_000 + content[place:],
    )
    return rng.choice(changes)()


@pytest.mark.parametrize("name", ["r.jsonl", "r.json", "r.csv", "r.parquet", "r.jsonl.gz", "r.csv.gz"])
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [{"problem": f"What is {n}?", "solution": "é" * n, "more": n} for n in range(1, 9)]
    content = {"jsonl": jsonl(rows), "json": json.dumps(rows).encode(), "csv": b"problem,solution\na,b\n" * 5}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "whole.parquet")
    content["parquet"] = (tmp_path / "whole.parquet").read_bytes()
    whole, path, rng = content[name.split(".")[1]], tmp_path / name, random.Random(name)
    for _ in range(60):
        broken = damaged(whole, rng)
        path.write_bytes(gzip.compress(broken) if name.endswith(".gz") and rng.random() < 0.7 else broken)
        with contextlib.suppress(DataError):
            load_rows(DataConfig(dataset_name=str(path)))
