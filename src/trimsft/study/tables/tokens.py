"""The studies about tokens: their tables, and what the paper claims of tokens; intervals resample examples.

token_records("weights", "lab", {"base": table_of_the_base})
token_claims({"base": table_of_the_base, "sft": ..., "fsft": ..., "trim": ...})

Each method has one training: what another seed would give is in no interval here, and sentences say so. What a
handful of examples shows is not judged.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimsft.objectives import TrimSFT, make_objective
from trimsft.report.records import Records, Value
from trimsft.report.table import Cell, Table, rounded
from trimsft.report.tables import paper as paper_tables
from trimsft.report.tables.paper import paper_model
from trimsft.report.tables.tokens import confidences
from trimsft.scoring.intervals import Array, Interval
from trimsft.study.cells import BASE, method_name
from trimsft.study.tables.claims import Claim, make_claim
from trimsft.study.tables.scores import DEFAULT_BAND, STAND_IN
from trimsft.study.tables.variance import OPEN, verdict_of
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.intervals import PAPER_MASS, TRIMS, ByExample, effective
from trimsft.tokens.statistics.weighting import weights_of
from trimsft.tokens.table import TokenTable, aligned

BAND = {"margin": DEFAULT_BAND[0], "bandwidth": DEFAULT_BAND[1]}
_HEADINGS = {
    "objective": "",
    "high_weight": "weight above 0.5, %",
    "r_eff": "R_eff",
    "ratio": "of the tokens, %",
    "first_choice": "first choice, %",
    "low": "low gaps, %",
    "middle": "middle gaps, %",
    "high": "high gaps, %",
    "sft_mass": "SFT's gradient, %",
    "trim_mass": "TrimSFT's gradient, %",
}
"""As readers see columns; files for programs keep their names."""
MARGINS, BANDWIDTHS = (1.0, 6.0), (1.0, 3.0, 6.0)  # those of the paper's weight diagnostics; (3, 1) beside them
NEARLY_UNCHANGED = 0.1
"""A share of the range over tau; a bound of ours: the paper names none, and its High-Weight moves by 0.77 of 51.50."""
LEAST_EXAMPLES = 10  # with fewer nothing is judged: resampling them knows little of others


# ---- tables


def token_records(study: str, model: str, tables: Mapping[str, TokenTable]) -> Records:
    """The numbers of a study; `tables` by objective."""
    makers = {
        "weights": paper_tables.weights,
        "gradient-mass": paper_tables.masses,
        "categories": paper_tables.categories,
    }
    if study in makers:
        table = tables[BASE]
        examples = table.metadata.get("data", {}).get("rows", "unknown")
        return makers[study](table, f"{model}, {len(table):,} tokens of {examples} examples.")
    records = confidences({method_name(objective): table for objective, table in tables.items()}, BAND)
    note = "One training (seed 0) of each method, however many seeds were trained."
    return replace(records, notes=[*records.notes, note])


def token_table(records: Records, model: str) -> Table:
    """Rounded as `trimsft report` shows it; ours and the paper's in one column, to save width.

    Ours minus the paper's is shown where the model is the paper's: of another it says nothing.
    """
    is_same = paper_model(model) == STAND_IN
    kept = [
        name for name in records.columns if not name.endswith(("_paper", "_difference")) and not records.is_end(name)
    ]
    stems = [name.removesuffix("_ours") for name in kept]
    note = "In round brackets: the paper's, and ours minus it."
    if not is_same:
        note = f"In round brackets: the paper's, of {STAND_IN}, another model: for the pattern, not for the size."
    return Table(
        records.title,
        tuple(_HEADINGS.get(stem, stem.replace("_", " ")) for stem in stems),
        tuple(tuple(_cell(records, row, name, is_same) for name in kept) for row in records.rows),
        (*((note,) if kept != stems else ()), *records.notes),
    )


def _cell(records: Records, row: Mapping[str, Value], name: str, with_difference: bool) -> Cell:
    value, text = row[name], records.text(row, name)
    if value is None or isinstance(value, str):
        return Cell(method_name(text) if name == "objective" else text)
    data = None if math.isnan(value) else float(value)
    if not name.endswith("_ours"):
        return Cell(text, data=data)
    theirs, difference = (f"{name.removesuffix('ours')}{what}" for what in ("paper", "difference"))
    beside = [records.text(row, theirs), records.text(row, difference, "+") if with_difference else ""]
    paper = f"({', '.join(filter(None, beside))})"
    return Cell(text, " ".join(filter(None, (records.spread(row, name), paper))), data=data)


def finite(value: Value) -> Value:
    """JSON knows no NaN; of a category without tokens there is nothing to say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- claims


