"""A tiny quickstart as a process: python -m tests.study.quickstart.quickstart_process OUT [fast words ...]."""

import sys

from trimsft.cli import app
from trimsft.study import quickstart
from trimsft.study.quickstart import command, workers

TINY = quickstart.Settings(
    methods=("sft", "trim"), rows=24, batch=12, problems=2, samples=2, max_tokens=12, table_rows=2
)

if __name__ == "__main__":
    quickstart.Settings.fast = classmethod(lambda cls, seed=0: TINY)  # type: ignore[method-assign, assignment]
    workers.how_many = command.how_many = lambda runs: 1  # type: ignore[assignment]
    sys.argv = ["trimsft", "quickstart", "--fast", *sys.argv[1:]]
    app()
