"""Tables of scores and of comparisons between runs.

    table = score_table({"sft": sft_scores, "trim": trim_scores}, "average", comparisons=compare_runs(...))

    |      |            gsm8k |             math500 |             average |
    | sft  | 41.2 [38.6, 43.9] | 18.4 [16.0, 21.2] | 29.8 [28.0, 31.7] |
    | trim | **44.0** ↑ [41.3, 46.6] | **19.1** [16.6, 22.0] | **31.5** [29.7, 33.4] |

An arrow stands only where a comparison earned it; bold says which value is shown as the highest, nothing more.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from trimsft.evaluate.compare import AVERAGE, LEVEL, Comparison
from trimsft.evaluate.scores import BenchmarkScore, macro, temperatures_of
from trimsft.grading import GRADER_VERSION
from trimsft.intervals import Interval
from trimsft.lab.task import ALL_TIERS
from trimsft.tables import DOWN, UP, Cell, Table, mark_best, rounded

_TOKENS = "tokens"  # the one metric that is no share
_NEITHER = (_TOKENS, "diversity")  # of which neither more nor less is better
_FEWER = ("no_answer", "truncated", "brier")
_USUAL = ("math500", "olympiadbench", "minerva", "amc", "aime24", *ALL_TIERS)
_BRACKETS = "Brackets: 95 % interval over problems."


def in_order(benchmarks: Iterable[str]) -> list[str]:
    """Return benchmarks as in the paper, then from easy to hard; others follow by name."""
    return sorted(benchmarks, key=lambda name: (_USUAL.index(name) if name in _USUAL else len(_USUAL), name))


def score_table(
    runs: Mapping[str, Sequence[BenchmarkScore]], metric: str = "average", *, comparisons: Sequence[Comparison] = ()
) -> Table:
    """Return runs by benchmarks and their mean; a run without a benchmark has no mean.

    Args:
        comparisons: those of this metric by `compare_runs`; without them nothing is marked.
    """
    benchmarks = in_order({score.benchmark for scores in runs.values() for score in scores})
    columns = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else benchmarks
    markers = {(one.candidate, one.benchmark): arrow(one) for one in comparisons}
    rows = []
    for name, scores in runs.items():
        intervals = {score.benchmark: score.interval(metric) for score in scores}
        if len(benchmarks) > 1 and len(intervals) == len(benchmarks):
            intervals[AVERAGE] = macro(scores, metric)
        cells = [
            Cell.of(intervals.get(column), markers.get((name, column), ""), scale=_scale(metric)) for column in columns
        ]
        rows.append((Cell(name), *cells))
    if metric not in _NEITHER and len(rows) > 1:
        rows = list(mark_best(rows, best=min if metric in _FEWER else max))
    baselines = dict.fromkeys(one.baseline for one in comparisons)
    return Table(_titled(metric), ("run", *columns), tuple(rows), (_BRACKETS, *map(_explain_arrows, baselines)))


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return one row for each comparison, with all figures that speak for or against the difference."""
    rows = []
    for one in comparisons:
        scale = _scale(one.metric)
        difference = Cell.of(one.difference, arrow(one), sign="+", bold=one.significant, scale=scale)
        row = [Cell(one.candidate), Cell(one.benchmark), Cell(_titled(one.metric))]
        row += [Cell(str(one.problems), data=one.problems)]
        row += [Cell(rounded(scale * share, 1), data=share) for share in (one.before, one.after)]
        row += [difference]
        row += [Cell("<0.001" if p < 0.001 else f"{p:.3f}", data=p) for p in (one.p_value, one.p_holm)]
        rows.append((*row, Cell(f"+{len(one.better)} -{len(one.worse)}")))
    baselines = dict.fromkeys(one.baseline for one in comparisons)
    return Table(
        title="".join(f"Difference to {baseline}" for baseline in baselines),
        header=("run", "benchmark", "metric", "problems", "before", "after", "difference", "p", "p (Holm)", "flips"),
        rows=tuple(rows),
        notes=(
            f"{_BRACKETS} p: sign-flip test. Flips: problems that crossed one half.",
            *map(_explain_arrows, baselines),
        ),
        left=(0, 1, 2),
    )


