"""Commands made from settings: each field of a dataclass becomes an option, its help and default as declared there.

@app.command("eval")
@command_of(EvalSettings)
def evaluate(settings: EvalSettings, *, as_json: JsonFlag = False) -> None: ...

What the function takes beyond the settings are options of the command alone. Errors call fields by their options.
"""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from trimsft.cli.terminal import QuietFlag, ending
from trimsft.errors import UsageError
from trimsft.options import Option, options_of

_QUIET = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=QuietFlag)


def command_of(
    kind: type, *, resumes: bool | None = None, **fixed: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function of settings into one that typer can read; `fixed` fields are no options.

    A command that says whether it `resumes` what was interrupted does long work, and has --quiet.
    """

    def wrap(run: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        shown = [*own, _QUIET] if resumes is not None else own
        parameters = [parameter for parameter in parameters_of(kind) if parameter.name not in fixed]
        names = {field: flag for field, flag in flags_of(kind).items() if field not in fixed}

        def call(**given: Any) -> None:
            extra = {parameter.name: given.pop(parameter.name) for parameter in own}
            with ending(names, resumes=bool(resumes), quiet=given.pop("quiet", False)):
                run(_build(kind, {**given, **fixed}), **extra)

        call.__name__, call.__doc__ = run.__name__, run.__doc__
        merged = sorted([*parameters, *shown], key=lambda one: one.default is not inspect.Parameter.empty)
        call.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in merged}
        return call

    return wrap


def _build(kind: type, given: Mapping[str, Any]) -> Any:
    """Make settings of what the command line gave; inlined dataclasses are put together first."""
    values = dict(given)
    for name, known in options_of(kind).items():
        if known.argument is not None and known.flags:
            argument, named, what = values.pop(name), values.pop(f"{name}_option"), known.argument.rstrip(".")
            if not argument and not named:
                raise UsageError("is missing", field=name, hint=f"name it as {what} or as {known.flags[0]} {what}")
            if argument and named and not isinstance(named, list):
                raise UsageError(f"is given twice, as {argument!r} and as {named!r}", field=name, hint="once will do")
            values[name] = [*argument, *named] if isinstance(named, list) else argument or named
        if known.inline is not None:
            inner = [field.name for field in dataclasses.fields(known.inline)]
            values[name] = known.inline(**{field: values.pop(field) for field in inner if field in values})
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def parameters_of(kind: type) -> list[inspect.Parameter]:
    """Return a keyword parameter for each option of a dataclass, annotated as typer wants it."""
    hints = typing.get_type_hints(kind)
    parameters = []

    def add(name: str, plain: Any, known: Option, default: Any) -> None:
        annotation: Any = typing.cast(Any, Annotated)[plain, _typer_option(name, plain, known)]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )

    for field in dataclasses.fields(kind):
        known: Option | None = field.metadata.get("option")
        if known is None:
            continue
        if known.inline is not None:
            parameters += parameters_of(known.inline)
            continue
        plain = _plain_type(hints[field.name])
        if known.argument is None or not known.flags:
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            empty = inspect.Parameter.empty if default is dataclasses.MISSING else default
            add(field.name, plain, known, list(default) if isinstance(default, tuple) else empty)
            continue
        # an argument that may be given behind its flag, too
        absent: Any = [] if typing.get_origin(plain) is list else None
        metavar = known.argument.rstrip(".")
        add(field.name, plain, known, absent)
        behind_flag = replace(known, argument=None, metavar=metavar, help=f"The same as {metavar}.")
        add(f"{field.name}_option", plain, behind_flag, absent)
    return parameters


def flags_of(kind: type) -> dict[str, str]:
    """Return what each field is called on the command line."""
    flags: dict[str, str] = {}
    for name, known in options_of(kind).items():
        if known.inline is not None:
            flags |= flags_of(known.inline)
        else:
            flags[name] = (known.argument or _flag(name, known)).removesuffix("...")
    return flags


def _flag(name: str, known: Option) -> str:
    long = [flag for flag in known.flags if flag.startswith("--")]
    return (long or ["--" + name.replace("_", "-")])[0].partition("/")[0]


def _plain_type(hint: Any) -> Any:
    """Return the type that typer knows: one value, maybe absent, or a list."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list, Sequence):
        return list[_plain_type(arguments[0])]  # type: ignore[misc]
    if arguments:  # a union
        kind = _plain_type(next(one for one in arguments if one is not type(None)))
        return kind | None if type(None) in arguments else kind
    return hint if hint in (str, int, float, bool, Path) else str


def _typer_option(name: str, kind: Any, known: Option) -> Any:
    more: dict[str, Any] = {"help": known.help + (f" One of: {', '.join(known.choices)}." if known.choices else "")}
    for number, metavar in ((int, "N"), (float, "NUMBER")):
        if kind in (number, number | None, list[number]):  # type: ignore[valid-type]
            more |= {"parser": _number(_flag(name, known), number), "metavar": metavar}
    if kind in (str, str | None, list[str]):
        more["metavar"] = known.metavar or ("NAME" if known.choices else "TEXT")
    elif kind in (Path, Path | None, list[Path]):
        more["metavar"] = "PATH"
    if known.argument is not None:
        return typer.Argument(**{**more, "metavar": known.argument, "show_default": False})
    return typer.Option(*known.flags, **more)


class NumbersCommand(TyperCommand):
    """A command whose options of several numbers take them behind one flag: --temperatures 0.6 0.3."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the flag before each further number, as click reads it."""
        lists = {
            flag
            for one in self.params
            if getattr(one, "multiple", False) and one.metavar == "NUMBER"
            for flag in one.opts
        }
        words: list[str] = []
        flag = None
        for word in args:
            if flag is not None and re.fullmatch(r"[0-9.]+", word):
                words += [word] if words[-1] == flag else [flag, word]
                continue
            flag = word if word in lists else None
            words.append(word)
        return super().parse_args(ctx, words)


def _number(flag: str, kind: type) -> Callable[[Any], Any]:
    """Return a parser with our words for what is no number; bounds are for the settings to check."""

    def parse(given: Any) -> Any:
        try:
            return kind(given)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            with ending({}):
                raise UsageError(f"{str(given)!r} is not {what}", field=flag) from None

    return parse
