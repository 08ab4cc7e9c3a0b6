"""Tables about tokens beyond the paper's: for each run, by position and example, before against after training.

Shares are in percent where a note or column says so, as the paper prints them.
"""

from collections.abc import Mapping

import numpy as np

from trimsft.objectives import Objective
from trimsft.tables import Records, Value
from trimsft.tokens.statistics import (
    QUANTILES,
    REGIONS,
    Calibration,
    Group,
    Movement,
    Regions,
    by_category,
    by_end,
    calibration,
    confidence,
    diagnose,
    ending,
    objective_of,
    per_example,
)
from trimsft.tokens.table import TokenTable

Tables = Mapping[str, TokenTable]
Rows = list[dict[str, Value]]
_DIGITS = {"mean_nll": 3, "mean_weight": 3, "mean_entropy": 3, "r_eff": 3}
_SHOWN_EXAMPLES = 20
MOST_EXAMPLES = 10_000  # in examples.csv


def confidences(tables: Tables, band: Mapping[str, float]) -> Records:
    rows: Rows = []
    for label, table in tables.items():
        sure = confidence(table, **band)
        row: dict[str, Value] = {"run": label, "tokens": sure.tokens, "mean_nll": sure.mean_nll}
        row |= {"median_gap": sure.median_gap, "first_choice": sure.first_choice_percent}
        row |= {"mean_entropy": sure.mean_entropy}
        rows.append(row | _by_region(sure.regions_percent))
    title, note = "How well each run knows the tokens", f"Percent of tokens by gap, {_text(band)}."
    return Records("confidence", title, rows, [note], _DIGITS)


def objectives(tables: Tables, weighing: Mapping[str, Objective], band: Mapping[str, float]) -> Records:
    rows: Rows = []
    for label, table in tables.items():
        for name, objective in weighing.items():
            weighed = diagnose(table, objective, **band)
            row: dict[str, Value] = {"run": label, "objective": name, "mean_weight": weighed.mean_weight}
            row |= {"high_weight": weighed.high_weight_percent, "r_eff": weighed.effective_ratio}
            rows.append(row | _by_region(weighed.mass_percent, "mass_"))
    note = f"What each objective would make of each run's tokens; {_text(band)}. Shares in percent."
    return Records("objectives", "Weights and gradient mass of every objective", rows, [note], _DIGITS)


def groups(tables: Tables, tenths: Mapping[str, list[Group]], band: Mapping[str, float]) -> list[Records]:
    """Return the tables by category, by tenth of the solution, and at its ends."""
    by_kind = {label: by_category(table, **band) for label, table in tables.items()}
    ends = {label: by_end(table, margin=band["margin"], bandwidth=band["bandwidth"]) for label, table in tables.items()}
    note = f"Weight and masses of TrimSFT, {_text(band)}; middle is the percent of a group's tokens within the band."
    percents = ("middle_percent", "sft_mass_percent", "trim_mass_percent")
    fields = ("tokens", "ratio_percent", "mean_nll", "mean_weight", *percents)

    def records(name: str, title: str, grouped: Mapping[str, list[Group]]) -> Records:
        rows: Rows = [
            {"run": label, "group": group.name, **{_column(field): getattr(group, field) for field in fields}}
            for label, of_run in grouped.items()
            for group in of_run
        ]
        return Records(name, title, rows, [note], _DIGITS)

    return [
        records("categories_by_run", "Token categories of every run", by_kind),
        records("positions", "Along the solution", tenths),
        records("ends", "The first and the last tokens of the solutions", ends),
    ]


