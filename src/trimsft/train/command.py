"""Trainings at the border of a process: errors become lines and exit codes."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence

import torch
from rich.console import Console

from trimsft.errors import DONE, TrimSFTError, exit_code, one_line
from trimsft.train.estimate import describe, dry_run
from trimsft.train.preview import preview, show
from trimsft.train.run import train
from trimsft.train.settings import parse

DRY_RUN = ("--dry-run", "--dry_run")


def main(words: Sequence[str]) -> int:
    """`trimsft train`: 0 done, 1 failed while training, 2 refused before it, 130 and 143 after SIGINT and SIGTERM."""

    def work() -> None:
        settings = parse([word for word in words if word not in DRY_RUN])
        if not any(flag in words for flag in DRY_RUN):
            train(settings)
            return
        estimate = dry_run(settings)
        if _is_first():
            Console(highlight=False).print(describe(estimate))

    return ending(work)


def preview_main(words: Sequence[str], *, count: int, show_ids: bool, as_json: bool) -> int:
    """`trimsft data preview`: the first examples as the trainer will see them, before truncation and after."""

    def work() -> None:
        seen = preview(parse(words), count=count)
        if as_json:
            sys.stdout.write(json.dumps(seen.as_json()) + "\n")
        else:
            show(seen, Console(highlight=False), show_ids=show_ids)

    return ending(work)


def ending(work: Callable[[], None]) -> int:
    """Do it, say in one line what went wrong, and return the exit code."""
    log_to_stderr()
    try:
        work()
    except (TrimSFTError, FloatingPointError, torch.OutOfMemoryError, KeyboardInterrupt) as error:
        if not getattr(error, "is_told", False):
            # what the first rank has found it has said for all
            rank = "" if _is_first() else f"[rank {os.environ['RANK']}] "
            if _is_first() or not isinstance(error, KeyboardInterrupt):
                sys.stderr.write(f"trimsft: {rank}{one_line(error)}\n")
        return exit_code(error)
    return DONE


def log_to_stderr() -> None:
    """What trimsft logs, as lines on stderr of the first process."""
    logger = logging.getLogger("trimsft")
    if not logger.handlers and _is_first():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("trimsft: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def _is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0
