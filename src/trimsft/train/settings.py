"""The settings of a training: a YAML file and `--field value` overrides, as `trl sft` takes them, or a Python call.

parse(["--config", "recipes/qwen2.5-math-1.5b.yaml", "--objective", "dft"])
make_settings({"config": "recipes/qwen2.5-math-1.5b.yaml", "objective": "dft"})     # the same
"""

import copy
import dataclasses
import difflib
import errno
import functools
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from trl import ModelConfig, SFTConfig, TrlParser

from trimsft.data.encode import load_tokenizer as load_plain_tokenizer
from trimsft.data.encode import load_training_data
from trimsft.data.load import DataConfig
from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.runs.parsing import parse_yaml
from trimsft.runs.secrets import is_secret, without_secrets
from trimsft.shipped import find_recipe
from trimsft.train.config import TrimSFTConfig, has_half_precision

KINDS = (DataConfig, TrimSFTConfig, ModelConfig)  # where the fields come from
ALSO = {"model": "model_name_or_path", "data": "dataset_name", "out": "output_dir"}
"""Names of these fields in the other commands; taken beside TRL's names, in a recipe and in Python, too."""
logger = logging.getLogger("trimsft")


@dataclass(frozen=True)
class Settings:
    """Everything one training needs to know."""

    data: DataConfig
    args: TrimSFTConfig
    model: ModelConfig
    overrides: dict[str, Any]
    """The values that differ from the defaults, by field: with `output_dir` all that is needed to do it again."""

    @property
    def run_path(self) -> Path:
        """The run directory: `output_dir`, or a name made of model and objective."""
        if self.args.output_dir and self.args.output_dir != "trainer_output":
            return Path(self.args.output_dir)
        objective = self.args.objective.replace(":", "+")
        return Path("runs") / f"{Path(self.model.model_name_or_path).name.lower()}-{objective}"


class Parser(TrlParser):  # type: ignore[misc]
    """TRL's parser with errors of one line."""

    def __init__(self) -> None:
        super().__init__(KINDS, prog="trimsft train", allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def check_names(self, names: Iterable[str], *, prefix: str = "", where: str = "") -> None:
        """Refuse fields that do not exist, and name the nearest one; of those about as near, one that is not TRL's."""
        options = {one.removeprefix("--") for action in self._actions for one in action.option_strings}
        data, args, trl = ({field.name for field in dataclasses.fields(kind)} for kind in (*KINDS[:2], SFTConfig))
        own = {prefix + name for name in {"config", *ALSO, *data, *args - trl}}
        known = {prefix + name for name in {"config", *ALSO, *options}}
        for name in map(str, names):
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), n=10)
                near.sort(key=lambda one: -difflib.SequenceMatcher(None, one, name).ratio() - 0.1 * (one in own))
                hint = f"did you mean {near[0]}?" if near else "trimsft train --help-all lists every field"
                raise UsageError(f"no such field{where}", field=name, hint=hint)


def parse(words: Sequence[str]) -> Settings:
    """Read a command line; raises `UsageError`."""
    parser = Parser()
    split = [word.split("=", 1) if word.startswith("--") else [word] for word in words]  # --field=value
    flags = {f"--{short}": f"--{name}" for short, name in ALSO.items()}
    words = [flags.get(word, word) for word in itertools.chain.from_iterable(split)]
    parser.check_names([word for word in words if word.startswith("--")], prefix="--")
    recipe: dict[str, Any] = {}
    if "--config" in words:
        place = words.index("--config")
        if place + 1 == len(words) or words[place + 1].startswith("--"):
            raise UsageError("is missing the name of a YAML file", field="--config")
        recipe = _read_recipe(parser, words[place + 1])
        del words[place : place + 2]
    return _settle(parser, words, recipe, wants_bf16="--bf16" in words)


def make_settings(fields: Mapping[str, Any]) -> Settings:
    """Make settings of fields by name, checked as a command line is; `config` names a recipe beneath them."""
    parser = Parser()
    own = _with_trl_names({name: os.fspath(one) if isinstance(one, Path) else one for name, one in fields.items()})
    parser.check_names(own)
    config = own.pop("config", None)
    if config is not None and not isinstance(config, str):
        raise UsageError("must be text: a YAML file or the name of a recipe", field="config", value=config)
    recipe = {} if config is None else _read_recipe(parser, config)
    return _settle(parser, [], recipe | own, wants_bf16="bf16" in own)


