"""Two ranks on gloo, DDP and FSDP2: one dies, stops, is slow, is asked to end, or has nothing to train on.

The other does not wait beyond the timeout, and ends in one line; torchrun names the rank; the same command continues.
"""

import os
import re
import signal
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tools.soak.bench import Bench, wait_until, watch
from tools.soak.campaign import Kind, Lost, Trial, require_done, require_gone, require_same, require_told
from tools.soak.children import HUNG, Child, Ended
from tools.soak.results import result_of
from tools.soak.signals import CODES

WAIT = 15  # ddp_timeout, in seconds
GRACE = 45  # for what is done besides waiting
SHARDED = "fsdp: true\nfsdp_config:\n  version: 2\n"


def words_of(bench: Bench, *, shards: bool) -> list[str]:
    words = [*bench.words("train"), "--ddp_timeout", str(WAIT)]
    if shards:
        recipe = bench.inputs / "fsdp2.yaml"
        recipe.write_text(SHARDED)
        words += ["--config", str(recipe), "--use_cpu", "false"]  # else accelerate would not shard
    return words


def start_two(bench: Bench, folder: Path, words: list[str], *, shards: bool, log: str = "rank") -> list[Child]:
    """Both ranks, as torchrun starts them, without torchrun."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        bench.children.fork(
            words, folder, f"{log}-{rank}", shards=shards, RANK=str(rank), LOCAL_RANK=str(rank), **shared
        )
        for rank in range(2)
    ]


def reference(bench: Bench, *, shards: bool) -> dict[str, Any]:
    """What two undisturbed ranks make, and how often their folder changes."""

    def make(folder: Path) -> dict[str, Any]:
        children = start_two(bench, folder, words_of(bench, shards=shards), shards=shards)
        changes = sum(1 for _ in watch(folder / "out", lambda: children[0].is_running(0.002)))
        ended = [child.wait(240) for child in children]
        if any(one.code for one in ended):
            raise RuntimeError(f"undisturbed, two ranks end with {[e.code for e in ended]}: {ended[0].err[-2000:]}")
        return {"result": result_of(folder / "out"), "seconds": ended[0].seconds, "changes": changes}

    return bench.made_once(f"two-ranks-{'fsdp2' if shards else 'ddp'}", make)


def lose_a_rank(trial: Trial, *, shards: bool) -> None:
    faults = {
        "dies": signal.SIGKILL,
        "stops": signal.SIGSTOP,
        "pauses": signal.SIGSTOP,
        "is asked to end": signal.SIGTERM,
    }
    fault = list(faults)[trial.number % len(faults)]
    rank = trial.rng.randrange(2)
    whole, words = reference(trial.bench, shards=shards), words_of(trial.bench, shards=shards)
    children = start_two(trial.bench, trial.folder, words, shards=shards)
    moment = _wait(trial, children[rank], whole)
    what = f"{'FSDP2' if shards else 'DDP'}, rank {rank} {fault} {moment}"
    trial.note(what)
    was_running = all(child.is_running() for child in children)
    children[rank].send(faults[fault])
    if fault == "pauses":
        children[1 - rank].is_running(3)
        children[rank].send(signal.SIGCONT)
    other = children[1 - rank].wait(WAIT + GRACE)
    children[rank].send(signal.SIGKILL if fault in ("dies", "stops") else 0)
    ended = children[rank].wait(WAIT + GRACE)
    if was_running:
        _require(fault, other, ended, 1 - rank, what)
    require_gone(trial, what)
    if other.code or ended.code:
        for one in [
            child.wait(240) for child in start_two(trial.bench, trial.folder, words, shards=shards, log="again")
        ]:
            require_done(one, f"{what}, both once more")
    require_same(result_of(trial.folder / "out"), whole["result"], what)


def _require(fault: str, other: Ended, ended: Ended, rank: int, what: str) -> None:
    if other.code == HUNG or ended.code == HUNG:
        raise Lost(f"{what}: the other rank still waits after {WAIT + GRACE} s")
    if fault == "pauses":
        require_done(other, what)
    elif fault == "is asked to end":
        for one in (other, ended):
            if one.code not in (0, *CODES[signal.SIGTERM]) or "Traceback" in one.err:
                raise Lost(f"{what}: exit code {one.code}: {one.last_line[:300]}")
    elif other.code:
        require_told(other, what)


def _wait(trial: Trial, child: Child, whole: dict[str, Any]) -> str:
    if trial.rng.random() < 0.5:
        seconds = trial.rng.uniform(0, whole["seconds"])
        child.is_running(seconds)
        return f"after {seconds:.2f} s"
    wanted = trial.rng.randint(1, max(1, whole["changes"]))
    for count in watch(trial.folder / "out", lambda: child.is_running(0.001)):
        if count == wanted:
            break
    return f"at change {wanted} of the folder"


def have_an_empty_rank(trial: Trial, *, shards: bool) -> None:
    """Fewer rows than ranks and batches."""
    rows = trial.bench.data.read_text().splitlines(keepends=True)
    count = trial.rng.choice((1, 1, 2, 3, 5))
    (trial.folder / "few.jsonl").write_text("".join(rows[:count]))
    words = [*words_of(trial.bench, shards=shards), "--dataset_name", "few.jsonl", "--max_steps", "2"]
    what = f"{'FSDP2' if shards else 'DDP'}, {count} rows for two ranks"
    trial.note(what)
    ended = [child.wait(WAIT + GRACE) for child in start_two(trial.bench, trial.folder, words, shards=shards)]
    for one in ended:
        if one.code and not one.last_line.startswith("trimsft: ") and "Traceback" not in one.err:
            continue  # the first rank speaks for all
        require_told(one, what)


def lose_a_rank_of_torchrun(trial: Trial) -> None:
    """One rank of torchrun is killed, or torchrun itself asked to end: it ends the others, and says which was lost."""
    whole, words = reference(trial.bench, shards=False), words_of(trial.bench, shards=False)
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "trimsft"]
    child = trial.start(words, real=True, program=launcher)
    wait_until(lambda: _pid_of(trial, 1) is not None or not child.is_running(), 60)
    seconds, is_killed, pid = trial.rng.uniform(0, 12), trial.rng.random() < 0.6, _pid_of(trial, 1)
    child.is_running(seconds)
    what = f"torchrun, {'rank 1 killed' if is_killed else 'asked to end'} after {seconds:.1f} s"
    trial.note(what)
    if is_killed and pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    else:
        child.send(signal.SIGTERM)
    ended = child.wait(WAIT + GRACE)
    if ended.code == HUNG:
        raise Lost(f"{what}: still running after {WAIT + GRACE} s")
    if is_killed and ended.code and not re.search(r"rank\s*:\s*1", ended.err):
        raise Lost(f"{what}: nobody names the rank: {ended.last_line[:300]!r}")
    require_gone(trial, what)
    again = trial.run(words, real=True, program=launcher, timeout=240)
    if again.code:
        raise Lost(f"{what}: once more, exit code {again.code}: {again.err[-600:]}")
    require_same(result_of(trial.folder / "out"), whole["result"], what)


def _pid_of(trial: Trial, rank: int) -> int | None:
    for pid in trial.bench.children.running(trial.folder):
        with suppress(OSError):
            if f"\0RANK={rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return pid
    return None


KINDS = [
    Kind("lost-rank-ddp", partial(lose_a_rank, shards=False), weight=1.5),
    Kind(
        "lost-rank-fsdp2", partial(lose_a_rank, shards=True), weight=1.5, how="forks, sharding on a CPU is patched in"
    ),
    Kind("empty-rank-ddp", partial(have_an_empty_rank, shards=False), weight=0.5),
    Kind("empty-rank-fsdp2", partial(have_an_empty_rank, shards=True), weight=0.5, how="forks, as above"),
    Kind("torchrun", lose_a_rank_of_torchrun, weight=1.5, how="processes", expected=60),
]
