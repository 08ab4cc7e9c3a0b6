"""What is beyond the paper: the same for each run, by position and example, before against after training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trimsft.objectives import OBJECTIVES
from trimsft.report.tables.files import Column, Result, Value
from trimsft.tokens.statistics.calibration import Calibration, calibration
from trimsft.tokens.statistics.endings import ending
from trimsft.tokens.statistics.groups import Group, by_category, by_end
from trimsft.tokens.statistics.movement import QUANTILES, REGIONS, Movement
from trimsft.tokens.statistics.per_example import per_example
from trimsft.tokens.statistics.weighting import confidence, diagnose, objective_of
from trimsft.tokens.table import TokenTable

Tables = Mapping[str, TokenTable]
_SHOWN_EXAMPLES = 20


def confidences(tables: Tables, band: Mapping[str, float]) -> Result:
    rows: list[list[Value]] = []
    for label, table in tables.items():
        found = confidence(table, **band)
        rows.append(
            [
                *(label, found.tokens, found.mean_nll, found.median_gap, found.top, found.mean_entropy),
                *(found.regions.low, found.regions.middle, found.regions.high),
            ]
        )
    columns = [
        *(Column("run"), Column("tokens"), Column("mean_nll", 3), Column("median_gap")),
        *(Column("first_choice"), Column("mean_entropy", 3), *map(Column, REGIONS)),
    ]
    return Result(
        "confidence",
        "How well each run knows the tokens",
        columns,
        rows,
        [f"Percent of tokens by gap, {_band(band)}."],
    )


def objectives(tables: Tables, parameters: Mapping[str, float], band: Mapping[str, float]) -> Result:
    rows: list[list[Value]] = []
    for label, table in tables.items():
        for name in OBJECTIVES:
            found = diagnose(table, objective_of(name, parameters), **band)
            rows.append(
                [
                    *(label, name, found.mean_weight, found.high_weight, found.effective_ratio),
                    *(found.mass.low, found.mass.middle, found.mass.high),
                ]
            )
    columns = [
        *(Column("run"), Column("objective"), Column("mean_weight", 3), Column("high_weight")),
        *(Column("r_eff", 3), *(Column(f"mass_{region}") for region in REGIONS)),
    ]
    note = f"What each objective would make of each run's tokens; {_band(band)}. Shares in percent."
    return Result("objectives", "Weights and gradient mass of every objective", columns, rows, [note])


def groups(tables: Tables, tenths: Mapping[str, list[Group]], band: Mapping[str, float]) -> list[Result]:
    """By category, by tenth of the solution, and at its ends."""
    kinds = [
        ("categories_by_run", "Token categories of every run", _each(by_category, tables, band)),
        ("positions", "Along the solution", tenths),
        ("ends", "The first and the last tokens of the solutions", _each(by_end, tables, band)),
    ]
    fields = ("tokens", "ratio", "mean_nll", "mean_weight", "middle", "sft_mass", "trim_mass")
    digits = {"mean_nll": 3, "mean_weight": 3}
    columns = [Column("run"), Column("group"), *(Column(field, digits.get(field, 2)) for field in fields)]
    note = f"Weight and masses of TrimSFT, {_band(band)}; middle is the percent of a group's tokens within the band."
    results = []
    for name, title, found in kinds:
        rows: list[list[Value]] = [
            [label, group.name, *(getattr(group, field) for field in fields)]
            for label, grouped in found.items()
            for group in grouped
        ]
        results.append(Result(name, title, columns, rows, [note]))
    return results


def examples(label: str, table: TokenTable, parameters: Mapping[str, float]) -> Result:
    """Of the first run; the most trimmed first."""
    found = per_example(table, objective_of("trim", parameters))
    order = sorted(range(len(found.example)), key=lambda at: (-found.trimmed_mass[at], at))
    fields = ("example", "tokens", "mean_nll", "mean_weight", "first_choice", "trimmed_mass")
    rows: list[list[Value]] = [[getattr(found, field)[at].item() for field in fields] for at in order]
    columns = [Column(field, 3 if field in ("mean_nll", "mean_weight") else 2) for field in fields]
    note = f"Run {label}; trimmed mass is the percent of SFT's gradient mass that TrimSFT takes away."
    return Result("examples", "Each example, the most trimmed first", columns, rows, [note], _SHOWN_EXAMPLES)


def movements(base: str, moved: Mapping[str, Movement], band: Mapping[str, float]) -> Result:
    rows: list[list[Value]] = []
    for label, found in moved.items():
        shares: list[float] = found.shares.ravel().tolist()
        firsts = [found.became_first, found.ceased_first]
        changes = [found.mean_nll_change, found.mean_gap_change, *found.gap_change.values()]
        rows.append([label, *shares, *firsts, *changes])
    columns = [
        *(Column("run"), *(Column(f"{was}_to_{now}") for was in REGIONS for now in REGIONS)),
        *(Column("became_first"), Column("ceased_first"), Column("nll_change", 3), Column("gap_change")),
        *(Column(f"gap_change_p{quantile}") for quantile in QUANTILES),
    ]
    note = f"From {base} to each run, percent of tokens by gap, {_band(band)}; then changes of nll and gap."
    return Result("movement", "Where tokens moved", columns, rows, [note])


def calibrations(tables: Tables, by_width: Mapping[str, Calibration]) -> Result:
    rows: list[list[Value]] = []
    for label, table in tables.items():
        width, mass = by_width[label], calibration(table, by="mass")
        shares = [
            width.confidence,
            width.accuracy,
            width.ece,
            width.low,
            width.high,
            mass.ece,
            mass.low,
            mass.high,
        ]
        rows.append([label, width.tokens, *(100 * share for share in shares)])
    names = (
        "confidence",
        "accuracy",
        "ece",
        "ece_low",
        "ece_high",
        "ece_mass",
        "ece_mass_low",
        "ece_mass_high",
    )
    note = (
        "Percent. Confidence is the probability of the model's first choice for each token, accuracy how often that is "
        "the gold token; ece over 15 bins of equal width, ece mass over 15 of equal numbers; 95 % intervals by "
        "resampling examples."
    )
    return Result(
        "calibration",
        "How sure, and how often right",
        [Column("run"), Column("tokens"), *map(Column, names)],
        rows,
        [note],
    )


def endings(tables: Tables, parameters: Mapping[str, float]) -> Result | None:
    rows: list[list[Value]] = []
    guessed = []
    for label, table in tables.items():
        found = ending(table, parameters)
        if found is None:
            continue
        guessed += [] if found.known else [label]
        weights, masses = ([values[name] for name in OBJECTIVES] for values in (found.mean_weight, found.mass))
        rows.append(
            [
                *(label, found.examples, found.ended, found.mean_nll, found.median_gap, found.median_rank),
                *(found.first_choice, found.share, *weights, *masses),
            ]
        )
    if not rows:
        return None
    columns = [
        *(Column("run"), Column("examples"), Column("ended"), Column("mean_nll", 3), Column("median_gap")),
        *(Column("median_rank", 1), Column("first_choice"), Column("share_of_tokens")),
        *(Column(f"weight_{name}", 3) for name in OBJECTIVES),
        *(Column(f"mass_{name}") for name in OBJECTIVES),
    ]
    notes = ["The eos of every solution that has one: mean weight, and percent of all gradient mass, by objective."]
    if guessed:
        notes.append(f"Not named in the table, so the last token is taken for eos: {', '.join(guessed)}.")
    return Result("endings", "How solutions end", columns, rows, notes)


def _each(grouped: Callable[..., list[Group]], tables: Tables, band: Mapping[str, float]) -> Mapping[str, list[Group]]:
    return {label: grouped(table, **band) for label, table in tables.items()}


def _band(band: Mapping[str, Any]) -> str:
    return f"margin {band['margin']:g} ± bandwidth {band['bandwidth']:g}"
