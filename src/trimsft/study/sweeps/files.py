"""What a sweep leaves behind: a table in every format, sweep.json for the report page, figures.

runs/sweep/
  sweep.md, sweep.tex, sweep.csv    every point with its interval
  sweep.json                        {"metric": "average@8", "benchmarks": [...], "selected_on": ..., "command": ...,
                                     "points": [{"objective": "trim", "margin": 1.0, "bandwidth": 0.5, "value": 0.61,
                                                 "low": 0.58, "high": 0.64, "seeds": 3, "run": "..."}],
                                     "baseline": SFT likewise, ...}
  figures/                          ablation curves, and the plane for each objective
  report.html                       the page with the heatmap, and the runs of SFT and of the chosen point
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimsft.evaluate.formats import escape_markdown, render
from trimsft.figures import ablation_curves, score_map
from trimsft.figures.style import PRINT_FORMATS, csv_of
from trimsft.files import write_whole
from trimsft.study.places import Place
from trimsft.study.sweeps.sweep import Selection, Swept
from trimsft.study.sweeps.tables import conclusions, metric_name, reported, sweep_table
from trimsft.study.tables.figures import percent
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
    figures = _figures(swept, selection, out / "figures")
    record = sweep_record(swept, out, selection, sentences, command)
    rows = record["all"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    parts = [render(table, "markdown").rstrip(), *(escape_markdown(sentence) for sentence in sentences)]
    parts += [
        f"![{path.stem.replace('_', ' ')}](figures/{path.name})" for path in figures if path.suffix == ".png"
    ]
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
    names, shown = swept.benchmarks, reported(swept, selection)
    sensitivity = swept.sensitivity()
    return {
        "metric": metric_name(swept),
        "benchmarks": shown,
        "selected_on": None if selection is None else selection.on,
        "command": command or None,
        "points": [_point(swept, point, out, shown) for point in swept.slice()],
        "baseline": None if swept.baseline is None else _point(swept, swept.baseline, out, shown),
        "all": [
            {
                **_point(swept, point, out, shown),
                **{name: point.interval(swept.metric, name).value for name in names},
            }
            for point in swept.points
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


def _told(selection: Selection) -> dict[str, Any]:
    return {
        "objective": selection.point.setting.objective,
        **dict(selection.point.setting.fields),
        "selected_on": selection.on,
        "development": selection.development.as_dict(),
        **selection.interval.as_dict(),
        "benchmarks": {name: interval.as_dict() for name, interval in selection.by_benchmark.items()},
        "against_sft": None if selection.against_sft is None else selection.against_sft.as_dict(),
    }


def _figures(swept: Swept, selection: Selection | None, folder: Path) -> list[Path]:
    files: list[Path] = []
    metric, names = f"{metric_name(swept)}, %", reported(swept, selection)
    planes: dict[str, list[Summary]] = {}
    for point in swept.slice():
        planes.setdefault(point.setting.objective, []).append(point)
    baseline = None
    if swept.baseline is not None:
        baseline = 100 * swept.baseline.interval(swept.metric, *names).value
    for objective, points in planes.items():
        scores = {p.setting.band: percent(p.interval(swept.metric, *names)) for p in points if p.setting.band}
        end = "" if len(planes) == 1 else f"-{objective}"
        chosen = selection.point.setting.band if selection and selection.point in points else None
        plane = folder / f"plane{end}.svg"
        files += score_map(scores, plane, metric=metric, chosen=chosen, formats=PRINT_FORMATS)
        if len(scores) > 1:
            curves = folder / f"curves{end}.svg"
            files += ablation_curves(scores, curves, baseline=baseline, metric=metric, formats=PRINT_FORMATS)
    return files


def _page(swept: Swept, out: Path, selection: Selection | None, command: str) -> list[Path]:
    """The heatmap, and what there is of SFT and of the point in question at the first seed."""
    from trimsft.analyze import write_report

    if not swept.slice():
        return []
    point = swept.best if selection is None else selection.point
    shown = [summary for summary in (swept.baseline, point) if summary is not None]
    runs = {
        NAMES[summary.setting.objective]: Place(out).run(min(summary.cells, key=lambda cell: cell.seed))
        for summary in shown
    }
    settings = dict(point.setting.fields) | ({"command": command} if command else {})
    page = out / "report.html"
    return [write_report(page, runs, title="Sweep", settings=settings, sweep=out / "sweep.json")]
