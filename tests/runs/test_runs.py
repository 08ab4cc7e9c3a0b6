"""Run directories: the lock, the settings, the manifest; files that only grow; fingerprints."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import RunError, WriteError
from trimsft.runs import (
    JsonLines,
    RunDirectory,
    environment,
    files,
    find_weights,
    fingerprint_folder,
    holder_of,
    write_whole,
)

ALONE = """
import os, sys, time
from pathlib import Path
from trimsft.runs import JsonLines, RunDirectory, files
assert not {"torch", "transformers"} & set(sys.modules)
path = Path(sys.argv[1])
"""
HOLD = """
lock = RunDirectory(path).lock()
lock.__enter__()
if "fork" in sys.argv:
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.write(tell, b".")  # from here on the child is a process of its own
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "trim")


# ---- the lock


@contextlib.contextmanager
def held_elsewhere(run: RunDirectory, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock, in a process group of its own."""
    command = [sys.executable, "-c", ALONE + HOLD, str(run.path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # children of a killed holder too


def test_a_second_process_is_refused_and_told_by_whom(run: RunDirectory) -> None:
    with held_elsewhere(run) as process:
        with pytest.raises(RunError) as refused, run.lock():
            pass
        holder = holder_of(run.path / ".lock") or ""
    assert holder.startswith(f"process {process.pid} on ")
    assert str(refused.value).startswith(f"{run.path}: in use by {holder}")
    assert holder_of(run.path / ".lock") is None  # the note of a killed process is no lock


def test_kill_frees_the_lock_even_if_a_child_lives_on(run: RunDirectory) -> None:
    with held_elsewhere(run, "fork") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with run.lock():
            assert (run.path / ".lock").read_text().startswith(f"process {os.getpid()} ")


def test_a_lock_may_be_taken_twice_in_a_process(run: RunDirectory) -> None:
    path = run.path / ".lock"
    with run.lock():
        with RunDirectory(run.path).lock():
            pass
        command = [sys.executable, "-c", ALONE + HOLD, str(run.path)]
        again = subprocess.run(command, capture_output=True, text=True)
        holder = holder_of(path)
        assert "RunInUse" in again.stderr
        assert holder is not None and holder.startswith(f"process {os.getpid()} ")
    assert holder_of(path) is None


@pytest.mark.parametrize("place", [".lock", "eval", "train/telemetry.jsonl"])
def test_a_run_with_a_link_in_it_is_not_written(run: RunDirectory, tmp_path: Path, place: str) -> None:
    target = write_whole(tmp_path / "mine", b"kept")
    link = run.path / place
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    match = f"^{re.escape(str(link))}: is a link, which is not written through; replace it"
    with pytest.raises(RunError, match=match), run.lock():
        pass
    assert target.read_bytes() == b"kept" and link.is_symlink()
    assert holder_of(link) is None and (place == ".lock" or not (run.path / ".lock").exists())


# ---- settings and the manifest


SETTINGS = {
    "margin": 1.5,
    "save_steps": 50,
    "lora": {"rank": 8, "targets": ("q", "v")},
    "strategy": Enum("Strategy", {"STEPS": "steps"}, type=str).STEPS,  # as transformers has it
    "path": Path("a/b"),
    "scale": float("nan"),
    "nothing": None,
}


def test_other_settings_are_refused_but_for_harmless_ones(run: RunDirectory) -> None:
    assert run.read_config() is None
    run.settle_config(SETTINGS)
    content = run.config_path.read_text()
    assert list(yaml.safe_load(content)) == list(SETTINGS) and "strategy: steps" in content
    run.settle_config(SETTINGS)
    changed = SETTINGS | {"margin": 1.0, "lora": {"rank": 16, "targets": ["q", "v"]}, "new": True}
    del changed["nothing"]
    with pytest.raises(RunError) as refused:
        run.settle_config(changed, harmless={"save_steps"})
    assert str(refused.value).partition("other settings: ")[2].split("; ")[:-1] == [
        "margin: was 1.5, now 1.0",
        "lora.rank: was 8, now 16",
        "nothing: was None, now not set",
        "new: was not set, now True",
    ]
    assert run.config_path.read_text() == content
    run.settle_config(SETTINGS | {"save_steps": 10, "lora": {"rank": 1}}, harmless={"lora", "save_steps"})
    assert (run.read_config() or {})["save_steps"] == 10


def test_the_manifest_names_no_folder_host_or_secret(run: RunDirectory, monkeypatch) -> None:
    import trimsft

    assert run.read_manifest() == {} and not run.is_finished() and not run.path.exists()
    words = "/home/me/trimsft/__main__.py train /home/me/a.yaml --out=/home/me/run --hub_token hf_x"
    monkeypatch.setattr(sys, "argv", words.split())
    monkeypatch.setattr("socket.gethostname", lambda: "host-of-me")
    run.write_manifest(seed=1, model={"name": "/home/me/models/base", "fingerprint": ["00"]})
    run.write_manifest(**environment(), data="https://hub.example/a/b", seed=3)
    run.mark_finished()
    content = run.manifest_path.read_text()
    assert "/home" not in content and "host-of-me" not in content and "hf_x" not in content
    recorded = RunDirectory(run.path).read_manifest()
    assert recorded["command"] == "trimsft train a.yaml --out=run --hub_token '***'"
    assert recorded["model"] == {"name": "base", "fingerprint": ["00"]}
    assert (recorded["data"], recorded["seed"]) == ("https://hub.example/a/b", 3)
    assert recorded["versions"]["trimsft"] == trimsft.__version__ and run.is_finished()


def test_weights_of_a_run(run: RunDirectory, tmp_path: Path) -> None:
    assert find_weights("owner/name") == "owner/name" and find_weights(tmp_path) == str(tmp_path)
    run.write_manifest(seed=0)
    with pytest.raises(RunError, match=r"model: is a run without a model yet, got .*"):
        find_weights(run.path)
    run.model_dir.mkdir()
    assert find_weights(run.path) == str(run.model_dir)


# ---- fingerprints


def test_fingerprints_see_names_and_contents_only(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "SAMPLES", 2)
    monkeypatch.setattr(files, "SAMPLE", 1)
    folder, seen = tmp_path / "first", set()
    for name, content in (("a", b"abcd"), ("b/c", b"abcd"), ("b/c", b"abce"), ("b/c", b"bbcd")):
        write_whole(folder / name, content)
        seen.add(fingerprint_folder(folder))
    assert len(seen) == 4
    write_whole(folder / ".cache" / "x", b"hidden")
    assert fingerprint_folder(folder) in seen


# ---- files that only grow, files that are whole

RECORDS = [{"step": step, "text": "a\nb\u2028 \u00e4", "loss": 0.1 * step} for step in range(4)]


@pytest.fixture
def log(tmp_path: Path) -> JsonLines:
    lines = JsonLines(tmp_path / "train" / "log.jsonl")
    assert list(lines) == []
    for record in RECORDS:
        lines.append(record)
    return lines


def test_lines_are_not_appended_through_a_link(log: JsonLines) -> None:
    """A trainer in a script holds no lock, which would refuse the link."""
    target = log.path.rename(log.path.with_name("mine.jsonl"))
    content = target.read_bytes()
    log.path.symlink_to(target)
    with pytest.raises(WriteError, match=r"log\.jsonl: cannot be written \("):
        JsonLines(log.path).append({"step": 9})
    assert target.read_bytes() == content


@given(cut=st.integers(1, 200))
def test_a_line_cut_short_was_never_written(tmp_path_factory, cut: int) -> None:
    whole = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
    path = write_whole(tmp_path_factory.mktemp("log") / "log.jsonl", whole[:-cut])
    left = RECORDS[: whole[:-cut].count(b"\n")]
    assert list(JsonLines(path)) == left
    assert path.read_bytes() == whole[:-cut]
    log = JsonLines(path)
    log.append({"step": 9})
    log.close()
    assert list(JsonLines(path)) == [*left, {"step": 9}]


@pytest.mark.parametrize("line", [b"{]", b"3"])
def test_a_broken_line_in_the_middle_is_named(log: JsonLines, line: bytes) -> None:
    lines = log.path.read_bytes().split(b"\n")
    lines.insert(2, line)
    write_whole(log.path, b"\n".join(lines))
    with pytest.raises(RunError, match=r"log\.jsonl, line 3: "):
        list(JsonLines(log.path))


def test_a_full_disk_leaves_whole_lines(log: JsonLines, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(descriptor: int, content: bytes) -> int:
        if len(content) < 20:
            raise OSError(28, "No space left on device")
        return write(descriptor, content[:10])

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(RunError, match=r"log\.jsonl: cannot be written \(No space left on device\)"):
            log.append({"step": 5, "text": "long enough"})
    log.append({"step": 6})
    assert list(JsonLines(log.path)) == [*RECORDS, {"step": 6}]
    assert log.keep_until(lambda record: record["step"] > 1) == 3
    log.append({"step": 7})
    assert list(JsonLines(log.path)) == [*RECORDS[:2], {"step": 7}]


def test_a_kill_leaves_whole_lines_and_whole_files(tmp_path: Path) -> None:
    line, path = tmp_path / "log.jsonl", write_whole(tmp_path / "manifest.json", b"old")
    for file, code in (
        (line, "JsonLines(path).append({'step': 1}); os.kill(os.getpid(), 9)"),
        (path, "os.replace = lambda *names: os.kill(os.getpid(), 9); files.write_whole(path, b'new')"),
    ):
        ended = subprocess.run([sys.executable, "-c", ALONE + code, str(file)], check=False)
        assert ended.returncode == -signal.SIGKILL
    assert list(JsonLines(line)) == [{"step": 1}]
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
