"""What a sweep leaves behind: a table in every format, sweep.json for the report page, figures.

runs/sweep/
  sweep.md, sweep.tex, sweep.csv    every point with its interval
  sweep.json                        {"metric": "average@8", "benchmarks": [...], "selected_on": ..., "command": ...,
                                     "points": [{"objective": "trim", "margin": 1.0, "bandwidth": 0.5, "value": 0.61,
                                                 "low": 0.58, "high": 0.64, "seeds": 3, "run": "..."}],
                                     "baseline": SFT likewise, "all": SFT and every point, ...}
  figures/                          curves and planes of what was varied
  report.html                       the page with the heatmap, and the runs of SFT and of the chosen point
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimsft.report.figures.style import csv_of
from trimsft.report.tables.formats import escape_markdown, render
from trimsft.runs.files import write_whole
from trimsft.study.places import Place
from trimsft.study.sweeps.figures import sweep_figures
from trimsft.study.sweeps.sweep import Selection, Swept
from trimsft.study.sweeps.tables import (
    against_sft,
    conclusions,
    fields_of,
    metric_name,
    reported,
    sweep_table,
)
from trimsft.study.tables.notes import unanswered_note
from trimsft.study.tables.summaries import NAMES, Summary
from trimsft.study.tables.writing import fitting_latex


def write_sweep(
    swept: Swept,
    out: Path,
    *,
    selection: Selection | None = None,
    notes: Sequence[str] = (),
    command: str = "",
) -> list[Path]:
    """All files of a sweep; returns them."""
    table = sweep_table(swept, selection)
    unanswered = unanswered_note({point.setting: point for point in swept.points})
    sentences = [*conclusions(swept, selection), *unanswered, *notes]
    figures = sweep_figures(swept, selection, out / "figures")
    record = sweep_record(swept, out, selection, sentences, command)
    rows = [{**row, "by_seed": " ".join(f"{score:.6g}" for score in row["by_seed"])} for row in record["all"]]
    names = list(dict.fromkeys(["objective", *fields_of(swept), *(name for row in rows for name in row)]))
    parts = [render(table, "markdown").rstrip(), *(escape_markdown(sentence) for sentence in sentences)]
    parts += [f"![{path.stem.replace('_', ' ')}](figures/{path.name})" for path in figures if path.suffix == ".png"]
    files = [
        write_whole(out / "sweep.md", ("\n\n".join(parts) + "\n").encode()),
        write_whole(out / "sweep.tex", fitting_latex(table).encode()),
        write_whole(out / "sweep.csv", csv_of(names, [[row.get(name) for name in names] for row in rows])),
        write_whole(out / "sweep.json", (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()),
    ]
    return [*files, *figures, *_page(swept, out, selection, command)]


def sweep_record(
    swept: Swept, out: Path, selection: Selection | None, sentences: Sequence[str], command: str
) -> dict[str, Any]:
    """`points` are what the heatmap of the report page shows: trimmed, differing in margin and bandwidth alone."""
    shown, through = reported(swept, selection), None if selection is None else selection.point
    sensitivity, points = swept.sensitivity(through), swept.slice(through)
    sft = swept.baseline_of(points[0] if points else through or swept.best)
    return {
        "metric": metric_name(swept),
        "benchmarks": shown,
        "selected_on": None if selection is None else selection.on,
        "command": command or None,
        "points": [_point(swept, point, out, shown) for point in points],
        "baseline": None if sft is None else _point(swept, sft, out, shown),
        "all": [
            _point(swept, point, out, shown) | _details(swept, selection, point)
            for point in (*swept.beside, *swept.points)
        ],
        "selection": None if selection is None else _told(selection),
        "sensitivity": None
        if sensitivity is None
        else {part: interval.as_dict() for part, interval in sensitivity.shares.items()},
        "sentences": list(sentences),
    }


def _point(swept: Swept, point: Summary, out: Path, benchmarks: Sequence[str]) -> dict[str, Any]:
    run = Place(out).run(min(point.cells, key=lambda cell: cell.seed))
    return {
        "objective": point.setting.objective,
        **dict(point.setting.fields),
        **point.interval(swept.metric, *benchmarks).as_dict(),
        "seeds": point.seeds,
        "run": str(run.relative_to(out)),  # the folder may be moved
    }


def _details(swept: Swept, selection: Selection | None, point: Summary) -> dict[str, Any]:
    """What the table says of a point besides: each seed, the difference to its SFT, each benchmark."""
    metric, names = swept.metric, reported(swept, selection)
    difference = against_sft(swept, selection, point)
    by_seed = [
        float(sum(run[name].values(metric).mean() for name in names) / len(names))
        for _, run in sorted(point.runs.items())
    ]
    columns = {"against_sft": difference} | {name: point.interval(metric, name) for name in swept.benchmarks}
    flat: dict[str, Any] = {"by_seed": by_seed}
    for name, interval in columns.items():
        flat |= {
            name: None if interval is None else interval.value,
            f"{name}_low": None if interval is None else interval.low,
            f"{name}_high": None if interval is None else interval.high,
        }
    return flat


def _told(selection: Selection) -> dict[str, Any]:
    return {
        "objective": selection.point.setting.objective,
        **dict(selection.point.setting.fields),
        "selected_on": selection.on,
        "development": selection.development.as_dict(),
        **selection.interval.as_dict(),
        "benchmarks": {name: interval.as_dict() for name, interval in selection.by_benchmark.items()},
        "sft": None if selection.baseline is None else dict(selection.baseline.setting.fields),
        "against_sft": None if selection.against_sft is None else selection.against_sft.as_dict(),
    }


def _page(swept: Swept, out: Path, selection: Selection | None, command: str) -> list[Path]:
    """The heatmap, and what there is of SFT and of the point in question at the first seed."""
    from trimsft.report import write_report

    if not swept.slice():
        return []
    point = swept.best if selection is None else selection.point
    sft = swept.baseline_of(point) if selection is None else selection.baseline
    shown = [summary for summary in (sft, point) if summary is not None]
    runs = {
        NAMES[summary.setting.objective]: Place(out).run(min(summary.cells, key=lambda cell: cell.seed))
        for summary in shown
    }
    settings = dict(point.setting.fields) | ({"command": command} if command else {})
    page = out / "report.html"
    return [write_report(page, runs, title="Sweep", settings=settings, sweep=out / "sweep.json")]
