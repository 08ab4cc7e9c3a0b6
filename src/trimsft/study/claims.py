"""The paper's claims, held against results: each holds, does not hold, or cannot be told.

for claim in judge_claims(summarise(load_results(cells, out)), token_tables):
    print(claim.verdict, claim.sentence)

A verdict goes by the 95 % interval of a difference, which must leave out 0: paired by problem and seed for scores, over
examples for tokens. A claim about several models holds where it holds for each, and does not where it does not for
one. What was not run is not judged. Tokens have one training of each method: what another seed would give is in no
interval, and sentences say so.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from trimsft.intervals import Array, Interval
from trimsft.objectives import BANDWIDTH, MARGIN, TrimSFT
from trimsft.objectives.paper import HIGH_WEIGHT, Setting
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.study.results import Summaries, Summary, mean_difference, paired, percent_text
from trimsft.study.studies import STUDIES
from trimsft.study.variance import FAILS, HOLDS, OPEN, sensitivity_of, verdict_of
from trimsft.tables import rounded
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import (
    PAPER_MASS,
    ByExample,
    Means,
    Statistic,
    high_weight_percent,
    mass_percent,
    mass_sums,
    r_eff,
    ratio,
    weight_sums,
    weights_of,
)
from trimsft.tokens.table import TokenTable

LEAST_EXAMPLES = 10  # with fewer nothing is judged: resampling them knows little of others
NEARLY_UNCHANGED = 0.1
"""A share of the range over tau; a bound of ours: the paper names none, and its High-Weight moves by 0.77 of 51.50."""
MARGINS, BANDWIDTHS = (1.0, 6.0), (1.0, 3.0, 6.0)  # those of the paper's weight diagnostics; (3, 1) beside them
OVER_M = tuple(Setting(m, 1.0) for m in (1.0, 3.0, 6.0))
OVER_TAU = tuple(Setting(1.0, tau) for tau in BANDWIDTHS)
WEIGHED = (*(Setting(m, tau) for m in MARGINS for tau in BANDWIDTHS), Setting(3.0, 1.0))
EDGE = MARGIN - BANDWIDTH  # gaps below are small ones

Tables: TypeAlias = Mapping[str, TokenTable]  # by objective, "base" among them, all of the same tokens


@dataclass(frozen=True)
class Claim:
    """One claim, and what the results say to it."""

    study: str
    name: str
    statement: str
    source: str  # where the paper says so: the label of the study's first table or figure
    verdict: str  # HOLDS, FAILS or OPEN
    sentence: str  # the numbers behind the verdict


class Judgement(NamedTuple):
    """The verdict on one model, and its numbers."""

    verdict: str
    text: str


def judge_claims(summaries: Summaries, tables: Mapping[str, Tables] | None = None) -> list[Claim]:
    """Judge every claim that there are scores for, or token tables by model and objective."""
    models = list(dict.fromkeys(setting.model for setting in summaries))
    samples, claims = str(min((summary.samples for summary in summaries.values()), default=8)), []

    def add(name: str, verdict: str, sentence: str) -> None:
        study, statement = STATEMENTS[name]
        statement = statement.format(samples=samples)
        claims.append(Claim(study, name, statement, STUDIES[study].paper[0], verdict, sentence))

    for name, judge_scores in OF_SCORES.items():
        judged = {model: one for model in models if (one := judge_scores(summaries, model)) is not None}
        if judged:
            combine = _where_most if name == "trim-best" else _where_all
            sentence = "; ".join(f"{model}{one.text}" for model, one in judged.items()) + "."
            add(name, combine([one.verdict for one in judged.values()]), sentence)
    for model, of_model in (tables or {}).items():
        examples = min(table.example_count for table in of_model.values())
        of_base = (_weights, _masses, _categories) if BASE in of_model else ()
        judged_tokens = {name: one for judge in of_base for name, one in judge(of_model[BASE]).items()}
        for name, (verdict, text) in (judged_tokens | _gaps(of_model)).items():
            if examples < LEAST_EXAMPLES:
                verdict, text = OPEN, f"{text} {examples} examples, fewer than {LEAST_EXAMPLES}, tell too little."
            add(name, verdict, f"{model}: {text}" if len(tables or {}) > 1 else text)
    return claims


def _where_all(verdicts: Sequence[str]) -> str:
    return next((verdict for verdict in (FAILS, OPEN) if verdict in verdicts), HOLDS)


def _where_most(verdicts: Sequence[str]) -> str:
    most = len(verdicts) / 2
    if verdicts.count(HOLDS) > most:
        return HOLDS
    return FAILS if verdicts.count(FAILS) >= most else OPEN


# ---- scores: Table 1 and Figure 2


def _main(summaries: Summaries, model: str, objective: str) -> Summary | None:
    """Return the summary with the default parameters, as Table 1 has it."""
    return summaries.get(Cell(model=model, objective=objective))


def _above(summaries: Summaries, model: str, *, high: str, low: str, metric: str = "average") -> Judgement | None:
    """Judge whether one method of Table 1 is above another; `metric` may name {samples}."""
    a, b = (_main(summaries, model, name) for name in (high, low))
    if a is None or b is None:
        return None
    metric = metric.format(samples=min(a.samples, b.samples))
    difference = paired(a, b, metric)
    once = "" if min(a.seeds, b.seeds) > 1 else ", one training each"
    return Judgement(verdict_of(difference), f": {_against(a, b, metric)}, {percent_text(difference, '+')}{once}")


def _best(summaries: Summaries, model: str) -> Judgement | None:
    """Judge TrimSFT against each rival: it must be above all, which needs no correction; it fails where one is
    above it by an interval widened for the number of rivals (Bonferroni): the best of several is partly the luckiest.
    """
    trim, sft = (_main(summaries, model, name) for name in ("trim", "sft"))
    others = [_main(summaries, model, name) for name in ("base", "sft", "fsft", "dft")]
    rivals = [summary for summary in others if summary is not None]
    if trim is None or sft is None or len(rivals) < 2:
        return None
    best = max(rivals, key=lambda summary: summary.interval("average").value)
    text = f": {_against(trim, best)}, {percent_text(paired(trim, best), '+')}"
    if all(verdict_of(paired(trim, rival)) == HOLDS for rival in rivals):
        return Judgement(HOLDS, text)
    wide = [paired(trim, rival, tests=len(rivals)) for rival in rivals]
    lowest = min(wide, key=lambda difference: difference.high)
    if lowest.value < 0:
        text += f", corrected for {len(rivals)} rivals {percent_text(lowest, '+')}"
    return Judgement(FAILS if lowest.high < 0 else OPEN, text)


def _against(a: Summary, b: Summary, metric: str = "average") -> str:
    scores = [(method_name(one.setting.objective), one.interval(metric).value) for one in (a, b)]
    return ", ".join(f"{name} {100 * value:.1f}" for name, value in scores)


# ---- scores: margin and bandwidth, half trims


def plane(summaries: Summaries, model: str, objective: str = "trim") -> list[Summary]:
    """Return all (m, tau) of a model that differ in nothing else."""
    return [
        summary
        for setting, summary in summaries.items()
        if setting.model == model and setting.objective == objective and len(setting.fields) == 2
    ]


def _tau_over_m(summaries: Summaries, model: str) -> Judgement | None:
    analysis = sensitivity_of(plane(summaries, model))
    return None if analysis is None else Judgement(analysis.verdict, f": {analysis.sentence().removesuffix('.')}")


def _narrow_above_sft(summaries: Summaries, model: str) -> Judgement | None:
    sft = _main(summaries, model, "sft")
    bands = [s for s in plane(summaries, model) if s.setting.get("bandwidth") == 1.0]
    if sft is None or len(bands) < 2:
        return None
    differences = {s.setting.get("margin"): paired(s, sft) for s in bands}
    listed = ", ".join(f"m {margin:g}: {percent_text(one, '+')}" for margin, one in sorted(differences.items()))
    return Judgement(_where_all([verdict_of(one) for one in differences.values()]), f", against SFT: {listed}")


def _hard_half_below(summaries: Summaries, model: str) -> Judgement | None:
    sft, halves = _main(summaries, model, "sft"), plane(summaries, model, "trim-h")
    if sft is None or not halves:
        return None
    difference = mean_difference([(sft, half) for half in halves])
    text = f": SFT minus TrimSFT-H, over {_margins(halves)}: {percent_text(difference, '+')}"
    return Judgement(verdict_of(difference), text)


def _easy_half(summaries: Summaries, model: str) -> Judgement | None:
    trims = {summary.setting.band: summary for summary in plane(summaries, model)}
    halves = [summary for summary in plane(summaries, model, "trim-e") if summary.setting.band in trims]
    pairs = [(half, trims[half.setting.band]) for half in halves]
    if not pairs or len(pairs[0][0].benchmarks) < 2:
        return None
    ranked = sorted(
        pairs[0][0].benchmarks, key=lambda name: sum(trim.interval("average", name).value for _, trim in pairs)
    )
    hardest, easiest = ranked[0], ranked[-1]
    easy, hard = (mean_difference(pairs, "average", name) for name in (easiest, hardest))
    text = (
        f": TrimSFT-E minus TrimSFT, over {_margins(halves)}: {percent_text(easy, '+')} on {easiest}, the easiest, "
        f"{percent_text(hard, '+')} on {hardest}, the hardest"
    )
    if easy.high < 0 or hard.low > 0:
        return Judgement(FAILS, text)
    return Judgement(HOLDS if hard.high < 0 else OPEN, text)


def _margins(summaries: Sequence[Summary]) -> str:
    return f"m {', '.join(f'{m:g}' for m in sorted({float(one.setting.get('margin')) for one in summaries}))}"


# ---- tokens


def _weights(table: TokenTable) -> dict[str, Judgement]:
    """Judge R_eff and the share of high weights over margins and bandwidths."""
    sums = weight_sums(table, WEIGHED)

    def least_rise(means: Means) -> Array:
        steps = [(Setting(m, narrow), Setting(m, wide)) for narrow, wide in pairwise(BANDWIDTHS) for m in MARGINS]
        return np.asarray(np.min([r_eff(wide)(means) - r_eff(narrow)(means) for narrow, wide in steps], axis=0))

    def spread(measure: Callable[[Setting], Statistic], settings: Sequence[Setting], means: Means) -> Array:
        return np.asarray(np.ptp([measure(setting)(means) for setting in settings], axis=0))

    def listed(measure: Callable[[Setting], Statistic], settings: Sequence[Setting], digits: int) -> str:
        values = {setting: sums.value(measure(setting)) for setting in settings}
        return ", ".join(f"({m:g}, {tau:g}) {value:.{digits}f}" for (m, tau), value in values.items())

    rise = sums.interval(least_rise)
    excess = sums.interval(lambda means: spread(r_eff, OVER_TAU, means) - spread(r_eff, OVER_M, means))
    by_m, by_tau = (partial(spread, high_weight_percent, settings) for settings in (OVER_M, OVER_TAU))
    below = sums.interval(lambda means: NEARLY_UNCHANGED * by_tau(means) - by_m(means))
    texts = {
        "wider-counts-more": f"R_eff at {listed(r_eff, WEIGHED, 3)}; the smallest rise from one tau to the next is "
        f"{_text(rise, 3)}.",
        "tau-moves-more": "The range of R_eff over tau at m = 1 exceeds its range over m at tau = 1 by "
        f"{_text(excess, 3)}.",
        "margin-moves-little": f"Percent of tokens with a weight above {HIGH_WEIGHT} at "
        f"{listed(high_weight_percent, [*OVER_M, *OVER_TAU[1:]], 2)}; tested is whether its range over m at tau = 1, "
        f"{sums.value(by_m):.2f}, is below {NEARLY_UNCHANGED:g} of its range over tau at m = 1, "
        f"{sums.value(by_tau):.2f} (the paper's: 0.77 and 51.50); the bound minus the range: {_text(below, 2)}.",
    }
    intervals = (rise, excess, below)
    return {name: Judgement(verdict_of(one), texts[name]) for name, one in zip(texts, intervals, strict=True)}


def _masses(table: TokenTable) -> dict[str, Judgement]:
    """Judge where the gradient of the half trims lies."""
    sums, lows = mass_sums(table), {setting: mass_percent("low", setting, "trim-h") for setting in PAPER_MASS}
    pairs = [[mass_percent("high", setting, name) for name in ("trim-e", "trim")] for setting in PAPER_MASS]
    half = sums.interval(lambda means: np.min([low(means) for low in lows.values()], axis=0) - 50)
    cut = sums.interval(lambda means: np.min([easy(means) - both(means) for easy, both in pairs], axis=0))
    listed = ", ".join(f"m {setting.margin:g}: {sums.value(low):.1f} %" for setting, low in lows.items())
    low_text = f"{listed}; the smallest exceeds 50 % by {_text(half, 1)} points."
    high_text = f"The smallest difference over m is {_text(cut, 1)} points."
    return {
        "hard-half-is-low": Judgement(verdict_of(half), low_text),
        "less-high": Judgement(verdict_of(cut), high_text),
    }


def _categories(table: TokenTable) -> dict[str, Judgement]:
    """Judge whether TrimSFT moves gradient to numbers and symbols."""
    sft = table["gradient_norm"].astype(np.float64)
    masses = {"sft": sft, "trim": weights_of(TrimSFT(1.0, 1.0), table) * sft}
    kinds = {name: table["category"] == number for number, name in enumerate(CATEGORIES)}
    sums = ByExample(table, (((of, name), masses[of] * kinds[name]) for name in CATEGORIES for of in masses))

    def gain(name: str, means: Means) -> Array:
        trim, plain = (
            means[of, name] / sum(means[of, other] for other in CATEGORIES)  # shares of the gradient
            for of in ("trim", "sft")
        )
        return np.asarray(100 * (trim - plain))

    least = sums.interval(lambda means: np.min([gain(name, means) for name in ("numeric", "symbol")], axis=0))
    listed = ", ".join(f"{name} {_text(sums.interval(partial(gain, name)), 1)}" for name in CATEGORIES)
    text = f"Share of the gradient under TrimSFT (1, 1) minus that under SFT, in points: {listed}."
    return {"towards-mathematics": Judgement(verdict_of(least), text)}


def _gaps(tables: Tables) -> dict[str, Judgement]:
    """Judge whether one method has a larger mean gap than another, or more gaps below the band."""
    pairs = {"sft-shifts-right": ("sft", BASE), "fsft-keeps-small": ("fsft", "sft"), "trim-fewer-small": (BASE, "trim")}
    judged = {}
    for name, (more, less) in pairs.items():
        if more not in tables or less not in tables:
            continue
        is_mean = name == "sft-shifts-right"
        gaps = [tables[one]["gap"].astype(np.float64) for one in (more, less)]
        one, other = gaps if is_mean else [100.0 * (gap < EDGE) for gap in gaps]
        columns = [("tokens", np.ones_like(one)), ("difference", one - other)]
        difference = ByExample(tables[more], columns).interval(ratio("difference", "tokens"))
        what, unit = ("mean gap", "") if is_mean else (f"percent of gaps below {EDGE:.1f}", " points")
        text = (
            f"{what}, {method_name(more)} minus {method_name(less)}: {_text(difference, 2 if is_mean else 1)}{unit}; "
            "one training (seed 0) of each, interval over examples alone."
        )
        judged[name] = Judgement(verdict_of(difference), text)
    return judged


def _text(interval: Interval, digits: int) -> str:
    """Return -1.0 [-2.0, +0.5]; "-" for what there is not, and no interval of a single example."""
    value, low, high = (rounded(end, digits, "+") or "-" for end in (interval.value, interval.low, interval.high))
    return value if math.isnan(interval.low) else f"{value} [{low}, {high}]"


# ---- the claims, and who judges each


_above_sft, _small = partial(_above, high="trim", low="sft"), f"gaps below {EDGE:.1f}"
STATEMENTS = {
    "trim-above-sft": ("main", "TrimSFT is above SFT on every model."),
    "trim-best": ("main", "TrimSFT has the best average on most models (five of six)."),
    "fsft-below-sft": ("main", "FSFT falls below SFT."),
    "more-passes": ("passes", "TrimSFT solves more problems in {samples} attempts than SFT."),
    "better-votes": ("passes", "TrimSFT's majority of {samples} is right more often than SFT's."),
    "tau-over-m": ("ablation", "The bandwidth tau matters more than the margin m."),
    "narrow-above-sft": ("ablation", "With tau = 1 TrimSFT stays above SFT at every margin."),
    "hard-half-below-sft": ("half-trims", "TrimSFT-H, which trims the easy side only, collapses below SFT."),
    "easy-half": ("half-trims", "TrimSFT-E keeps up with TrimSFT on easy problems, falls behind on the hardest."),
    "wider-counts-more": ("weights", "R_eff rises with tau towards SFT's 1."),
    "tau-moves-more": ("weights", "tau controls the selectivity: it moves R_eff more than m does."),
    "margin-moves-little": ("weights", "m from 1 to 6 at tau = 1 leaves the share of high weights nearly unchanged."),
    "hard-half-is-low": ("gradient-mass", "Most of TrimSFT-H's gradient lies in the low-gap region."),
    "less-high": ("gradient-mass", "TrimSFT has less gradient in the high-gap region than TrimSFT-E."),
    "towards-mathematics": ("categories", "TrimSFT moves gradient to numbers and symbols."),
    "sft-shifts-right": ("gaps", "SFT moves gaps to the right of the base's."),
    "fsft-keeps-small": ("gaps", f"FSFT leaves more small gaps ({_small}) than SFT."),
    "trim-fewer-small": ("gaps", f"TrimSFT leaves fewer small gaps ({_small}) than the base."),
}
"""Claim -> the study that it is about, and what the paper says."""
OF_SCORES: dict[str, Callable[[Summaries, str], Judgement | None]] = {
    "trim-above-sft": _above_sft,
    "trim-best": _best,
    "fsft-below-sft": partial(_above, high="sft", low="fsft"),
    "more-passes": partial(_above_sft, metric="pass@{samples}"),
    "better-votes": partial(_above_sft, metric="majority@{samples}"),
    "tau-over-m": _tau_over_m,
    "narrow-above-sft": _narrow_above_sft,
    "hard-half-below-sft": _hard_half_below,
    "easy-half": _easy_half,
}
