"""A token table in parts: continued, shared, refused."""

import json
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tokens.tiny import ROWS
from trimsft.errors import RunError, RunInUse, TrimSFTError, UsageError
from trimsft.tokens import parts, passes
from trimsft.tokens.shards import choose_devices, run_on_each, share_of_rank, windows_of
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import _prompts, write_token_table


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(passes, "WINDOW", 3)


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The table of all rows, made in one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "WINDOW", 3)
        return pq.read_table(write_token_table(folder, ROWS, tmp_path_factory.mktemp("whole") / "t.parquet"))


def stop_at(rows):
    def stop(done, total):
        if done >= rows:
            raise KeyboardInterrupt

    return stop


def cut_short(folder, out, **options):
    with pytest.raises(KeyboardInterrupt):
        write_token_table(folder, ROWS, out, on_progress=stop_at(7), **options)


def test_a_second_start_does_what_is_missing(folder, tmp_path, whole, monkeypatch) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out)
    assert not out.exists()
    parts = sorted(path.name for path in (tmp_path / "t.parquet.parts").glob("*.arrow"))
    assert parts == ["00000.arrow", "00001.arrow"]
    seen = []
    read = passes.Pass._read
    monkeypatch.setattr(passes.Pass, "_read", lambda self, window: seen.append(window) or read(self, window))
    progress = []
    write_token_table(folder, ROWS, out, on_progress=lambda *counts: progress.append(counts))
    assert seen == [2, 3]
    assert progress[0][0] > 6 and progress[-1] == (12, 12)
    assert pq.read_table(out).equals(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_parts_are_not_written_through_a_link(tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/00000.arrow").write_text("kept")
    link = parts.parts_folder(tmp_path / "tokens.parquet")
    link.symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match=r"tokens\.parquet\.parts: is a link, which is not written through"):
        parts.Parts(tmp_path / "tokens.parquet", {}, 1).begin(overwrite=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["00000.arrow"]


def test_other_inputs_are_refused_and_nothing_is_lost(folder, phi, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out)
    with pytest.raises(RunError, match=r"holds parts of a table with other inputs.*max_length: was None, now 99"):
        write_token_table(folder, ROWS, out, max_length=99)
    with pytest.raises(RunError, match=r"data: was 12 rows, .*, now 11 rows"):
        write_token_table(folder, ROWS[:-1], out)
    with pytest.raises(RunError, match="top: was 0, now 2"):
        write_token_table(folder, ROWS, out, top=2)
    with pytest.raises(RunError, match="model_sha256: was"):
        write_token_table(phi, ROWS, out)
    assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)
    cut_short(folder, tmp_path / "u.parquet", max_length=40)  # and with overwrite it begins again
    assert pq.read_table(write_token_table(folder, ROWS, tmp_path / "u.parquet", overwrite=True)).equals(whole)
    with pytest.raises(RunError, match=r"is there, made with other inputs \(max_length.*set overwrite=True"):
        write_token_table(folder, ROWS, out, max_length=99)
    assert pq.read_table(out).equals(whole)
    write_token_table(folder, ROWS, out, max_length=99, overwrite=True)
    assert read_token_table(out).metadata["max_length"] == 99


def test_a_finished_table_is_not_made_again(folder, tmp_path, monkeypatch) -> None:
    out = write_token_table(folder, ROWS, tmp_path / "t.parquet")
    made = out.stat().st_mtime_ns
    monkeypatch.setattr("trimsft.tokens.write.load_model", None)
    write_token_table(folder, ROWS, out)
    assert out.stat().st_mtime_ns == made


def test_what_is_no_table_is_not_written_over(folder, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="it says nothing about how it was made"):
        write_token_table(folder, ROWS, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_shares_by_hand(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    for shard in ("3/3", "1/3"):
        write_token_table(folder, ROWS, out, shard=shard)
        assert not out.exists()
    write_token_table(folder, ROWS, out, shard="2/3")
    assert pq.read_table(out).equals(whole)
    assert not (tmp_path / "t.parquet.parts").exists()


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


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "two"), ("WORLD_SIZE", ""), ("RANK", "first")])
def test_a_launcher_that_gives_no_number_is_named(folder, tmp_path, monkeypatch, name, value) -> None:
    for variable, number in {"WORLD_SIZE": "2", "RANK": "0", name: value}.items():
        monkeypatch.setenv(variable, number)
    with pytest.raises(UsageError, match=f"variable {name} must be a whole number, got {value!r}; unset it"):
        write_token_table(folder, ROWS, tmp_path / "t.parquet")


