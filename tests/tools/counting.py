"""A small command for the campaign to disturb: `python -m tests.tools.counting HOW OUT` counts to 40 in a file.

Started for the first time it stops half-way and waits to be ended; started again it continues. HOW is "right", or a way
of being broken.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

HALF, LAST = 20, 40


def count(how: str, out: Path) -> None:
    path = out / "counted.csv"
    is_new = not path.exists()
    out.mkdir(exist_ok=True)
    if how == "leaves a child":
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    if how == "fails" and not is_new:
        raise ValueError("a bug")
    numbers = list(range(HALF if is_new else LAST))
    beside = out / ".counted.csv"
    beside.write_text("".join(f"{number}\n" for number in numbers) + ("once more\n" if how == "differs" else ""))
    beside.replace(path)
    while is_new:
        signal.pause()


def _stop(number: int, frame: object) -> None:
    sys.stderr.write("trimsft: terminated; the same command continues\n")
    sys.stderr.flush()
    os._exit(128 + number)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, (lambda number, frame: None) if sys.argv[1] == "hangs" else _stop)
    count(sys.argv[1], Path(sys.argv[2]))
