"""The figures of a study: the paper's own, drawn from our results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimsft import paper
from trimsft.report.figures import ablation_curves, sampling_bars, score_bars, score_map
from trimsft.report.figures import analysis as result_figures
from trimsft.report.figures.style import PRINT_FORMATS
from trimsft.scoring.intervals import Interval
from trimsft.scoring.compare import AVERAGE
from trimsft.study.cells import BASE
from trimsft.study.tables.claims_of_the_paper import plane
from trimsft.study.tables.score_rows import ScoreRow
from trimsft.study.tables.summaries import NAMES, Setting, Summary, in_common
from trimsft.study.tables.token_tables import band
from trimsft.tokens.table import TokenTable

Summaries = Mapping[Setting, Summary]
Spread = tuple[float, float, float]


def score_figures(study: str, summaries: Summaries, rows: Sequence[ScoreRow], samples: int, folder: Path) -> list[Path]:
    """Table 1 as bars for `main`, Figure 2 for `passes`, Figure 3 and the plane for `ablation`."""
    if study == "main":
        return _main(rows, samples, folder)
    if study == "passes":
        return _passes(summaries, samples, folder)
    return _ablation(summaries, samples, folder) if study == "ablation" else []


def token_figures(study: str, tables: Mapping[str, TokenTable], folder: Path) -> list[Path]:
    """Figure 4 for `gaps`; R_eff over the plane for `weights`; bars for `categories`."""
    if study == "gaps":
        labelled = {NAMES[objective]: table for objective, table in tables.items()}
        return result_figures.gaps(labelled, band(), folder / "gap_distribution.svg")
    if study == "weights":
        return result_figures.effective_ratios(tables[BASE], band(), folder / "effective_ratio.svg")
    return result_figures.categories(tables[BASE], folder / "categories.svg") if study == "categories" else []


def _main(rows: Sequence[ScoreRow], samples: int, folder: Path) -> list[Path]:
    """The average of each method on each benchmark and over all; the paper's where it has that model."""
    files: list[Path] = []
    shown = [row for row in rows if row.metric == "average"]
    models = list(dict.fromkeys(row.setting.model for row in shown))
    for model in models:
        ours: dict[str, dict[str, Spread]] = {}
        theirs: dict[str, dict[str, float]] = {}
        for row in (row for row in shown if row.setting.model == model):
            name = NAMES[row.setting.objective]
            ours.setdefault(row.benchmark, {})[name] = percent(row.ours)
            if row.paper is not None:
                theirs.setdefault(row.benchmark, {})[name] = 100 * row.paper
        path = folder / ("scores.svg" if len(models) == 1 else f"scores-{model}.svg")
        files += score_bars(
            _overall_last(ours), path, metric=f"average@{samples}, %", paper=theirs, formats=PRINT_FORMATS
        )
    return files


def _overall_last(bars: Mapping[str, dict[str, Spread]]) -> dict[str, dict[str, Spread]]:
    """Some methods may lack what others have: the order of the first is not that of all."""
    return dict(sorted(bars.items(), key=lambda entry: entry[0] == AVERAGE))


def _passes(summaries: Summaries, samples: int, folder: Path) -> list[Path]:
    files: list[Path] = []
    models = list(dict.fromkeys(setting.model for setting in summaries))
    for model in models:
        metrics: dict[str, dict[str, dict[str, Spread]]] = {}
        for metric, title in (
            (f"pass@{samples}", f"pass@{samples}"),
            (f"majority@{samples}", f"best-of-{samples}"),
        ):
            for setting, summary in summaries.items():
                for benchmark in summary.benchmarks if setting.model == model else ():
                    bars = metrics.setdefault(title, {}).setdefault(benchmark, {})
                    bars[NAMES[setting.objective]] = percent(summary.interval(metric, benchmark))
        name = "sampling" if len(models) == 1 else f"sampling-{model}"
        files += sampling_bars(metrics, folder / f"{name}.svg", formats=PRINT_FORMATS)
    return files


def _ablation(summaries: Summaries, samples: int, folder: Path) -> list[Path]:
    files: list[Path] = []
    models = list(dict.fromkeys(setting.model for setting in summaries))
    for model in models:
        sft, bands = summaries.get(Setting(model, "sft")), plane(summaries, model)
        names = in_common([*bands, *([] if sft is None else [sft])]) if bands else ()
        scores = {s.setting.band: percent(s.interval("average", *names)) for s in bands if s.setting.band}
        if not scores or not names:
            continue
        baseline = None if sft is None else 100 * sft.interval("average", *names).value
        end = "" if len(models) == 1 else f"-{model}"
        metric = f"average@{samples}, %"
        curves = folder / f"ablation{end}.svg"
        files += ablation_curves(scores, curves, baseline=baseline, metric=metric, formats=PRINT_FORMATS)
        files += score_map(scores, folder / f"plane{end}.svg", metric=metric, formats=PRINT_FORMATS)
    return [*files, *_of_the_paper(folder)]


def _of_the_paper(folder: Path) -> list[Path]:
    """The same figure from the numbers that the paper prints."""
    rows = [*paper.scores("bandwidth_ablation"), *paper.scores("margin_ablation")]
    scores = {
        (row.setting.margin, row.setting.bandwidth): _exact(row.average or 0.0)
        for row in rows
        if row.setting is not None
    }
    baseline = next(row.average for row in rows if row.method == "sft")
    path = folder / "ablation_of_the_paper.svg"
    metric = "the paper, average@8, %"
    return ablation_curves(scores, path, baseline=baseline, metric=metric, formats=PRINT_FORMATS)


def percent(interval: Interval) -> Spread:
    return (100 * interval.value, 100 * interval.low, 100 * interval.high)


def _exact(value: float) -> Spread:
    return (value, value, value)
