"""Tables of scores and comparisons: one model, which `trimsft.report.tables.formats` writes in every format.

    table = score_table({"sft": sft_scores, "trim": trim_scores}, "average", comparisons=compare_runs(...))
    print(render(table, "markdown"))          # or latex, json, csv; to_rich(table) for a terminal

    |      |            gsm8k |             math500 |             average |
    | sft  | 41.2 [38.6, 43.9] | 18.4 [16.0, 21.2] | 29.8 [28.0, 31.7] |
    | trim | **44.0** ↑ [41.3, 46.6] | **19.1** [16.6, 22.0] | **31.5** [29.7, 33.4] |

An arrow stands only where a comparison earned it; bold says which value is shown as the highest, nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trimsft.scoring.intervals import RESAMPLES, Interval
from trimsft.scoring.compare import AVERAGE, LEVEL, Comparison
from trimsft.scoring.scores import BenchmarkScore, macro

UP, DOWN = "↑", "↓"
_FEWER_IS_BETTER = ("no_answer", "truncated")
_NEITHER_IS_BETTER = ("tokens",)


@dataclass(frozen=True)
class Cell:
    """What is shown, and the unrounded figures behind it for the formats that programs read."""

    text: str
    """A name, which may be anything, or a rounded number; empty where there is nothing to show."""
    spread: str = ""
    """The interval, as shown."""
    marker: str = ""
    """An arrow where a difference is significant."""
    bold: bool = False
    data: Interval | float | None = None
    """The figure itself; None for text."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header; the first column holds names."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"rows: must have {len(self.header)} cells as the header has, got {len(row)}")


def score_table(
    runs: Mapping[str, Sequence[BenchmarkScore]],
    metric: str = "average",
    *,
    comparisons: Sequence[Comparison] = (),
    title: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Table:
    """Runs by benchmarks and their mean; a run without a benchmark has no mean.

    Args:
        comparisons: what `compare_runs` found for this metric; without them nothing is marked.
    """
    if strange := next((found.metric for found in comparisons if found.metric != metric), None):
        raise ValueError(f"comparisons: must be of the metric {metric!r} that the table shows, got {strange!r}")
    benchmarks = list(dict.fromkeys(score.benchmark for scores in runs.values() for score in scores))
    columns = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else benchmarks
    markers = {(found.candidate, found.benchmark): _marker(found) for found in comparisons}
    rows: list[list[Cell]] = []
    for name, scores in runs.items():
        found = {score.benchmark: score.interval(metric) for score in scores}
        if len(benchmarks) > 1 and len(found) == len(benchmarks):
            found[AVERAGE] = macro(scores, metric, resamples=resamples, seed=seed)
        cells = [_score_cell(found.get(column), metric, markers.get((name, column), "")) for column in columns]
        rows.append([Cell(name), *cells])
    baselines = dict.fromkeys(found.baseline for found in comparisons)
    return Table(
        title=title or _titled(metric),
        header=("run", *columns),
        rows=tuple(tuple(row) for row in _with_best(rows, metric)),
        notes=("Brackets: 95 % interval, bootstrap over problems.", *map(_explain_arrows, baselines)),
    )


def comparison_table(comparisons: Sequence[Comparison], *, title: str = "") -> Table:
    """One row for each comparison, all figures that speak for or against the difference."""
    shared = dict.fromkeys((found.baseline, found.metric) for found in comparisons)
    if len(shared) > 1:
        raise ValueError(f"comparisons: must share baseline and metric, got {list(shared)}")
    baseline, metric = next(iter(shared), ("", ""))
    return Table(
        title=title or (f"{_titled(metric)}: difference to {baseline}" if shared else ""),
        header=("run", "benchmark", "problems", "before", "after", "difference", "p", "p (Holm)", "flips"),
        rows=tuple(_comparison_row(found) for found in comparisons),
        notes=(
            "Brackets: 95 % interval, bootstrap over problems. p: sign-flip test. "
            "Flips: problems that crossed one half.",
            *((_explain_arrows(baseline),) if shared else ()),
        ),
    )


def _comparison_row(found: Comparison) -> tuple[Cell, ...]:
    return (
        Cell(found.candidate),
        Cell(found.benchmark),
        Cell(str(found.problems), data=found.problems),
        Cell(_number(found.before, found.metric), data=found.before),
        Cell(_number(found.after, found.metric), data=found.after),
        replace(_score_cell(found.difference, found.metric, _marker(found), sign="+"), bold=found.significant),
        Cell(_p_value(found.p_value), data=found.p_value),
        Cell(_p_value(found.p_holm), data=found.p_holm),
        Cell(f"+{len(found.better)} -{len(found.worse)}"),
    )


def _score_cell(interval: Interval | None, metric: str, marker: str, sign: str = "") -> Cell:
    if interval is None:
        return Cell("")
    low, high = (_number(bound, metric, sign) for bound in (interval.low, interval.high))
    return Cell(_number(interval.value, metric, sign), f"[{low}, {high}]", marker, data=interval)


def _with_best(rows: list[list[Cell]], metric: str) -> Iterable[list[Cell]]:
    """Bold for the best of each column, and for all that are shown as the same number."""
    if metric in _NEITHER_IS_BETTER or len(rows) < 2:
        return rows
    best = min if metric in _FEWER_IS_BETTER else max
    for column in range(1, len(rows[0])):
        shown = [float(row[column].text) for row in rows if row[column].data is not None]
        for row in rows:
            if row[column].data is not None and float(row[column].text) == best(shown):
                row[column] = replace(row[column], bold=True)
    return rows


def _marker(found: Comparison) -> str:
    if not found.significant:
        return ""
    return UP if found.difference.value > 0 else DOWN


def _explain_arrows(baseline: str) -> str:
    return (
        f"{UP} {DOWN}: differs from {baseline}, sign-flip test with Holm's correction p < {LEVEL}, and an interval "
        "of the paired difference without 0."
    )


def _titled(metric: str) -> str:
    return metric if metric == "tokens" else f"{metric} (%)"


def _number(value: float, metric: str, sign: str = "") -> str:
    """One decimal: percent, or tokens. Never a negative zero."""
    rounded = round(value if metric == "tokens" else 100 * value, 1) or 0.0
    return f"{rounded:{sign if rounded else ''}.1f}"


def _p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
