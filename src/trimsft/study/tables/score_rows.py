"""Every score of a study beside the paper's, a row for each setting, benchmark and metric; the tables made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimsft import paper
from trimsft.report.tables.scores import DOWN, UP, Cell, Table
from trimsft.scoring.intervals import Interval
from trimsft.scoring.compare import AVERAGE
from trimsft.study.tables.beside_the_paper import STAND_IN, Numbers, ranks, same_order
from trimsft.study.tables.summaries import Setting, Summary, labels_of, paired

Summaries = Mapping[Setting, Summary]


@dataclass(frozen=True)
class ScoreRow:
    """One number of ours, and the paper's."""

    setting: Setting
    seeds: tuple[int, ...]
    benchmark: str
    metric: str
    ours: Interval
    """From 0 to 1."""
    by_seed: tuple[float, ...]
    paper: float | None
    """From 0 to 1, where it has the same model, benchmark and setting."""
    stand_in: float | None
    """The average of `STAND_IN` with that setting, where the paper has no such model or benchmark."""

    @property
    def difference(self) -> Interval | None:
        """Ours minus the paper's, which is taken as it is printed: its own noise is not known."""
        if self.paper is None:
            return None
        return Interval(*(bound - self.paper for bound in (self.ours.value, self.ours.low, self.ours.high)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.setting.model,
            "objective": self.setting.objective,
            **dict(self.setting.fields),
            "benchmark": self.benchmark,
            "metric": self.metric,
            **self.ours.as_dict(),
            "seeds": list(self.seeds),
            "by_seed": list(self.by_seed),
            "paper": self.paper,
            "difference": None if self.difference is None else self.difference.as_dict(),
            f"paper ({STAND_IN})": self.stand_in,
        }


def score_rows(summaries: Summaries, metrics: Sequence[str], numbers: Numbers) -> list[ScoreRow]:
    """Settings in their order, benchmarks in theirs, then the average over them."""
    others = [row for setting in summaries if (row := numbers.stand_in(setting)) is not None]
    shared = [name for name in (others[0].scores if others else ()) if all(name in row.scores for row in others)]
    parts = _parts(summaries)
    overall = list(parts)[-1]
    return [
        _row(summary, benchmark, names, metric, numbers, shared if benchmark == overall else None)
        for metric in metrics
        for summary in summaries.values()
        for benchmark, names in parts.items()
        if summary.with_all(names)
    ]


def columns_of(summaries: Summaries) -> list[str]:
    """Benchmarks, and the average where there are several."""
    names = list(dict.fromkeys(name for summary in summaries.values() for name in summary.benchmarks))
    return [*names, AVERAGE] if len(names) > 1 else names


def _parts(summaries: Summaries) -> dict[str, tuple[str, ...]]:
    """Column -> the benchmarks whose mean it is: of all of them, or there is none."""
    columns = columns_of(summaries)
    names = tuple(name for name in columns if name != AVERAGE)
    return {column: names if column == AVERAGE else (column,) for column in columns}


def _row(
    summary: Summary,
    benchmark: str,
    names: Sequence[str],
    metric: str,
    numbers: Numbers,
    shared: Sequence[str] | None,
) -> ScoreRow:
    """`shared` are the benchmarks of the stand-in, for the row that its average stands beside."""
    theirs = numbers.of(summary.setting) if metric == "average" else None
    known: float | None = None
    if theirs is not None:
        same = set(names) == set(theirs.scores)
        known = (theirs.average if same else None) if benchmark == AVERAGE else theirs.scores.get(benchmark)
    other = numbers.stand_in(summary.setting) if metric == "average" and theirs is None else None
    runs = summary.with_all(names)
    return ScoreRow(
        setting=summary.setting,
        seeds=tuple(runs),
        benchmark=benchmark,
        metric=metric,
        ours=summary.interval(metric, *names),
        by_seed=tuple(
            float(sum(run[name].values(metric).mean() for name in names) / len(names)) for run in runs.values()
        ),
        paper=None if known is None else known / 100,
        stand_in=None if other is None or shared is None else _average(other, shared),
    )


def _average(row: paper.Score, shared: Sequence[str]) -> float:
    """As printed; where some rows have fewer benchmarks (the half trims), the mean of those that all have."""
    if row.average is not None and len(shared) == len(row.scores):
        return row.average / 100
    return sum(row.scores[name] for name in shared) / len(shared) / 100


# ---- tables


def our_table(title: str, summaries: Summaries, rows: Sequence[ScoreRow], notes: Sequence[str]) -> Table:
    """Settings by benchmarks, with intervals; arrows where a setting is told apart from SFT of its model."""
    columns, labels = columns_of(summaries), labels_of(summaries)
    found = {(row.setting, row.benchmark): row for row in rows}
    lines = []
    for setting in summaries:
        of_setting = [found.get((setting, column)) for column in columns]
        cells = [_ours(row, _arrow(row, summaries)) if row else Cell("") for row in of_setting]
        lines.append([Cell(labels[setting]), *cells])
    _mark_best(lines, [setting.model for setting in summaries])
    seeds = {summary.seeds for setting, summary in summaries.items() if setting.objective != "base"}
    over = "seeds and problems" if max(seeds, default=1) > 1 else "problems"
    about = [f"Percent, {_seeds(seeds)}. Brackets: 95 % interval over {over}."]
    if any(cell.marker for line in lines for cell in line):
        about.append(
            f"{UP} {DOWN}: the interval of the difference to SFT, paired by problem and seed, leaves out 0; not "
            "corrected for how many are tested."
        )
    return Table(title, ("", *columns), tuple(map(tuple, lines)), (*about, *notes))


def paper_table(summaries: Summaries, rows: Sequence[ScoreRow], notes: Sequence[str] = ()) -> Table | None:
    """Ours, the paper's and the difference; None where it has none of these models and benchmarks."""
    columns, labels = columns_of(summaries), labels_of(summaries)
    found = {(row.setting, row.benchmark): row for row in rows}
    shown = [s for s in summaries if any(r.paper is not None for (t, _), r in found.items() if t == s)]
    if not shown:
        return None
    lines = [
        (Cell(labels[setting]), *(_theirs(found.get((setting, column))) for column in columns)) for setting in shown
    ]
    note = (
        "Percent: ours (the paper's; ours minus it [95 % interval]). The interval is that of ours: the paper gives "
        "none, so that its own noise is left out."
    )
    return Table("Beside the paper", ("", *columns), tuple(lines), (note, *notes))


def pattern_table(summaries: Summaries, rows: Sequence[ScoreRow], more: Sequence[str] = ()) -> Table | None:
    """Our averages and those of the paper's `STAND_IN`, each with its rank."""
    shown = [row for row in rows if row.stand_in is not None]
    if len(shown) < 2:
        return None
    lines: list[tuple[Cell, ...]] = []
    labels = labels_of(summaries)
    notes = [
        f"The paper has none of these models and benchmarks: its {STAND_IN} stands beside ours for the pattern, who is "
        "above whom, not for the size of the numbers."
    ]
    for model in dict.fromkeys(row.setting.model for row in shown):
        of_model = [row for row in shown if row.setting.model == model]
        ours, theirs = [row.ours.value for row in of_model], [row.stand_in or 0.0 for row in of_model]
        for row, rank, their_rank in zip(of_model, ranks(ours), ranks(theirs), strict=True):
            lines.append(
                (
                    Cell(labels[row.setting]),
                    _ours(row, ""),
                    _count(rank),
                    Cell(f"{100 * (row.stand_in or 0):.2f}", data=row.stand_in),
                    _count(their_rank),
                )
            )
        same, pairs = same_order(ours, theirs)
        notes.append(f"{model}: {same} of {pairs} pairs are in the paper's order.")
    if any(name.startswith("trim-") for name in (row.setting.objective for row in shown)):
        notes.append("The paper's are means of the benchmarks that its table of half trims has.")
    header = ("", f"ours, {shown[0].benchmark}", "rank", f"paper ({STAND_IN})", "rank there")
    return Table("Beside the paper: the pattern", header, tuple(lines), (*notes, *more))


def _ours(row: ScoreRow, marker: str) -> Cell:
    low, high = (f"{100 * bound:.1f}" for bound in (row.ours.low, row.ours.high))
    return Cell(f"{100 * row.ours.value:.1f}", f"[{low}, {high}]", marker, data=row.ours)


def _theirs(row: ScoreRow | None) -> Cell:
    if row is None or row.paper is None or row.difference is None:
        return Cell("")
    value, low, high = (points(bound) for bound in row.difference.as_dict().values())
    spread = f"({100 * row.paper:.2f}; {value} [{low}, {high}])"
    return Cell(f"{100 * row.ours.value:.1f}", spread, data=row.ours)


def points(share: float) -> str:
    """A difference in points, with its sign; never a negative zero."""
    return f"{round(100 * share, 1) + 0.0:+.1f}"


def _count(number: int) -> Cell:
    return Cell(str(number), data=float(number))


def _arrow(row: ScoreRow, summaries: Summaries) -> str:
    baseline = next((s for s in summaries.values() if s.setting == Setting(row.setting.model, "sft")), None)
    if baseline is None or row.setting == baseline.setting:
        return ""
    names = _parts(summaries)[row.benchmark]
    if not baseline.with_all(names):
        return ""
    difference = paired(summaries[row.setting], baseline, row.metric, *names)
    return (UP if difference.value > 0 else DOWN) if difference.excludes_zero else ""


def _mark_best(lines: list[list[Cell]], models: Sequence[str]) -> None:
    """Bold for the highest of each column within its model, and all shown as the same number, unless that is all."""
    for column in range(1, len(lines[0]) if lines else 0):
        for model in set(models):
            block = [
                line for line, of in zip(lines, models, strict=True) if of == model and line[column].data is not None
            ]
            shown = [float(line[column].text) for line in block]
            for line, value in zip(block, shown, strict=True):
                line[column] = replace(line[column], bold=len(set(shown)) > 1 and value == max(shown))


def _seeds(counts: set[int]) -> str:
    if not counts:
        return "nothing trained"
    low, high = min(counts), max(counts)
    many = f"{low}" if low == high else f"{low} to {high}"
    return f"{many} training{'' if high == 1 else 's'} each"
