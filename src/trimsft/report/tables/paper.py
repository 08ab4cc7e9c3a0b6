"""The paper's appendix tables from a token table, with the paper's numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trimsft import lab, paper
from trimsft.report.page.sources import Run
from trimsft.report.tables.files import Column, Result, Value
from trimsft.scoring.intervals import Interval
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.paper_intervals import REGIONS, category_intervals, mass_intervals, weight_intervals
from trimsft.tokens.table import TokenTable

CATEGORY_SETTING = paper.Setting(1.0, 1.0)
"""The paper's for its table of categories."""


def weights(table: TokenTable, about: str) -> Result:
    """High-Weight and R_eff over the paper's grid."""
    theirs = {row.setting: row for row in paper.weight_diagnostics()}
    rows: list[list[Value]] = []
    for setting, found in weight_intervals(table).items():
        known = theirs[setting]
        rows.append(
            [
                *("trim", *setting, found["mean_weight"].value),
                *_beside(found["high_weight"], known.high_weight),
                *_beside(found["r_eff"], known.effective_ratio),
            ]
        )
    sft, all_of_them, one = theirs[None], Interval(100.0, 100.0, 100.0), Interval(1.0, 1.0, 1.0)
    rows.append(["sft", None, None, 1.0, *_beside(all_of_them, sft.high_weight), *_beside(one, sft.effective_ratio)])
    columns = (
        *(Column("objective"), Column("margin", 1), Column("bandwidth", 1), Column("mean_weight", 3)),
        *_columns("high_weight", 2),
        *_columns("r_eff", 3),
    )
    return Result(
        "weight_diagnostics",
        "Token weights by margin and bandwidth",
        columns,
        rows,
        _notes("weight_diagnostics", about),
    )


def masses(table: TokenTable, about: str) -> Result:
    """Gradient mass by region for TrimSFT and its halves."""
    theirs = {(row.setting, row.method): row for row in paper.gradient_mass()}
    rows: list[list[Value]] = []
    for (setting, objective), found in mass_intervals(table).items():
        known = theirs[setting, objective]
        beside = [_beside(found[region], getattr(known, region)) for region in REGIONS]
        rows.append([objective, *setting, *(value for values in beside for value in values)])
    columns = (
        *(Column("objective"), Column("margin", 1), Column("bandwidth", 1)),
        *(column for name in REGIONS for column in _columns(name, 2)),
    )
    return Result(
        "gradient_mass",
        "Percent of the gradient mass by region of gaps",
        columns,
        rows,
        _notes("gradient_mass", about),
    )


def categories(table: TokenTable, about: str) -> Result:
    """Token categories at the paper's setting."""
    theirs = {row.category: row for row in paper.token_categories()}
    margin, bandwidth = CATEGORY_SETTING
    rows: list[list[Value]] = []
    counts = np.bincount(table["category"].astype(np.int64), minlength=len(CATEGORIES))
    for (name, found), count in zip(category_intervals(table, CATEGORY_SETTING).items(), counts.tolist(), strict=True):
        row: list[Value] = [name, count]
        for field, interval in found.items():
            row += _beside(interval, getattr(theirs[name], field))
        rows.append(row)
    columns = (
        *(Column("category"), Column("tokens"), *_columns("ratio", 2), *_columns("mean_weight", 3)),
        *(column for name in ("middle", "sft_mass", "trim_mass") for column in _columns(name, 2)),
    )
    notes = [
        f"TrimSFT at margin {margin:g}, bandwidth {bandwidth:g}, as in the paper's table, whatever the report's are. "
        "The paper does not say how it tells categories apart; ours are described in docs/categories.md, and count "
        "whole LaTeX commands and brackets as symbols.",
        *_notes("token_categories", about),
    ]
    return Result("token_categories", "Token categories", columns, rows, notes)


