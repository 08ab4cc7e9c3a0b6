"""The figures of a sweep, by what was varied of each objective.

margin, bandwidth or both     plane.svg and curves.svg, as in the paper's Figure 3
one other field               curve-learning_rate.svg: all objectives that differ in it alone, and SFT
two fields                    map-margin-learning_rate.svg
more                          the first two, margin and bandwidth before others; the rest as at the best point
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimsft.report.figures import ablation_curves, field_curves, score_map
from trimsft.report.figures.style import PRINT_FORMATS
from trimsft.study.cells import PARAMETERS
from trimsft.study.sweeps.sweep import BAND, BASELINE, Selection, Swept, best_of
from trimsft.study.sweeps.tables import metric_name, reported
from trimsft.study.tables.figures import Spread, percent
from trimsft.study.tables.summaries import NAMES, Summary


def sweep_figures(swept: Swept, selection: Selection | None, folder: Path) -> list[Path]:
    """Draw them all; returns the files."""
    drawing = _Drawing(swept, selection, folder)
    fields = {name: varied(points) for name, points in by_objective(swept.points).items()}
    planes = {name for name, own in fields.items() if own and set(own[:2]) <= set(BAND)}
    files = drawing.planes(planes)
    for name, own in fields.items():
        if len(own) > 1 and name not in planes:
            files += drawing.map(name, (own[0], own[1]))
    alone = {name: own[0] for name, own in fields.items() if len(own) == 1 and name not in planes}
    for field in dict.fromkeys(alone.values()):
        names = [name for name in alone if alone[name] == field]
        if names != [BASELINE] or set(fields) == {BASELINE}:
            files += drawing.curve(field, names)
    return files


def by_objective(points: Sequence[Summary]) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for point in points:
        found.setdefault(point.setting.objective, []).append(point)
    return found


def varied(points: Sequence[Summary]) -> list[str]:
    """The fields in which these points differ, those of objectives first."""
    names = dict.fromkeys(name for point in points for name, _ in point.setting.fields)
    found = [name for name in names if len({point.setting.get(name) for point in points}) > 1]
    return sorted(found, key=lambda name: (PARAMETERS.index(name) if name in PARAMETERS else len(PARAMETERS), name))


class _Drawing:
    """What all figures of a sweep have in common."""

    def __init__(self, swept: Swept, selection: Selection | None, folder: Path) -> None:
        self.swept, self.folder = swept, folder
        self.names = reported(swept, selection)
        self.metric = f"{metric_name(swept)}, %"
        self.chosen = None if selection is None else selection.point

    def spread(self, point: Summary) -> Spread:
        return percent(point.interval(self.swept.metric, *self.names))

    def sft_of(self, point: Summary) -> float | None:
        sft = self.swept.baseline_of(point)
        return None if sft is None else self.spread(sft)[0]

    def planes(self, objectives: set[str]) -> list[Path]:
        """Margin and bandwidth, and the curves of Figure 3."""
        slices = by_objective(self.swept.slice(self.chosen))
        files: list[Path] = []
        for objective, points in slices.items():
            if objective not in objectives:
                continue
            scores = {p.setting.band: self.spread(p) for p in points if p.setting.band}
            chosen = self.chosen.setting.band if self.chosen and self.chosen in points else None
            end = "" if len(slices) == 1 else f"-{objective}"
            plane, curves = (self.folder / f"{name}{end}.svg" for name in ("plane", "curves"))
            files += score_map(scores, plane, metric=self.metric, chosen=chosen, formats=PRINT_FORMATS)
            if len(scores) > 1:
                files += ablation_curves(
                    scores,
                    curves,
                    baseline=self.sft_of(points[0]),
                    metric=self.metric,
                    formats=PRINT_FORMATS,
                )
        return files

    def map(self, objective: str, fields: tuple[str, str]) -> list[Path]:
        """Two fields of any kind, the others as at the chosen point or the best one."""
        points = by_objective(self.swept.points)[objective]
        chosen = self.chosen if self.chosen and self.chosen in points else None
        centre = chosen or best_of(points, self.swept.metric, self.swept.benchmarks)
        others = [entry for entry in centre.setting.fields if entry[0] not in fields]
        scores = {
            (point.setting.get(fields[0]), point.setting.get(fields[1])): self.spread(point)
            for point in points
            if [entry for entry in point.setting.fields if entry[0] not in fields] == others
        }
        end = "" if len(by_objective(self.swept.points)) == 1 else f"-{objective}"
        return score_map(
            scores,
            self.folder / f"map-{'-'.join(fields)}{end}.svg",
            fields=fields,
            metric=self.metric,
            chosen=None if chosen is None else (chosen.setting.get(fields[0]), chosen.setting.get(fields[1])),
            formats=PRINT_FORMATS,
        )

    def curve(self, field: str, objectives: Sequence[str]) -> list[Path]:
        """One field; SFT is a curve where the field is its own too, and a line where it is not."""
        groups = by_objective(self.swept.points)
        points = {name: groups[name] for name in objectives}
        sft = [summary for summary in self.swept.baselines if varied(self.swept.baselines) == [field]]
        if sft:
            points[BASELINE] = sft
        scores = {
            NAMES[name]: {point.setting.get(field): self.spread(point) for point in found}
            for name, found in points.items()
        }
        alone = not sft and len(self.swept.baselines) == 1
        return field_curves(
            scores,
            self.folder / f"curve-{field}.svg",
            field=field,
            baseline=self.sft_of(self.swept.points[0]) if alone else None,
            metric=self.metric,
            formats=PRINT_FORMATS,
        )
