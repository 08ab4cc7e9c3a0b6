"""The files of a sweep: a table in every format, sweep.json for the report page, figures.

runs/sweep/
  sweep.md, sweep.tex, sweep.csv    every point with its interval, and against SFT
  sweep.json                        for the report page and for programs; `points` are those of the heatmap
  figures/                          curves of margin and bandwidth, as in the paper's Figure 3;
                                    curve-learning_rate: of one other field, all objectives that differ in it alone
  report.html                       the page with the heatmap, and the runs of SFT and of the chosen point
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimsft.report.figures import Drawing, Spread, spread_percent
from trimsft.report.page.build import write_report
from trimsft.report.score_figures import ablation_curves, field_curves
from trimsft.runs.files import write_whole
from trimsft.study.cell import field_rank, method_name
from trimsft.study.folder import StudyFolder
from trimsft.study.paper_tables import columns_of, our_table, score_rows
from trimsft.study.results import Summary, percent_text
from trimsft.study.sweep import BASELINE, Swept, by_objective, candidates
from trimsft.study.writing import markdown_images, unanswered_note, write_flat, write_json
from trimsft.tables import Table, escape_markdown, render, to_latex

BAND = {"margin", "bandwidth"}


def write_sweep(swept: Swept, out: Path, *, command: str = "") -> list[Path]:
    table = sweep_table(swept)
    sentences = [*conclusions(swept), *unanswered_note({point.setting: point for point in swept.points})]
    figures = sweep_figures(swept, out / "figures")
    parts = [render(table, "markdown").rstrip(), *map(escape_markdown, sentences), *markdown_images(figures)]
    rows = score_rows("sweep", {one.setting: one for one in swept.all}, [swept.metric])
    files = [
        write_whole(out / "sweep.md", ("\n\n".join(parts) + "\n").encode()),
        write_whole(out / "sweep.tex", to_latex(table).encode()),
        write_flat(out / "sweep.csv", [row.as_dict() for row in rows]),
        write_json(out / "sweep.json", sweep_record(swept, out, sentences, command)),
    ]
    if not swept.slice():
        return [*files, *figures]
    # the page has the heatmap, and the runs of SFT and of the best point at the first seed
    pair = [one for one in (swept.rival, swept.best) if one is not None]
    runs = {method_name(one.setting.objective): _run_of(one, out) for one in pair}
    settings = dict(swept.best.setting.fields) | ({"command": command} if command else {})
    page = write_report(out / "report.html", runs, title="Sweep", settings=settings, sweep=out / "sweep.json")
    return [*files, *figures, page]


def sweep_record(swept: Swept, out: Path, sentences: Sequence[str], command: str) -> dict[str, Any]:
    """Return sweep.json; `points` are those of the page's heatmap: trimmed, differing in margin and bandwidth alone."""
    sensitivity, points = swept.sensitivity(), swept.slice()
    shares = {} if sensitivity is None else {part: share.as_dict() for part, share in sensitivity.shares.items()}
    is_nan = any(math.isnan(share["value"]) for share in shares.values())  # all points score the same; no NaN in JSON
    sft = swept.baseline_of(points[0] if points else swept.best)

    def point(one: Summary) -> dict[str, Any]:
        own = {"objective": one.setting.objective, **dict(one.setting.fields), **swept.interval(one).as_dict()}
        difference = swept.above(one, swept.baseline_of(one))
        own["against_sft"] = None if difference is None else difference.as_dict()
        return own | {"seeds": one.seeds, "run": str(_run_of(one, out).relative_to(out))}  # the folder may be moved

    return {
        "metric": metric_name(swept),
        "benchmarks": swept.reported,
        "selected_on": swept.on,
        "command": command or None,
        "points": [point(one) for one in points],
        "baseline": None if sft is None else point(sft),
        "all": [point(one) for one in swept.all],
        "selection": point(swept.best) if swept.on else None,
        "sensitivity": None if is_nan or not shares else shares,
        "sentences": list(sentences),
    }


def _run_of(point: Summary, out: Path) -> Path:
    """Return the run of its first seed."""
    return StudyFolder(out).run(replace(point.setting, seed=min(point.runs)))


# ---- the table, and what it says


def metric_name(swept: Swept) -> str:
    samples = min(point.samples for point in swept.points)
    return f"average@{samples}" if swept.metric == "average" else swept.metric


