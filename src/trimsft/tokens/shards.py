"""Which windows of a table are whose: processes share them by taking every n-th.

    windows_of("2/4", 10)          # [1, 5, 9]
    windows_of("2/4+1/2", 10)      # [1, 9]: the first half of that share, for one of two GPUs

Ranks of torchrun and accelerate take their share by RANK and WORLD_SIZE; several devices of one machine get a process
each, started here. They meet in the folder of parts and nowhere else. Such a process reads its job from stdin and says
on stdout how far it is:

    {"model": "runs/trim", "rows": [...], "out": "tokens.parquet", "device": "cuda:1", "shard": "2/8", ...}
    -> {"done": 256, "total": 2500}   ...   {"error": {"kind": "UsageError", "field": "model", "problem": "...", ...}}
"""

import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from trimsft.errors import UsageError
from trimsft.options import from_environment
from trimsft.processes import Child, answers, error_as_data, error_from, messages


def windows_of(shard: str | None, windows: int) -> list[int]:
    """The windows of one share; all of them without one."""
    chosen = list(range(windows))
    for step in shard.split("+") if shard else ():
        number, _, count = step.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UsageError("must be K/N with K from 1 to N, such as 2/4", field="shard", value=shard)
        chosen = chosen[int(number) - 1 :: int(count)]
    return chosen


def share_of_rank() -> str | None:
    """This process's share under torchrun or accelerate launch; None elsewhere."""
    count = from_environment("WORLD_SIZE", 1)
    return None if count == 1 else f"{from_environment('RANK', 0) + 1}/{count}"


def choose_devices(device: str | Sequence[str], *, is_rank: bool) -> list[str]:
    """What `device` stands for: auto is every GPU that torch sees, for a rank its own; else the CPU."""
    if device != "auto":
        names = [device] if isinstance(device, str) else [*device] or [""]
        for name in names:
            _check_device(name)
        return names
    if not torch.cuda.is_available():
        return ["cpu"]
    if is_rank:
        return [f"cuda:{from_environment('LOCAL_RANK', 0) % torch.cuda.device_count()}"]
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def _check_device(name: str) -> None:
    kind, colon, number = name.partition(":")
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    known = {"cpu", "cuda", *([here.type] if here is not None else [])}
    if kind not in known or (colon and not number.isdecimal()):
        raise UsageError("must be auto, cpu, cuda or cuda:N, or a list of them", field="device", value=name)
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        seen = f"torch sees {torch.cuda.device_count()} CUDA devices"
        raise UsageError("is not there", field="device", value=name, hint=seen)


def run_on_each(devices: Sequence[str], job: Mapping[str, Any], on_progress: Callable[[int, int], None] | None) -> None:
    """A process for each device, each with its share of the windows; all end with the first that fails."""
    said: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
    progress: dict[int, tuple[int, int]] = {}
    with ExitStack() as stack:
        for number, device in enumerate(devices):
            step = f"{number + 1}/{len(devices)}"
            child = Child(__name__)
            stack.callback(child.close)
            child.send({**job, "device": device, "shard": f"{job['shard']}+{step}" if job["shard"] else step})
            threading.Thread(target=_listen, args=(number, child, said), daemon=True).start()
        waiting = set(range(len(devices)))
        while waiting:
            number, message = said.get()
            if "error" in message:
                raise error_from(message["error"], where=f"device {devices[number]}")
            if "done" not in message:
                waiting.remove(number)
                continue
            progress[number] = message["done"], message["total"]
            if on_progress is not None and len(progress) == len(devices):
                on_progress(*(sum(side) for side in zip(*progress.values(), strict=True)))


def _listen(number: int, child: Child, said: queue.Queue[tuple[int, dict[str, Any]]]) -> None:
    """Pass on every line of a process, and that it ended."""
    with suppress(ValueError):  # closed under our hands
        while (message := child.read()) is not None:
            said.put((number, message))
            if "error" in message:
                return
        ended = child.wait() == 0
        said.put((number, {} if ended else {"error": {"problem": child.last_words() or "its process was killed"}}))


def main() -> int:
    """The process for one device."""
    say = answers()
    from trimsft.tokens.write import write_token_table

    job = next(messages())
    model, rows, place = job.pop("model"), job.pop("rows"), Path(job.pop("out"))
    try:
        write_token_table(model, rows, place, on_progress=lambda done, total: say(done=done, total=total), **job)
    except Exception as error:
        say(error=error_as_data(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
