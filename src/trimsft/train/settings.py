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
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from trl import ModelConfig, SFTConfig, TrlParser

from trimsft.data.encode import Encoded, load_training_data
from trimsft.data.encode import load_tokenizer as load_plain_tokenizer
from trimsft.data.load import DataConfig
from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.runs.parsing import parse_yaml
from trimsft.runs.secrets import is_secret, without_secrets
from trimsft.shipped import find_recipe, list_shipped
from trimsft.train.bounds import check_fields, doubtful
from trimsft.train.config import TrimSFTConfig, has_half_precision
from trimsft.train.references import check_reference

KINDS = (DataConfig, TrimSFTConfig, ModelConfig)  # where the fields come from
ALSO = {"model": "model_name_or_path", "data": "dataset_name", "out": "output_dir"}
"""What the other commands call these fields; taken beside TRL's names, in a recipe and in Python, too."""
_TRL_FLAGS = {f"--{short}": f"--{name}" for short, name in ALSO.items()}
logger = logging.getLogger("trimsft")


@dataclass(frozen=True)
class Settings:
    """Everything one training needs to know."""

    data: DataConfig
    args: TrimSFTConfig
    model: ModelConfig
    overrides: dict[str, Any]
    """What differs from the defaults, by field name: with `output_dir` it is all that is needed to do it again."""

    @property
    def run_path(self) -> Path:
        """Where the run will be: `output_dir`, or a name made of model and objective."""
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


def parse(words: Sequence[str]) -> Settings:
    """Read a command line; raises `UsageError`."""
    parser = Parser()
    split = [word.split("=", 1) if word.startswith("--") else [word] for word in words]  # --field=value
    words = [_TRL_FLAGS.get(word, word) for word in itertools.chain.from_iterable(split)]
    _check_names(parser, [word for word in words if word.startswith("--")], prefix="--")
    recipe: dict[str, Any] = {}
    if "--config" in words:
        place = words.index("--config")
        if place + 1 == len(words) or words[place + 1].startswith("--"):
            raise UsageError("is missing the name of a YAML file", field="--config")
        recipe = _read_recipe(parser, words[place + 1])
        del words[place : place + 2]
    return _settle(parser, words, recipe, wants_bf16="--bf16" in words)


def make_settings(fields: Mapping[str, Any]) -> Settings:
    """Settings from fields by name, with the same checks as a command line; `config` names a recipe beneath them."""
    parser = Parser()
    own = {name: os.fspath(value) if isinstance(value, Path) else value for name, value in fields.items()}
    own = _with_trl_names(own)
    _check_names(parser, own)
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
        hints = dict.fromkeys(map(_where_it_belongs, rest))
        raise UsageError(f"{' '.join(rest)!r} belongs to no field", hint="; ".join(hints))
    raw = dict(vars(read))
    for kind in KINDS:
        check_fields(kind, raw)
    for name in ALSO.values():  # objects of Python, and of YAML's rarer tags, are not looked at above
        if not isinstance(raw[name], str | None):
            raise UsageError("must be text", field=name, value=raw[name])
    if not wants_bf16 and not has_half_precision():
        if raw["bf16"]:
            logger.warning("bf16: true of the recipe needs a GPU; training in float32 here")
        raw["bf16"] = False  # noted with the run, which is not to continue in another precision elsewhere
    overrides = copy.deepcopy(_overrides(raw))  # transformers changes some values in place
    with refusing(overrides):
        data, args, model = (_made(kind, raw) for kind in KINDS)
    if not model.model_name_or_path:
        raise UsageError("is missing", field="model_name_or_path", hint="name a model of the hub or a local folder")
    check_reference(args.objective, args.make_objective(), data.reference, packing=args.packing)
    resumed = args.resume_from_checkpoint
    if resumed and str(resumed).lower() != "true" and not Path(resumed).is_dir():
        hint = "true takes the newest checkpoint"
        raise UsageError("must be a folder", field="resume_from_checkpoint", value=resumed, hint=hint)
    if model.model_name_or_path.startswith("~"):
        model.model_name_or_path = str(Path(model.model_name_or_path).expanduser())
    return Settings(data, args, model, overrides)


def _where_it_belongs(word: str) -> str:
    """A guess at the field whose name was left out before a word."""
    path = Path(word)
    if path.suffix in (".yaml", ".yml") or any(one.is_called(word) for one in list_shipped()):
        return f"for a recipe: --config {word}"
    if path.is_dir():
        return f"for a model: --model {word}"
    return f"for data: --data {word}" if path.is_file() else "trimsft train --help-all lists every field"


