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
from trimsft.runs.files import write_whole
from trimsft.study.cell import field_rank, method_name, shown
from trimsft.study.folder import StudyFolder
from trimsft.study.sweeps.sweep import BAND, BASELINE, Swept, best_of, by_objective, candidates
from trimsft.study.tables.notes import unanswered_note
from trimsft.study.tables.summaries import Summary, percent_text, trainings
from trimsft.study.tables.writing import markdown_images, write_flat, write_json
from trimsft.tables import Cell, Table, escape_markdown, render, to_latex


def write_sweep(swept: Swept, out: Path, *, notes: Sequence[str] = (), command: str = "") -> list[Path]:
    table = sweep_table(swept)
    unanswered = unanswered_note({point.setting: point for point in swept.points})
    sentences = [*conclusions(swept), *unanswered, *notes]
    figures = sweep_figures(swept, out / "figures")
    record = sweep_record(swept, out, sentences, command)
    rows = [{**row, "by_seed": " ".join(f"{score:.6g}" for score in row["by_seed"])} for row in record["all"]]
    parts = [render(table, "markdown").rstrip(), *map(escape_markdown, sentences), *markdown_images(figures)]
    files = [
        write_whole(out / "sweep.md", ("\n\n".join(parts) + "\n").encode()),
        write_whole(out / "sweep.tex", to_latex(table).encode()),
        write_flat(out / "sweep.csv", rows, first=["objective", *fields_of(swept)]),
        write_json(out / "sweep.json", record),
    ]
    return [*files, *figures, *_page(swept, out, command)]


def sweep_record(swept: Swept, out: Path, sentences: Sequence[str], command: str) -> dict[str, Any]:
    """`points` are what the heatmap of the report page shows: trimmed, differing in margin and bandwidth alone."""
    sensitivity, points = swept.sensitivity(), swept.slice()
    shares = {} if sensitivity is None else {part: share.as_dict() for part, share in sensitivity.shares.items()}
    is_nan = any(math.isnan(share["value"]) for share in shares.values())  # all points score the same; no NaN in JSON
    sft = swept.baseline_of(points[0] if points else swept.best)
    return {
        "metric": metric_name(swept),
        "benchmarks": swept.reported,
        "selected_on": swept.on,
        "command": command or None,
        "points": [_point(swept, point, out) for point in points],
        "baseline": None if sft is None else _point(swept, sft, out),
        "all": [_point(swept, point, out) | _details(swept, point) for point in (*swept.beside, *swept.points)],
        "selection": _selection(swept, swept.on) if swept.on else None,
        "sensitivity": None if is_nan or not shares else shares,
        "sentences": list(sentences),
    }


def _run_of(point: Summary, out: Path) -> Path:
    """The run of its first seed."""
    return StudyFolder(out).run(min(point.cells, key=lambda cell: cell.seed))


def _point(swept: Swept, point: Summary, out: Path) -> dict[str, Any]:
    return {
        "objective": point.setting.objective,
        **dict(point.setting.fields),
        **swept.interval(point).as_dict(),
        "seeds": point.seeds,
        "run": str(_run_of(point, out).relative_to(out)),  # the folder may be moved
    }


def _details(swept: Swept, point: Summary) -> dict[str, Any]:
    """What the table says of a point besides: each seed, the difference to its SFT, each benchmark."""
    columns = {"against_sft": swept.above(point, swept.baseline_of(point))}
    columns |= {name: point.interval(swept.metric, name) for name in swept.benchmarks}
    flat: dict[str, Any] = {"by_seed": list(point.by_seed(swept.metric, swept.reported))}
    for name, interval in columns.items():
        value, low, high = (None, None, None) if interval is None else interval.as_dict().values()
        flat |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return flat


def _selection(swept: Swept, on: str) -> dict[str, Any]:
    """`development` is what the point was chosen by: the highest of many, and so never its result."""
    best, metric = swept.best, swept.metric
    difference = swept.above(best, swept.rival)
    return {
        "objective": best.setting.objective,
        **dict(best.setting.fields),
        "selected_on": on,
        "development": best.interval(metric, on).as_dict(),
        **swept.interval(best).as_dict(),
        "benchmarks": {name: best.interval(metric, name).as_dict() for name in swept.reported},
        "sft": None if swept.rival is None else dict(swept.rival.setting.fields),
        "against_sft": None if difference is None else difference.as_dict(),
    }


def _page(swept: Swept, out: Path, command: str) -> list[Path]:
    """The heatmap, and what there is of SFT and of the best point at the first seed."""
    if not swept.slice():
        return []
    shown = [summary for summary in (swept.rival, swept.best) if summary is not None]
    runs = {method_name(summary.setting.objective): _run_of(summary, out) for summary in shown}
    settings = dict(swept.best.setting.fields) | ({"command": command} if command else {})
    return [write_report(out / "report.html", runs, title="Sweep", settings=settings, sweep=out / "sweep.json")]


# ---- the table, and what it says


def metric_name(swept: Swept) -> str:
    samples = min(point.samples for point in swept.points)
    return f"average@{samples}" if swept.metric == "average" else swept.metric