def sweep_table(swept: Swept) -> Table:
    """Return every point on every benchmark but the one that was chosen on, and against SFT with the same fields."""
    summaries = {one.setting: one for one in swept.all}
    columns = columns_of(summaries, swept.reported)
    rows = score_rows("sweep", summaries, [swept.metric], columns)
    return our_table(f"Sweep: {metric_name(swept)}", summaries, rows, columns=columns, against_sft=True)


def conclusions(swept: Swept) -> list[str]:
    """Say which point is best and by how much; how many had no part in the choice; what tau and m explain."""
    best, points = swept.best, len(candidates(swept.points))
    if swept.on:
        text = f"Chosen on {swept.on}: {best.setting.label}. On {', '.join(swept.reported)}: "
        text += percent_text(swept.interval(best))
        difference = swept.above(best, swept.rival)
        if swept.rival is not None and difference is not None:
            how = f", chosen on {swept.on} likewise:" if len(candidates(swept.baselines)) > 1 else ""
            text += f", against {swept.rival.setting.label}{how} {percent_text(difference, '+')}"
        text += "."
    else:
        value = best.interval(swept.metric, *swept.benchmarks).value
        text = f"The highest of {points} points is {best.setting.label}: {100 * value:.1f}."
        if points > 1:
            more = "" if best.seeds > 1 else " or more, as there is one training of each"
            text += (
                f" As the best of {points} on the problems it was chosen by it is too high, by about "
                f"{100 * swept.optimism():.1f} points{more}; --select-on BENCHMARK chooses on one and reports on the "
                "others."
            )
    sentences = [text]
    for name, members in {"points": swept.points, "of SFT": swept.baselines if swept.on else ()}.items():
        kept = candidates(members)
        if out := len(members) - len(kept):
            why = f"fewer than {kept[0].seeds} trainings are finished"
            sentences.append(f"{out} of {len(members)} {name} had no part in the choice: {why}.")
    sensitivity = swept.sensitivity()
    sentences += [] if sensitivity is None else [sensitivity.sentence()]
    if swept.missing:
        sentences.append(f"Not finished: {len(swept.missing)}, such as {swept.missing[0].name}.")
    return sentences


# ---- figures


def sweep_figures(swept: Swept, folder: Path) -> list[Path]:
    """Draw each objective over what was varied of it: margin and bandwidth, or one other field."""
    metric, groups, slices = f"{metric_name(swept)}, %", by_objective(swept.points), by_objective(swept.slice())
    fields = {name: varied(points) for name, points in groups.items()}
    drawn: dict[str, Drawing] = {}

    def spread(point: Summary) -> Spread:
        return spread_percent(swept.interval(point))

    def sft_of(point: Summary) -> float | None:
        sft = swept.baseline_of(point)
        return None if sft is None else spread(sft)[0]

    for name, points in slices.items():
        scores = {point.setting.band: spread(point) for point in points if point.setting.band}
        if fields[name] and set(fields[name][:2]) <= BAND and len(scores) > 1:
            end = "" if len(slices) == 1 else f"-{name}"
            drawn[f"curves{end}"] = ablation_curves(scores, baseline=sft_of(points[0]), metric=metric)
    alone = {name: own[0] for name, own in fields.items() if len(own) == 1 and own[0] not in BAND}
    for name in dict.fromkeys(alone.values()):  # SFT is a curve where the field is its own, else a line
        of_field = {one: groups[one] for one in alone if alone[one] == name}
        if list(of_field) == [BASELINE] and set(fields) != {BASELINE}:
            continue
        if is_curve := varied(swept.baselines) == [name]:
            of_field[BASELINE] = list(swept.baselines)
        curves = {
            method_name(one): {point.setting.get(name): spread(point) for point in points}
            for one, points in of_field.items()
        }
        baseline = sft_of(swept.points[0]) if not is_curve and len(swept.baselines) == 1 else None
        drawn[f"curve-{name}"] = field_curves(curves, field=name, baseline=baseline, metric=metric)
    return [path for name, drawing in drawn.items() for path in drawing.save(folder / f"{name}.svg")]


def varied(points: Sequence[Summary]) -> list[str]:
    """Return the fields in which these points differ, those of objectives first."""
    names = {name for point in points for name, _ in point.setting.fields}
    return sorted((name for name in names if len({p.setting.get(name) for p in points}) > 1), key=field_rank)
