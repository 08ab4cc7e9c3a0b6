"""What training said about itself, over its steps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimsft.report.figures.style import AMBER, BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, save

TELEMETRY_PANELS = {
    "loss": "weighted loss",
    "nll": "nll",
    "mean_token_accuracy": "token accuracy",
    "gap_p50": "median logit gap",
    "effective_ratio": "effective ratio $R_{eff}$",
    "skipped": "skipped rows",
    "mass_middle": "gradient mass in the band",
    "eos_weight": "weight of eos",
}
"""Fields of `telemetry.jsonl` that are drawn, and how they are called."""
_LINES: tuple[tuple[str, tuple[float, ...]], ...] = (
    (BLUE, ()),
    (ORANGE, (4, 1.5)),
    (GREEN, (6, 1.5, 1.5, 1.5)),
    (PURPLE, (2.2, 1)),
    (GREY, ()),
    (AMBER, (1, 1)),
)


def training_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | Path) -> list[Path]:
    """What each run's telemetry said, over its steps; `runs` are the records of `telemetry.jsonl` by label."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "lines.linewidth": 1.2}):
        figure = Figure(figsize=(7.2, 3.9), layout="constrained")
        for axes, (field, title) in zip(figure.subplots(2, 4).flat, TELEMETRY_PANELS.items(), strict=True):
            for (label, records), (colour, dashes) in zip(runs.items(), itertools.cycle(_LINES), strict=False):
                points = [(record["step"], record[field]) for record in records if record.get(field) is not None]
                (line,) = axes.plot(*zip(*points, strict=True), label=label, color=colour)
                line.set_dashes(dashes or (1, 0))
            axes.set_title(title, loc="left")
        for axes in figure.axes[4:]:
            axes.set_xlabel("step")
        figure.axes[0].set_yscale("log")  # DFT's and TrimSFT's are far below the others
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        rows = (
            [label, record["step"], *(_number(record.get(field)) for field in TELEMETRY_PANELS)]
            for label, records in runs.items()
            for record in records
            if "loss" in record
        )
        return save(figure, path, ["run", "step", *TELEMETRY_PANELS], rows)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
