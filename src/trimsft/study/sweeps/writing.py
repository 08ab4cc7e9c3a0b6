"""What a sweep leaves behind: a table in every format, sweep.json for the report page, figures.

runs/sweep/
  sweep.md, sweep.tex, sweep.csv    every point with its interval
  sweep.json                        {"metric": "average@8", "benchmarks": [...], "selected_on": ..., "command": ...,
                                     "points": [{"objective": "trim", "margin": 1.0, "bandwidth": 0.5, "value": 0.61,
                                                 "low": 0.58, "high": 0.64, "seeds": 3, "run": "..."}],
                                     "baseline": SFT likewise, "all": SFT and every point, ...}
  figures/                          by what was varied of each objective:
    plane, curves                     margin, bandwidth or both, as in the paper's Figure 3
    curve-learning_rate               one other field: all objectives that differ in it alone, and SFT
    map-margin-learning_rate          two fields; of more the first two, the rest as at the best point
  report.html                       the page with the heatmap, and the runs of SFT and of the chosen point
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimsft.report.figures import Drawing, Spread, ablation_curves, field_curves, score_map
from trimsft.report.figures.style import spread_percent
from trimsft.report.page.build import write_report
from trimsft.report.table import Cell, Table, escape_markdown, render, to_latex
from trimsft.runs.files import write_whole
from trimsft.scoring.intervals import Interval
from trimsft.study.cells import NAMES, field_rank
from trimsft.study.folder import StudyFolder
from trimsft.study.sweeps.sweep import BAND, BASELINE, Selection, Swept, best_of, candidates, shared_fields
from trimsft.study.tables.notes import unanswered_note
from trimsft.study.tables.summaries import Summary, paired, shown
from trimsft.study.tables.writing import markdown_images, write_flat, write_json


def write_sweep(
    swept: Swept, out: Path, *, selection: Selection | None = None, notes: Sequence[str] = (), command: str = ""
) -> list[Path]:
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
    shares = {} if sensitivity is None else {part: share.as_dict() for part, share in sensitivity.shares.items()}
    is_nan = any(math.isnan(share["value"]) for share in shares.values())  # all points score the same; no NaN in JSON
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
        "sensitivity": None if is_nan or not shares else shares,
        "sentences": list(sentences),
    }


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


# ---- the table, and what it says


def metric_name(swept: Swept) -> str:
    samples = min(point.samples for point in swept.points)
    return f"average@{samples}" if swept.metric == "average" else swept.metric


def sweep_table(swept: Swept, selection: Selection | None = None, *, brief: bool = False) -> Table:
    """Every point on every benchmark and against SFT; the chosen point is bold, not the highest number.

    Args:
        brief: leave out benchmarks but the one that was chosen on, for the width of a terminal.
    """
    columns = _columns(swept, selection, brief)
    fields = fields_of(swept)
    rows = []
    for point in [*swept.beside, *swept.points]:
        chosen = selection is not None and point is selection.point
        cells = [
            Cell(NAMES[point.setting.objective], bold=chosen),
            *(Cell(shown(point.setting.get(field))) for field in fields),
            *(Cell.of(point.interval(swept.metric, *of), bold=chosen) for of in columns.values()),
        ]
        rows.append((*cells, Cell.of(against_sft(swept, selection, point), sign="+")))
    seeds = {point.seeds for point in swept.points}
    many = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    note = (
        f"Percent; {many} training{'' if max(seeds) == 1 else 's'} of each point. Brackets: 95 % interval over "
        f"{'seeds and ' if max(seeds) > 1 else ''}problems, for each point alone."
    )
    shared = sorted({name for sft in swept.baselines for name, _ in shared_fields(sft.setting)})
    notes = (note, f"Against SFT with the same {' and '.join(shared)}.") if shared else (note,)
    return Table(f"Sweep: {metric_name(swept)}", ("", *fields, *columns, "against SFT"), tuple(rows), notes)


def _columns(swept: Swept, selection: Selection | None, brief: bool) -> dict[str, list[str]]:
    """Heading -> the benchmarks whose mean stands below it."""
    names, on = swept.benchmarks, None if selection is None else selection.on
    shown = [name for name in names if not brief or name == on or len(names) == 1]
    columns = {f"{name} (chosen on)" if name == on else name: [name] for name in shown}
    if len(names) > 1:
        columns["average" if on is None else "average of the others"] = reported(swept, selection)
    return columns


def fields_of(swept: Swept) -> list[str]:
    """Parameters of the objectives that are there, and whatever else varies."""
    return sorted({name for point in swept.points for name, _ in point.setting.fields}, key=field_rank)


def reported(swept: Swept, selection: Selection | None) -> list[str]:
    """The benchmarks that results are given on: not the one that the choice was made on."""
    return [name for name in swept.benchmarks if selection is None or name != selection.on]


def conclusions(swept: Swept, selection: Selection | None) -> list[str]:
    sentences = [_best_point(swept) if selection is None else selection.sentence(), *_left_out(swept, selection)]
    sensitivity = swept.sensitivity(None if selection is None else selection.point)
    sentences += [] if sensitivity is None else [sensitivity.sentence()]
    if swept.missing:
        cells = "1 cell is" if len(swept.missing) == 1 else f"{len(swept.missing)} cells are"
        sentences.append(f"{cells} not finished, such as {swept.missing[0].name}.")
    return sentences


def _best_point(swept: Swept) -> str:
    best, points = swept.best, len(candidates(swept.points))
    value = best.interval(swept.metric, *swept.benchmarks)
    text = f"The highest of {points} points is {best.setting.label}: {100 * value.value:.1f}."
    if points == 1:
        return text
    more = "" if best.seeds > 1 else " or more, as there is one training of each"
    return (
        f"{text} As the best of {points} on the problems it was chosen by it is too high, by about "
        f"{100 * swept.optimism():.1f} points{more}; --select-on BENCHMARK chooses on one and reports on the others."
    )


def _left_out(swept: Swept, selection: Selection | None) -> list[str]:
    """How many had no part in the choice, as fewer seeds of them are finished."""
    groups = {"points": swept.points} | ({} if selection is None else {"of SFT": swept.baselines})
    sentences = []
    for name, members in groups.items():
        kept = candidates(members)
        if out := len(members) - len(kept):
            why = f"fewer than {kept[0].seeds} trainings are finished"
            sentences.append(f"{out} of {len(members)} {name} had no part in the choice: {why}.")
    return sentences


def against_sft(swept: Swept, selection: Selection | None, point: Summary) -> Interval | None:
    """The difference to SFT at the same values of the shared fields; None for SFT itself, or where it is missing."""
    sft = swept.baseline_of(point)
    if sft is None or sft is point:
        return None
    return paired(point, sft, swept.metric, *reported(swept, selection))


# ---- figures


def sweep_figures(swept: Swept, selection: Selection | None, folder: Path) -> list[Path]:
    figures = _Figures(swept, selection)
    fields = {name: varied(points) for name, points in by_objective(swept.points).items()}
    planes = {name for name, own in fields.items() if own and set(own[:2]) <= set(BAND)}
    drawn = figures.planes(planes)
    for name, own in fields.items():
        if len(own) > 1 and name not in planes:
            drawn |= figures.map(name, (own[0], own[1]))
    alone = {name: own[0] for name, own in fields.items() if len(own) == 1 and name not in planes}
    for field in dict.fromkeys(alone.values()):
        names = [name for name in alone if alone[name] == field]
        if names != [BASELINE] or set(fields) == {BASELINE}:
            drawn[f"curve-{field}"] = figures.curve(field, names)
    return [path for name, drawing in drawn.items() for path in drawing.save(folder / f"{name}.svg")]


def by_objective(points: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for point in points:
        groups.setdefault(point.setting.objective, []).append(point)
    return groups


def varied(points: Sequence[Summary]) -> list[str]:
    """The fields in which these points differ, those of objectives first."""
    names = {name for point in points for name, _ in point.setting.fields}
    return sorted((name for name in names if len({p.setting.get(name) for p in points}) > 1), key=field_rank)


class _Figures:
    """What all figures of a sweep have in common."""

    def __init__(self, swept: Swept, selection: Selection | None) -> None:
        self.swept = swept
        self.names = reported(swept, selection)
        self.metric = f"{metric_name(swept)}, %"
        self.chosen = None if selection is None else selection.point

    def spread(self, point: Summary) -> Spread:
        return spread_percent(point.interval(self.swept.metric, *self.names))

    def sft_of(self, point: Summary) -> float | None:
        sft = self.swept.baseline_of(point)
        return None if sft is None else self.spread(sft)[0]

    def planes(self, objectives: set[str]) -> dict[str, Drawing]:
        """Margin and bandwidth, and the curves of Figure 3."""
        slices = by_objective(self.swept.slice(self.chosen))
        drawn: dict[str, Drawing] = {}
        for objective, points in slices.items():
            if objective not in objectives:
                continue
            scores = {p.setting.band: self.spread(p) for p in points if p.setting.band}
            chosen = self.chosen.setting.band if self.chosen and self.chosen in points else None
            end = "" if len(slices) == 1 else f"-{objective}"
            drawn[f"plane{end}"] = score_map(scores, metric=self.metric, chosen=chosen)
            if len(scores) > 1:
                baseline = self.sft_of(points[0])
                drawn[f"curves{end}"] = ablation_curves(scores, baseline=baseline, metric=self.metric)
        return drawn

    def map(self, objective: str, fields: tuple[str, str]) -> dict[str, Drawing]:
        """Two fields of any kind, the others as at the chosen point or the best one."""
        groups = by_objective(self.swept.points)
        points = groups[objective]
        chosen = self.chosen if self.chosen and self.chosen in points else None
        centre = chosen or best_of(points, self.swept.metric, self.swept.benchmarks)

        def others(point: Summary) -> list[tuple[str, object]]:
            return [entry for entry in point.setting.fields if entry[0] not in fields]

        def place(point: Summary) -> tuple[object, object]:
            return point.setting.get(fields[0]), point.setting.get(fields[1])

        scores = {place(point): self.spread(point) for point in points if others(point) == others(centre)}
        frame = None if chosen is None else place(chosen)
        name = f"map-{'-'.join(fields)}{'' if len(groups) == 1 else f'-{objective}'}"
        return {name: score_map(scores, fields=fields, metric=self.metric, chosen=frame)}

    def curve(self, field: str, objectives: Sequence[str]) -> Drawing:
        """One field; SFT is a curve where the field is its own too, and a line where it is not."""
        groups = by_objective(self.swept.points)
        points = {name: groups[name] for name in objectives}
        sft = list(self.swept.baselines) if varied(self.swept.baselines) == [field] else []
        if sft:
            points[BASELINE] = sft
        scores = {
            NAMES[name]: {point.setting.get(field): self.spread(point) for point in of_method}
            for name, of_method in points.items()
        }
        is_line = not sft and len(self.swept.baselines) == 1
        baseline = self.sft_of(self.swept.points[0]) if is_line else None
        return field_curves(scores, field=field, baseline=baseline, metric=self.metric)
