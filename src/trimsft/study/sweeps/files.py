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

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimsft.report.page.build import write_report
from trimsft.report.table import escape_markdown, render, to_latex
from trimsft.runs.files import write_whole
from trimsft.scoring.intervals import Interval
from trimsft.study.cells import NAMES
from trimsft.study.folder import StudyFolder
from trimsft.study.sweeps.figures import sweep_figures
from trimsft.study.sweeps.sweep import Selection, Swept
from trimsft.study.sweeps.tables import against_sft, conclusions, fields_of, metric_name, reported, sweep_table
from trimsft.study.tables.notes import unanswered_note
from trimsft.study.tables.summaries import Summary
from trimsft.study.tables.writing import markdown_images, write_flat, write_json


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
    parts = [render(table, "markdown").rstrip(), *map(escape_markdown, sentences), *markdown_images(figures)]
    files = [
        write_whole(out / "sweep.md", ("\n\n".join(parts) + "\n").encode()),
        write_whole(out / "sweep.tex", to_latex(table, fit=True).encode()),
        write_flat(out / "sweep.csv", rows, first=["objective", *fields_of(swept)]),
        write_json(out / "sweep.json", record),
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
        "selection": None if selection is None else _selection(selection),
        "sensitivity": None if sensitivity is None else _shares(sensitivity.shares),
        "sentences": list(sentences),
    }


def _shares(shares: Mapping[str, Interval]) -> dict[str, Any] | None:
    """None where all points score the same, and so there is no variance to explain: JSON knows no NaN."""
    if any(math.isnan(share.value) for share in shares.values()):
        return None
    return {part: share.as_dict() for part, share in shares.items()}


def _run_of(point: Summary, out: Path) -> Path:
    """The run of its first seed."""
    return StudyFolder(out).run(min(point.cells, key=lambda cell: cell.seed))


def _point(swept: Swept, point: Summary, out: Path, benchmarks: Sequence[str]) -> dict[str, Any]:
    return {
        "objective": point.setting.objective,
        **dict(point.setting.fields),
        **point.interval(swept.metric, *benchmarks).as_dict(),
        "seeds": point.seeds,
        "run": str(_run_of(point, out).relative_to(out)),  # the folder may be moved
    }


def _details(swept: Swept, selection: Selection | None, point: Summary) -> dict[str, Any]:
    """What the table says of a point besides: each seed, the difference to its SFT, each benchmark."""
    metric, names = swept.metric, reported(swept, selection)
    difference = against_sft(swept, selection, point)
    columns = {"against_sft": difference} | {name: point.interval(metric, name) for name in swept.benchmarks}
    flat: dict[str, Any] = {"by_seed": list(point.by_seed(metric, names))}
    for name, interval in columns.items():
        value, low, high = (None, None, None) if interval is None else interval.as_dict().values()
        flat |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return flat


def _selection(selection: Selection) -> dict[str, Any]:
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
    if not swept.slice():
        return []
    point = swept.best if selection is None else selection.point
    sft = swept.baseline_of(point) if selection is None else selection.baseline
    shown = [summary for summary in (sft, point) if summary is not None]
    runs = {NAMES[summary.setting.objective]: _run_of(summary, out) for summary in shown}
    settings = dict(point.setting.fields) | ({"command": command} if command else {})
    return [write_report(out / "report.html", runs, title="Sweep", settings=settings, sweep=out / "sweep.json")]
