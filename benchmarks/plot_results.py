"""Draw figures of the documentation again, from the CSV beside each: numbers stay as they were measured.

python benchmarks/plot_results.py docs/figures docs/results

Each is known by the name of its file; a sweep.json above a plane says which point was chosen. What needs no run is
drawn by python -m trimsft.report.figures, heads by plot_head.py.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimsft.objectives import BANDWIDTH, MARGIN
from trimsft.report import figures
from trimsft.report.figures.bars import draw_categories
from trimsft.report.figures.curves import draw_gaps
from trimsft.report.figures.planes import BANDWIDTHS, MARGINS, draw_ratios
from trimsft.report.figures.style import SCREEN_FORMATS, Drawing
from trimsft.study.tables.figures import published_ablation
from trimsft.tokens.statistics.calibration import Bin, Calibration
from trimsft.tokens.statistics.groups import Group
from trimsft.tokens.statistics.weighting import REGIONS

Rows = Sequence[dict[str, str]]
Spreads = dict[tuple[float, float], figures.Spread]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders that hold figures, however deep")
    for folder in parser.parse_args().folders:
        for path in sorted(folder.rglob("*.csv")):
            if path.parent.name == "figures" and path.stem in DRAWN:
                for file in DRAWN[path.stem](read_rows(path), path).save(path, SCREEN_FORMATS):
                    print(file)


def read_rows(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _spread(row: dict[str, str]) -> figures.Spread:
    value, low, high = (float(row[name]) for name in ("value", "low", "high"))
    return value, low, high


def _gaps(rows: Rows, path: Path) -> Drawing:
    grid, *densities = np.array([[float(value) for value in row.values()] for row in rows]).T
    curves = dict(zip(list(rows[0])[1:], densities, strict=True))
    return draw_gaps(grid, curves, margin=MARGIN, bandwidth=BANDWIDTH)


def _reliability(rows: Rows, path: Path) -> Drawing:
    runs: dict[str, Calibration] = {}
    for run in dict.fromkeys(row["run"] for row in rows):
        own = [row for row in rows if row["run"] == run]
        bins = [Bin(int(row["tokens"]), float(row["confidence"]), float(row["accuracy"])) for row in own]
        tokens = sum(each.tokens for each in bins)
        runs[run] = Calibration(
            tokens=tokens,
            confidence=sum(each.tokens * each.confidence for each in bins) / tokens,
            accuracy=sum(each.tokens * each.accuracy for each in bins) / tokens,
            ece=float(own[0]["ece"]),
            low=float(own[0]["ece_low"]),
            high=float(own[0]["ece_high"]),
            bins=tuple(bins),
        )
    return figures.reliability_diagram(runs)


def _positions(rows: Rows, path: Path) -> Drawing:
    runs: dict[str, list[Group]] = {}
    unknown = dict.fromkeys(("ratio_percent", "middle_percent", "sft_mass_percent", "trim_mass_percent"), float("nan"))
    for row in rows:
        means = {name: float(row[name]) for name in ("mean_nll", "mean_weight")}
        runs.setdefault(row["run"], []).append(Group(name=row["from"], tokens=0, **means, **unknown))
    return figures.position_curves(runs)


def _movement(rows: Rows, path: Path) -> Drawing:
    base = rows[0]["run"].partition(" to ")[0]
    shares: dict[str, Any] = {}
    for row in rows:
        moved = shares.setdefault(row["run"].partition(" to ")[2], np.zeros((3, 3)))
        moved[REGIONS.index(row["before"]), REGIONS.index(row["after"])] = float(row["percent"])
    return figures.movement_maps(base, shares)


def _categories(rows: Rows, path: Path) -> Drawing:
    own = [row for row in rows if row["source"] == "ours"]
    names = ("tokens", "sft_mass", "trim_mass")
    return draw_categories({row["category"]: tuple(float(row[name]) for name in names) for row in own})  # type: ignore[misc]


def _ratios(rows: Rows, path: Path) -> Drawing:
    ratios = np.array([float(row["effective_ratio"]) for row in rows]).reshape(len(BANDWIDTHS), len(MARGINS))
    return draw_ratios(ratios, MARGIN, BANDWIDTH)


def _sampling(rows: Rows, path: Path) -> Drawing:
    metrics: dict[str, dict[str, dict[str, figures.Spread]]] = {}
    for row in rows:
        metrics.setdefault(row["metric"], {}).setdefault(row["benchmark"], {})[row["run"]] = _spread(row)
    return figures.sampling_bars(metrics)


def _scores(rows: Rows, path: Path) -> Drawing:
    ours: dict[str, dict[str, figures.Spread]] = {}
    theirs: dict[str, dict[str, float]] = {}
    for row in rows:
        ours.setdefault(row["benchmark"], {})[row["run"]] = _spread(row)
        if row["paper"]:
            theirs.setdefault(row["benchmark"], {})[row["run"]] = float(row["paper"])
    return figures.score_bars(ours, paper=theirs)


def _settings(rows: Rows) -> tuple[Spreads, float | None]:
    own = [row for row in rows if row.get("source", "ours") == "ours"]
    scores = {(float(row["margin"]), float(row["bandwidth"])): _spread(row) for row in own if row["margin"] != "sft"}
    return scores, next((float(row["value"]) for row in own if row["margin"] == "sft"), None)


def _ablation(rows: Rows, path: Path) -> Drawing:
    scores, sft = _settings(rows)
    return figures.ablation_curves(scores, baseline=sft, paper=published_ablation())


def _curves(rows: Rows, path: Path) -> Drawing:
    scores, sft = _settings(rows)
    return figures.ablation_curves(scores, baseline=sft)


def _plane(rows: Rows, path: Path) -> Drawing:
    sweep = path.parent.parent / "sweep.json"
    selection = json.loads(sweep.read_text())["selection"] if sweep.is_file() else None
    chosen = (selection["margin"], selection["bandwidth"]) if selection else None
    return figures.score_map(_settings(rows)[0], chosen=chosen)


def _training(rows: Rows, path: Path) -> Drawing:
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        numbers = {name: float(value) if value else None for name, value in row.items() if name not in ("run", "step")}
        runs.setdefault(row["run"], []).append({"step": int(row["step"]), **numbers})
    return figures.training_curves(runs)


def _column(rows: Rows, path: Path) -> Drawing:
    return figures.weighting_functions(column=path.parent.parent.name != "docs")


DRAWN: dict[str, Callable[[Rows, Path], Drawing]] = {
    "gap_distribution": _gaps,
    "reliability": _reliability,
    "positions": _positions,
    "movement": _movement,
    "categories": _categories,
    "effective_ratio": _ratios,
    "sampling": _sampling,
    "scores": _scores,
    "ablation": _ablation,
    "curves": _curves,
    "plane": _plane,
    "weighting_functions": _column,
    "auto_trim_course": _training,
    "smollm2_gsm8k": _training,
}
"""By the name of the file."""

if __name__ == "__main__":
    main()