def token_claims(tables: Mapping[str, TokenTable]) -> list[Claim]:
    """`tables` by objective, "base" among them, all of the same tokens."""
    base = tables.get(BASE)
    claims = [] if base is None else [*_weight_claims(base), *_mass_claims(base), _category_claim(base)]
    claims += _gap_claims(tables)
    examples = min((table.example_count for table in tables.values()), default=0)
    if examples >= LEAST_EXAMPLES:
        return claims
    why = f"{examples} example{'' if examples == 1 else 's'}, fewer than {LEAST_EXAMPLES}, tell too little."
    return [replace(claim, verdict=OPEN, sentence=f"{claim.sentence} {why}") for claim in claims]


Setting = tuple[float, float]
Statistic = Callable[[Array, Setting], Array]  # (means over tokens [R, columns], (m, tau)) -> [R]


def _weight_claims(table: TokenTable) -> list[Claim]:
    """Columns: for each setting the weights, their squares, and which are above one half."""
    settings = [(m, tau) for m in MARGINS for tau in BANDWIDTHS] + [(3.0, 1.0)]

    def columns(part: TokenTable) -> Iterator[Array]:
        yield np.ones(len(part))
        for setting in settings:
            weights = weights_of(TrimSFT(*setting), part)
            yield from (weights, np.square(weights), np.where(weights > 0.5, 100.0, 0.0))

    sums = ByExample(table, columns)

    def ratio(means: Array, setting: Setting) -> Array:
        at = 1 + 3 * settings.index(setting)
        return effective(at, at + 1)(means)

    def high_percent(means: Array, setting: Setting) -> Array:
        return np.asarray(means[:, 3 + 3 * settings.index(setting)] / means[:, 0])

    def least_rise(means: Array) -> Array:
        steps = itertools.pairwise(BANDWIDTHS)
        rises = [ratio(means, (m, wide)) - ratio(means, (m, narrow)) for narrow, wide in steps for m in MARGINS]
        return np.asarray(np.min(rises, axis=0))

    def excess(statistic: Statistic, share: float = 1.0) -> Interval:
        """This share of the range over tau, minus the range over m."""

        def difference(means: Array) -> Array:
            by_m, by_tau = _ranges(statistic, means)
            return share * by_tau - by_m

        return sums.interval(difference)

    def listed(statistic: Statistic, shown: Sequence[Setting], digits: int) -> str:
        values = {setting: sums.value(lambda means, at=setting: statistic(means, at)) for setting in shown}  # type: ignore[misc]
        return ", ".join(f"({m:g}, {tau:g}) {value:.{digits}f}" for (m, tau), value in values.items())

    rises, wider = sums.interval(least_rise), excess(ratio)
    unchanged = excess(high_percent, NEARLY_UNCHANGED)
    by_m, by_tau = (sums.value(lambda means, n=n: _ranges(high_percent, means)[n]) for n in (0, 1))  # type: ignore[misc]
    at_one = [(m, 1.0) for m in (1.0, 3.0, 6.0)] + [(1.0, tau) for tau in BANDWIDTHS[1:]]
    return [
        _claim(
            "wider-counts-more",
            rises,
            f"R_eff at {listed(ratio, settings, 3)}; the smallest rise from one tau to the next is {_text(rises, 3)}.",
        ),
        _claim(
            "tau-moves-more",
            wider,
            f"The range of R_eff over tau at m = 1 exceeds its range over m at tau = 1 by {_text(wider, 3)}.",
        ),
        _claim(
            "margin-moves-little",
            unchanged,
            f"Percent of tokens with a weight above 0.5 at {listed(high_percent, at_one, 2)}; tested is whether its "
            f"range over m at tau = 1, {by_m:.2f}, is below {NEARLY_UNCHANGED:g} of its range over tau at m = 1, "
            f"{by_tau:.2f} (the paper's: 0.77 and 51.50); the bound minus the range: {_text(unchanged, 2)}.",
        ),
    ]


def _claim(name: str, difference: Interval, sentence: str, **values: str) -> Claim:
    return make_claim(name, verdict_of(difference), sentence, **values)


def _ranges(statistic: Statistic, means: Array) -> tuple[Array, Array]:
    """Over m at tau = 1, and over tau at m = 1."""
    by_m = [statistic(means, (m, 1.0)) for m in (1.0, 3.0, 6.0)]
    by_tau = [statistic(means, (1.0, tau)) for tau in BANDWIDTHS]
    return np.asarray(np.ptp(by_m, axis=0)), np.asarray(np.ptp(by_tau, axis=0))


