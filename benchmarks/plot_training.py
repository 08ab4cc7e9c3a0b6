"""Draw the telemetry of several runs into one figure, each called by its method, or by its folder where two have one.

python benchmarks/plot_training.py docs/figures/smollm2_gsm8k.svg runs/smollm2-sft runs/smollm2-trim ...
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from trimsft.objectives import display_name
from trimsft.report.course import read_course
from trimsft.report.figures import training_curves
from trimsft.report.figures.style import SCREEN_FORMATS
from trimsft.report.runs import Run
from trimsft.runs import RunDirectory

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories")
    arguments = parser.parse_args()
    runs = [RunDirectory(folder) for folder in arguments.runs]
    trained = [str((run.read_config() or {}).get("objective") or run.path.name) for run in runs]
    labels = [
        display_name(objective) if Counter(trained)[objective] == 1 else run.path.name
        for run, objective in zip(runs, trained, strict=True)
    ]
    courses = {label: read_course(Run(label, run.path)) for label, run in zip(labels, runs, strict=True)}
    records = {label: [vars(line) for line in course] for label, course in courses.items()}
    objectives = dict(zip(labels, trained, strict=True))
    for file in training_curves(records, objectives).save(arguments.figure, SCREEN_FORMATS):
        print(file)
