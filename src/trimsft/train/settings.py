"""The settings of `trimsft train`: a YAML file and `--field value` overrides, as `trl sft` takes them."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from trl import ModelConfig, TrlParser

from trimsft.errors import UsageError, one_line
from trimsft.text.training_data import DataConfig
from trimsft.train.config import TrimSFTConfig

KINDS = (DataConfig, TrimSFTConfig, ModelConfig)
"""Where the fields come from."""


logger = logging.getLogger("trimsft")


@dataclass(frozen=True)
class Settings:
    """Everything one training needs to know."""

    data: DataConfig
    args: TrimSFTConfig
    model: ModelConfig
    given: dict[str, Any]
    """What differs from the defaults, by field name: with `output_dir` it is all that is needed to do it again."""

    @property
    def model_init_kwargs(self) -> dict[str, Any]:
        """What `from_pretrained` gets, as `trl sft` puts it together."""
        return {
            "revision": self.model.model_revision,
            "attn_implementation": self.model.attn_implementation,
            "dtype": self.model.dtype,
            **(self.args.model_init_kwargs or {}),
        }


class Parser(TrlParser):  # type: ignore[misc]
    """TRL's parser with errors of one line."""

    def __init__(self) -> None:
        super().__init__(KINDS, prog="trimsft train", allow_abbrev=False)
        if not _has_half_precision():
            # TRL turns bf16 on everywhere; on a CPU it is many times slower, and there is nothing to pin memory for
            self.set_defaults(bf16=False, dataloader_pin_memory=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(arguments: Sequence[str]) -> Settings:
    """Read a command line; raises `UsageError` with a message for the user."""
    parser = Parser()
    words = _unequal(arguments)
    _check_names(parser, [word for word in words if word.startswith("--")])
    given = _given(words, _read_file(parser, words))
    if given.get("bf16") and "--bf16" not in words and not _has_half_precision():
        logger.warning("bf16: true of the recipe needs a GPU; training in float32 here")
        words += ["--bf16", "false"]
        given["bf16"] = False
    try:
        data, args, model = parser.parse_args_and_config(words)
    except UsageError:
        raise
    except (ValueError, TypeError, NotImplementedError) as error:
        raise UsageError(one_line(error)) from error
    if not model.model_name_or_path:
        raise UsageError("model_name_or_path: is missing; name a model of the hub or a local folder")
    if args.learning_rate < 0:
        raise UsageError(f"learning_rate: must not be below 0, got {args.learning_rate:g}")
    resumed = args.resume_from_checkpoint
    if resumed and str(resumed).lower() != "true" and not Path(resumed).is_dir():
        raise UsageError(f"resume_from_checkpoint: {resumed!r} is not a folder; true takes the newest checkpoint")
    if model.model_name_or_path.startswith("~"):
        model.model_name_or_path = str(Path(model.model_name_or_path).expanduser())
    return Settings(data, args, model, given)


def _read_file(parser: Parser, words: list[str]) -> dict[str, Any]:
    """The fields of the configuration file; what TRL would say of a bad one is meant for programmers."""
    if "--config" not in words:
        return {}
    place = words.index("--config") + 1
    if place == len(words) or words[place].startswith("--"):
        raise UsageError("--config: is missing the name of a YAML file")
    name = words[place]
    try:
        fields = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config: cannot read {name!r}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: {name!r} is not YAML: {one_line(error)}") from error
    if not isinstance(fields, dict):
        raise UsageError(f"--config: {name!r} must hold fields and values, such as objective: trim")
    fields.pop("env", None)
    _check_names(parser, [f"--{field}" for field in fields], where=f" in {name}")
    return fields


def _unequal(arguments: Sequence[str]) -> list[str]:
    """--field=value as two words."""
    words = []
    for word in arguments:
        name, equals, value = word.partition("=")
        words += [name, value] if equals and name.startswith("--") else [word]
    return words


def _check_names(parser: Parser, names: list[str], where: str = "") -> None:
    """Unknown fields are named with the nearest known one; TRL would list them without help."""
    known = {"--config", *(option for action in parser._actions for option in action.option_strings)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; trimsft train --help-all lists every field"
            raise UsageError(f"{name}: no such field{where}{hint}")


def _given(words: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    """The raw values that differ from the fields' defaults; secrets and the place of the run are left out.

    By a parser of its own: transformers changes some of them in place while it works.
    """
    parser = Parser()
    parser.set_defaults_with_config(**fields)
    words = list(words)
    if "--config" in words:
        place = words.index("--config")
        del words[place : place + 2]
    raw = vars(parser.parse_known_args(words)[0])
    defaults = vars(TrlParser(KINDS).parse_known_args([])[0])
    return {
        name: _without_secrets(value)
        for name, value in raw.items()
        if value != defaults[name] and name != "output_dir" and not _is_secret(name)
    }


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_secrets(entry) for name, entry in value.items() if not _is_secret(str(name))}


def _is_secret(name: str) -> bool:
    return re.search(r"(hub_token|api_key|password|secret|^token)$", name) is not None


def _has_half_precision() -> bool:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type != "mps"
