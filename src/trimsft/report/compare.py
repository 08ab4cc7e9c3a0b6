"""`trimsft compare`: from the scores of runs to a verdict; and the table that `trimsft eval` ends with."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trimsft.errors import RunError
from trimsft.scoring.records import load_run
from trimsft.report.tables.formats import render, to_rich
from trimsft.report.tables.scores import Table, comparison_table, score_table
from trimsft.scoring.compare import compare_runs
from trimsft.scoring.scores import BenchmarkScore


def summary(scores: Sequence[BenchmarkScore], name: str) -> Table:
    """What a person wants to see first: the sampled average, greedy beside it, pass and vote, and the lengths."""
    k = min(found.samples for found in scores)
    greedy = ["greedy"] if all(found.greedy for found in scores) else []
    sampled = ["average", *greedy, f"pass@{k}", f"majority@{k}", "no_answer", "truncated", "tokens"]
    metrics = sampled if k else greedy
    tables = [score_table({metric: scores}, metric) for metric in metrics]
    rows = tuple(tuple(replace(cell, bold=False) for cell in table.rows[0]) for table in tables)
    return Table(title=name, header=("", *tables[0].header[1:]), rows=rows, notes=tables[0].notes)


def compare_main(runs: Sequence[Path], metric: str, benchmarks: Sequence[str], style: str, out: Path | None) -> None:
    """Tables of several runs, the first of them the baseline of all differences."""
    names = _short_names(runs)
    loaded = {name: load_run(path, benchmarks) for name, path in zip(names, runs, strict=True)}
    baseline, *candidates = names
    found = compare_runs(loaded[baseline], {name: loaded[name] for name in candidates}, metric, name=baseline)
    tables = [score_table(loaded, metric, comparisons=found), comparison_table(found)]
    if style == "terminal":
        from rich.console import Console

        for table in tables:
            Console(highlight=False).print(to_rich(table))
        return
    if style == "json":
        text = json.dumps([comparison.as_dict() for comparison in found], indent=1)
    else:
        text = "\n".join(render(table, style) for table in tables)
    if out is None:
        sys.stdout.write(text + "\n")
    else:
        from trimsft.runs import write_whole

        try:
            write_whole(out, (text + "\n").encode())
        except OSError as error:
            raise RunError(f"out: cannot write {str(out)!r} ({error.strerror})") from error


def _short_names(runs: Sequence[Path]) -> list[str]:
    """The folders' names, or their paths where names repeat."""
    names = [path.resolve().name for path in runs]
    return names if len(set(names)) == len(names) else [str(path) for path in runs]
