"""What the runs of a quickstart scored, each held against SFT, in the form of the paper's Table 1.

           lab-easy       lab-medium     lab-hard       average
average@8
  SFT      75.3 68-81     66.9 60-73     57.8 51-65     66.7 63-70
  TrimSFT  94.1↑ 91-97    88.1↑ 83-92    83.8↑ 77-88    88.6↑ 86-91
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimsft.report.table import DOWN, UP
from trimsft.scoring.compare import AVERAGE, Comparison, compare_runs
from trimsft.scoring.intervals import Interval
from trimsft.scoring.scores import BenchmarkScore, macro
from trimsft.study.cells import BASE, NAMES

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

BASELINE = "sft"
Scores = Mapping[str, Sequence[BenchmarkScore]]


@dataclass(frozen=True)
class Results:
    """Scores of each run that has them, by its name, and what can be said of them."""

    scores: Scores
    _comparisons: dict[str, dict[tuple[str, str], Comparison]] = field(default_factory=dict, repr=False)
    _means: dict[tuple[str, str], Interval] = field(default_factory=dict, repr=False)

    @property
    def samples(self) -> int:
        return min(score.samples for scores in self.scores.values() for score in scores)

    @property
    def metrics(self) -> dict[str, str]:
        """What each metric is called in tables, the paper's first."""
        k = self.samples
        return {
            "average": f"average@{k}",
            "greedy": "greedy",
            f"pass@{k}": f"pass@{k}",
            f"majority@{k}": f"majority@{k}",
        }

    @property
    def tiers(self) -> list[str]:
        return [score.benchmark for score in next(iter(self.scores.values()))]

    def score(self, name: str, metric: str, tier: str = AVERAGE) -> Interval:
        """The score on one tier, or the mean over tiers."""
        if tier != AVERAGE:
            return next(score for score in self.scores[name] if score.benchmark == tier).interval(metric)
        if (name, metric) not in self._means:
            self._means[name, metric] = macro(self.scores[name], metric)
        return self._means[name, metric]

    def against_sft(self, name: str, metric: str, tier: str = AVERAGE) -> Comparison | None:
        """The paired comparison, corrected for all that are made of this metric; None where SFT has no scores."""
        if BASELINE not in self.scores:
            return None
        if metric not in self._comparisons:
            others = {other: scores for other, scores in self.scores.items() if other != BASELINE}
            made = compare_runs(self.scores[BASELINE], others, metric, name=NAMES[BASELINE])
            self._comparisons[metric] = {(one.candidate, one.benchmark): one for one in made}
        return self._comparisons[metric].get((name, tier))

    def direction(self, name: str, metric: str, tier: str = AVERAGE) -> int:
        """1 above SFT, -1 below it, 0 where the paired comparison does not earn either."""
        compared = self.against_sft(name, metric, tier)
        if compared is None or not compared.significant:
            return 0
        return 1 if compared.difference.value > 0 else -1

    def trained(self) -> list[str]:
        return [name for name in self.scores if name != BASE]

    def as_dict(self) -> dict[str, Any]:
        """Every score with its interval: run, tier, metric."""
        return {name: {tier: self._described(name, tier) for tier in (*self.tiers, AVERAGE)} for name in self.scores}

    def _described(self, name: str, tier: str) -> dict[str, Any]:
        described: dict[str, Any] = {}
        for metric, shown in self.metrics.items():
            described[shown] = self.score(name, metric, tier).as_dict()
            compared = self.against_sft(name, metric, tier)
            if compared is not None:
                described[shown]["against_sft"] = {
                    **compared.difference.as_dict(),
                    "p": compared.p_value,
                    "p_holm": compared.p_holm,
                    "significant": compared.significant,
                }
        return described


# ---- tables


def main_table(results: Results) -> Table:
    """average@k, and greedy below it."""
    columns = [*results.tiers, AVERAGE]
    table = _table("", *columns)
    for number, metric in enumerate(("average", "greedy")):
        if number:
            table.add_section()
        table.add_row(_bold(results.metrics[metric]))
        for name in results.scores:
            table.add_row(f"  {NAMES[name]}", *(_cell(results, name, metric, column) for column in columns))
    return table


def other_table(results: Results) -> Table:
    """pass@k and majority@k, the mean over tiers."""
    metrics = list(results.metrics)[2:]
    table = _table("mean over tiers", *(results.metrics[metric] for metric in metrics))
    for name in results.scores:
        table.add_row(f"  {NAMES[name]}", *(_cell(results, name, metric, AVERAGE) for metric in metrics))
    return table


def legend(results: Results) -> str:
    """What the marks mean."""
    problems = sum(score.problems for score in next(iter(results.scores.values())))
    text = f"Percent, with 95 % intervals over {problems} problems; bold is the highest."
    if BASELINE in results.scores:
        text += f" {UP} {DOWN}: differs from SFT, paired by problem, Holm-corrected p < 0.05."
    return text


def _cell(results: Results, name: str, metric: str, column: str) -> Text:
    from rich.text import Text

    interval = results.score(name, metric, column)
    best = max(_shown(results.score(other, metric, column)) for other in results.scores)
    mark = {1: UP, -1: DOWN, 0: " "}[results.direction(name, metric, column)]
    style = "bold" if _shown(interval) == best else ""
    low, high = (round(100 * bound) for bound in (interval.low, interval.high))
    return Text.assemble((f"{_shown(interval):5.1f}", style), mark, (f" {f'{low}-{high}':<6}", "dim"))


def _shown(interval: Interval) -> float:
    return round(100 * interval.value, 1)


def _bold(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