def scores(runs: Mapping[str, Run], model: str | None) -> Result | None:
    """average@k, greedy, pass@k and best-of-k of each run; the paper's average@8 where it has that model."""
    rows: list[list[Value]] = []
    for label, run in runs.items():
        method = run.objective or ("base" if label.lower() == "base" else None)
        theirs = _paper_scores(model, method)
        for (benchmark, metric), spread in _spreads(run).items():
            known = theirs.get(benchmark) if metric == "average" else None
            difference = None if known is None else spread.value - known
            rows.append([label, benchmark, metric, spread.value, spread.low, spread.high, known, difference])
    if not rows:
        return None
    names = ("run", "benchmark", "metric", "ours", "low", "high", "paper", "difference")
    known_model = f"{paper.label('main')}, {model}" if model else "its Table 1 does not have this model"
    notes = [f"Paper: {known_model}."]
    return Result("scores", "Scores in percent, with 95 % intervals", [Column(name) for name in names], rows, notes)


def _paper_scores(model: str | None, method: str | None) -> dict[str, float]:
    """By benchmark, with the average of all of them."""
    for row in paper.scores("main"):
        if row.model == model and row.method == method and row.average is not None:
            return {**row.scores, _mean_of(list(row.scores)): row.average}
    return {}


def _spreads(run: Run) -> dict[tuple[str, str], Interval]:
    """Each metric of each benchmark, and of all together where there are several."""
    found = {
        (name, metric): spread
        for name in in_order(run.scores)
        for metric in metrics_of(run.scores[name])
        if (spread := run.interval(name, metric)) is not None
    }
    benchmarks = list(run.scores)
    if len(benchmarks) > 1:
        metrics = list(dict.fromkeys(metric for _, metric in found))
        means = run.mean_intervals(benchmarks, metrics)
        found |= {(_mean_of(benchmarks), metric): spread for metric, spread in means.items()}
    return found


def _mean_of(benchmarks: Sequence[str]) -> str:
    return f"mean of {', '.join(sorted(benchmarks))}"


def in_order(benchmarks: Iterable[str]) -> list[str]:
    """As in the paper, then from easy to hard; others follow by name."""
    usual = [*paper.scores("main")[0].scores, *lab.TIERS]
    return sorted(benchmarks, key=lambda name: (usual.index(name) if name in usual else len(usual), name))


def metrics_of(score: Mapping[str, object]) -> list[str]:
    """Those that a scores.json has, of the most samples."""
    samples = score.get("samples")
    return ["average", "greedy", f"pass@{samples}", f"majority@{samples}"]


def paper_model(name: str) -> str | None:
    """Which of the paper's models this is the name of, after an owner or a path; None for those derived from one.

    Letters and digits must be the same, but for what the hub adds to names of the same weights: deepseek-math-7b-base.
    """
    models = dict.fromkeys(row.model for row in paper.scores("main"))
    wanted = _letters(name.rstrip("/").rpartition("/")[2]).removeprefix("meta")
    return next((model for model in models if wanted in (_letters(model), f"{_letters(model)}base")), None)


def disagreements() -> Result:
    """Where the paper's own numbers contradict each other."""
    names = ("kind", "label", "line", "what", "printed", "expected", "why")
    rows: list[list[Value]] = [[getattr(entry, name) for name in names] for entry in paper.disagreements()]
    return Result(
        "paper_disagreements", "Where the paper disagrees with itself", [Column(name) for name in names], rows
    )


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _beside(ours: Interval, theirs: float) -> list[Value]:
    ends = (None, None) if math.isnan(ours.low) else (ours.low, ours.high)
    return [ours.value, *ends, theirs, ours.value - theirs]


def _columns(name: str, digits: int) -> list[Column]:
    return [Column(f"{name}_{what}", digits) for what in ("ours", "low", "high", "paper", "difference")]


def _notes(table: str, about: str) -> list[str]:
    return [
        f"Ours: {about}{'' if about.endswith('.') else '.'} In square brackets: 95 % intervals over examples.",
        f"Paper: {paper.label(table)}; Qwen2.5-Math-1.5B, 40,082 tokens of 100 examples.",
    ]
