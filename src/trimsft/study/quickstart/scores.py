"""What the runs of a quickstart scored, each held against SFT, and what that says in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimsft.evaluate.compare import AVERAGE, Comparison, compare_runs
from trimsft.evaluate.scores import BenchmarkScore, macro
from trimsft.intervals import Interval
from trimsft.study.cells import BASE, method_name

BASELINE = "sft"
METHOD = "trim"  # of the paper
OURS = "auto-trim"
GREEDY, SAMPLED = "greedy", "average"
SCATTERED = 0.1  # greedy above sampled by so much: the model knows more than it says at temperature 1
_UNRELIABLE = "correct with greedy decoding, unreliable when sampled"
_NO_DIFFERENCE = "shows no significant difference from"
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
        return {SAMPLED: f"average@{k}"} | {name: name for name in (GREEDY, f"pass@{k}", f"majority@{k}")}

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
            made = compare_runs(self.scores[BASELINE], others, metric, name=method_name(BASELINE))
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


# ---- words: each sentence is chosen by the numbers, none is written beforehand


def describe(results: Results) -> str:
    stand = [_against_sft(results, name) for name in (METHOD, OURS)]
    sentences = (_base(results), *stand, _rival(results), _others(results), _best(results), _greedy(results))
    return " ".join(filter(None, sentences))


def _base(results: Results) -> str:
    if BASE not in results.scores:
        return ""
    sampled, greedy = (results.score(BASE, metric).value for metric in (SAMPLED, GREEDY))
    text = f"The base model solves {_percent(greedy)} % greedy and {_percent(sampled)} % at temperature 1"
    return f"{text}: {_UNRELIABLE}." if greedy - sampled >= SCATTERED else f"{text}."


def _against_sft(results: Results, name: str) -> str:
    """Where a method stands to SFT; of the paper's, whether its claim shows here."""
    compared = results.against_sft(name, SAMPLED)
    if compared is None:
        return ""
    pair = f"{_percent(compared.after)} against {_percent(compared.before)} (average@{results.samples})"
    direction = results.direction(name, SAMPLED)
    if direction > 0:
        return f"{method_name(name)} is above SFT: {pair}, {_spread(compared)}."
    if direction == 0:
        return f"{method_name(name)} {_NO_DIFFERENCE} SFT here: {pair}, {_spread(compared)}."
    claim = "; the paper's claim does not show" if name == METHOD else ""
    return f"{method_name(name)} is below SFT here: {pair}, {_spread(compared)}{claim}."


def _rival(results: Results) -> str:
    """Where AutoTrim stands to the highest of the others, which luck may have made the highest."""
    others = [name for name in results.trained() if name != OURS]
    rival = max(others, key=lambda name: results.score(name, SAMPLED).value, default=BASELINE)
    if OURS not in results.scores or rival == BASELINE:
        return ""
    made = compare_runs(results.scores[rival], {OURS: results.scores[OURS]}, SAMPLED, name=method_name(rival))
    compared = made[-1]  # the mean over tiers
    place = "is above" if compared.difference.value > 0 else "is below"
    stands = place if compared.significant else _NO_DIFFERENCE
    return f"It {stands} {method_name(rival)}, the highest of the others: {_spread(compared)}."


def _spread(compared: Comparison) -> str:
    change, low, high = (100 * value for value in compared.difference.as_dict().values())
    return f"{change:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"


def _others(results: Results) -> str:
    """Where the other methods stand to SFT."""
    if BASELINE not in results.scores:
        return ""
    others = [name for name in results.trained() if name not in (METHOD, OURS, BASELINE)]
    parts = []
    for direction, place in ((1, "above SFT"), (-1, "below SFT"), (0, "no significant difference from SFT")):
        names = [name for name in others if results.direction(name, SAMPLED) == direction]
        names.sort(key=lambda name: -results.score(name, SAMPLED).value)
        if names:
            listed = [f"{method_name(name)} ({_percent(results.score(name, SAMPLED).value)})" for name in names]
            parts.append(f"{place}: {_listed(listed)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _best(results: Results) -> str:
    """Only where the method of the paper is not itself the highest, and `_rival` has not said which one is."""
    best = max(results.trained(), key=lambda name: results.score(name, SAMPLED).value, default=METHOD)
    is_told = METHOD in results.scores and OURS not in results.scores and best not in (METHOD, BASELINE)
    return f"The highest here is {method_name(best)}, not TrimSFT." if is_told else ""


def _greedy(results: Results) -> str:
    """Whether what was won at temperature 1 was won greedy, too."""
    trained = results.trained()
    if not trained:
        return ""
    values = [results.score(name, GREEDY).value for name in trained]
    low, high = _percent(min(values)), _percent(max(values))
    who = "model solves" if len(values) == 1 else "models solve"
    text = f"With greedy decoding the trained {who} {low if low == high else f'{low} to {high}'} %"
    if METHOD not in trained or results.direction(METHOD, SAMPLED) <= 0:
        return f"{text}."
    greedy = results.direction(METHOD, GREEDY)
    if greedy > 0:
        return f"{text}, and TrimSFT is above SFT there, too."
    stands = "is below" if greedy < 0 else _NO_DIFFERENCE
    return f"{text}; TrimSFT {stands} SFT there, so its gain is in sampling."


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
