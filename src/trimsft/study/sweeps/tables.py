"""A sweep as a table, and what it says in sentences."""

from __future__ import annotations

from trimsft.report.tables.scores import Cell, Table
from trimsft.scoring.intervals import Interval
from trimsft.study.cells import PARAMETERS
from trimsft.study.sweeps.sweep import Selection, Swept, candidates, shared_fields
from trimsft.study.tables.figures import percent
from trimsft.study.tables.score_rows import points
from trimsft.study.tables.summaries import NAMES, Summary, paired, shown


def metric_name(swept: Swept) -> str:
    """average@8 and the like."""
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
            *(_cell(point.interval(swept.metric, *of), chosen) for of in columns.values()),
        ]
        rows.append((*cells, _against(swept, selection, point)))
    seeds = {point.seeds for point in swept.points}
    told = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    note = (
        f"Percent; {told} training{'' if max(seeds) == 1 else 's'} of each point. Brackets: 95 % interval over "
        f"{'seeds and ' if max(seeds) > 1 else ''}problems, for each point alone."
    )
    header = ("", *fields, *columns, "against SFT")
    return Table(f"Sweep: {metric_name(swept)}", header, tuple(rows), (note, *_which_sft(swept)))


def _which_sft(swept: Swept) -> list[str]:
    shared = sorted({name for sft in swept.baselines for name, _ in shared_fields(sft.setting)})
    return [f"Against SFT with the same {' and '.join(shared)}."] if shared else []


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
    values: dict[str, set[object]] = {}
    for point in swept.points:
        for name, value in point.setting.fields:
            values.setdefault(name, set()).add(value)
    others = sorted(name for name in values if name not in PARAMETERS)
    return [*(name for name in PARAMETERS if name in values), *others]


def reported(swept: Swept, selection: Selection | None) -> list[str]:
    """The benchmarks that results are given on: not the one that the choice was made on."""
    return [name for name in swept.benchmarks if selection is None or name != selection.on]


def conclusions(swept: Swept, selection: Selection | None) -> list[str]:
    """What the sweep says, in sentences."""
    found = []
    if selection is not None:
        found.append(selection.sentence())
    else:
        best, points = swept.best, len(candidates(swept.points))
        value = best.interval(swept.metric, *swept.benchmarks)
        text = f"The highest of {points} points is {best.setting.label}: {100 * value.value:.1f}."
        if points > 1:
            more = "" if best.seeds > 1 else " or more, as there is one training of each"
            text += (
                f" As the best of {points} on the problems it was chosen by it is too high, by about "
                f"{100 * swept.optimism():.1f} points{more}; "
                "--select-on BENCHMARK chooses on one and reports on the others."
            )
        found.append(text)
    found += _no_candidates(swept, selection)
    sensitivity = swept.sensitivity(None if selection is None else selection.point)
    found += [] if sensitivity is None else [sensitivity.sentence()]
    if swept.missing:
        count = len(swept.missing)
        told = "1 cell is" if count == 1 else f"{count} cells are"
        found.append(f"{told} not finished, such as {swept.missing[0].name}.")
    return found


def _no_candidates(swept: Swept, selection: Selection | None) -> list[str]:
    """How many had no part in the choice, as fewer seeds of them are finished."""
    groups = {"point": swept.points} | ({} if selection is None else {"SFT": swept.baselines})
    found = []
    for name, members in groups.items():
        kept = candidates(members)
        if out := len(members) - len(kept):
            told = f"{out} of {len(members)} {name}s" if name == "point" else f"{out} of {len(members)} of SFT"
            found.append(f"{told} had no part in the choice: fewer than {kept[0].seeds} trainings are finished.")
    return found


def _cell(interval: Interval, bold: bool) -> Cell:
    value, low, high = (f"{bound:.1f}" for bound in percent(interval))
    return Cell(value, f"[{low}, {high}]", bold=bold, data=interval)


def against_sft(swept: Swept, selection: Selection | None, point: Summary) -> Interval | None:
    """The difference to SFT at the same values of the shared fields; None for SFT itself, or where it is missing."""
    sft = swept.baseline_of(point)
    if sft is None or sft is point:
        return None
    return paired(point, sft, swept.metric, *reported(swept, selection))


def _against(swept: Swept, selection: Selection | None, point: Summary) -> Cell:
    found = against_sft(swept, selection, point)
    if found is None:
        return Cell("")
    value, low, high = (points(bound) for bound in found.as_dict().values())
    return Cell(value, f"[{low}, {high}]", data=found)
