"""What the run directories of a quickstart say: scores, and each method against SFT, paired by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimsft.scoring.intervals import Interval
from trimsft.scoring.compare import AVERAGE, Comparison, compare_runs
from trimsft.scoring.scores import BenchmarkScore, macro
from trimsft.study.quickstart.settings import BASE, LABELS

BASELINE = "sft"
Scores = Mapping[str, Sequence[BenchmarkScore]]


@dataclass(frozen=True)
class Results:
    """Scores of each run that has them, by its name, and what can be said of them."""

    scores: Scores
    _found: dict[str, dict[tuple[str, str], Comparison]] = field(default_factory=dict, repr=False)
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
        """Of one tier, or the mean over tiers."""
        if tier != AVERAGE:
            return next(score for score in self.scores[name] if score.benchmark == tier).interval(metric)
        if (name, metric) not in self._means:
            self._means[name, metric] = macro(self.scores[name], metric)
        return self._means[name, metric]

    def against_sft(self, name: str, metric: str, tier: str = AVERAGE) -> Comparison | None:
        """The paired comparison, corrected for all that are made of this metric; None where SFT has no scores."""
        if BASELINE not in self.scores:
            return None
        if metric not in self._found:
            others = {other: scores for other, scores in self.scores.items() if other != BASELINE}
            found = compare_runs(self.scores[BASELINE], others, metric, name=LABELS[BASELINE])
            self._found[metric] = {(c.candidate, c.benchmark): c for c in found}
        return self._found[metric].get((name, tier))

    def direction(self, name: str, metric: str, tier: str = AVERAGE) -> int:
        """1 above SFT, -1 below it, 0 where the paired comparison does not earn either."""
        found = self.against_sft(name, metric, tier)
        if found is None or not found.significant:
            return 0
        return 1 if found.difference.value > 0 else -1

    def trained(self) -> list[str]:
        return [name for name in self.scores if name != BASE]

    def as_dict(self) -> dict[str, Any]:
        """Every score with its interval: run, tier, metric."""
        return {name: {tier: self._of(name, tier) for tier in (*self.tiers, AVERAGE)} for name in self.scores}

    def _of(self, name: str, tier: str) -> dict[str, Any]:
        described: dict[str, Any] = {}
        for metric, shown in self.metrics.items():
            described[shown] = self.score(name, metric, tier).as_dict()
            found = self.against_sft(name, metric, tier)
            if found is not None:
                described[shown]["against_sft"] = {
                    **found.difference.as_dict(),
                    "p": found.p_value,
                    "p_holm": found.p_holm,
                    "significant": found.significant,
                }
        return described
