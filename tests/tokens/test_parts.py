"""A token table in parts: continued, shared, refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tokens.tiny import ROWS, make_folder
from trimsft.errors import RunError
from trimsft.tokens import passes, read_token_table, write_token_table
from trimsft.tokens.measure import _prompts, write_token_tables
from trimsft.tokens.shards import choose_devices, share_of_rank, windows_of


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(passes, "WINDOW", 3)


@pytest.fixture
def whole(folder, tmp_path):
    """The table of all rows, made in one go."""
    return pq.read_table(write_token_table(folder, ROWS, tmp_path / "whole.parquet"))


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
    told = []
    write_token_table(folder, ROWS, out, on_progress=lambda *progress: told.append(progress))
    assert seen == [2, 3]
    assert told[0][0] > 6 and told[-1] == (12, 12)
    assert pq.read_table(out).equals(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet", "whole.parquet"]


def test_other_inputs_are_refused_and_nothing_is_lost(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out)
    with pytest.raises(RunError, match=r"holds parts of a table with other inputs.*max_length: was None, now 99"):
        write_token_table(folder, ROWS, out, max_length=99)
    with pytest.raises(RunError, match=r"data: was 12 rows, .*, now 11 rows"):
        write_token_table(folder, ROWS[:-1], out)
    with pytest.raises(RunError, match="top: was 0, now 2"):
        write_token_table(folder, ROWS, out, top=2)
    assert pq.read_table(write_token_table(folder, ROWS, out)).equals(whole)
    with pytest.raises(RunError, match=r"is there, made with other inputs \(max_length.*overwrite=True"):
        write_token_table(folder, ROWS, out, max_length=99)
    assert pq.read_table(out).equals(whole)
    assert (
        read_token_table(write_token_table(folder, ROWS, out, max_length=99, overwrite=True)).metadata["max_length"]
        == 99
    )


def test_overwrite_begins_again(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out, max_length=40)
    assert pq.read_table(write_token_table(folder, ROWS, out, overwrite=True)).equals(whole)


def test_other_weights_are_other_inputs(folder, tmp_path) -> None:
    out = tmp_path / "t.parquet"
    cut_short(folder, out)
    with pytest.raises(RunError, match="model_sha256: was"):
        write_token_table(make_folder(tmp_path / "phi", "phi"), ROWS, out)


def test_a_finished_table_is_not_made_again(folder, tmp_path, monkeypatch) -> None:
    out = write_token_table(folder, ROWS, tmp_path / "t.parquet")
    made = out.stat().st_mtime_ns
    monkeypatch.setattr("trimsft.tokens.measure.load_model", None)
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
    with pytest.raises(ValueError, match="shard: '1/2' has no effect on a rank"):
        write_token_table(folder, ROWS, out, shard="1/2")


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
    told = []
    out = write_token_table(
        folder,
        rows,
        tmp_path / "two.parquet",
        top=2,
        device=["cpu", "cpu"],
        on_progress=lambda *progress: told.append(progress),
    )
    assert pq.read_table(out).equals(pq.read_table(single))
    assert read_token_table(out).metadata == read_token_table(single).metadata
    assert told[-1] == (270, 270)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "two.parquet"]


def test_a_process_that_fails_says_why(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(passes, "WINDOW", 256)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rows = [ROWS[number % 12] for number in range(270)]
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.get_output_embeddings().weight.data[3] = torch.nan
    model.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "broken")
    with pytest.raises(RunError, match=r"device cpu: rows .*non-finite logits"):
        write_token_table(tmp_path / "broken", rows, tmp_path / "t.parquet", device=["cpu", "cpu"])
    assert (tmp_path / "t.parquet.parts").is_dir() and not (tmp_path / "t.parquet").exists()


KILLED = """
import sys, time
from trimsft.tokens import passes, write_token_table
from tests.tokens.tiny import ROWS
passes.WINDOW = 3

def slow(done, total):
    print(done, flush=True)
    time.sleep(0.05 if done < 7 else 60)

write_token_table(sys.argv[1], ROWS, sys.argv[2], on_progress=slow)
"""


def test_kill_loses_a_window_at_most(folder, tmp_path, whole) -> None:
    out = tmp_path / "t.parquet"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(out)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < 7:
        pass
    deadline = time.monotonic() + 20
    while len(list(tmp_path.glob("t.parquet.parts/*.arrow"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(RunError, match=f"in use by process {process.pid} on "):
        write_token_table(folder, ROWS, out)
    with pytest.raises(RunError, match=f"in use by process {process.pid} on "):
        write_token_table(folder, ROWS, out, max_length=50, overwrite=True)
    assert len(list(tmp_path.glob("t.parquet.parts/*.arrow"))) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    told = []
    write_token_table(folder, ROWS, out, on_progress=lambda *progress: told.append(progress))
    assert told[0][0] > 6  # the two windows before the one it was at are not done again
    assert pq.read_table(out).equals(whole)


def test_several_models_over_the_same_rows(folder, tmp_path) -> None:
    other = make_folder(tmp_path / "phi", "phi")
    made = write_token_tables({"Base": folder, "Phi": other}, ROWS, tmp_path / "both", limit=5)
    assert made == {name: tmp_path / "both" / name / "tokens.parquet" for name in ("Base", "Phi")}
    metadata = [read_token_table(path).metadata for path in made.values()]
    assert metadata[0]["data"] == metadata[1]["data"] and metadata[0]["model"] == str(folder)
    with pytest.raises(ValueError, match=r"models: '\.\./x' must be a label"):
        write_token_tables({"../x": folder}, ROWS, tmp_path)


def test_whose_windows() -> None:
    assert windows_of(None, 3) == [0, 1, 2]
    assert windows_of("2/4", 10) == [1, 5, 9]
    assert windows_of("2/4+2/2", 10) == [5]
    everything = [window for part in range(1, 4) for half in (1, 2) for window in windows_of(f"{part}/3+{half}/2", 20)]
    assert sorted(everything) == list(range(20))
    for wrong in ("0/3", "4/3", "2", "a/b", "1/2+", "-1/2"):
        with pytest.raises(ValueError, match="must be K/N with K from 1 to N"):
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
        with pytest.raises(ValueError, match=r"device: .* must be auto, cpu, cuda or cuda:N"):
            choose_devices(wrong, is_rank=False)
    with pytest.raises(ValueError, match="'cuda:2' is not there: torch sees 2"):
        choose_devices("cuda:2", is_rank=False)
    assert share_of_rank() is None


def test_prompts_in_the_metadata_are_few_and_short() -> None:
    assert len(_prompts(["What?"] * 200)) == 200
    long = _prompts(["é" * 6000] * 200)
    assert {len(prompt) for prompt in long} == {4000}
    assert len(long) > 70 and len(json.dumps(long)) < 2_000_000
