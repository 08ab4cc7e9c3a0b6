"""The figures of a study: the paper's own, drawn from our results."""

from collections.abc import Mapping
from pathlib import Path

from trimsft.report import figures
from trimsft.report.figures import Spread, spread_percent
from trimsft.report.score_figures import ablation_curves, score_dots
from trimsft.study import paper
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.study.paper_tables import DEFAULT_BAND
from trimsft.study.results import Summaries, plane
from trimsft.tokens.table import TokenTable


def score_figures(study: str, summaries: Summaries, samples: int, folder: Path) -> list[Path]:
    """Draw Figure 2 for `passes`, Figure 3 for `ablation`."""
    models = list(dict.fromkeys(setting.model for setting in summaries))
    drawn: dict[str, figures.Drawing] = {}
    for model in models:
        end = "" if len(models) == 1 else f"-{model}"
        if study == "passes":
            drawn[f"sampling{end}"] = _passes(summaries, model, samples)
        elif study == "ablation" and (bands := plane(summaries, model)):
            scores = {s.setting.band: spread_percent(s.interval("average")) for s in bands if s.setting.band}
            sft = summaries.get(Cell(model=model, objective="sft"))
            baseline = None if sft is None else 100 * sft.interval("average").value
            metric = f"average@{samples}, %"
            drawing = ablation_curves(scores, baseline=baseline, metric=metric, paper=published_ablation())
            drawn[f"ablation{end}"] = drawing
    return [path for name, drawing in drawn.items() for path in drawing.save(folder / f"{name}.svg")]


def token_figures(study: str, tables: Mapping[str, TokenTable], folder: Path) -> list[Path]:
    """Draw Figure 4 for `gaps`, R_eff over the plane for `weights`."""
    margin, bandwidth = DEFAULT_BAND
    if study == "gaps":
        labelled = {method_name(objective): table for objective, table in tables.items()}
        drawing = figures.gap_distribution(labelled, margin=margin, bandwidth=bandwidth)
        return drawing.save(folder / "gap_distribution.svg")
    if study == "weights":
        drawing = figures.effective_ratio_map(tables[BASE], margin=margin, bandwidth=bandwidth)
        return drawing.save(folder / "effective_ratio.svg")
    return []


def _passes(summaries: Summaries, model: str, samples: int) -> figures.Drawing:
    metrics: dict[str, dict[str, dict[str, Spread]]] = {}
    for metric in (f"pass@{samples}", f"majority@{samples}"):
        for setting, summary in summaries.items():
            for benchmark in summary.benchmarks if setting.model == model else ():
                bars = metrics.setdefault(f"{metric}, %", {}).setdefault(benchmark, {})
                bars[method_name(setting.objective)] = spread_percent(summary.interval(metric, benchmark))
    return score_dots(metrics)


def published_ablation() -> tuple[Mapping[tuple[float, float], Spread], float]:
    """Return what the paper prints of its Figure 3, in percent: scores by (margin, bandwidth), and SFT's."""
    rows = [*paper.rows("bandwidth_ablation"), *paper.rows("margin_ablation")]
    averages = {row.setting: row.average or 0.0 for row in rows if row.setting is not None}
    scores = {(band.margin, band.bandwidth): (average, average, average) for band, average in averages.items()}
    return scores, next(row.average or 0.0 for row in rows if row.method == "sft")
