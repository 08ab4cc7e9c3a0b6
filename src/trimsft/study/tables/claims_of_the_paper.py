"""What the paper claims of scores, held against results: holds, does not hold, or cannot be told.

for claim in score_claims(summarise(load_results(cells, out))):
    print(claim.verdict, claim.sentence)

A verdict goes by the interval of a paired difference (same problems, same seeds): it must leave out 0. A claim about
several models holds where it holds for each, and does not where it does not for one. What was not run is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from trimsft.objectives import PARAMETERS
from trimsft.scoring.intervals import Interval
from trimsft.study.tables.beside_the_paper import DEFAULT_BAND
from trimsft.study.tables.summaries import NAMES, Setting, Summary, in_common, mean_difference, paired
from trimsft.study.tables.variance import RESAMPLES, Sensitivity, sensitivity, verdict_of

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told"
Summaries = Mapping[Setting, Summary]


@dataclass(frozen=True)
class Claim:
    """One claim, and what the results say to it."""

    study: str
    name: str
    statement: str
    """What the paper says."""
    source: str
    """Where: the label of a table, figure or section."""
    verdict: str
    """holds, does not hold, cannot be told."""
    sentence: str
    """The numbers behind the verdict."""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def score_claims(summaries: Summaries) -> list[Claim]:
    """All that the finished cells can be held against."""
    makers: tuple[Callable[[Summaries], Claim | None], ...] = (
        *(_trim_above_sft, _trim_best, _fsft_below, _more_passes, _better_votes),
        *(_tau_over_m, _narrow_bands_above_sft, _hard_half_below, _easy_half),
    )
    return [claim for make in makers if (claim := make(summaries)) is not None]


# ---- Table 1 and Figure 2


def _trim_above_sft(summaries: Summaries) -> Claim | None:
    statement = "TrimSFT is above SFT on every model."
    return _above(summaries, ("main", "trim-above-sft", statement, "tab:main"), "trim", "sft", "average")


def _fsft_below(summaries: Summaries) -> Claim | None:
    return _above(summaries, ("main", "fsft-below-sft", "FSFT falls below SFT.", "tab:main"), "sft", "fsft", "average")


def _more_passes(summaries: Summaries) -> Claim | None:
    told = (
        "passes",
        "more-passes",
        "TrimSFT solves more problems in {samples} attempts than SFT.",
        "fig:passk_results",
    )
    return _above(summaries, told, "trim", "sft", "pass@{samples}")


def _better_votes(summaries: Summaries) -> Claim | None:
    told = (
        "passes",
        "better-votes",
        "TrimSFT's majority of {samples} is right more often than SFT's.",
        "fig:passk_results",
    )
    return _above(summaries, told, "trim", "sft", "majority@{samples}")


def _trim_best(summaries: Summaries) -> Claim | None:
    """The best of the methods of Table 1, on most models."""
    verdicts, parts = [], []
    for model in _models(summaries):
        of_model = {name: _main(summaries, model, name) for name in ("base", "sft", "fsft", "dft", "trim")}
        trim = of_model.pop("trim")
        others = [summary for summary in of_model.values() if summary is not None]
        if trim is None or of_model["sft"] is None or len(others) < 2 or not in_common([trim, *others]):
            continue
        verdict, told = _best(trim, others)
        verdicts.append(verdict)
        parts.append(f"{model}: {told}")
    if not verdicts:
        return None
    most = len(verdicts) / 2
    verdict = OPEN
    if verdicts.count(HOLDS) > most:
        verdict = HOLDS
    elif verdicts.count(FAILS) >= most:
        verdict = FAILS
    statement = "TrimSFT has the best average on most models (five of six)."
    return Claim("main", "trim-best", statement, "tab:main", verdict, f"{'; '.join(parts)}.")


def _best(trim: Summary, rivals: Sequence[Summary]) -> tuple[str, str]:
    """Holds where it is above each rival, which needs no correction, as all must agree; does not hold where one is
    above it by an interval widened for the number of rivals (Bonferroni): the best of several is partly the luckiest.
    """
    names = in_common([trim, *rivals])
    best = max(rivals, key=lambda summary: summary.interval("average", *names).value)
    told = f"TrimSFT {_against(trim, best)}, {_points(paired(trim, best, 'average', *names))}"
    if all(verdict_of(paired(trim, rival, "average", *names)) == HOLDS for rival in rivals):
        return HOLDS, told
    wide = [paired(trim, rival, "average", *names, tests=len(rivals)) for rival in rivals]
    lowest = min(wide, key=lambda difference: difference.high)
    if lowest.value < 0:
        told += f", corrected for {len(rivals)} rivals {_points(lowest)}"
    return FAILS if lowest.high < 0 else OPEN, told


# ---- margin and bandwidth


def sensitivity_of(
    summaries: Sequence[Summary], metric: str = "average", *, resamples: int = RESAMPLES
) -> Sensitivity | None:
    """Of trimmed settings that differ in nothing but margin and bandwidth; None where there are too few."""
    kept = _connected(summaries)
    margins, bandwidths = ({s.setting.get(name) for s in kept} for name in ("margin", "bandwidth"))
    if len(margins) < 2 or len(bandwidths) < 2 or len(kept) < 4:
        return None
    names = in_common(kept)
    if not names:
        return None
    scores = {
        summary.setting.band or DEFAULT_BAND: [
            [run[name].values(metric) for name in names] for run in summary.with_all(names).values()
        ]
        for summary in kept
    }
    return sensitivity(scores, resamples=resamples)


def _connected(summaries: Sequence[Summary]) -> list[Summary]:
    """Without those that share neither margin nor bandwidth with any other: they cannot tell one from the other."""
    bands = [summary.setting.band or DEFAULT_BAND for summary in summaries]
    return [
        summary
        for summary, band in zip(summaries, bands, strict=True)
        if any((band[0] == other[0]) != (band[1] == other[1]) for other in bands)
    ]


def plane(summaries: Summaries, model: str, objective: str = "trim") -> list[Summary]:
    """All (m, tau) of a model that differ in nothing else."""
    return [
        summary
        for setting, summary in summaries.items()
        if setting.model == model and setting.objective == objective and len(setting.fields) == 2
    ]


def _tau_over_m(summaries: Summaries) -> Claim | None:
    verdicts, parts = [], []
    for model in _models(summaries):
        found = sensitivity_of(plane(summaries, model))
        if found is not None:
            verdicts.append(found.verdict)
            parts.append(f"{model}: {found.sentence()}")
    if not verdicts:
        return None
    statement = "The bandwidth tau matters more than the margin m."
    return Claim("ablation", "tau-over-m", statement, "fig:ablation", _all(verdicts), " ".join(parts))


def _narrow_bands_above_sft(summaries: Summaries) -> Claim | None:
    """At tau = 1, every margin."""
    verdicts, parts = [], []
    for model in _models(summaries):
        sft = summaries.get(Setting(model, "sft"))
        bands = [s for s in plane(summaries, model) if s.setting.get("bandwidth") == 1.0]
        if sft is None or len(bands) < 2 or not (names := in_common([sft, *bands])):
            continue
        differences = {s.setting.get("margin"): paired(s, sft, "average", *names) for s in bands}
        verdicts.append(_all([verdict_of(difference) for difference in differences.values()]))
        told = ", ".join(f"m {margin:g}: {_points(found)}" for margin, found in sorted(differences.items()))
        parts.append(f"{model}, against SFT: {told}")
    statement = "With tau = 1 TrimSFT stays above SFT at every margin."
    return _claim("ablation", "narrow-above-sft", statement, "fig:ablation", verdicts, parts)


# ---- half trims


def _hard_half_below(summaries: Summaries) -> Claim | None:
    verdicts, parts = [], []
    for model in _models(summaries):
        sft, halves = summaries.get(Setting(model, "sft")), plane(summaries, model, "trim-h")
        if sft is None or not halves or not in_common([sft, *halves]):
            continue
        difference = mean_difference([(sft, half) for half in halves])
        verdicts.append(verdict_of(difference))
        parts.append(f"{model}: SFT minus TrimSFT-H, over {_margins(halves)}: {_points(difference)}")
    statement = "TrimSFT-H, which trims the easy side only, collapses below SFT."
    return _claim("half-trims", "hard-half-below-sft", statement, "tab:variants", verdicts, parts)


def _easy_half(summaries: Summaries) -> Claim | None:
    """Competitive where problems are easy, worse where they are hard."""
    verdicts, parts = [], []
    for model in _models(summaries):
        pairs = _pairs(summaries, model, "trim-e", "trim")
        names = in_common(summary for pair in pairs for summary in pair) if pairs else ()
        if len(names) < 2:
            continue
        ranked = sorted(names, key=lambda name: -_mean([b for _, b in pairs], name))
        easy, hard = (mean_difference(pairs, "average", name) for name in (ranked[0], ranked[-1]))
        if easy.high < 0 or hard.low > 0:
            verdicts.append(FAILS)
        else:
            verdicts.append(HOLDS if hard.high < 0 else OPEN)
        parts.append(
            f"{model}: TrimSFT-E minus TrimSFT, over {_margins([a for a, _ in pairs])}: {_points(easy)} on "
            f"{ranked[0]}, the easiest, {_points(hard)} on {ranked[-1]}, the hardest"
        )
    statement = "TrimSFT-E keeps up with TrimSFT on easy problems and falls behind on the hardest."
    return _claim("half-trims", "easy-half", statement, "tab:variants", verdicts, parts)


# ---- parts


def _above(summaries: Summaries, told: tuple[str, str, str, str], high: str, low: str, metric: str) -> Claim | None:
    """That one method of Table 1 is above another."""
    verdicts, parts, samples = [], [], set()
    for model in _models(summaries):
        a, b = (_main(summaries, model, name) for name in (high, low))
        if a is None or b is None or not (names := in_common([a, b])):
            continue
        samples.add(min(a.samples, b.samples))
        name = metric.format(samples=min(a.samples, b.samples))
        difference = paired(a, b, name, *names)
        verdicts.append(verdict_of(difference))
        once = "" if min(a.seeds, b.seeds) > 1 else ", one training each"
        parts.append(f"{model}: {NAMES[high]} {_against(a, b, name)}, {_points(difference)}{once}")
    study, key, statement, source = told
    statement = statement.format(samples=" or ".join(map(str, sorted(samples))))
    return _claim(study, key, statement, source, verdicts, parts)


def _claim(
    study: str, name: str, statement: str, source: str, verdicts: Sequence[str], parts: Sequence[str]
) -> Claim | None:
    return Claim(study, name, statement, source, _all(verdicts), f"{'; '.join(parts)}.") if verdicts else None


def _all(verdicts: Sequence[str]) -> str:
    if FAILS in verdicts:
        return FAILS
    return OPEN if OPEN in verdicts else HOLDS


def _models(summaries: Summaries) -> list[str]:
    return list(dict.fromkeys(setting.model for setting in summaries))


def _main(summaries: Summaries, model: str, objective: str) -> Summary | None:
    """As Table 1 has it: with the default parameters."""
    for setting, summary in summaries.items():
        is_default = all(PARAMETERS.get(name) == value for name, value in setting.fields)
        if (setting.model, setting.objective) == (model, objective) and is_default:
            return summary
    return None


def _pairs(summaries: Summaries, model: str, objective: str, other: str) -> list[tuple[Summary, Summary]]:
    """Both with the same band."""
    others = {summary.setting.band: summary for summary in plane(summaries, model, other)}
    found = plane(summaries, model, objective)
    return [(summary, others[summary.setting.band]) for summary in found if summary.setting.band in others]


def _mean(summaries: Sequence[Summary], benchmark: str) -> float:
    return sum(summary.interval("average", benchmark).value for summary in summaries) / len(summaries)


def _margins(summaries: Sequence[Summary]) -> str:
    values = sorted({float(summary.setting.get("margin")) for summary in summaries})
    return f"margin{'' if len(values) == 1 else 's'} {', '.join(f'{value:g}' for value in values)}"


def _against(a: Summary, b: Summary, metric: str = "average") -> str:
    names = in_common([a, b])
    ours, theirs = (100 * summary.interval(metric, *names).value for summary in (a, b))
    return f"{ours:.1f}, {NAMES[b.setting.objective]} {theirs:.1f}"


def _points(difference: Interval) -> str:
    value, low, high = (100 * bound for bound in (difference.value, difference.low, difference.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