def _made(kind: type, raw: Mapping[str, Any]) -> Any:
    return kind(**{field.name: raw[field.name] for field in dataclasses.fields(kind) if field.init})


def _read_recipe(parser: Parser, name: str) -> dict[str, Any]:
    """The fields of a YAML file, or of a recipe that is shipped; its `env` goes to the environment, as with TRL."""
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
    _check_names(parser, fields, where=f" in {name}")
    for variable, value in environment.items():
        try:
            os.environ[variable] = "" if value is None else str(value)
        except (ValueError, TypeError, OSError) as error:  # NUL, a name with = in it, a number as a name
            raise UsageError(f"env of {name!r}: {variable!r} cannot be set", field="--config") from error
    return fields


def _with_trl_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    for short, name in ALSO.items():
        if short in fields and name in fields:
            raise UsageError(f"is the same as {name}, which is given, too", field=short, hint="remove one of them")
    return {ALSO.get(name, name): value for name, value in fields.items()}


def _check_names(parser: Parser, names: Iterable[str], *, prefix: str = "", where: str = "") -> None:
    """Unknown fields are named with the nearest known one; TRL would list them without help."""
    options = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    known = {prefix + option.removeprefix("--") for option in {"config", *ALSO, *options}}
    for name in map(str, names):
        if name not in known:
            near = _nearest(name, known, own={prefix + option for option in _own_names()})
            hint = f"did you mean {near}?" if near else "trimsft train --help-all lists every field"
            raise UsageError(f"no such field{where}", field=name, hint=hint)


def _nearest(name: str, known: Iterable[str], own: Collection[str]) -> str | None:
    """The known name that is most like this one; of those that are about as like, one of our own."""

    def likeness(one: str) -> float:
        return difflib.SequenceMatcher(None, one, name).ratio() + 0.1 * (one in own)

    return max(difflib.get_close_matches(name, sorted(known), n=10), key=likeness, default=None)


def _own_names() -> set[str]:
    """What this package documents itself; the others are TRL's."""
    data, args, trl = ({field.name for field in dataclasses.fields(kind)} for kind in (*KINDS[:2], SFTConfig))
    return {"config", *ALSO, *data, *args - trl}


def _overrides(raw: dict[str, Any]) -> dict[str, Any]:
    """The values that differ from the fields' defaults; secrets and the place of the run are left out."""
    defaults = _defaults()
    return {
        name: without_secrets(value)
        for name, value in raw.items()
        if value != defaults[name] and name != "output_dir" and not is_secret(name)
    }


@functools.cache
def _defaults() -> dict[str, Any]:
    return dict(vars(TrlParser(KINDS).parse_known_args([])[0]))


# what the settings name ---------------------------------------------------------------------------------------------


def load_tokenizer(settings: Settings) -> Any:
    """The tokenizer of the model, with what TRL's trainer would do to it done before the data is tokenised."""
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


def load_data(settings: Settings, tokenizer: Any) -> tuple[Encoded, Encoded | None]:
    """The rows to train on, and those to evaluate on if the settings ask for an evaluation."""
    evaluates = settings.args.eval_strategy != "no" or settings.args.eval_on_start
    train, test = load_training_data(settings.data, tokenizer, with_eval=evaluates)
    if train.kind == "problem-solution" and settings.args.completion_only_loss is False:
        raise UsageError(
            "false has no effect on problems and solutions, whose prompts are always masked",
            field="completion_only_loss",
            hint="remove it",
        )
    return train, test


@contextmanager
def refusing(given: Iterable[str] = (), *, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """What other packages raise at settings they cannot carry out becomes a `UsageError`.

    An error that was raised in this package's own code is a bug, and left as it is.

    Args:
        given: the settings that were made; of these, the ones that only those packages can judge are named.
        is_over: asked whether the settings have proved their worth, so that an error is something else.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, RuntimeError, LookupError, AttributeError) as error:
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if isinstance(error, torch.OutOfMemoryError | TrimSFTError) or is_full or is_over() or _is_own_bug(error):
            raise
        names = ", ".join(doubtful(KINDS, given))
        raise UsageError(one_line(error), hint=f"it may come from {names}" if names else None) from error


def _is_own_bug(error: Exception) -> bool:
    """Whether a line of this package raised the error, or asked an object for what it has not; files may well fail."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    while frames[-1].f_code.co_name in ("__getattr__", "__getattribute__", "__getitem__"):
        frames.pop()
    module = str(frames[-1].f_globals.get("__name__"))
    return module.partition(".")[0] == "trimsft" and not isinstance(error, OSError)
