"""Draw the telemetry of several runs into one figure.

python benchmarks/plot_training.py docs/figures/smollm2_gsm8k.svg runs/smollm2-sft runs/smollm2-trim ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from trimsft.report.figures import training_curves
from trimsft.runs import JsonLines, RunDirectory

if __name__ == "__main__":
    out, *folders = map(Path, sys.argv[1:])
    runs = {folder.name: JsonLines(RunDirectory(folder).train_dir / "telemetry.jsonl").read() for folder in folders}
    for file in training_curves({name: list(records) for name, records in runs.items()}, out):
        print(file)