def test_a_rank_without_windows_leaves_the_table_alone(folder, tmp_path) -> None:
    out = write_token_table(folder, ROWS, tmp_path / "t.parquet", shard="1/1")
    write_token_table(folder, ROWS, out, shard="5/9", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet"]


def test_several_devices_have_a_process_each(folder, tmp_path, monkeypatch) -> None:
    """With windows of 256 rows, as the processes have them."""
    monkeypatch.setattr(passes, "WINDOW", 256)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rows = [ROWS[number % 12] for number in range(270)]
    single = write_token_table(folder, rows, tmp_path / "one.parquet", top=2)
    progress, options = [], {"top": 2, "device": ["cpu", "cpu"]}
    out = write_token_table(
        folder, rows, tmp_path / "two.parquet", on_progress=lambda *counts: progress.append(counts), **options
    )
    assert pq.read_table(out).equals(pq.read_table(single))
    assert read_token_table(out).metadata == read_token_table(single).metadata
    assert progress[-1] == (270, 270)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "two.parquet"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ('print(\'{"error": {"problem": "rows 3: NaN"}}\'); sys.exit(1)', "device cuda:1: rows 3: NaN"),
        ("raise MemoryError('all of it')", "device cuda:1: MemoryError: all of it"),
        ("import os; os.kill(os.getpid(), 9)", "device cuda:1: its process was killed"),
    ],
)
def test_a_process_that_fails_says_why_and_ends_the_others(code, says, monkeypatch) -> None:
    started = []

    def start(command, **options):
        number = len(started)
        work = f"import sys; {code}" if number == 1 else "import time; time.sleep(600)"
        started.append(popen([sys.executable, "-c", work], **options))
        return started[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(TrimSFTError, match=says):
        run_on_each(["cuda:0", "cuda:1"], {"shard": None}, None)
    assert [process.poll() is None for process in started] == [False, False]


def test_a_refusal_by_a_process_is_one_by_the_command(folder, tmp_path, monkeypatch) -> None:
    """With its field and hint; weights are read by the processes alone."""
    monkeypatch.setattr(passes, "WINDOW", 256)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    tensors = load_file(model / "model.safetensors")
    save_file({name: tensors[name] for name in tensors if "layers.1" not in name}, model / "model.safetensors")
    rows = [ROWS[number % 12] for number in range(270)]
    with pytest.raises(UsageError, match=r"^model: '.*model' is not whole: it lacks the tensor") as refusal:
        write_token_table(model, rows, tmp_path / "t.parquet", device=["cpu", "cpu"])
    assert refusal.value.field == "model" and refusal.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


HOLDER = """
import sys, time
from pathlib import Path
from trimsft.runs import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_windows_in_work_are_left_to_their_process_until_it_is_killed(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out)
    lock = tmp_path / "t.parquet.parts" / ".1of1.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    for options in ({}, {"max_length": 50, "overwrite": True}):
        with pytest.raises(RunInUse, match=f"in use by process {process.pid} on "):
            write_token_table(folder, ROWS, out, **options)
    assert len(list(tmp_path.glob("t.parquet.parts/*.arrow"))) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    progress = []
    write_token_table(folder, ROWS, out, on_progress=lambda *counts: progress.append(counts))
    assert progress[0][0] > 6  # the two windows before are not done again
    assert pq.read_table(out).equals(whole)


def test_a_process_that_comes_late_sees_the_table_of_the_others(folder, tmp_path, whole, monkeypatch) -> None:
    """Another one joins the parts while this one waits to do so, or removes their folder before it is locked."""
    out, join, lock, gone = tmp_path / "t.parquet", passes.Parts.join, parts.RunLock, [FileNotFoundError()]

    def removed_once(*path, **patience):
        if gone:
            raise RunError("cannot be locked") from gone.pop()
        return lock(*path, **patience)

    monkeypatch.setattr(parts, "RunLock", removed_once)

    def joined_twice(*arguments):
        assert join(*arguments)
        return join(*arguments)

    monkeypatch.setattr("trimsft.tokens.parts.Parts.join", joined_twice)
    write_token_table(folder, ROWS, out)
    assert pq.read_table(out).equals(whole) and [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_whose_windows() -> None:
    assert windows_of(None, 3) == [0, 1, 2]
    assert windows_of("2/4", 10) == [1, 5, 9]
    assert windows_of("2/4+2/2", 10) == [5]
    everything = [window for part in range(1, 4) for half in (1, 2) for window in windows_of(f"{part}/3+{half}/2", 20)]
    assert sorted(everything) == list(range(20))
    for wrong in ("0/3", "4/3", "2", "a/b", "1/2+", "-1/2"):
        with pytest.raises(UsageError, match="shard: must be K/N with K from 1 to N"):
            windows_of(wrong, 3)


def test_devices(monkeypatch) -> None:
    assert choose_devices(["cpu", "cpu"], is_rank=False) == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_devices("auto", is_rank=False) == ["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_devices("auto", is_rank=False) == ["cuda:0", "cuda:1"]
    assert choose_devices("cuda:1", is_rank=True) == ["cuda:1"]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_devices("auto", is_rank=True) == ["cuda:1"]
    for wrong in ([], "cuda:x", "", ["cpu", "0"], "foo", "gpu", "cuda:"):
        with pytest.raises(UsageError, match="device: must be auto, cpu, cuda or cuda:N"):
            choose_devices(wrong, is_rank=False)
    with pytest.raises(UsageError, match="device: is not there, got 'cuda:2'; torch sees 2"):
        choose_devices("cuda:2", is_rank=False)
    assert share_of_rank() is None


def test_prompts_in_the_metadata_are_few_and_short() -> None:
    assert len(_prompts(["What?"] * 200)) == 200
    long = _prompts(["é" * 6000] * 200)
    assert {len(prompt) for prompt in long} == {4000}
    assert len(long) > 70 and len(json.dumps(long)) < 2_000_000


def test_a_damaged_part_is_made_again(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out)
    first, second = sorted((tmp_path / "t.parquet.parts").glob("*.arrow"))
    first.write_bytes(first.read_bytes()[:-100])
    second.write_bytes(b"\0" * 500)
    assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)


def test_parts_without_their_inputs_are_never_those_of_another_table(folder, tmp_path, whole) -> None:
    """A process that is killed while it removes the parts may leave some."""
    out = tmp_path / "t.parquet"
    cut_short(folder, out, max_length=40)
    (tmp_path / "t.parquet.parts" / "inputs.json").unlink()
    assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)
    (tmp_path / "t.parquet.parts").mkdir()
    (tmp_path / "t.parquet.parts" / "00000.arrow").touch()
    write_token_table(folder, ROWS, out)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_start_that_measured_nothing_binds_nobody(folder, tmp_path, whole, broken_head, monkeypatch) -> None:
    out = tmp_path / "t.parquet"
    with pytest.raises(FloatingPointError):
        write_token_table(folder, ROWS, out, max_length=150)
    monkeypatch.undo()
    monkeypatch.setattr(passes, "WINDOW", 3)
    assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)
    cut_short(folder, tmp_path / "u.parquet")
    (tmp_path / "u.parquet.parts" / "inputs.json").write_text('["x"]')
    with pytest.raises(RunError, match=r"inputs\.json: .*; remove its folder"):
        write_token_table(folder, ROWS, tmp_path / "u.parquet")
