"""The paper's appendix tables from a token table, and scores, with the paper's numbers beside ours, in percent."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trimsft.evaluate.scores import BenchmarkScore
from trimsft.intervals import Interval
from trimsft.objectives.paper import Setting
from trimsft.report.figures import Drawing, category_bars
from trimsft.report.run_tables import Analysis
from trimsft.report.runs import Run
from trimsft.report.score_tables import in_order
from trimsft.study import paper
from trimsft.tables import Records, Value
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import REGIONS, category_intervals, mass_intervals, weight_intervals
from trimsft.tokens.table import TokenTable

CATEGORY_SETTING = Setting(1.0, 1.0)  # the paper's for its table of categories
Row = dict[str, Value]


def write_paper_tables(analysis: Analysis) -> None:
    """Write what a report has with the paper's numbers beside: tables of the first run's tokens, scores of all."""
    if analysis.tables:
        label, table = next(iter(analysis.tables.items()))
        examples = table.metadata.get("data", {}).get("rows", "unknown")
        model = "/".join(Path(table.metadata.get("model", "unknown model")).parts[-2:])  # what tells folders apart
        about = f"{label} ({model}), {len(table):,} tokens of {examples} examples."
        analysis.write(*(make(table, about) for make in (weights, masses, categories)))
        analysis.draw(category_figure(table), "categories")
    names = [str(table.metadata.get("model", "")) for table in analysis.tables.values()]
    names += [run.trained_from for run in analysis.runs]
    known = next(filter(None, map(paper_model, names)), None)
    analysis.write(scores({run.label: run for run in analysis.runs if run.scores}, known), disagreements())


def category_figure(table: TokenTable) -> Drawing:
    """Draw token categories at the paper's setting, with its shares beside."""
    theirs = {row.category: (row.ratio, row.sft_mass, row.trim_mass) for row in paper.token_categories()}
    return category_bars(table, theirs, **CATEGORY_SETTING._asdict())


def weights(table: TokenTable, about: str) -> Records:
    """High-Weight and R_eff over the paper's grid."""
    theirs = {row.setting: row for row in paper.weight_diagnostics()}
    rows: list[Row] = []
    for setting, ours in weight_intervals(table).items():
        row: Row = {"objective": "trim", **setting._asdict(), "mean_weight": ours["mean_weight"].value}
        row |= _beside("high_weight", ours["high_weight_percent"], theirs[setting].high_weight_percent)
        rows.append(row | _beside("r_eff", ours["r_eff"], theirs[setting].effective_ratio))
    sft: Row = {"objective": "sft", "margin": None, "bandwidth": None, "mean_weight": 1.0}
    sft |= _beside("high_weight", Interval(100.0, 100.0, 100.0), theirs[None].high_weight_percent)
    rows.append(sft | _beside("r_eff", Interval(1.0, 1.0, 1.0), theirs[None].effective_ratio))
    digits = {"margin": 1, "bandwidth": 1, "mean_weight": 3, "r_eff": 3}
    notes = _notes("weight_diagnostics", about)
    return Records("weight_diagnostics", "Token weights by margin and bandwidth", rows, notes, digits)


def masses(table: TokenTable, about: str) -> Records:
    """Gradient mass by region for TrimSFT and its halves."""
    theirs = {(row.setting, row.method): row for row in paper.gradient_mass()}
    rows: list[Row] = []
    for (setting, objective), ours in mass_intervals(table).items():
        row: Row = {"objective": objective, **setting._asdict()}
        for region in REGIONS:
            row |= _beside(region, ours[region], getattr(theirs[setting, objective], region))
        rows.append(row)
    title, notes = "Percent of the gradient mass by region of gaps", _notes("gradient_mass", about)
    return Records("gradient_mass", title, rows, notes, {"margin": 1, "bandwidth": 1})


def categories(table: TokenTable, about: str) -> Records:
    """Token categories at the paper's setting."""
    theirs = {row.category: row for row in paper.token_categories()}
    margin, bandwidth = CATEGORY_SETTING
    rows: list[Row] = []
    counts = np.bincount(table["category"], minlength=len(CATEGORIES))
    for (name, ours), count in zip(category_intervals(table, CATEGORY_SETTING).items(), counts.tolist(), strict=True):
        row: Row = {"category": name, "tokens": count}
        for field, interval in ours.items():
            field = field.removesuffix("_percent")
            row |= _beside(field, interval, getattr(theirs[name], field))
        rows.append(row)
    notes = [
        f"TrimSFT at margin {margin:g}, bandwidth {bandwidth:g}, as in the paper's table, whatever the report's are. "
        "The paper does not say how it tells categories apart; ours are described in docs/categories.md, and count "
        "whole LaTeX commands and brackets as symbols.",
        *_notes("token_categories", about),
    ]
    return Records("token_categories", "Token categories", rows, notes, {"mean_weight": 3})


