"""What `trimsft train` and its previews begin with: the tokenizer, the data, and where the run will be."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from trimsft.errors import UsageError, one_line
from trimsft.text.training_data import Encoded, load_training_data
from trimsft.train.config import TrimSFTConfig
from trimsft.train.settings import Settings

logger = logging.getLogger("trimsft")


def load_tokenizer(settings: Settings) -> Any:
    name = settings.model.model_name_or_path
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_local and not Path(name).expanduser().exists():
        raise UsageError(f"model_name_or_path: {name!r} does not exist")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name, revision=settings.model.model_revision, trust_remote_code=settings.args.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"model_name_or_path: cannot load a tokenizer from {name!r}: {str(error).splitlines()[0]}"
        ) from error
    _adjust(tokenizer, settings.args)
    return tokenizer


def _adjust(tokenizer: Any, args: TrimSFTConfig) -> None:
    """What TRL's trainer would do to the tokenizer, done before the data is tokenised."""
    if args.eos_token is not None:
        if args.eos_token not in tokenizer.get_vocab():
            raise UsageError(f"eos_token: {args.eos_token!r} is not in the tokenizer's vocabulary")
        tokenizer.eos_token = args.eos_token
    template = args.chat_template_path
    if template is not None and template.endswith((".jinja", ".j2")):
        try:
            tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"chat_template_path: cannot read {template!r}: {error.strerror}") from error
    elif template is not None:
        raise UsageError(f"chat_template_path: {template!r} must be a .jinja or .j2 file here")


def load_data(settings: Settings, tokenizer: Any) -> tuple[Encoded, Encoded | None]:
    with_eval = settings.args.eval_strategy != "no"
    train, test = load_training_data(settings.data, tokenizer, with_eval=with_eval)
    if train.kind == "problem-solution" and settings.args.completion_only_loss is False:
        raise UsageError(
            "completion_only_loss: false has no effect on problems and solutions, whose prompts are always masked; "
            "remove it"
        )
    return train, test


@contextmanager
def refusing() -> Iterator[None]:
    """What other packages raise at settings they cannot carry out, as a message for the user."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UsageError(one_line(error)) from error


def run_path(settings: Settings) -> Path:
    if settings.args.output_dir and settings.args.output_dir != "trainer_output":
        return Path(settings.args.output_dir)
    name = Path(settings.model.model_name_or_path).name.lower()
    return Path("runs") / f"{name}-{settings.args.objective}"


def say_on_stderr() -> None:
    if not logger.handlers and _is_first():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("trimsft: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def failed(error: object, code: int) -> int:
    """Say it, on other ranks than the first with their number, unless the first has said it for all."""
    if getattr(error, "said", False):
        return code
    rank = "" if _is_first() else f"[rank {os.environ['RANK']}] "
    sys.stderr.write(f"trimsft: {rank}{str(error).strip()}\n")
    return code


def _is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0
