"""Ours beside the paper's: tables of tokens and of scores, in percent.

Models that the paper does not have stand beside the numbers of `STAND_IN`: they show the pattern, who is above whom,
and not the size of the numbers.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from trimsft.evaluate.compare import AVERAGE
from trimsft.intervals import Interval
from trimsft.objectives import BANDWIDTH, GAMMA, MARGIN
from trimsft.objectives.paper import Setting
from trimsft.report.run_tables import table_of
from trimsft.study import cell as cells
from trimsft.study import paper
from trimsft.study.results import Summaries, labels_of, paired
from trimsft.tables import DOWN, UP, Cell, Table, Value, mark_best, rounded
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import category_intervals, mass_intervals, weight_intervals
from trimsft.tokens.table import TokenTable

STAND_IN = "Qwen2.5-Math-1.5B"  # the model of all of the paper's studies but Table 1 and Figure 2
DEFAULT_BAND = (MARGIN, BANDWIDTH)  # TrimSFT's in Table 1
CATEGORY_SETTING = Setting(1.0, 1.0)  # the paper's for its table of categories
SCORE_TABLES = {
    "ablation": ("bandwidth_ablation", "margin_ablation", "main"),
    "half-trims": ("half_trims_complete", "main"),
}
"""Study -> the paper's tables that have its settings (elsewhere Table 1); where two differ, the first counts."""
Row: TypeAlias = dict[str, Value]
TokenRows: TypeAlias = tuple[Table, list[Row]]  # to read; for files, each number in a column of its own


def paper_model(name: str) -> str | None:
    """Return the name if it is that of a model of the paper."""
    return name if any(row.model == name for row in paper.rows("main")) else None


# ---- tokens


def weights(table: TokenTable, who: str) -> TokenRows:
    """High-Weight and R_eff over the paper's grid."""
    theirs, lines = {row.setting: row for row in paper.rows("weight_diagnostics")}, []
    for setting, found in weight_intervals(table).items():
        ours = {"high_weight_percent": found["high_weight_percent"], "effective_ratio": found["r_eff"]}
        lines.append((setting._asdict(), ours, theirs[setting]))
    return _beside("weight_diagnostics", "Token weights by margin and bandwidth", lines, table, who)


def masses(table: TokenTable, who: str) -> TokenRows:
    """Gradient mass by region for TrimSFT and its halves."""
    theirs, lines = {(row.setting, row.method): row for row in paper.rows("gradient_mass")}, []
    for (setting, objective), ours in mass_intervals(table).items():
        first = {"objective": cells.method_name(objective), **setting._asdict()}
        lines.append((first, ours, theirs[setting, objective]))
    return _beside("gradient_mass", "Percent of the gradient mass by region of gaps", lines, table, who)


def categories(table: TokenTable, who: str) -> TokenRows:
    """Token categories at the paper's setting."""
    theirs, lines = {row.category: row for row in paper.rows("token_categories")}, []
    counts = np.bincount(table["category"], minlength=len(CATEGORIES)).tolist()
    for (name, found), count in zip(category_intervals(table, CATEGORY_SETTING).items(), counts, strict=True):
        ours = {field.removesuffix("_percent"): interval for field, interval in found.items()}
        lines.append(({"category": name, "tokens": count}, ours, theirs[name]))
    made, rows = _beside("token_categories", "Token categories", lines, table, who)
    note = "TrimSFT at margin 1, bandwidth 1; the paper does not say how it tells categories apart (docs/analysis.md)."
    return replace(made, notes=(note, *made.notes)), rows


OF_TOKENS = {"weights": weights, "gradient-mass": masses, "categories": categories}


def _beside(
    name: str, title: str, lines: Sequence[tuple[Row, Mapping[str, Interval], Any]], table: TokenTable, who: str
) -> TokenRows:
    """Return a line for each: its first columns, our intervals, the paper's row with fields of the same names."""
    rows, shown = list[Row](), list[tuple[Cell, ...]]()
    start = table_of(title, [first for first, _, _ in lines])
    for (first, ours, theirs), line in zip(lines, start.rows, strict=True):
        rows.append(dict(first))
        for field, one in ours.items():
            low, high = (None, None) if math.isnan(one.low) else (one.low, one.high)
            of_paper, digits = getattr(theirs, field), 3 if field == "effective_ratio" else 2
            rows[-1] |= {f"{field}_ours": one.value, f"{field}_low": low, f"{field}_high": high}
            rows[-1][f"{field}_paper"] = of_paper
            value, *ends, printed = (rounded(number, digits) for number in (one.value, one.low, one.high, of_paper))
            spread = f"[{ends[0]}, {ends[1]}] " if low is not None and low != high else ""
            line = (*line, Cell(value, f"{spread}({printed})", data=None if math.isnan(one.value) else one))
        shown.append(line)
    examples = table.example_count
    notes = (
        f"Ours: {who}, {len(table):,} tokens of {examples} examples. In square brackets: 95 % intervals over examples.",
        f"In round brackets: the paper's, {paper.label(name)}; {STAND_IN}, 40,082 tokens of 100 examples.",
    )
    header = (*start.header, *(field.replace("_", " ") for field in lines[0][1]))
    return replace(start, header=header, rows=tuple(shown), notes=notes), rows


