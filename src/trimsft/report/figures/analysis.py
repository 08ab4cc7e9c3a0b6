"""The figures of `write_analysis`: what is drawn in each, from tables and scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trimsft import paper
from trimsft.report import figures
from trimsft.report.figures.bars import Spread
from trimsft.report.figures.curves import Course, Reliability
from trimsft.report.figures.style import PRINT_FORMATS
from trimsft.report.page.sources import Run
from trimsft.report.page.sweep import Sweep
from trimsft.report.tables.paper import CATEGORY_SETTING, in_order
from trimsft.tokens.statistics.calibration import BINS, Calibration
from trimsft.tokens.statistics.density import density, range_of
from trimsft.tokens.statistics.grids import PAPER_SETTINGS, effective_ratio_grid
from trimsft.tokens.statistics.groups import Group, by_category
from trimsft.tokens.statistics.movement import Movement
from trimsft.tokens.table import TokenTable

Tables = Mapping[str, TokenTable]
_POINTS = 400
_MARGINS = np.linspace(-2, 10, 49)
_BANDWIDTHS = np.geomspace(0.1, 8, 40)


def gaps(tables: Tables, band: Mapping[str, float], path: Path) -> list[Path]:
    """Figure 4."""
    values = {label: table["gap"].astype(np.float64) for label, table in tables.items()}
    grid = np.linspace(*range_of(list(values.values())), _POINTS)
    found = {label: density(one, grid) for label, one in values.items()}
    shaded = (band["margin"], band["bandwidth"])
    return figures.gap_distribution(grid, found, path, band=shaded, formats=PRINT_FORMATS)


def reliability(found: Mapping[str, Calibration], path: Path) -> list[Path]:
    runs = {
        label: Reliability(
            [each.confidence for each in one.bins],
            [each.accuracy for each in one.bins],
            [each.tokens for each in one.bins],
            *(one.ece, one.low, one.high, BINS),
        )
        for label, one in found.items()
    }
    return figures.reliability_diagram(runs, path, formats=PRINT_FORMATS)


def positions(tenths: Mapping[str, list[Group]], path: Path) -> list[Path]:
    runs = {
        label: Course([each.mean_nll for each in found], [each.mean_weight for each in found])
        for label, found in tenths.items()
    }
    return figures.position_curves(runs, path, formats=PRINT_FORMATS)


def movements(base: str, moved: Mapping[str, Movement], path: Path) -> list[Path]:
    shares = {f"{base} to {label}": found.shares for label, found in moved.items()}
    return figures.movement_maps(shares, path, formats=PRINT_FORMATS)


def categories(table: TokenTable, path: Path) -> list[Path]:
    margin, bandwidth = CATEGORY_SETTING
    ours = {
        row.name: (row.ratio, row.sft_mass, row.trim_mass)
        for row in by_category(table, margin=margin, bandwidth=bandwidth)
    }
    theirs = {row.category: (row.ratio, row.sft_mass, row.trim_mass) for row in paper.token_categories()}
    return figures.category_bars(ours, path, paper=theirs, setting=CATEGORY_SETTING, formats=PRINT_FORMATS)


def effective_ratios(table: TokenTable, band: Mapping[str, float], path: Path) -> list[Path]:
    ratios = effective_ratio_grid(table["gap"].astype(np.float64), _MARGINS.tolist(), _BANDWIDTHS.tolist())
    marked = [(band["margin"], band["bandwidth"]), *PAPER_SETTINGS]
    return figures.effective_ratio_map(_MARGINS, _BANDWIDTHS, ratios, path, marked=marked, formats=PRINT_FORMATS)


def sampling(runs: Mapping[str, Run], path: Path) -> list[Path]:
    """Figure 2: none where no run has scores of repeated samples."""
    metrics: dict[str, dict[str, dict[str, Spread]]] = {}
    for kind, title in (("pass", "pass@{}"), ("majority", "best-of-{} (majority vote)")):
        for benchmark in in_order({name for run in runs.values() for name in run.scores}):
            for label, run in runs.items():
                samples = run.scores.get(benchmark, {}).get("samples")
                spread = run.interval(benchmark, f"{kind}@{samples}")
                if spread is not None:
                    panel = metrics.setdefault(title.format(samples), {})
                    panel.setdefault(benchmark, {})[label] = (spread.value, spread.low, spread.high)
    return figures.sampling_bars(metrics, path, formats=PRINT_FORMATS) if metrics else []


def ablation(sweep: Sweep, path: Path) -> list[Path]:
    """Figure 3, for each objective that was tried with several settings."""
    planes: dict[str, dict[tuple[float, float], Spread]] = {}
    for point in sweep.points:
        percent = (100 * point.value, 100 * point.low, 100 * point.high)
        planes.setdefault(point.objective, {})[point.margin, point.bandwidth] = percent
    baseline = None if sweep.baseline is None else 100 * sweep.baseline[0]
    files = []
    for objective, scores in planes.items():
        if len(scores) > 1:
            place = path if len(planes) == 1 else path.with_stem(f"{path.stem}-{objective}")
            files += figures.ablation_curves(
                scores, place, baseline=baseline, metric=f"{sweep.metric}, %", formats=PRINT_FORMATS
            )
    return files
