"""What the paper claims of scores, held against results: holds, does not hold, or cannot be told.

for claim in score_claims(summarise(load_results(cells, out))):
    print(claim.verdict, claim.sentence)

A verdict goes by the interval of a paired difference (same problems, same seeds): it must leave out 0. A claim about
several models holds where it holds for each, and does not where it does not for one. What was not run is not judged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trimsft.study.cell import Cell, method_name
from trimsft.study.results import Summaries, Summary, in_common, mean_difference, paired, percent_text
from trimsft.study.studies import STUDIES
from trimsft.study.variance import FAILS, HOLDS, OPEN, sensitivity_of, verdict_of

STATEMENTS = {
    "trim-above-sft": ("main", "TrimSFT is above SFT on every model."),
    "trim-best": ("main", "TrimSFT has the best average on most models (five of six)."),
    "fsft-below-sft": ("main", "FSFT falls below SFT."),
    "more-passes": ("passes", "TrimSFT solves more problems in {samples} attempts than SFT."),
    "better-votes": ("passes", "TrimSFT's majority of {samples} is right more often than SFT's."),
    "tau-over-m": ("ablation", "The bandwidth tau matters more than the margin m."),
    "narrow-above-sft": ("ablation", "With tau = 1 TrimSFT stays above SFT at every margin."),
    "hard-half-below-sft": ("half-trims", "TrimSFT-H, which trims the easy side only, collapses below SFT."),
    "easy-half": ("half-trims", "TrimSFT-E keeps up with TrimSFT on easy problems and falls behind on the hardest."),
    "wider-counts-more": ("weights", "R_eff rises with tau towards SFT's 1."),
    "tau-moves-more": ("weights", "tau controls the selectivity: it moves R_eff more than m does."),
    "margin-moves-little": (
        "weights",
        "m from 1 to 6 at tau = 1 leaves the share of high-weight tokens nearly unchanged.",
    ),
    "hard-half-is-low": ("gradient-mass", "Most of TrimSFT-H's gradient lies in the low-gap region."),
    "less-high": ("gradient-mass", "TrimSFT has less gradient in the high-gap region than TrimSFT-E."),
    "towards-mathematics": ("categories", "TrimSFT moves gradient to numbers and symbols."),
    "sft-shifts-right": ("gaps", "SFT moves gaps to the right of the base's."),
    "fsft-keeps-small": ("gaps", "FSFT leaves more small gaps ({small}) than SFT."),
    "trim-fewer-small": ("gaps", "TrimSFT leaves fewer small gaps ({small}) than the base."),
}
"""Claim -> the study that it is about, and what the paper says."""


@dataclass(frozen=True)
class Claim:
    """One claim, and what the results say to it."""

    study: str
    name: str
    statement: str
    source: str  # where the paper says so: the label of the study's first table or figure
    verdict: str  # HOLDS, FAILS or OPEN
    sentence: str  # the numbers behind the verdict


def make_claim(name: str, verdict: str, sentence: str, **values: str) -> Claim:
    """Return the claim with its verdict; `values` are what the statement leaves open."""
    study, statement = STATEMENTS[name]
    return Claim(study, name, statement.format(**values), STUDIES[study].paper[0], verdict, sentence)


@dataclass(frozen=True)
class _Judgement:
    """What the results of one model say."""

    verdict: str
    text: str
    samples: int | None = None  # how many the metric is over, where the statement names them


def _where_all(verdicts: Sequence[str]) -> str:
    if FAILS in verdicts:
        return FAILS
    return OPEN if OPEN in verdicts else HOLDS


def _where_most(verdicts: Sequence[str]) -> str:
    most = len(verdicts) / 2
    if verdicts.count(HOLDS) > most:
        return HOLDS
    return FAILS if verdicts.count(FAILS) >= most else OPEN


def score_claims(summaries: Summaries) -> list[Claim]:
    """Judge every claim that the finished cells have scores for."""
    models = list(dict.fromkeys(setting.model for setting in summaries))
    claims = []
    for name, judge in _JUDGES.items():
        judged = {model: one for model in models if (one := judge(summaries, model)) is not None}
        if not judged:
            continue
        combine = _where_most if name == "trim-best" else _where_all
        verdict = combine([one.verdict for one in judged.values()])
        sentence = "; ".join(f"{model}{one.text}" for model, one in judged.items()) + "."
        samples = sorted({one.samples for one in judged.values() if one.samples is not None})
        claims.append(make_claim(name, verdict, sentence, samples=" or ".join(map(str, samples))))
    return claims


# ---- Table 1 and Figure 2


def _above(summaries: Summaries, model: str, *, high: str, low: str, metric: str = "average") -> _Judgement | None:
    """Judge whether one method of Table 1 is above another; `metric` may name {samples}."""
    a, b = (_main(summaries, model, name) for name in (high, low))
    if a is None or b is None or not (names := in_common([a, b])):
        return None
    samples = min(a.samples, b.samples)
    metric = metric.format(samples=samples)
    difference = paired(a, b, metric, *names)
    once = "" if min(a.seeds, b.seeds) > 1 else ", one training each"
    text = f": {method_name(high)} {_against(a, b, metric)}, {percent_text(difference, '+')}{once}"
    return _Judgement(verdict_of(difference), text, samples)


def _best(summaries: Summaries, model: str) -> _Judgement | None:
    """Judge TrimSFT against each rival: it must be above all, which needs no correction; it fails where one is
    above it by an interval widened for the number of rivals (Bonferroni): the best of several is partly the luckiest.
    """
    trim, sft = (_main(summaries, model, name) for name in ("trim", "sft"))
    others = [_main(summaries, model, name) for name in ("base", "sft", "fsft", "dft")]
    rivals = [summary for summary in others if summary is not None]
    if trim is None or sft is None or len(rivals) < 2 or not (names := in_common([trim, *rivals])):
        return None
    best = max(rivals, key=lambda summary: summary.interval("average", *names).value)
    text = f": TrimSFT {_against(trim, best)}, {percent_text(paired(trim, best, 'average', *names), '+')}"
    if all(verdict_of(paired(trim, rival, "average", *names)) == HOLDS for rival in rivals):
        return _Judgement(HOLDS, text)
    wide = [paired(trim, rival, "average", *names, tests=len(rivals)) for rival in rivals]
    lowest = min(wide, key=lambda difference: difference.high)
    if lowest.value < 0:
        text += f", corrected for {len(rivals)} rivals {percent_text(lowest, '+')}"
    return _Judgement(FAILS if lowest.high < 0 else OPEN, text)


# ---- margin and bandwidth


def plane(summaries: Summaries, model: str, objective: str = "trim") -> list[Summary]:
    """Return all (m, tau) of a model that differ in nothing else."""
    return [
        summary
        for setting, summary in summaries.items()
        if setting.model == model and setting.objective == objective and len(setting.fields) == 2
    ]


def _tau_over_m(summaries: Summaries, model: str) -> _Judgement | None:
    found = sensitivity_of(plane(summaries, model))
    return None if found is None else _Judgement(found.verdict, f": {found.sentence().removesuffix('.')}")


def _narrow_bands_above_sft(summaries: Summaries, model: str) -> _Judgement | None:
    """At tau = 1, every margin."""
    sft = _main(summaries, model, "sft")
    bands = [s for s in plane(summaries, model) if s.setting.get("bandwidth") == 1.0]
    if sft is None or len(bands) < 2 or not (names := in_common([sft, *bands])):
        return None
    differences = {s.setting.get("margin"): paired(s, sft, "average", *names) for s in bands}
    listed = ", ".join(
        f"m {margin:g}: {percent_text(difference, '+')}" for margin, difference in sorted(differences.items())
    )
    return _Judgement(_where_all([verdict_of(one) for one in differences.values()]), f", against SFT: {listed}")


# ---- half trims


def _hard_half_below(summaries: Summaries, model: str) -> _Judgement | None:
    sft, halves = _main(summaries, model, "sft"), plane(summaries, model, "trim-h")
    if sft is None or not halves or not in_common([sft, *halves]):
        return None
    difference = mean_difference([(sft, half) for half in halves])
    text = f": SFT minus TrimSFT-H, over {_margins(halves)}: {percent_text(difference, '+')}"
    return _Judgement(verdict_of(difference), text)


def _easy_half(summaries: Summaries, model: str) -> _Judgement | None:
    """Judge the easy half: competitive where problems are easy, worse where they are hard."""
    trims = {summary.setting.band: summary for summary in plane(summaries, model)}
    halves = [summary for summary in plane(summaries, model, "trim-e") if summary.setting.band in trims]
    pairs = [(half, trims[half.setting.band]) for half in halves]
    names = in_common(summary for pair in pairs for summary in pair) if pairs else ()
    if len(names) < 2:
        return None

    def mean_of_trims(name: str) -> float:
        return sum(trim.interval("average", name).value for _, trim in pairs) / len(pairs)

    ranked = sorted(names, key=mean_of_trims, reverse=True)
    easy, hard = (mean_difference(pairs, "average", name) for name in (ranked[0], ranked[-1]))
    text = (
        f": TrimSFT-E minus TrimSFT, over {_margins(halves)}: {percent_text(easy, '+')} on {ranked[0]}, the easiest, "
        f"{percent_text(hard, '+')} on {ranked[-1]}, the hardest"
    )
    if easy.high < 0 or hard.low > 0:
        return _Judgement(FAILS, text)
    return _Judgement(HOLDS if hard.high < 0 else OPEN, text)


_TRIM_ABOVE_SFT = partial(_above, high="trim", low="sft")
_JUDGES: dict[str, Callable[[Summaries, str], _Judgement | None]] = {
    "trim-above-sft": _TRIM_ABOVE_SFT,
    "trim-best": _best,
    "fsft-below-sft": partial(_above, high="sft", low="fsft"),
    "more-passes": partial(_TRIM_ABOVE_SFT, metric="pass@{samples}"),
    "better-votes": partial(_TRIM_ABOVE_SFT, metric="majority@{samples}"),
    "tau-over-m": _tau_over_m,
    "narrow-above-sft": _narrow_bands_above_sft,
    "hard-half-below-sft": _hard_half_below,
    "easy-half": _easy_half,
}
"""(summaries, model) -> what they say; None where what it takes was not run."""


# ---- parts


def _main(summaries: Summaries, model: str, objective: str) -> Summary | None:
    """Return the summary with the default parameters, as Table 1 has it."""
    return summaries.get(Cell(model=model, objective=objective))


def _margins(summaries: Sequence[Summary]) -> str:
    values = sorted({float(summary.setting.get("margin")) for summary in summaries})
    return f"margin{'' if len(values) == 1 else 's'} {', '.join(f'{value:g}' for value in values)}"


def _against(a: Summary, b: Summary, metric: str = "average") -> str:
    names = in_common([a, b])
    ours, theirs = (100 * summary.interval(metric, *names).value for summary in (a, b))
    return f"{ours:.1f}, {method_name(b.setting.objective)} {theirs:.1f}"