def sweep_table(swept: Swept, *, brief: bool = False) -> Table:
    """Every point on every benchmark and against SFT; the chosen point is bold, not the highest number.

    Args:
        brief: leave out benchmarks but the one that was chosen on, for the width of a terminal.
    """
    columns = _columns(swept, brief)
    fields = fields_of(swept)
    rows = []
    for point in [*swept.beside, *swept.points]:
        chosen = swept.on is not None and point is swept.best
        cells = [
            Cell(method_name(point.setting.objective), bold=chosen),
            *(Cell(shown(point.setting.get(field))) for field in fields),
            *(Cell.of(point.interval(swept.metric, *of), bold=chosen) for of in columns.values()),
        ]
        rows.append((*cells, Cell.of(swept.above(point, swept.baseline_of(point)), sign="+")))
    seeds = {point.seeds for point in swept.points}
    over = "seeds and problems" if max(seeds) > 1 else "problems"
    note = f"Percent; {trainings(seeds)} of each point. Brackets: 95 % interval over {over}, for each point alone."
    shared = sorted({name for sft in swept.baselines for name, _ in sft.setting.shared_fields})
    notes = (note, f"Against SFT with the same {' and '.join(shared)}.") if shared else (note,)
    return Table(f"Sweep: {metric_name(swept)}", ("", *fields, *columns, "against SFT"), tuple(rows), notes)


def _columns(swept: Swept, brief: bool) -> dict[str, list[str]]:
    """Heading -> the benchmarks whose mean stands below it."""
    names, on = swept.benchmarks, swept.on
    shown = [name for name in names if not brief or name == on or len(names) == 1]
    columns = {f"{name} (chosen on)" if name == on else name: [name] for name in shown}
    if len(names) > 1:
        columns["average" if on is None else "average of the others"] = swept.reported
    return columns


def fields_of(swept: Swept) -> list[str]:
    """Parameters of the objectives that are there, and whatever else varies."""
    return sorted({name for point in swept.points for name, _ in point.setting.fields}, key=field_rank)


def conclusions(swept: Swept) -> list[str]:
    sentences = [_chosen_point(swept) if swept.on else _best_point(swept), *_left_out(swept)]
    sensitivity = swept.sensitivity()
    sentences += [] if sensitivity is None else [sensitivity.sentence()]
    if swept.missing:
        cells = "1 cell is" if len(swept.missing) == 1 else f"{len(swept.missing)} cells are"
        sentences.append(f"{cells} not finished, such as {swept.missing[0].name}.")
    return sentences


def _chosen_point(swept: Swept) -> str:
    best, rival = swept.best, swept.rival
    where = " and ".join(filter(None, (", ".join(swept.reported[:-1]), swept.reported[-1])))
    text = f"Chosen on {swept.on}: {best.setting.label}. On {where}: {percent_text(swept.interval(best))}"
    difference = swept.above(best, rival)
    if rival is not None and difference is not None:
        how = f", chosen on {swept.on} likewise:" if len(candidates(swept.baselines)) > 1 else ""
        text += f", against {rival.setting.label}{how} {percent_text(difference, '+')}"
    return f"{text}."


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


def _left_out(swept: Swept) -> list[str]:
    """How many had no part in the choice, as fewer seeds of them are finished."""
    groups = {"points": swept.points} | ({"of SFT": swept.baselines} if swept.on else {})
    sentences = []
    for name, members in groups.items():
        kept = candidates(members)
        if out := len(members) - len(kept):
            why = f"fewer than {kept[0].seeds} trainings are finished"
            sentences.append(f"{out} of {len(members)} {name} had no part in the choice: {why}.")
    return sentences


# ---- figures


def sweep_figures(swept: Swept, folder: Path) -> list[Path]:
    figures = _Figures(swept)
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


def varied(points: Sequence[Summary]) -> list[str]:
    """The fields in which these points differ, those of objectives first."""
    names = {name for point in points for name, _ in point.setting.fields}
    return sorted((name for name in names if len({p.setting.get(name) for p in points}) > 1), key=field_rank)


class _Figures:
    """What all figures of a sweep have in common."""

    def __init__(self, swept: Swept) -> None:
        self.swept = swept
        self.metric = f"{metric_name(swept)}, %"
        self.chosen = swept.best if swept.on else None

    def spread(self, point: Summary) -> Spread:
        return spread_percent(self.swept.interval(point))

    def sft_of(self, point: Summary) -> float | None:
        sft = self.swept.baseline_of(point)
        return None if sft is None else self.spread(sft)[0]

    def planes(self, objectives: set[str]) -> dict[str, Drawing]:
        """Margin and bandwidth, and the curves of Figure 3."""
        slices = by_objective(self.swept.slice())
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
            method_name(name): {point.setting.get(field): self.spread(point) for point in of_method}
            for name, of_method in points.items()
        }
        is_line = not sft and len(self.swept.baselines) == 1
        baseline = self.sft_of(self.swept.points[0]) if is_line else None
        return field_curves(scores, field=field, baseline=baseline, metric=self.metric)
