"""Run the code of a notebook, cell after cell, in one process and without Jupyter: `python -m tools.notebook FILE`."""

import json
import sys
from pathlib import Path
from typing import Any


def code_cells(path: Path) -> list[str]:
    """Return the code of each cell; a notebook is JSON, and its text a list of lines."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(path: Path) -> dict[str, Any]:
    """Run all cells in the current folder; returns the names that they leave."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(code_cells(path), start=1):
        print(f"--- cell {number}", flush=True)  # noqa: T201
        exec(compile(code, f"{path.name}, cell {number}", "exec"), names)
    return names


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve())