def _mass_claims(table: TokenTable) -> list[Claim]:
    """Columns by setting and objective: the mass in the low, the middle and the high region."""

    def columns(part: TokenTable) -> Iterator[Array]:
        gap, norm = part["gap"].astype(np.float64), part["gradient_norm"].astype(np.float64)
        for m, tau in PAPER_MASS:
            low, high = gap < m - tau, gap > m + tau
            for name in TRIMS:
                mass = weights_of(make_objective(name, margin=m, bandwidth=tau), part) * norm
                yield from (mass * low, mass * ~(low | high), mass * high)

    sums = ByExample(table, columns)

    def percents(means: Array, name: str, region: int) -> Array:
        """[settings, R]."""
        masses = means.reshape(len(means), len(PAPER_MASS), len(TRIMS), 3)[:, :, TRIMS.index(name)]
        return np.asarray(100 * masses[..., region] / masses.sum(axis=-1)).T

    half = sums.interval(lambda means: percents(means, "trim-h", 0).min(axis=0) - 50)
    cut = sums.interval(lambda means: (percents(means, "trim-e", 2) - percents(means, "trim", 2)).min(axis=0))
    lows = ", ".join(
        f"m {m:g}: {sums.value(lambda means, n=n: percents(means, 'trim-h', 0)[n]):.1f} %"  # type: ignore[misc]
        for n, (m, _) in enumerate(PAPER_MASS)
    )
    return [
        _claim("hard-half-is-low", half, f"{lows}; the smallest exceeds 50 % by {_text(half, 1)} points."),
        _claim("less-high", cut, f"The smallest difference over m is {_text(cut, 1)} points."),
    ]


def _category_claim(table: TokenTable) -> Claim:
    count = len(CATEGORIES)

    def columns(part: TokenTable) -> Iterator[Array]:
        norm, which = part["gradient_norm"].astype(np.float64), part["category"]
        mass = weights_of(TrimSFT(1.0, 1.0), part) * norm
        yield from (of * (which == n) for of in (norm, mass) for n in range(count))

    sums = ByExample(table, columns)

    def gains(means: Array) -> Array:
        """[R, categories] in points."""
        sft, trim = means[:, :count], means[:, count:]
        return np.asarray(100 * (trim / trim.sum(axis=1, keepdims=True) - sft / sft.sum(axis=1, keepdims=True)))

    places = [CATEGORIES.index(name) for name in ("numeric", "symbol")]
    least = sums.interval(lambda means: gains(means)[:, places].min(axis=1))
    listed = ", ".join(
        f"{name} {_text(sums.interval(lambda means, n=n: gains(means)[:, n]), 1)}"  # type: ignore[misc]
        for n, name in enumerate(CATEGORIES)
    )
    sentence = f"Share of the gradient under TrimSFT (1, 1) minus that under SFT, in points: {listed}."
    return _claim("towards-mathematics", least, sentence)


def _gap_claims(tables: Mapping[str, TokenTable]) -> list[Claim]:
    """That one method has the larger mean gap than another, or more gaps below the band."""
    edge = DEFAULT_BAND[0] - DEFAULT_BAND[1]
    small = f"gaps below {edge:.1f}"
    claims = []
    for name, more, less, below in (
        ("sft-shifts-right", "sft", BASE, None),
        ("fsft-keeps-small", "fsft", "sft", edge),
        ("trim-fewer-small", BASE, "trim", edge),
    ):
        if more in tables and less in tables:
            difference = _gap_difference(tables[more], tables[less], below)
            value = f"{_text(difference, 2)}" if below is None else f"{_text(difference, 1)} points"
            sentence = (
                f"{'mean gap' if below is None else small}, {method_name(more)} minus {method_name(less)}: {value}; "
                "one training (seed 0) of each, interval over examples alone."
            )
            claims.append(_claim(name, difference, sentence, small=small))
    return claims


def _gap_difference(a: TokenTable, b: TokenTable, below: float | None) -> Interval:
    """The difference of the mean gap, or of the percent of tokens with a gap below."""

    def columns(part: TokenTable) -> Iterator[Array]:
        gaps = [part[name].astype(np.float64) for name in ("gap", "other_gap")]
        values = gaps if below is None else [100.0 * (gap < below) for gap in gaps]
        yield from (np.ones(len(part)), values[0] - values[1])

    sums = ByExample(_Pair({}, {}, a.metadata, a, b), columns)
    return sums.interval(lambda means: means[:, 1] / means[:, 0])


@dataclass(frozen=True)
class _Pair(TokenTable):
    """The gaps of two tables of the same tokens, side by side."""

    one: TokenTable
    other: TokenTable

    @property
    def example_count(self) -> int:
        return self.one.example_count

    def parts(self) -> Iterator[TokenTable]:
        for here, there in aligned(self.one, self.other, ("example", "gap")):
            yield TokenTable({**here.columns, "other_gap": there["gap"]}, {}, self.metadata)


def _text(interval: Interval, digits: int) -> str:
    """-1.0 [-2.0, +0.5]; "-" for what there is not, and no interval of a single example."""
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (rounded(end, digits, "+") or "-" for end in ends)
    return value if math.isnan(interval.low) else f"{value} [{low}, {high}]"
