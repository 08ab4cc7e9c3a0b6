"""The paper's claims, held against results: each holds, does not hold, or cannot be told.

for claim in judge_claims(summarise(load_results(cells, out)), token_tables):
    print(claim.verdict, claim.sentence)

A verdict goes by the 95 % interval of a difference, which must leave out 0: paired by problem and seed for scores, over
examples for tokens. Each model is judged by itself. What was not run is not judged. Tokens have one training of each
method: what another seed would give is in no interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from trimsft.intervals import Array
from trimsft.objectives import BANDWIDTH, MARGIN, TrimSFT
from trimsft.objectives.paper import Setting
from trimsft.study import results
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.study.paper import claims as claims_of_the_paper
from trimsft.study.results import FAILS, HOLDS, OPEN, Summaries, Summary, percent_text, plane, verdict_of
from trimsft.study.studies import STUDIES
from trimsft.tables import rounded
from trimsft.tokens import statistics
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import PAPER_MASS, PAPER_SETTINGS, ByExample, Means, Statistic, r_eff, ratio, weight_sums
from trimsft.tokens.table import TokenTable

LEAST_EXAMPLES = 10  # with fewer nothing is judged: resampling them knows little of others
NEARLY_UNCHANGED = 0.1
"""A share of the range over tau; a bound of ours: the paper names none, and its High-Weight moves by 0.77 of 51.50."""
OVER_M = [setting for setting in PAPER_SETTINGS if setting.bandwidth == 1]
OVER_TAU = [setting for setting in PAPER_SETTINGS if setting.margin == 1]
EDGE = MARGIN - BANDWIDTH  # gaps below are small ones, which the paper's sentences name

Tables: TypeAlias = Mapping[str, TokenTable]  # by objective, all of the same tokens
Judgement: TypeAlias = tuple[str, str]  # the verdict on one model, and its numbers


@dataclass(frozen=True)
class Claim:
    """One claim, and what the results say to it."""

    study: str
    name: str
    model: str
    statement: str
    source: str  # where the paper says so: the label of the study's first table or figure
    verdict: str  # HOLDS, FAILS or OPEN
    sentence: str  # the numbers behind the verdict


def judge_claims(summaries: Summaries, tables: Mapping[str, Tables] | None = None) -> list[Claim]:
    """Judge every claim on every model, by scores, and token tables by model and objective."""
    by_model = tables or {}
    models = dict.fromkeys([*(setting.model for setting in summaries), *by_model])
    samples, claims = str(min((summary.samples for summary in summaries.values()), default=8)), []
    for name, (study, statement) in claims_of_the_paper().items():
        statement, source = statement.format(samples=samples), STUDIES[study].paper[0]
        for model in models:
            if (judgement := _judge(name, summaries, model, by_model.get(model, {}))) is not None:
                verdict, sentence = judgement
                claims.append(Claim(study, name, model, statement, source, verdict, f"{model}: {sentence}."))
    return claims


def _judge(name: str, summaries: Summaries, model: str, tables: Tables) -> Judgement | None:
    """Return the verdict on one model; None where something was not run."""
    if name in OF_SCORES:
        return OF_SCORES[name](summaries, model)
    judge, objectives = OF_TOKENS[name]
    if any(one not in tables for one in objectives):
        return None
    examples = min(tables[one].example_count for one in objectives)
    if examples < LEAST_EXAMPLES:
        return OPEN, f"{examples} examples, fewer than {LEAST_EXAMPLES}, tell too little"
    return judge(*(tables[one] for one in objectives))


def _where_all(verdicts: Sequence[str]) -> str:
    return next((verdict for verdict in (FAILS, OPEN) if verdict in verdicts), HOLDS)


# ---- scores: Table 1 and Figure 2


def _main(summaries: Summaries, model: str, objective: str) -> Summary | None:
    """Return the summary with the default parameters, as Table 1 has it."""
    return summaries.get(Cell(model=model, objective=objective))


def _above(
    summaries: Summaries, model: str, *, high: str = "trim", low: str = "sft", metric: str = "average"
) -> Judgement | None:
    """Judge whether one method of Table 1 is above another; `metric` may name {samples}."""
    a, b = (_main(summaries, model, name) for name in (high, low))
    if a is None or b is None:
        return None
    difference = results.paired(a, b, metric.format(samples=min(a.samples, b.samples)))
    once = "" if min(a.seeds, b.seeds) > 1 else ", one training each"
    return verdict_of(difference), f"{_minus(a, b)} {percent_text(difference, '+')}{once}"


def _best(summaries: Summaries, model: str) -> Judgement | None:
    """Judge TrimSFT against each rival: it must be above all, and fails where one is above it."""
    trim, *others = (_main(summaries, model, name) for name in ("trim", "sft", "base", "fsft", "dft"))
    rivals = [summary for summary in others if summary is not None]
    if trim is None or others[0] is None or len(rivals) < 2:
        return None
    differences = {rival.setting: results.paired(trim, rival) for rival in rivals}
    best = max(rivals, key=lambda summary: summary.interval("average").value)
    verdict = _where_all([verdict_of(difference) for difference in differences.values()])
    return verdict, f"{_minus(trim, best)} {percent_text(differences[best.setting], '+')}"


def _minus(a: Summary, b: Summary) -> str:
    return f"{method_name(a.setting.objective)} minus {method_name(b.setting.objective)}:"


# ---- scores: margin and bandwidth, half trims


def _tau_over_m(summaries: Summaries, model: str) -> Judgement | None:
    difference = results.tau_over_m(plane(summaries, model))
    if difference is None:
        return None
    what = "standard deviation of the score over tau minus that over m, in points:"
    return verdict_of(difference), f"{what} {percent_text(difference, '+')}"


def _narrow_above_sft(summaries: Summaries, model: str) -> Judgement | None:
    sft = _main(summaries, model, "sft")
    bands = [s for s in plane(summaries, model) if s.setting.get("bandwidth") == 1.0]
    if sft is None or len(bands) < 2:
        return None
    differences = {s.setting.get("margin"): results.paired(s, sft) for s in bands}
    listed = ", ".join(f"m {margin:g}: {percent_text(one, '+')}" for margin, one in sorted(differences.items()))
    return _where_all([verdict_of(one) for one in differences.values()]), f"against SFT, {listed}"


def _hard_half_below(summaries: Summaries, model: str) -> Judgement | None:
    sft, halves = _main(summaries, model, "sft"), plane(summaries, model, "trim-h")
    if sft is None or not halves:
        return None
    difference = results.mean_difference([(sft, half) for half in halves])
    text = f"SFT minus TrimSFT-H, over {len(halves)} margins: {percent_text(difference, '+')}"
    return verdict_of(difference), text


def _easy_half(summaries: Summaries, model: str) -> Judgement | None:
    trims = {summary.setting.band: summary for summary in plane(summaries, model)}
    halves = [summary for summary in plane(summaries, model, "trim-e") if summary.setting.band in trims]
    pairs = [(half, trims[half.setting.band]) for half in halves]
    if not pairs or len(pairs[0][0].benchmarks) < 2:
        return None
    hardest, *_, easiest = sorted(
        pairs[0][0].benchmarks, key=lambda name: sum(trim.interval("average", name).value for _, trim in pairs)
    )
    easy, hard = (results.mean_difference(pairs, "average", name) for name in (easiest, hardest))
    text = (
        f"TrimSFT-E minus TrimSFT, over {len(pairs)} margins: {percent_text(easy, '+')} on {easiest}, the easiest, "
        f"{percent_text(hard, '+')} on {hardest}, the hardest"
    )
    if easy.high < 0 or hard.low > 0:
        return FAILS, text
    return HOLDS if hard.high < 0 else OPEN, text


# ---- tokens: a statistic of them must be above 0


def _judged(what: str, sums: ByExample, statistic: Statistic, digits: int) -> Judgement:
    interval = sums.interval(statistic)
    value, low, high = (rounded(end, digits, "+") or "-" for end in (interval.value, interval.low, interval.high))
    return verdict_of(interval), f"{what} {value} [{low}, {high}]"


def _least(differences: Sequence[tuple[Statistic, Statistic]]) -> Statistic:
    return lambda means: np.asarray(np.min([one(means) - other(means) for one, other in differences], axis=0))


def _range(measure: Callable[[Setting], Statistic], settings: Sequence[Setting]) -> Statistic:
    return lambda means: np.asarray(np.ptp([measure(setting)(means) for setting in settings], axis=0))


def _wider_counts_more(base: TokenTable) -> Judgement:
    steps = [(Setting(m, wide), Setting(m, narrow)) for m in (1, 6) for narrow, wide in ((1, 3), (3, 6))]
    rises = _least([(r_eff(wide), r_eff(narrow)) for wide, narrow in steps])
    return _judged(
        "the smallest rise of R_eff from one tau to the next is", weight_sums(base, PAPER_SETTINGS), rises, 3
    )


def _tau_moves_more(base: TokenTable) -> Judgement:
    excess = _least([(_range(r_eff, OVER_TAU), _range(r_eff, OVER_M))])
    what = "the range of R_eff over tau at m = 1 exceeds its range over m at tau = 1 by"
    return _judged(what, weight_sums(base, PAPER_SETTINGS), excess, 3)


def _margin_moves_little(base: TokenTable) -> Judgement:
    sums = weight_sums(base, PAPER_SETTINGS)
    by_m, by_tau = (_range(statistics.high_weight_percent, settings) for settings in (OVER_M, OVER_TAU))
    ranges = f"range over m at tau = 1, {sums.value(by_m):.2f}, over tau at m = 1, {sums.value(by_tau):.2f}"
    what = f"{ranges} (the paper's: 0.77 and 51.50); {NEARLY_UNCHANGED:g} of the second minus the first:"
    return _judged(what, sums, lambda means: NEARLY_UNCHANGED * by_tau(means) - by_m(means), 2)


def _hard_half_is_low(base: TokenTable) -> Judgement:
    half = _least(
        [(statistics.mass_percent("low", one, "trim-h"), lambda means: np.asarray(50.0)) for one in PAPER_MASS]
    )
    return _judged("of the three margins the smallest exceeds 50 % by", statistics.mass_sums(base), half, 1)


def _less_high(base: TokenTable) -> Judgement:
    pairs = [[statistics.mass_percent("high", one, name) for name in ("trim-e", "trim")] for one in PAPER_MASS]
    cut = _least([(easy, both) for easy, both in pairs])
    return _judged("the smallest difference over m in points:", statistics.mass_sums(base), cut, 1)


def _towards_mathematics(base: TokenTable) -> Judgement:
    sft = base["gradient_norm"].astype(np.float64)
    masses = {"sft": sft, "trim": statistics.weights_of(TrimSFT(1.0, 1.0), base) * sft}
    kinds = {name: base["category"] == number for number, name in enumerate(CATEGORIES)}
    sums = ByExample(base, (((of, name), masses[of] * kinds[name]) for name in CATEGORIES for of in masses))

    def share(of: str, name: str, means: Means) -> Array:
        return np.asarray(100 * means[of, name] / sum(means[of, other] for other in CATEGORIES))

    gains = _least([(partial(share, "trim", one), partial(share, "sft", one)) for one in ("numeric", "symbol")])
    return _judged("the smaller gain in percent of the gradient, by TrimSFT (1, 1) over SFT, is", sums, gains, 1)


def _moved_right(more: TokenTable, less: TokenTable) -> Judgement:
    """Judge whether the first has a larger mean gap."""
    difference = more["gap"].astype(np.float64) - less["gap"]
    return _judged("mean gap, the first minus the second:", *_mean(more, difference), 2)


def _smaller(more: TokenTable, less: TokenTable) -> Judgement:
    """Judge whether the first has more gaps below the band."""
    difference = 100.0 * (more["gap"] < EDGE) - 100.0 * (less["gap"] < EDGE)
    what = f"percent of gaps below {EDGE:.1f}, the first minus the second:"
    return _judged(what, *_mean(more, difference), 1)


def _mean(table: TokenTable, values: Array) -> tuple[ByExample, Statistic]:
    columns = [("tokens", np.ones(len(table))), ("value", values.astype(np.float64))]
    return ByExample(table, columns), ratio("value", "tokens")


# ---- the claims, and who judges each


OF_SCORES: dict[str, Callable[[Summaries, str], Judgement | None]] = {
    "trim-above-sft": _above,
    "trim-best": _best,
    "fsft-below-sft": partial(_above, high="sft", low="fsft"),
    "more-passes": partial(_above, metric="pass@{samples}"),
    "better-votes": partial(_above, metric="majority@{samples}"),
    "tau-over-m": _tau_over_m,
    "narrow-above-sft": _narrow_above_sft,
    "hard-half-below-sft": _hard_half_below,
    "easy-half": _easy_half,
}
OF_TOKENS: dict[str, tuple[Callable[..., Judgement], tuple[str, ...]]] = {
    "wider-counts-more": (_wider_counts_more, (BASE,)),
    "tau-moves-more": (_tau_moves_more, (BASE,)),
    "margin-moves-little": (_margin_moves_little, (BASE,)),
    "hard-half-is-low": (_hard_half_is_low, (BASE,)),
    "less-high": (_less_high, (BASE,)),
    "towards-mathematics": (_towards_mathematics, (BASE,)),
    "sft-shifts-right": (_moved_right, ("sft", BASE)),
    "fsft-keeps-small": (_smaller, ("fsft", "sft")),
    "trim-fewer-small": (_smaller, (BASE, "trim")),
}
"""Claim -> who judges it, and the objectives whose token tables are taken."""
