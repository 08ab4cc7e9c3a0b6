"""Draw the telemetry of several runs into one figure.

python benchmarks/plot_training.py docs/figures/smollm2_gsm8k.svg runs/smollm2-sft runs/smollm2-trim ...
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trimsft.report.figures import training_curves
from trimsft.report.figures.style import SCREEN_FORMATS
from trimsft.runs import JsonLines, RunDirectory

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories")
    arguments = parser.parse_args()
    runs = {folder.name: RunDirectory(folder) for folder in arguments.runs}
    records = {name: JsonLines(run.telemetry_path).read() for name, run in runs.items()}
    objectives = {name: (run.read_config() or {}).get("objective") for name, run in runs.items()}
    for file in training_curves(records, objectives).save(arguments.figure, SCREEN_FORMATS):
        print(file)
