"""Which windows of a table are whose: processes share them by taking every n-th.

    windows_of("2/4", 10)          # [1, 5, 9]
    windows_of("2/4+1/2", 10)      # [1, 9]: the first half of that share, for one of two GPUs

Ranks of torchrun and accelerate take their share by RANK and WORLD_SIZE; several devices of one machine get a process
each, started here. They meet in the folder of parts and nowhere else. Such a process reads its job from stdin and says
on stdout how far it is:

    {"model": "runs/trim", "rows": [...], "out": "tokens.parquet", "device": "cuda:1", "shard": "2/8", ...}
    -> {"done": 256, "total": 2500}   ...   {"error": {"kind": "UsageError", "field": "model", "problem": "...", ...}}
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import torch

from trimsft import errors
from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.options import from_environment


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
    messages: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
    progress: dict[int, tuple[int, int]] = {}
    with ExitStack() as stack:
        logs = []
        for number, device in enumerate(devices):
            step = f"{number + 1}/{len(devices)}"
            own = {**job, "device": device, "shard": f"{job['shard']}+{step}" if job["shard"] else step}
            logs.append(stack.enter_context(tempfile.TemporaryFile()))
            worker = _start(own, logs[-1])
            stack.callback(_stop, worker)
            threading.Thread(target=_listen, args=(number, worker, messages), daemon=True).start()
        waiting = set(range(len(devices)))
        while waiting:
            number, message = messages.get()
            if "error" in message:
                raise _error_of(message["error"] or {"problem": _last_line(logs[number])}, devices[number])
            if "done" not in message:
                waiting.remove(number)
                continue
            progress[number] = message["done"], message["total"]
            if on_progress is not None and len(progress) == len(devices):
                on_progress(*(sum(side) for side in zip(*progress.values(), strict=True)))


def _start(job: Mapping[str, Any], log: IO[bytes]) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    worker = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(job, default=str).encode())
        worker.stdin.close()
    except BrokenPipeError:  # it died at once, and its last words are in the log
        pass
    return worker


def _stop(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        worker.terminate()
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


def _listen(number: int, worker: subprocess.Popen[bytes], messages: queue.Queue[tuple[int, dict[str, Any]]]) -> None:
    """Pass on every line of a worker, and that it ended."""
    assert worker.stdout is not None
    said_error = False
    try:
        for line in worker.stdout:
            message = json.loads(line)
            said_error = said_error or "error" in message
            messages.put((number, message))
    except ValueError:  # closed under our hands, or half a line of one that was killed
        pass
    code = worker.wait()
    if not said_error:
        messages.put((number, {} if code == 0 else {"error": {}}))


def _as_data(error: Exception) -> dict[str, Any]:
    """An error for `_error_of` in another process; of a class that is not in `trimsft.errors`, the nearest that is."""
    if not isinstance(error, TrimSFTError):
        return {"problem": one_line(error)}
    kind = next(one for one in type(error).__mro__ if one.__module__ == errors.__name__)
    value = {"value": error.value} if error.has_value else {}
    fields = {"problem": error.problem, "field": error.field, "hint": error.hint, "remedy": error.remedy}
    return {"kind": kind.__name__, **fields, **value}


def _error_of(data: Mapping[str, Any], device: str) -> TrimSFTError:
    """What a process could not do; the device is named where no field is to blame."""
    fields = dict(data)
    kind: type[TrimSFTError] = getattr(errors, fields.pop("kind", "TrimSFTError"))
    problem = fields.pop("problem")
    if remedy := fields.get("remedy"):
        fields["remedy"] = tuple(remedy)
    return kind(problem if fields.get("field") else f"device {device}: {problem}", **fields)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its process was killed"


def main() -> int:
    """The process for one device."""
    # what libraries print must not be taken for progress
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        out.write(json.dumps(message, default=str) + "\n")
        out.flush()

    from trimsft.tokens.write import write_token_table

    job = json.loads(sys.stdin.buffer.read())
    model, rows, place = job.pop("model"), job.pop("rows"), Path(job.pop("out"))
    try:
        write_token_table(model, rows, place, on_progress=lambda done, total: say(done=done, total=total), **job)
    except BrokenPipeError:  # whoever started it is gone
        os._exit(1)
    except Exception as error:
        say(error=_as_data(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