def _settle(parser: Parser, words: list[str], fields: dict[str, Any], *, wants_bf16: bool) -> Settings:
    with refusing():
        parser.set_defaults_with_config(**fields)
        read, rest = parser.parse_known_args(words)
    if rest:
        is_file, is_recipe = Path(rest[0]).is_file(), Path(rest[0]).suffix in ("", ".yaml", ".yml")
        field = "--model" if Path(rest[0]).is_dir() else "--data" if is_file and not is_recipe else "--config"
        raise UsageError(f"{' '.join(rest)!r} belongs to no field", hint=f"{field} {rest[0]}, perhaps")
    raw = dict(vars(read))
    for name in (*ALSO.values(), "objective"):  # YAML and Python may hold anything
        if not isinstance(raw[name], str | None):
            hint = "TrimSFTTrainer(..., objective=...) takes a function or an object" if name == "objective" else None
            raise UsageError("must be text", field=name, value=raw[name], hint=hint)
    raw["dataset_name"] = raw["dataset_name"] or ""
    if not wants_bf16 and not has_half_precision():
        if raw["bf16"]:
            logger.warning("bf16: true of the recipe needs a GPU; training in float32 here")
        raw["bf16"] = False  # noted with the run, which is not to continue in another precision elsewhere
    defaults = _defaults()  # secrets and the place of the run are left out of what is noted
    overrides = {
        name: without_secrets(copy.deepcopy(value))  # transformers changes some values in place
        for name, value in raw.items()
        if value != defaults[name] and name != "output_dir" and not is_secret(name)
    }
    with refusing():
        made: list[Any] = []
        for kind in KINDS:
            made.append(kind(**{field.name: raw[field.name] for field in dataclasses.fields(kind) if field.init}))
    data, args, model = made
    if not model.model_name_or_path:
        raise UsageError("is missing", field="model_name_or_path", hint="name a model of the hub or a local folder")
    resumed = args.resume_from_checkpoint
    if resumed and str(resumed).lower() != "true" and not Path(resumed).is_dir():
        hint = "true takes the newest checkpoint"
        raise UsageError("must be a folder", field="resume_from_checkpoint", value=resumed, hint=hint)
    if model.model_name_or_path.startswith("~"):
        model.model_name_or_path = str(Path(model.model_name_or_path).expanduser())
    return Settings(data, args, model, overrides)


def _read_recipe(parser: Parser, name: str) -> dict[str, Any]:
    """Return the fields of a YAML file, or of a recipe that is shipped; its `env` goes to the environment."""
    path = find_recipe(name, field="--config")
    try:
        fields = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {name!r}: {error.strerror}", field="--config") from error
    except ValueError as error:  # no YAML, or bytes that are no text
        raise UsageError(f"{name!r} is not YAML: {one_line(error)}", field="--config") from error
    if not isinstance(fields, dict):
        raise UsageError(f"{name!r} must hold fields and values, such as objective: trim", field="--config")
    environment = fields.pop("env", None) or {}
    if not isinstance(environment, dict):
        raise UsageError(f"env of {name!r} must hold names and values", field="--config")
    fields = _with_trl_names(fields)
    parser.check_names(fields, where=f" in {name}")
    with refusing():
        os.environ.update(
            {str(variable): "" if value is None else str(value) for variable, value in environment.items()}
        )
    return fields


def _with_trl_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    for short, name in ALSO.items():
        if short in fields and name in fields:
            raise UsageError(f"is the same as {name}, which is given, too", field=short, hint="remove one of them")
    return {ALSO.get(name, name): value for name, value in fields.items()}


@functools.cache
def _defaults() -> dict[str, Any]:
    return dict(vars(TrlParser(KINDS).parse_known_args([])[0]))


# ---- tokenizer and data of the settings


def load_tokenizer(settings: Settings) -> Any:
    """Return the tokenizer of the model, as TRL's trainer would make it, before the data is tokenised."""
    args, model = settings.args, settings.model
    tokenizer = load_plain_tokenizer(
        model.model_name_or_path,
        revision=model.model_revision,
        trust_remote_code=args.trust_remote_code,
        field="model_name_or_path",
    )
    if args.eos_token is not None:
        if args.eos_token not in tokenizer.get_vocab():
            raise UsageError("is not in the tokenizer's vocabulary", field="eos_token", value=args.eos_token)
        tokenizer.eos_token = args.eos_token
    template = args.chat_template_path
    if template is not None:
        if not template.endswith((".jinja", ".j2")):
            raise UsageError("must be a .jinja or .j2 file here", field="chat_template_path", value=template)
        try:
            tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
        except OSError as error:
            problem = f"cannot read {template!r}: {error.strerror}"
            raise UsageError(problem, field="chat_template_path") from error
    return tokenizer


def load_data(settings: Settings, tokenizer: Any) -> tuple[Any, Any]:
    """Return the rows to train on, and those to evaluate on if the settings ask for an evaluation."""
    args = settings.args
    masks = {"assistant_only_loss": args.assistant_only_loss, "completion_only_loss": args.completion_only_loss}
    evaluates = args.eval_strategy != "no" or args.eval_on_start
    train, test = load_training_data(settings.data, tokenizer, with_eval=evaluates, **masks)
    if "labels" in train.column_names:  # which say what is trained; TRL would look for messages
        args.assistant_only_loss = False
    return train, test


@contextmanager
def refusing(*, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Within, what other packages raise at settings they cannot carry out becomes a `UsageError`.

    Args:
        is_over: asked whether the settings have proved their worth, so that an error is something else.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, RuntimeError, ZeroDivisionError) as error:
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if isinstance(error, torch.OutOfMemoryError | TrimSFTError) or is_full or is_over():
            raise
        raise UsageError(one_line(error)) from error