def published_table(runs: Mapping[str, Sequence[BenchmarkScore]], published: Mapping[str, float], metric: str) -> Table:
    """Return how far the runs are from published shares, which are taken as exact."""
    rows = []
    for name, scores in runs.items():
        for one in (one for one in scores if one.benchmark in published):
            found, known = one.interval(metric), published[one.benchmark]
            apart = Interval(found.value - known, found.low - known, found.high - known)
            shown = Cell.of(apart, sign="+", bold=apart.excludes_zero, scale=100)
            stated = Cell(rounded(100 * known, 1), data=known)
            rows.append((Cell(name), Cell(one.benchmark), stated, Cell.of(found, scale=100), shown))
    note = (
        f"{_BRACKETS} Published figures are taken as exact; their prompt, samples and grader may be others. Bold: the "
        "interval holds no 0."
    )
    header = ("run", "benchmark", "published", metric, "difference")
    return Table(f"Against published figures, {_titled(metric)}", header, tuple(rows), (note,), left=(0, 1))


def temperature_table(runs: Mapping[str, Sequence[BenchmarkScore]]) -> Table | None:
    """Return runs by temperatures, the mean over benchmarks; None without further temperatures."""
    temperatures = {name: temperatures_of(scores) for name, scores in runs.items()}
    if not any(one.at_temperature for scores in runs.values() for one in scores):
        return None
    columns = sorted(set(itertools.chain.from_iterable(temperatures.values())))
    rows = []
    for name, scores in runs.items():
        known = [at for at in columns if at in temperatures[name]]
        means = {at: macro(scores, f"T={at:g}") for at in known}
        rows.append((Cell(name), *(Cell.of(means.get(at)) for at in columns)))
    header = ("run", *("greedy" if at == 0 else f"T={at:g}" for at in columns))
    mean = ", mean of the benchmarks" if len(next(iter(runs.values()))) > 1 else ""
    return Table(f"Correct over the temperature (%){mean}", header, tuple(mark_best(rows)), (_BRACKETS,))


def summary_table(scores: Sequence[BenchmarkScore], name: str) -> Table:
    """Return the scores of one run, a row for each metric."""
    k = min(score.samples for score in scores)
    greedy = ["greedy"] if all(score.greedy for score in scores) else []
    further = [f"T={at:g}" for at in temperatures_of(scores) if all(at in one.at_temperature for one in scores)]
    sampled = ["average", *further, *greedy, "all_right", f"pass@{k}", f"majority@{k}"]
    sampled += ["diversity", "brier", "no_answer", "truncated", _TOKENS]
    tables = [score_table({metric: scores}, metric) for metric in (sampled if k else greedy)]
    notes = list(tables[0].notes)
    for score in scores:
        lacking, samples = score.statuses.get("no_answer", 0), sum(score.statuses.values())
        # more than an interval is wide: then the score measures the form of answers, too
        if score.grader == f"strict {GRADER_VERSION}" and lacking > 0.1 * samples:
            notes.append(
                f"{score.benchmark}: {lacking / samples:.0%} of the answers have no box and count as wrong; "
                "--pattern finds them elsewhere, --grader qwen as published evaluations do."
            )
    return Table(name, ("", *tables[0].header[1:]), tuple(table.rows[0] for table in tables), tuple(notes))


def _scale(metric: str) -> int:
    return 1 if metric == _TOKENS else 100  # shares are shown in percent


def arrow(one: Comparison) -> str:
    """Return the mark of a significant difference."""
    mark = UP if one.difference.value > 0 else DOWN
    return mark if one.significant else ""


def _explain_arrows(baseline: str) -> str:
    return (
        f"{UP} {DOWN}: differs from {baseline}, sign-flip test with Holm's correction p < {LEVEL}, and an interval "
        "of the paired difference without 0."
    )


def _titled(metric: str) -> str:
    return metric if metric == _TOKENS else f"{metric} (%)"
