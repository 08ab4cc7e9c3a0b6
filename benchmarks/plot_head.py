"""Draw the comparison of heads from the JSON of benchmarks/head.py: SVG, PNG, and the numbers as CSV.

python benchmarks/plot_head.py results/head_h200.json docs/figures/head_h200.svg
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from trimsft.report.colours import METHOD_LINES, NEUTRAL
from trimsft.report.figures.style import STYLE
from trimsft.runs import write_whole

SHOWN = {
    "trimsft: TrimSFT": "trimsft TrimSFT",
    "trimsft: TrimSFT, low_memory=True": "trimsft TrimSFT, low_memory=True",
    "trimsft: AutoTrim": "trimsft AutoTrim",
    "trimsft: SFT": "trimsft SFT",
    "quack": "QuACK SFT",
    "compiled SFT": "torch.compile SFT",
    "compiled TrimSFT": "torch.compile TrimSFT",
    "liger fp32 accumulation, 8x chunks": "Liger SFT, 8x chunks, fp32",
    "liger SM90": "Liger SM90 SFT",
    "TRL": "TRL SFT",
    "TRL DFT": "TRL DFT",
    "plain SFT": "plain torch SFT",
    "plain TrimSFT": "plain torch TrimSFT",
    "cut cross-entropy": "Cut Cross-Entropy SFT",
    "liger": "Liger SFT",
    "liger DFT": "Liger DFT",
}
COLOURS = {
    "trimsft": METHOD_LINES["trim"].colour,
    "others, SFT": NEUTRAL,
    "others, weighted": METHOD_LINES["trim-h"].colour,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what benchmarks/head.py wrote")
    parser.add_argument("figure", type=Path)
    arguments = parser.parse_args()
    report, path = json.loads(arguments.results.read_text()), arguments.figure
    with matplotlib.rc_context(STYLE):
        shapes = [shape for shape in report["shapes"] if len(shape["results"]) >= len(SHOWN)]
        figure = Figure(figsize=(9.0, 3.6 * len(shapes) / 2), layout="constrained")
        panels = figure.subplots(-(-len(shapes) // 2), 2, sharey=True)
        for axes, shape in zip(panels.flat, shapes, strict=True):
            _draw(axes, shape)
        marks = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
    for suffix, content in {".svg": svg.getvalue(), ".png": png.getvalue(), ".csv": _table(report)}.items():
        write_whole(path.with_suffix(suffix), content)


def _draw(axes: Axes, shape: dict[str, Any]) -> None:
    results = {result["method"]: result for result in shape["results"]}
    longest = max(results[method]["milliseconds"] or 0.0 for method in SHOWN if method in results)
    for place, method in enumerate(SHOWN):
        result = results.get(method)
        if result is None or result["failed"]:
            why = "not measured" if result is None else "cannot run this shape"
            axes.text(longest * 0.01, place, why, va="center", fontsize=6.5, color=NEUTRAL)
            continue
        kind = "trimsft" if result["ours"] else "others, SFT" if result["objective"] == "sft" else "others, weighted"
        axes.barh(place, result["milliseconds"], color=COLOURS[kind], height=0.75)
        label = f" {result['milliseconds']:.1f} ms, {result['extra_gib']:.2f} GiB"
        axes.text(result["milliseconds"], place, label, va="center", fontsize=6.5)
    axes.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
    axes.set_ylim(len(SHOWN) - 0.5, -0.5)
    axes.set_xlim(0, longest * 1.5)
    axes.set_xlabel("forward and backward, ms")
    size = f"{shape['tokens']} x {shape['hidden_size']} x {shape['vocabulary']}"
    axes.set_title(f"{shape['name']} shape\n{size}", loc="left")


def _table(report: dict[str, Any]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["shape", "method", "milliseconds", "extra_gib", "hidden_error", "weight_error", "kept"])
    for shape in report["shapes"]:
        for result in shape["results"]:
            cells = ("milliseconds", "extra_gib", "hidden_error", "weight_error", "kept")
            numbers = ["" if result[cell] is None else f"{result[cell]:.6g}" for cell in cells]
            writer.writerow([shape["name"], result["method"], *numbers])
    return text.getvalue().encode()


if __name__ == "__main__":
    main()
