"""`trimsft quickstart`: the paper's comparison on the lab, in minutes, on a CPU, offline. A study with a small table.

runs/quickstart/
  config.yaml        the settings; another quickstart may not be mixed in
  data/              train.jsonl, held-out.jsonl
  base/              eval/, tokens.parquet
  sft/ ... trim-h/   ordinary run directories: config.yaml, manifest.json, train/, model/, eval/, tokens.parquet
  logs/              what the libraries said, a file for each method
  quickstart.json    the table, for programs
  report.html

`command` runs it as the cells of a study, `scores` says what came out, in numbers and words.
"""

from trimsft.study.quickstart.command import QuickstartOutcome, QuickstartSettings, run_quickstart

__all__ = ["QuickstartOutcome", "QuickstartSettings", "run_quickstart"]
