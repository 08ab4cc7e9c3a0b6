"""A sweep as a table, and what it says in sentences."""

from __future__ import annotations

from trimsft.report.table import Cell, Table
from trimsft.scoring.intervals import Interval
from trimsft.study.cells import NAMES
from trimsft.study.sweeps.sweep import Selection, Swept, candidates, shared_fields
from trimsft.study.tables.summaries import Summary, field_rank, paired, shown


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
            *(Cell.of(point.interval(swept.metric, *of), bold=chosen) for of in columns.values()),
        ]
        rows.append((*cells, Cell.of(against_sft(swept, selection, point), sign="+")))
    seeds = {point.seeds for point in swept.points}
    many = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    note = (
        f"Percent; {many} training{'' if max(seeds) == 1 else 's'} of each point. Brackets: 95 % interval over "
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
    return sorted({name for point in swept.points for name, _ in point.setting.fields}, key=field_rank)


def reported(swept: Swept, selection: Selection | None) -> list[str]:
    """The benchmarks that results are given on: not the one that the choice was made on."""
    return [name for name in swept.benchmarks if selection is None or name != selection.on]


def conclusions(swept: Swept, selection: Selection | None) -> list[str]:
    """What the sweep says, in sentences."""
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
