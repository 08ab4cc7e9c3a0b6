"""Draw the telemetry of several runs into one figure.

python benchmarks/plot_training.py docs/figures/smollm2_gsm8k.svg runs/smollm2-sft runs/smollm2-trim ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from trimsft.report.figures import training_curves
from trimsft.report.figures.style import SCREEN_FORMATS
from trimsft.runs import JsonLines, RunDirectory

if __name__ == "__main__":
    out, *folders = map(Path, sys.argv[1:])
    runs = {folder.name: RunDirectory(folder) for folder in folders}
    records = {name: JsonLines(run.telemetry_path).read() for name, run in runs.items()}
    objectives = {name: (run.read_config() or {}).get("objective") for name, run in runs.items()}
    for file in training_curves(records, objectives).save(out, SCREEN_FORMATS):
        print(file)
