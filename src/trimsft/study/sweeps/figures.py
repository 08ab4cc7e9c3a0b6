"""The figures of a sweep, by what was varied of each objective.

margin, bandwidth or both     plane.svg and curves.svg, as in the paper's Figure 3
one other field               curve-learning_rate.svg: all objectives that differ in it alone, and SFT
two fields                    map-margin-learning_rate.svg
more                          the first two, margin and bandwidth before others; the rest as at the best point
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimsft.report.figures import Drawing, Spread, ablation_curves, field_curves, score_map
from trimsft.report.figures.style import spread_percent
from trimsft.study.cells import NAMES
from trimsft.study.sweeps.sweep import BAND, BASELINE, Selection, Swept, best_of
from trimsft.study.sweeps.tables import metric_name, reported
from trimsft.study.tables.summaries import Summary, field_rank


def sweep_figures(swept: Swept, selection: Selection | None, folder: Path) -> list[Path]:
    """Draw them all; returns the files."""
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
