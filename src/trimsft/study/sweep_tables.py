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
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimsft.report.figures import Drawing, Spread, spread_percent
from trimsft.report.page.build import write_report
from trimsft.report.score_figures import ablation_curves, field_curves, score_map
from trimsft.runs.files import write_whole
from trimsft.study.cell import field_rank, method_name, shown
from trimsft.study.folder import StudyFolder
from trimsft.study.results import Summary, percent_text, trainings
from trimsft.study.sweep import BAND, BASELINE, Swept, best_of, by_objective, candidates
from trimsft.study.writing import markdown_images, unanswered_note, write_flat, write_json
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
    if not swept.slice():
        return [*files, *figures]
    # the page has the heatmap, and the runs of SFT and of the best point at the first seed
    runs = {
        method_name(one.setting.objective): _run_of(one, out) for one in (swept.rival, swept.best) if one is not None
    }
    settings = dict(swept.best.setting.fields) | ({"command": command} if command else {})
    page = write_report(out / "report.html", runs, title="Sweep", settings=settings, sweep=out / "sweep.json")
    return [*files, *figures, page]


def sweep_record(swept: Swept, out: Path, sentences: Sequence[str], command: str) -> dict[str, Any]:
    """Return sweep.json; `points` are those of the page's heatmap: trimmed, differing in margin and bandwidth alone."""
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
    """Return the run of its first seed."""
    return StudyFolder(out).run(replace(point.setting, seed=min(point.runs)))


def _point(swept: Swept, point: Summary, out: Path) -> dict[str, Any]:
    return {
        "objective": point.setting.objective,
        **dict(point.setting.fields),
        **swept.interval(point).as_dict(),
        "seeds": point.seeds,
        "run": str(_run_of(point, out).relative_to(out)),  # the folder may be moved
    }


def _details(swept: Swept, point: Summary) -> dict[str, Any]:
    """Return what the table says of a point besides: each seed, the difference to its SFT, each benchmark."""
    columns = {"against_sft": swept.above(point, swept.baseline_of(point))}
    columns |= {name: point.interval(swept.metric, name) for name in swept.benchmarks}
    flat: dict[str, Any] = {"by_seed": list(point.by_seed(swept.metric, swept.reported))}
    for name, interval in columns.items():
        value, low, high = (None, None, None) if interval is None else interval.as_dict().values()
        flat |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return flat


def _selection(swept: Swept, on: str) -> dict[str, Any]:
    """Describe the chosen point; `development` is what it was chosen by: the highest of many, never its result."""
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


# ---- the table, and what it says


def metric_name(swept: Swept) -> str:
    samples = min(point.samples for point in swept.points)
    return f"average@{samples}" if swept.metric == "average" else swept.metric


def sweep_table(swept: Swept, *, brief: bool = False) -> Table:
    """Return every point on every benchmark and against SFT; the chosen point is bold, not the highest number.

    Args:
        brief: leave out benchmarks but the one that was chosen on, for the width of a terminal.
    """
    names, on, fields, rows = swept.benchmarks, swept.on, fields_of(swept), []
    kept = [name for name in names if not brief or name == on or len(names) == 1]
    columns = {
        f"{name} (chosen on)" if name == on else name: [name] for name in kept
    }  # heading: what it is the mean of
    if len(names) > 1:
        columns["average" if on is None else "average of the others"] = swept.reported
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


def fields_of(swept: Swept) -> list[str]:
    """Return parameters of the objectives that are there, and whatever else varies."""
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
    """Say how many had no part in the choice, as fewer seeds of them are finished."""
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
    """Draw each objective over what was varied of it; the module's docstring says how the files are called."""
    metric, chosen = f"{metric_name(swept)}, %", swept.best if swept.on else None
    why = f"chosen on {swept.on}"
    groups, slices = by_objective(swept.points), by_objective(swept.slice())
    fields = {name: varied(points) for name, points in groups.items()}
    planes = [name for name, own in fields.items() if own and set(own[:2]) <= set(BAND)]
    drawn: dict[str, Drawing] = {}

    def spread(point: Summary) -> Spread:
        return spread_percent(swept.interval(point))

    def sft_of(point: Summary) -> float | None:
        sft = swept.baseline_of(point)
        return None if sft is None else spread(sft)[0]

    for name, points in slices.items():  # margin and bandwidth, and the curves of Figure 3
        if name in planes:
            scores = {point.setting.band: spread(point) for point in points if point.setting.band}
            end = "" if len(slices) == 1 else f"-{name}"
            frame = chosen.setting.band if chosen and chosen in points else None
            drawn[f"plane{end}"] = score_map(scores, metric=metric, chosen=frame, why=why)
            if len(scores) > 1:
                drawn[f"curves{end}"] = ablation_curves(scores, baseline=sft_of(points[0]), metric=metric)

    for name, own in fields.items():  # two fields of any kind, the others as at the chosen point or the best one
        if len(own) > 1 and name not in planes:
            is_chosen = chosen is not None and chosen in groups[name]
            centre = chosen if chosen and is_chosen else best_of(groups[name], swept.metric, swept.benchmarks)
            others = [entry for entry in centre.setting.fields if entry[0] not in own[:2]]
            map_scores = {
                (point.setting.get(own[0]), point.setting.get(own[1])): spread(point)
                for point in groups[name]
                if [entry for entry in point.setting.fields if entry[0] not in own[:2]] == others
            }
            place = (centre.setting.get(own[0]), centre.setting.get(own[1])) if is_chosen else None
            end = "" if len(groups) == 1 else f"-{name}"
            file = f"map-{own[0]}-{own[1]}{end}"
            drawn[file] = score_map(map_scores, fields=(own[0], own[1]), metric=metric, chosen=place, why=why)

    alone = {name: own[0] for name, own in fields.items() if len(own) == 1 and name not in planes}
    for name in dict.fromkeys(alone.values()):  # one field: SFT is a curve where the field is its own, else a line
        objectives = [one for one in alone if alone[one] == name]
        if objectives == [BASELINE] and set(fields) != {BASELINE}:
            continue
        shown_points = {one: groups[one] for one in objectives}
        if is_curve := varied(swept.baselines) == [name]:
            shown_points[BASELINE] = list(swept.baselines)
        curves = {
            method_name(one): {point.setting.get(name): spread(point) for point in of_method}
            for one, of_method in shown_points.items()
        }
        baseline = sft_of(swept.points[0]) if not is_curve and len(swept.baselines) == 1 else None
        drawn[f"curve-{name}"] = field_curves(curves, field=name, baseline=baseline, metric=metric)
    return [path for name, drawing in drawn.items() for path in drawing.save(folder / f"{name}.svg")]


def varied(points: Sequence[Summary]) -> list[str]:
    """Return the fields in which these points differ, those of objectives first."""
    names = {name for point in points for name, _ in point.setting.fields}
    return sorted((name for name in names if len({p.setting.get(name) for p in points}) > 1), key=field_rank)
