"""A token table that is there already, is shared by processes, or is refused."""

import shutil

import pyarrow.parquet as pq
import pytest

from tests.tokens.tiny import ROWS
from trimsft.errors import RunError, UsageError
from trimsft.tokens import forward, write
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import write_token_table


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(forward, "WINDOW", 3)


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The table of all rows in windows of 3, made in one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "WINDOW", 3)
        return pq.read_table(write_token_table(folder, ROWS, tmp_path_factory.mktemp("whole") / "t.parquet"))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_other_inputs_are_refused_and_nothing_is_lost(folder, phi, tmp_path, whole) -> None:
    out, share = tmp_path / "t.parquet", tmp_path / "t.parquet.2-of-2"
    write_token_table(folder, ROWS, out, shard="2/2")
    assert names_in(tmp_path) == ["t.parquet.2-of-2"]
    before = share.read_bytes()
    for place in ("a share", "the table"):
        for says, model, rows, options in [
            ("max_length: was None, now 99", folder, ROWS, {"max_length": 99}),
            ("data: was 12 rows, .*, now 11 rows", folder, ROWS[:-1], {}),
            ("top: was 0, now 2", folder, ROWS, {"top": 2}),
            ("model_sha256: was", phi, ROWS, {}),
        ]:
            with pytest.raises(RunError, match=rf"is there, made with other inputs \({says}.*set overwrite=True"):
                write_token_table(model, rows, out, **options)
        assert place == "the table" or share.read_bytes() == before
        assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)
    assert names_in(tmp_path) == ["t.parquet"]
    write_token_table(folder, ROWS, out, max_length=99, overwrite=True)
    assert read_token_table(out).metadata["max_length"] == 99
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="it says nothing about how it was made"):
        write_token_table(folder, ROWS, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_is_there_is_not_measured_again(folder, tmp_path, whole, monkeypatch) -> None:
    out, again = tmp_path / "t.parquet", tmp_path / "again.parquet"
    for path in (out, again):
        write_token_table(folder, ROWS, path, shard="1/2")
    write_token_table(folder, ROWS, out)
    shutil.copy(tmp_path / "again.parquet.1-of-2", tmp_path / "t.parquet.1-of-2")  # of one killed while it joined
    with monkeypatch.context() as patch:
        patch.setattr(write, "load_model", None)
        write_token_table(folder, ROWS, out)
        write_token_table(folder, ROWS, again, shard="1/2")
    write_token_table(folder, ROWS, again, shard="2/2")
    assert pq.read_table(out).equals(whole) and pq.read_table(again).equals(whole)
    assert names_in(tmp_path) == ["again.parquet", "t.parquet"]


def test_an_interrupted_start_leaves_nothing(folder, tmp_path, broken_head) -> None:
    with pytest.raises(FloatingPointError):
        write_token_table(folder, ROWS, tmp_path / "new" / "t.parquet", max_length=150)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("shares", [["3/3", "1/3", "2/3"], [f"{share}/6" for share in range(1, 7)]])
def test_shares_by_hand(shares, folder, tmp_path, whole) -> None:
    """Also where there are more shares than windows."""
    out = tmp_path / "t.parquet"
    for shard in shares:
        assert not out.exists()
        write_token_table(folder, ROWS, out, shard=shard)
    assert pq.read_table(out).equals(whole) and names_in(tmp_path) == ["t.parquet"]
    assert read_token_table(out).metadata["tokens"] == len(whole)


def test_ranks_take_their_share(folder, tmp_path, whole, monkeypatch) -> None:
    out = tmp_path / "t.parquet"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        assert not out.exists()
        write_token_table(folder, ROWS, out)
    assert pq.read_table(out).equals(whole)
    with pytest.raises(UsageError, match="shard: has no effect on a rank, which takes share 1/2, got '1/2'"):
        write_token_table(folder, ROWS, out, shard="1/2")


def test_shares_of_another_division_or_other_inputs_are_not_joined(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    write_token_table(folder, ROWS, out, shard="1/2")
    write_token_table(folder, ROWS, out, shard="2/4")
    write_token_table(folder, ROWS, out, shard="2/2", max_length=99, overwrite=True)
    assert names_in(tmp_path) == ["t.parquet.1-of-2", "t.parquet.2-of-2", "t.parquet.2-of-4"]
    write_token_table(folder, ROWS, out, shard="2/2", overwrite=True)
    assert pq.read_table(out).equals(whole) and names_in(tmp_path) == ["t.parquet"]


def test_two_processes_may_join_at_the_same_time(folder, tmp_path, whole, monkeypatch) -> None:
    out, read = tmp_path / "t.parquet", write.read_share

    def joined_meanwhile(path):
        monkeypatch.setattr(write, "read_share", read)
        write_token_table(folder, ROWS, out, shard="2/2")
        return read(path)

    write_token_table(folder, ROWS, out, shard="1/2")
    monkeypatch.setattr(write, "read_share", joined_meanwhile)
    write_token_table(folder, ROWS, out, shard="2/2")
    assert pq.read_table(out).equals(whole) and names_in(tmp_path) == ["t.parquet"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({"shard": shard}, "shard: must be K/N with K from 1 to N") for shard in ("0/3", "4/3", "2", "a/b", "-1/2")),
        *(({"device": name}, "device: must be auto, cpu, cuda or cuda:N") for name in ("", "gpu", "cuda:x")),
    ],
)
def test_what_is_no_share_or_device_is_named(options, says, folder, tmp_path) -> None:
    with pytest.raises(UsageError, match=says):
        write_token_table(folder, ROWS, tmp_path / "t.parquet", **options)
    assert names_in(tmp_path) == []
