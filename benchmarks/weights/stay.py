"""Table 1 on one model within a stay on a GPU machine: the cells of a study one by one, each written down at once.

    python -m benchmarks.weights.stay --model Qwen2.5-Coder-1.5B-Instruct=models/qwen1.5b --data mix.jsonl.gz \
        -b benchmarks/math500.jsonl --out runs/stay --results qwen_coder.json

The base comes first: how fast it generates is known before anything is trained. After each cell of `trimsft study run
main` its scores, the numbers of its token table and its seconds go to --results. What is done is not done again, here
or in what came back of --out; with --seeds 2 another stay adds a second seed. Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measuring import machine
from trimsft.evaluate.scores import load_run
from trimsft.objectives import BANDWIDTH, MARGIN, make_objective
from trimsft.runs import write_whole
from trimsft.study import StudySettings
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.run import CellState, run_cells, write_tables
from trimsft.tokens.statistics import confidence, diagnose
from trimsft.tokens.table import read_token_table

BAND = {"margin": MARGIN, "bandwidth": BANDWIDTH}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="JSON file that each cell is added to.")
    parser.add_argument("--out", type=Path, required=True, help="Folder of the study.")
    parser.add_argument("--scale", default="qwen-coder-1.5b")
    parser.add_argument("--model", dest="models", nargs=1, required=True, help="NAME=FOLDER")
    parser.add_argument("--set", dest="fields", nargs="+", default=[], help="NAME=VALUE of trimsft train")
    parser.add_argument("-b", "--benchmark", dest="benchmarks", nargs="+", default=[], help="Names or .jsonl files")
    for name in ("data", "device"):  # these, and the numbers, as in trimsft study run
        parser.add_argument(f"--{name}")
    for name in ("seeds", "limit", "samples", "max-tokens"):
        parser.add_argument(f"--{name}", type=int)
    given = vars(parser.parse_args())
    results = given.pop("results")
    words = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    settings = StudySettings(names=("main",), **words)
    (study,), cells, scale, folder = settings.prepare()
    for cell in sorted(cells, key=lambda cell: not cell.is_base):
        done = run_cells([cell], scale, folder, on_event=say)
        print(*done.failures(), sep="\n", flush=True)
        if cell in done.done:
            record(results, cell, folder, done.seconds.get(cell))
    write_tables(study, folder, scale)


def record(results: Path, cell: Cell, folder: StudyFolder, seconds: dict[str, float] | None) -> None:
    """Put the numbers of a cell into the file of results; one that was done before keeps its machine and seconds."""
    content = json.loads(results.read_text()) if results.exists() else {"cells": {}}
    table, trim = read_token_table(folder.tokens(cell)), make_objective("trim")
    own: dict[str, Any] = content["cells"].setdefault(cell.name, {})
    own["scores"] = [asdict(score) for score in load_run(folder.run(cell))]
    own["tokens"] = asdict(confidence(table, **BAND)) | {"trim": asdict(diagnose(table, trim, **BAND))}
    if seconds:
        samples = [*folder.run(cell).glob("eval/*/samples.jsonl")]
        written = sum(json.loads(line)["tokens"] for path in samples for line in path.read_text().splitlines())
        own |= {"machine": machine(), "seconds": own.get("seconds", {}) | seconds, "generated_tokens": written}
        print(f"{cell.name}: {own['seconds']}, {written:,} tokens generated", flush=True)
    write_whole(results, (json.dumps(content, indent=1) + "\n").encode())


def say(event: CellState) -> None:
    print(time.strftime("%X"), event.cell.name, event.state, event.note, flush=True)


if __name__ == "__main__":
    main()
