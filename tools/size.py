"""Check that no room has grown: print the lines of each, and fail where one is above its ceiling.

    python -m tools.size

A ceiling is what a room may have today: lower it with every change that makes the room smaller, or trade lines between
rooms; never raise the sum. `aim` is where the room is going.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Room(NamedTuple):
    ceiling: int
    aim: int


PYTHON = {
    "objectives": Room(680, 800),
    "head": Room(1872, 1900),
    "data": Room(2243, 1900),
    "train": Room(2950, 2500),
    "evaluate": Room(3561, 2900),
    "grading": Room(2564, 2400),
    "tokens": Room(1445, 1300),
    "audit": Room(509, 400),
    "report": Room(2452, 2400),
    "study": Room(3592, 2500),
    "lab": Room(709, 700),
    "runs": Room(2431, 1700),  # with the files at the top of the package
    "cli": Room(1150, 800),
    "integrations": Room(257, 300),
    "tests": Room(20858, 16_000),
    "tools and benchmarks": Room(5488, 6_000),
}
"""Lines of Python."""
PAGE = Room(1438, 2500)
"""Lines of script, style and template in report/."""
DOCS = Room(35_000, 35_000)
"""Words of Markdown in docs/, but for the diary."""


def room_of(path: str) -> str | None:
    """Return the room that a file of Python counts in."""
    parts = Path(path).parts
    if parts[0] in ("tools", "benchmarks"):
        return "tools and benchmarks"
    if parts[0] == "tests":
        return "tests"
    if parts[:2] != ("src", "trimsft"):
        return None
    if parts[2] == "quickstart.py":
        return "lab"
    return "runs" if len(parts) == 3 else parts[2]


def sizes(files: list[str]) -> dict[str, int]:
    """Return lines by room, of the page's own files, and words of the docs."""
    found: Counter[str] = Counter()
    for path in files:
        if not Path(path).is_file():
            continue
        if path.endswith(".py") and (room := room_of(path)):
            found[room] += len(Path(path).read_text().splitlines())
        elif path.startswith("src/trimsft/report/") and path.endswith((".js", ".css", ".j2")):
            found["page"] += len(Path(path).read_text().splitlines())
        elif path.startswith("docs/") and path.endswith(".md") and not path.endswith("LOG.md"):
            found["docs"] += len(Path(path).read_text().split())
    return dict(found)


def main() -> int:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    found, rooms = sizes(listed), {**PYTHON, "page": PAGE, "docs": DOCS}
    for name in sorted(found.keys() | rooms.keys()):
        size, room = found.get(name, 0), rooms.get(name, Room(0, 0))
        excess = "" if size <= room.ceiling else "  TOO MANY"
        print(f"{name:22}{size:8,} of {room.ceiling:7,}, aim {room.aim:7,}{excess}")
    return int(any(size > rooms.get(name, Room(0, 0)).ceiling for name, size in found.items()))


if __name__ == "__main__":
    sys.exit(main())
