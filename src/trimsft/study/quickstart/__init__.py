"""`trimsft quickstart`: the paper's comparison on the lab, in minutes, on a CPU, offline.

runs/quickstart/
  config.yaml        the settings; another quickstart may not be mixed in
  data/              train.jsonl, held-out.jsonl
  base/              eval/, tokens.parquet
  sft/ ... trim-h/   ordinary run directories: config.yaml, manifest.json, train/, model/, eval/, tokens.parquet
  logs/              what the libraries said, a file for each method
  quickstart.json    the table, for programs
  report.html

Who does what: `settings` says how much, `command` leads, `workers` are the processes, `steps` is what they do for one
method, `progress` shows it, `results` reads the run directories, `tables` and `words` say what came out.
"""

from trimsft.study.quickstart.command import Outcome, run
from trimsft.study.quickstart.settings import Settings

__all__ = ["Outcome", "Settings", "run"]
