"""Check that no room has grown: print the lines of each, and fail where one is above its ceiling.

    python -m tools.size

A ceiling is what a room may have: lower it with every change that makes the room smaller, or trade lines between rooms;
never raise the sum.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

CEILINGS = {
    "objectives": 680,
    "head": 1872,
    "data": 1995,
    "train": 2491,
    "evaluate": 2902,
    "grading": 2383,
    "tokens": 1300,
    "audit": 368,
    "report": 2210,
    "study": 2489,
    "lab": 683,
    "runs": 2019,  # with the files at the top of the package
    "cli": 842,
    "integrations": 257,
    "tests": 16_000,
    "tools and benchmarks": 5445,
    "page": 1438,  # lines of script, style and template in report/
    "docs": 34_600,  # words of Markdown, but for the diary
}
"""Lines of Python where nothing else is said; those of the package add up to 22,500 at most."""


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
    found = sizes(listed)
    too_large = [name for name, size in found.items() if size > CEILINGS.get(name, 0)]
    for name, size in sorted(found.items()):
        print(f"{name:22}{size:8,} of {CEILINGS.get(name, 0):7,}{'  TOO MANY' if name in too_large else ''}")
    return int(bool(too_large))


if __name__ == "__main__":
    sys.exit(main())