def examples(label: str, table: TokenTable, parameters: Mapping[str, float]) -> Records:
    """The examples of the first run; the most trimmed first."""
    each = per_example(table, objective_of("trim", parameters))
    order = np.argsort(-each.trimmed_mass_percent, kind="stable")[:MOST_EXAMPLES]
    fields = ("example", "tokens", "mean_nll", "mean_weight", "first_choice_percent", "trimmed_mass_percent")
    rows: Rows = [{_column(field): getattr(each, field)[at].item() for field in fields} for at in order]
    note = f"Run {label}; trimmed mass is the percent of SFT's gradient mass that TrimSFT takes away."
    if len(order) < len(each.example):
        note += f" Of {len(each.example):,} examples the first {len(order):,} are in the files."
    return Records("examples", "Each example, the most trimmed first", rows, [note], _DIGITS, _SHOWN_EXAMPLES)


def movements(base: str, moved: Mapping[str, Movement], band: Mapping[str, float]) -> Records:
    ways = [f"{was}_to_{now}" for was in REGIONS for now in REGIONS]
    rows: Rows = []
    for label, one in moved.items():
        row: dict[str, Value] = {"run": label, **dict(zip(ways, one.moved_percent.ravel().tolist(), strict=True))}
        row |= {"became_first": one.became_first_percent, "ceased_first": one.ceased_first_percent}
        row |= {"nll_change": one.mean_nll_change, "gap_change": one.mean_gap_change}
        rows.append(row | {f"gap_change_p{quantile}": one.gap_change[quantile] for quantile in QUANTILES})
    note = f"From {base} to each run, percent of tokens by gap, {_text(band)}; then changes of nll and gap."
    return Records("movement", "Where tokens moved", rows, [note], {"nll_change": 3})


def calibrations(tables: Tables, by_width: Mapping[str, Calibration]) -> Records:
    rows: Rows = []
    for label, table in tables.items():
        width, mass = by_width[label], calibration(table, by="mass")
        shares = {"confidence": width.confidence, "accuracy": width.accuracy}
        shares |= {"ece": width.ece, "ece_low": width.low, "ece_high": width.high}
        shares |= {"ece_mass": mass.ece, "ece_mass_low": mass.low, "ece_mass_high": mass.high}
        percents = {name: 100 * share for name, share in shares.items()}
        rows.append({"run": label, "tokens": width.tokens, **percents})
    note = (
        "Percent. Confidence is the probability of the model's first choice for each token, accuracy how often that is "
        "the gold token; ece over 15 bins of equal width, ece mass over 15 of equal numbers; 95 % intervals by "
        "resampling examples."
    )
    return Records("calibration", "How sure, and how often right", rows, [note])


def endings(tables: Tables, weighing: Mapping[str, Objective]) -> Records | None:
    rows: Rows = []
    guessed = []
    for label, table in tables.items():
        end = ending(table, weighing)
        if end is None:
            continue
        guessed += [] if end.known else [label]
        row: dict[str, Value] = {"run": label, "examples": end.examples, "ended": end.ended}
        row |= {"mean_nll": end.mean_nll, "median_gap": end.median_gap, "median_rank": end.median_rank}
        row |= {"first_choice": end.first_choice_percent, "share_of_tokens": end.tokens_percent}
        row |= {f"weight_{name}": end.mean_weight[name] for name in weighing}
        rows.append(row | {f"mass_{name}": end.mass_percent[name] for name in weighing})
    if not rows:
        return None
    notes = ["The eos of every solution that has one: mean weight, and percent of all gradient mass, by objective."]
    if guessed:
        notes.append(f"Not named in the table, so the last token is taken for eos: {', '.join(guessed)}.")
    digits = {**_DIGITS, "median_rank": 1, "weight": 3}
    return Records("endings", "How solutions end", rows, notes, digits)


def _column(field: str) -> str:
    """Columns of the files say percent in their note."""
    return field.removesuffix("_percent")


def _by_region(regions: Regions, before: str = "") -> dict[str, Value]:
    return {f"{before}{name}": getattr(regions, name) for name in REGIONS}


def _text(band: Mapping[str, float]) -> str:
    return f"margin {band['margin']:g} ± bandwidth {band['bandwidth']:g}"