def scores(runs: Mapping[str, Run], model: str | None) -> Records | None:
    """average@k, greedy, pass@k and best-of-k of each run; the paper's average@8 where it has that model."""
    rows: list[Row] = []
    for label, run in runs.items():
        method = run.objective or ("base" if label.lower() == "base" else None)
        theirs = _paper_scores(model, method)
        for (benchmark, metric), ours in _intervals_percent(run).items():
            known = theirs.get(benchmark) if metric == "average" else None
            row: Row = {"run": label, "benchmark": benchmark, "metric": metric}
            row |= {"ours": ours.value, "low": ours.low, "high": ours.high}
            rows.append(row | {"paper": known, "difference": None if known is None else ours.value - known})
    if not rows:
        return None
    known_model = f"{paper.label('main')}, {model}" if model else "its Table 1 does not have this model"
    return Records("scores", "Scores in percent, with 95 % intervals", rows, [f"Paper: {known_model}."])


def disagreements() -> Records:
    """Return where the paper's own numbers contradict each other."""
    names = ("kind", "label", "line", "what", "printed", "expected", "why")
    rows = [{name: getattr(entry, name) for name in names} for entry in paper.disagreements()]
    return Records("paper_disagreements", "Where the paper disagrees with itself", rows)


def metrics_of(score: BenchmarkScore) -> list[str]:
    """Return the metrics that a scores.json has, with the most samples."""
    return ["average", "greedy", f"pass@{score.samples}", f"majority@{score.samples}"]


def paper_model(name: str) -> str | None:
    """Return which of the paper's models a name stands for, after an owner or a path; None for those derived from one.

    Letters and digits must be the same, but for what the hub adds to names of the same weights: deepseek-math-7b-base.

    >>> paper_model("Qwen/Qwen2.5-Math-1.5B"), paper_model("Qwen/Qwen2.5-Math-1.5B-Instruct")
    ('Qwen2.5-Math-1.5B', None)
    """
    models = dict.fromkeys(row.model for row in paper.scores("main"))
    wanted = _letters(name.rstrip("/").rpartition("/")[2]).removeprefix("meta")
    return next((model for model in models if wanted in (_letters(model), f"{_letters(model)}base")), None)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _paper_scores(model: str | None, method: str | None) -> dict[str, float]:
    """Return by benchmark, with the average of all of them."""
    for row in paper.scores("main"):
        if row.model == model and row.method == method and row.average is not None:
            return {**row.scores, _mean_of(list(row.scores)): row.average}
    return {}


def _intervals_percent(run: Run) -> dict[tuple[str, str], Interval]:
    """Return each metric of each benchmark, and of all together where there are several."""
    intervals = {
        (name, metric): interval
        for name in in_order(run.scores)
        for metric in metrics_of(run.scores[name])
        if (interval := run.interval_percent(name, metric)) is not None
    }
    benchmarks = list(run.scores)
    if len(benchmarks) > 1:
        means = run.mean_intervals_percent(benchmarks, list(dict.fromkeys(metric for _, metric in intervals)))
        intervals |= {(_mean_of(benchmarks), metric): interval for metric, interval in means.items()}
    return intervals


def _mean_of(benchmarks: Sequence[str]) -> str:
    return f"mean of {', '.join(sorted(benchmarks))}"


def _beside(name: str, ours: Interval, theirs: float) -> Row:
    low, high = (None, None) if math.isnan(ours.low) else (ours.low, ours.high)
    values = {"ours": ours.value, "low": low, "high": high, "paper": theirs, "difference": ours.value - theirs}
    return {f"{name}_{what}": value for what, value in values.items()}


def _notes(table: str, about: str) -> list[str]:
    return [
        f"Ours: {about}{'' if about.endswith('.') else '.'} In square brackets: 95 % intervals over examples.",
        f"Paper: {paper.label(table)}; Qwen2.5-Math-1.5B, 40,082 tokens of 100 examples.",
    ]
