"""A token table that is there already, is shared by processes, or is refused."""

import os
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.processes import ROOT
from tests.tokens.tiny import ROWS
from trimsft.errors import RunError, UsageError
from trimsft.tokens import forward, write
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import _share_of, choose_devices, write_token_table

MANY = [ROWS[number % 12] for number in range(270)]  # two windows of 256 rows, as processes have them


@pytest.fixture
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


@pytest.mark.usefixtures("small_windows")
def test_other_inputs_are_refused_and_nothing_is_lost(folder, phi, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    write_token_table(folder, ROWS, out, shard="2/2")
    assert names_in(tmp_path) == ["t.parquet.2-4"]
    share = (tmp_path / "t.parquet.2-4").read_bytes()
    for place in ("a share", "the table"):
        for says, model, rows, options in [
            ("max_length: was None, now 99", folder, ROWS, {"max_length": 99}),
            ("data: was 12 rows, .*, now 11 rows", folder, ROWS[:-1], {}),
            ("top: was 0, now 2", folder, ROWS, {"top": 2}),
            ("model_sha256: was", phi, ROWS, {}),
        ]:
            with pytest.raises(RunError, match=rf"is there, made with other inputs \({says}.*set overwrite=True"):
                write_token_table(model, rows, out, **options)
        assert place == "the table" or (tmp_path / "t.parquet.2-4").read_bytes() == share
        assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)
    assert names_in(tmp_path) == ["t.parquet"]
    write_token_table(folder, ROWS, out, max_length=99, overwrite=True)
    assert read_token_table(out).metadata["max_length"] == 99
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="it says nothing about how it was made"):
        write_token_table(folder, ROWS, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("small_windows")
def test_what_is_there_is_not_measured_again(folder, tmp_path, whole, monkeypatch) -> None:
    out, again = tmp_path / "t.parquet", tmp_path / "again.parquet"
    for path in (out, again):
        write_token_table(folder, ROWS, path, shard="1/2")
    write_token_table(folder, ROWS, out)
    shutil.copy(tmp_path / "again.parquet.0-2", tmp_path / "t.parquet.0-2")  # by a process killed while it joined
    with monkeypatch.context() as patch:
        patch.setattr(write, "load_model", None)
        write_token_table(folder, ROWS, out)
        write_token_table(folder, ROWS, again, shard="1/2")
    write_token_table(folder, ROWS, again, shard="2/2")
    assert pq.read_table(out).equals(whole) and pq.read_table(again).equals(whole)
    assert names_in(tmp_path) == ["again.parquet", "t.parquet"]


@pytest.mark.usefixtures("small_windows")
def test_an_interrupted_start_leaves_nothing(folder, tmp_path, broken_head) -> None:
    with pytest.raises(FloatingPointError):
        write_token_table(folder, ROWS, tmp_path / "new" / "t.parquet", max_length=150)
    assert names_in(tmp_path) == []


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("shares", [["3/3", "1/3", "2/3"], ["1/9", "9/9", *(f"{share}/9" for share in range(2, 9))]])
def test_shares_by_hand(shares, folder, tmp_path, whole) -> None:
    """Also where there are more shares than windows."""
    out = tmp_path / "t.parquet"
    for shard in shares:
        assert not out.exists()
        write_token_table(folder, ROWS, out, shard=shard)
        if out.exists():
            break
    assert pq.read_table(out).equals(whole) and names_in(tmp_path) == ["t.parquet"]
    assert read_token_table(out).metadata["tokens"] == len(whole)


@pytest.mark.usefixtures("small_windows")
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
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UsageError, match="variable RANK must be a whole number, got 'first'; unset it"):
        write_token_table(folder, ROWS, out)


@pytest.mark.usefixtures("small_windows")
def test_shares_of_another_division_or_other_inputs_are_not_joined(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    write_token_table(folder, ROWS, out, shard="1/2")
    write_token_table(folder, ROWS, out, shard="1/4")
    assert names_in(tmp_path) == ["t.parquet.0-1"]
    write_token_table(folder, ROWS, out, shard="2/2", max_length=99, overwrite=True)
    write_token_table(folder, ROWS, out, shard="2/4", overwrite=True)
    assert names_in(tmp_path) == ["t.parquet.0-1", "t.parquet.1-2", "t.parquet.2-4"]
    write_token_table(folder, ROWS, out, shard="2/2", overwrite=True)
    assert pq.read_table(out).equals(whole) and names_in(tmp_path) == ["t.parquet"]


@pytest.mark.usefixtures("small_windows")
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


def test_several_devices_have_a_process_each(folder, tmp_path) -> None:
    single = write_token_table(folder, MANY, tmp_path / "one.parquet", top=2)
    progress, options = [], {"top": 2, "device": ["cpu", "cpu"]}
    out = write_token_table(
        folder, MANY, tmp_path / "two.parquet", on_progress=lambda *counts: progress.append(counts), **options
    )
    assert pq.read_table(out).equals(pq.read_table(single))
    assert read_token_table(out).metadata == read_token_table(single).metadata
    assert progress[-1] == (270, 270) and names_in(tmp_path) == ["one.parquet", "two.parquet"]


def test_a_refusal_by_a_process_is_one_by_the_command(folder, tmp_path) -> None:
    """With its field and hint; weights are read by the processes alone."""
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    tensors = load_file(model / "model.safetensors")
    save_file({name: tensors[name] for name in tensors if "layers.1" not in name}, model / "model.safetensors")
    with pytest.raises(UsageError, match=r"^model: '.*model' is not whole: it lacks the tensor") as refusal:
        write_token_table(model, MANY, tmp_path / "t.parquet", device=["cpu", "cpu"])
    assert refusal.value.field == "model" and refusal.value.hint and names_in(tmp_path) == ["model"]


SLEEPER = """
import os, signal, time
from multiprocessing import get_context
from torch.multiprocessing.spawn import start_processes
from trimsft.tokens.write import _measure_there

class Job:
    def measure_part(self, part, device, on_rows):
        print("at work", flush=True)
        time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_processes(_measure_there, (Job(), [(range(1), "cpu")], get_context("spawn").SimpleQueue()), 1)
"""


def test_a_process_ends_with_the_command(tmp_path) -> None:
    """Also where signals are ignored, as in the background of a script."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(tmp_path / "sleeper.py")]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert parent.stderr is not None and "at work\n" in iter(parent.stderr.readline, "")
    parent.kill()
    parent.communicate(timeout=60)  # to the end of what anybody writes there


def test_whose_windows() -> None:
    assert _share_of(range(3), None) == range(3) and _share_of(range(10), "2/4") == range(2, 5)
    assert [window for part in range(1, 8) for window in _share_of(range(20), f"{part}/7")] == list(range(20))
    for wrong in ("0/3", "4/3", "2", "a/b", "1/2+", "-1/2"):
        with pytest.raises(UsageError, match="shard: must be K/N with K from 1 to N"):
            _share_of(range(3), wrong)


def test_devices(monkeypatch) -> None:
    assert choose_devices(["cpu", "cpu"]) == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose_devices("auto") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_devices("auto") == ["cuda:0", "cuda:1"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_devices("auto") == ["cuda:1"]
    assert choose_devices("cuda:0") == ["cuda:0"]
    for wrong in ([], "cuda:x", "", ["cpu", "0"], "foo", "gpu", "cuda:", "cuda:2"):
        with pytest.raises(UsageError, match=r"device: must be auto, cpu, cuda or cuda:N, .*; torch sees 2 CUDA"):
            choose_devices(wrong)
