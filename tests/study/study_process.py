"""A tiny study as a process of its own: python -m tests.study.study_process run main --smoke ..."""

import sys

from trimsft.cli import app
from trimsft.study import studies

if __name__ == "__main__":
    studies.COMPARED = ("base", "sft", "trim")
    sys.argv = ["trimsft", "study", *sys.argv[1:]]
    app()
