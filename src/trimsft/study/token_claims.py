"""The studies about tokens: their tables, and what the paper claims of tokens; intervals resample examples.

token_records("weights", "lab", {"base": table_of_the_base})
token_claims({"base": table_of_the_base, "sft": ..., "fsft": ..., "trim": ...})

Each method has one training: what another seed would give is in no interval here, and sentences say so. What a
handful of examples shows is not judged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from trimsft.intervals import Array, Interval
from trimsft.objectives import TrimSFT
from trimsft.objectives.paper import HIGH_WEIGHT, Setting
from trimsft.report.run_tables import confidences
from trimsft.study import paper_tables
from trimsft.study.cell import BASE, method_name
from trimsft.study.claims import Claim, make_claim
from trimsft.study.paper_tables import paper_model
from trimsft.study.score_tables import DEFAULT_BAND, STAND_IN
from trimsft.study.variance import OPEN, verdict_of
from trimsft.tables import Cell, Records, Table, Value, rounded
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
WEIGHED = (*(Setting(m, tau) for m in MARGINS for tau in BANDWIDTHS), Setting(3.0, 1.0))
OVER_M = tuple(Setting(m, 1.0) for m in (1.0, 3.0, 6.0))
OVER_TAU = tuple(Setting(1.0, tau) for tau in BANDWIDTHS)
NEARLY_UNCHANGED = 0.1
"""A share of the range over tau; a bound of ours: the paper names none, and its High-Weight moves by 0.77 of 51.50."""
LEAST_EXAMPLES = 10  # with fewer nothing is judged: resampling them knows little of others


# ---- tables


def token_records(study: str, model: str, tables: Mapping[str, TokenTable]) -> Records:
    """Return the numbers of a study; `tables` by objective."""
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


Measure = Callable[[Setting], Statistic]  # such as `r_eff`


def _weight_claims(table: TokenTable) -> list[Claim]:
    sums = weight_sums(table, WEIGHED)
    return [_wider_counts_more(sums), _tau_moves_more(sums), _margin_moves_little(sums)]


def _wider_counts_more(sums: ByExample) -> Claim:
    def least_rise(means: Means) -> Array:
        steps = [(Setting(m, narrow), Setting(m, wide)) for narrow, wide in pairwise(BANDWIDTHS) for m in MARGINS]
        return np.asarray(np.min([r_eff(wide)(means) - r_eff(narrow)(means) for narrow, wide in steps], axis=0))

    rise = sums.interval(least_rise)
    values = _listed(sums, r_eff, WEIGHED, 3)
    sentence = f"R_eff at {values}; the smallest rise from one tau to the next is {_text(rise, 3)}."
    return _claim("wider-counts-more", rise, sentence)


def _tau_moves_more(sums: ByExample) -> Claim:
    by_m, by_tau = _range(r_eff, OVER_M), _range(r_eff, OVER_TAU)
    excess = sums.interval(lambda means: by_tau(means) - by_m(means))
    sentence = f"The range of R_eff over tau at m = 1 exceeds its range over m at tau = 1 by {_text(excess, 3)}."
    return _claim("tau-moves-more", excess, sentence)


def _margin_moves_little(sums: ByExample) -> Claim:
    by_m, by_tau = _range(high_weight_percent, OVER_M), _range(high_weight_percent, OVER_TAU)
    below = sums.interval(lambda means: NEARLY_UNCHANGED * by_tau(means) - by_m(means))
    values = _listed(sums, high_weight_percent, [*OVER_M, *OVER_TAU[1:]], 2)
    sentence = (
        f"Percent of tokens with a weight above {HIGH_WEIGHT} at {values}; tested is whether its range over m at "
        f"tau = 1, {sums.value(by_m):.2f}, is below {NEARLY_UNCHANGED:g} of its range over tau at m = 1, "
        f"{sums.value(by_tau):.2f} (the paper's: 0.77 and 51.50); the bound minus the range: {_text(below, 2)}."
    )
    return _claim("margin-moves-little", below, sentence)


def _range(measure: Measure, settings: Sequence[Setting]) -> Statistic:
    """Return the largest minus the smallest over the settings."""
    return lambda means: np.asarray(np.ptp([measure(setting)(means) for setting in settings], axis=0))


def _listed(sums: ByExample, measure: Measure, settings: Sequence[Setting], digits: int) -> str:
    values = {setting: sums.value(measure(setting)) for setting in settings}
    return ", ".join(f"({m:g}, {tau:g}) {value:.{digits}f}" for (m, tau), value in values.items())


def _claim(name: str, difference: Interval, sentence: str, **values: str) -> Claim:
    return make_claim(name, verdict_of(difference), sentence, **values)


def _mass_claims(table: TokenTable) -> list[Claim]:
    sums = mass_sums(table)
    low_of_hard = {setting: mass_percent("low", setting, "trim-h") for setting in PAPER_MASS}
    highs = [(mass_percent("high", setting, "trim-e"), mass_percent("high", setting, "trim")) for setting in PAPER_MASS]
    half = sums.interval(lambda means: np.min([low(means) for low in low_of_hard.values()], axis=0) - 50)
    cut = sums.interval(lambda means: np.min([easy(means) - both(means) for easy, both in highs], axis=0))
    lows = ", ".join(f"m {setting.margin:g}: {sums.value(low):.1f} %" for setting, low in low_of_hard.items())
    return [
        _claim("hard-half-is-low", half, f"{lows}; the smallest exceeds 50 % by {_text(half, 1)} points."),
        _claim("less-high", cut, f"The smallest difference over m is {_text(cut, 1)} points."),
    ]


def _category_claim(table: TokenTable) -> Claim:
    sft = table["gradient_norm"].astype(np.float64)
    masses = {"sft": sft, "trim": weights_of(TrimSFT(1.0, 1.0), table) * sft}
    kinds = {name: table["category"] == number for number, name in enumerate(CATEGORIES)}
    sums = ByExample(table, (((of, name), masses[of] * kinds[name]) for name in CATEGORIES for of in masses))

    def percent(means: Means, objective: str, category: str) -> Array:
        return np.asarray(100 * means[objective, category] / sum(means[objective, name] for name in CATEGORIES))

    gains: dict[str, Statistic] = {
        name: lambda means, name=name: percent(means, "trim", name) - percent(means, "sft", name)  # type: ignore[misc]
        for name in CATEGORIES
    }
    least = sums.interval(lambda means: np.min([gains[name](means) for name in ("numeric", "symbol")], axis=0))
    listed = ", ".join(f"{name} {_text(sums.interval(gain), 1)}" for name, gain in gains.items())
    sentence = f"Share of the gradient under TrimSFT (1, 1) minus that under SFT, in points: {listed}."
    return _claim("towards-mathematics", least, sentence)


def _gap_claims(tables: Mapping[str, TokenTable]) -> list[Claim]:
    """Judge whether one method has a larger mean gap than another, or more gaps below the band."""
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
    """Return the difference of the mean gap, or of the percent of tokens with a gap below."""

    gaps = [table["gap"].astype(np.float64) for table in (a, b)]
    one, other = gaps if below is None else [100.0 * (gap < below) for gap in gaps]
    columns = [("tokens", np.ones_like(one)), ("difference", one - other)]
    return ByExample(a, columns).interval(ratio("difference", "tokens"))


def _text(interval: Interval, digits: int) -> str:
    """-1.0 [-2.0, +0.5]; "-" for what there is not, and no interval of a single example."""
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (rounded(end, digits, "+") or "-" for end in ends)
    return value if math.isnan(interval.low) else f"{value} [{low}, {high}]"