# ---- scores


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One number of ours, and the paper's; all are shares from 0 to 1."""

    setting: cells.Cell
    benchmark: str
    metric: str
    ours: Interval
    by_seed: tuple[float, ...]
    against_sft: Interval | None  # of the same model, with the same fields but for the objective's own
    paper: float | None  # of the same model, or else of `STAND_IN`

    def as_dict(self) -> dict[str, Any]:
        sft = self.against_sft
        return {
            "model": self.setting.model,
            "objective": self.setting.objective,
            **dict(self.setting.fields),
            "benchmark": self.benchmark,
            "metric": self.metric,
            **self.ours.as_dict(),
            "seeds": len(self.by_seed),
            "by_seed": " ".join(f"{score:.6g}" for score in self.by_seed),
            "against_sft": None if sft is None else sft.value,
            "against_sft_low": None if sft is None else sft.low,
            "against_sft_high": None if sft is None else sft.high,
            "paper": self.paper,
            "paper_model": (paper_model(self.setting.model) or STAND_IN) if self.paper is not None else None,
        }

    @property
    def cell(self) -> Cell:
        """Our number, with an arrow where it is told apart from SFT's."""
        one = self.against_sft
        if one is None or not one.excludes_zero:
            return Cell.of(self.ours)
        return Cell.of(self.ours, UP if one.value > 0 else DOWN)


def score_rows(
    study: str, summaries: Summaries, metrics: Sequence[str], benchmarks: Sequence[str] = ()
) -> list[ScoreRow]:
    """Return settings in their order, benchmarks in theirs, then the average over them."""
    theirs: dict[tuple[Any, ...], Any] = {}
    for printed in (row for table in SCORE_TABLES.get(study, ("main",)) for row in paper.rows(table)):
        band = DEFAULT_BAND if printed.method.startswith("trim") else None
        theirs.setdefault((printed.model, printed.method, printed.setting or band), printed)
    names = tuple(benchmarks or next(iter(summaries.values())).benchmarks)
    columns = {name: (name,) for name in names} | ({AVERAGE: names} if len(names) > 1 else {})
    rows = []
    for metric, (setting, summary) in itertools.product(metrics, summaries.items()):
        sft = summaries.get(cells.Cell(model=setting.model, objective="sft", fields=setting.shared_fields))
        # another recipe is another experiment
        is_papers = metric == "average" and not setting.shared_fields and setting.get("gamma", GAMMA) == GAMMA
        key = (paper_model(setting.model) or STAND_IN, setting.objective, setting.band)
        for benchmark, of in columns.items():
            row = ScoreRow(
                setting=setting,
                benchmark=benchmark,
                metric=metric,
                ours=summary.interval(metric, *of),
                by_seed=summary.by_seed(metric, of),
                against_sft=None if sft is None or sft is summary else paired(summary, sft, metric, *of),
                paper=_papers_mean(theirs[key], of, study) if is_papers and key in theirs else None,
            )
            rows.append(row)
    return rows


def _papers_mean(row: Any, names: Sequence[str], study: str) -> float | None:
    """Return the paper's mean over these benchmarks; over all of its table for an average over none of them."""
    if len(names) > 1 and not set(names) & set(row.scores):
        # the table of half trims has fewer benchmarks than SFT's row of Table 1
        names = list(paper.rows(SCORE_TABLES.get(study, ("main",))[0])[0].scores)
    if set(names) == set(row.scores) and row.average is not None:
        return float(row.average) / 100
    return float(np.mean([row.scores[name] for name in names])) / 100 if set(names) <= set(row.scores) else None


def our_table(title: str, rows: Sequence[ScoreRow], *, against_sft: bool = False) -> Table:
    """Return settings by benchmarks, with intervals; a last column is the difference to SFT, or else the paper's."""
    by_setting: dict[cells.Cell, list[ScoreRow]] = {}
    for row in rows:
        by_setting.setdefault(row.setting, []).append(row)
    labels, last = labels_of(by_setting), [of_setting[-1] for of_setting in by_setting.values()]
    lines = [[Cell(labels[setting]), *(row.cell for row in of)] for setting, of in by_setting.items()]
    seeds = sorted({len(row.by_seed) for row in last if not row.setting.is_base})
    over = "seeds and problems" if seeds and seeds[-1] > 1 else "problems"
    about = [
        f"Percent, trainings of each: {', '.join(map(str, seeds)) or 'none'}. Brackets: 95 % interval over {over}."
    ]
    if any(cell.marker for line in lines for cell in line):
        about.append(f"{UP} {DOWN}: the interval of the difference to SFT, paired by problem and seed, leaves out 0.")
    best, header = mark_best(lines, groups=[setting.model for setting in by_setting]), [row.benchmark for row in rows]
    more = list[Cell]()
    if against_sft:
        header.append("against SFT")
        more = [Cell.of(row.against_sft, sign="+") for row in last]
    elif any(row.paper is not None for row in last):
        header.append("paper")
        more = [Cell("" if row.paper is None else f"{100 * row.paper:.2f}", data=row.paper) for row in last]
        if not all(paper_model(setting.model) for setting in by_setting):
            about.append(f"The paper's are of {STAND_IN}, another model: for the pattern, not for the size.")
    whole = tuple((*line, *more[number : number + 1]) for number, line in enumerate(best))
    return Table(title, ("", *dict.fromkeys(header)), whole, tuple(about))
