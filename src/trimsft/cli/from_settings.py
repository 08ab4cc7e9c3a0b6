"""Commands made from settings: each field of a dataclass becomes an option, its help and default as declared there.

@app.command("eval")
@command_of(EvalSettings, resumes=True, shown="benchmarks samples out")
def evaluate(settings: EvalSettings) -> Output: ...

What the function takes beyond the settings are options of the command alone, and it may return what is printed, for
which every command has --json. Errors call fields by their options.
"""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from trimsft.cli.terminal import JsonFlag, Output, QuietFlag, ending, print_output
from trimsft.options import Option, options_of

METAVARS = {str: "TEXT", Path: "PATH", int: "N", float: "NUMBER"}


def command_of(
    kind: type, *, resumes: bool | None = None, shown: str = ""
) -> Callable[[Callable[..., Output | None]], Callable[..., None]]:
    """Turn a function of settings into one that typer can read.

    Args:
        resumes: whether the command, called again, goes on with what was interrupted; not None for long work.
        shown: the fields that --help lists, --help-all lists all; empty for all.
    """

    def wrap(run: Callable[..., Output | None]) -> Callable[..., None]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        shared = [_keyword("as_json", False, JsonFlag)]
        shared += [_keyword("quiet", False, QuietFlag)] if resumes is not None else []
        shared += [_keyword("help_all", False, HelpAllFlag)] if shown else []

        def call(*, as_json: bool, quiet: bool = False, help_all: bool = False, **given: Any) -> None:
            extra = {parameter.name: given.pop(parameter.name) for parameter in own}
            with ending(flags_of(kind), resumes=bool(resumes), quiet=quiet):
                output = run(_build(kind, given), **extra)
            if output is not None:
                print_output(output, as_json)

        parameters = [*_parameters_of(kind, shown.split()), *own, *shared]
        parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)
        call.__name__, call.__doc__ = run.__name__, run.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return wrap


def _build(kind: type, given: Mapping[str, Any]) -> Any:
    """Make settings of what the command line gave; inlined dataclasses are put together first."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for name, known in options_of(kind).items():
        if known.inline is not None:
            inner = [field.name for field in dataclasses.fields(known.inline)]
            values[name] = known.inline(**{field: values.pop(field) for field in inner if field in values})
    return kind(**values)


def flags_of(kind: type) -> dict[str, str]:
    """Return what each field is called on the command line."""
    flags: dict[str, str] = {}
    for name, known in options_of(kind).items():
        if known.inline is not None:
            flags |= flags_of(known.inline)
        else:
            long = [flag.partition("/")[0] for flag in known.flags if flag.startswith("--")]
            flags[name] = (known.argument or (long or [f"--{name.replace('_', '-')}"])[0]).removesuffix("...")
    return flags


def _parameters_of(kind: type, shown: Sequence[str]) -> list[inspect.Parameter]:
    """Return a keyword parameter for each option of a dataclass, annotated as typer wants it."""
    hints = typing.get_type_hints(kind)
    parameters = []
    for field in dataclasses.fields(kind):
        known: Option | None = field.metadata.get("option")
        if known is None:
            continue
        if known.inline is not None:
            parameters += _parameters_of(known.inline, shown)
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        default = inspect.Parameter.empty if default is dataclasses.MISSING else default
        default = list(default) if isinstance(default, tuple) else default
        plain, text = _plain_type(hints[field.name]), known.help
        text += f" One of: {', '.join(known.choices)}." if known.choices else ""
        if known.argument is not None:
            declared: Any = typer.Argument(metavar=known.argument, help=text, show_default=False)
        else:
            usual = next((name for one, name in METAVARS.items() if plain in (one, one | None, list[one])), None)  # type: ignore[valid-type]
            metavar = known.metavar or ("NAME" if known.choices else usual)
            hidden = bool(shown) and field.name not in shown
            declared = typer.Option(*known.flags, help=text, metavar=metavar, hidden=hidden)
        parameters.append(_keyword(field.name, default, typing.cast(Any, Annotated)[plain, declared]))
    return parameters


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain_type(hint: Any) -> Any:
    """Return the type that typer knows: one value, maybe absent, or a list."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list, Sequence):
        return list[_plain_type(arguments[0])]  # type: ignore[misc]
    if arguments:  # a union
        kind = _plain_type(next(one for one in arguments if one is not type(None)))
        return kind | None if type(None) in arguments else kind
    return hint if hint in (str, int, float, bool, Path) else str


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


HelpAllFlag = Annotated[bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options.")]


class NumbersCommand(TyperCommand):
    """A command whose options of several numbers take them behind one flag: --temperatures 0.6 0.3."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the flag before each further number, as click reads it."""
        flags = {flag for one in self.params if getattr(one, "multiple", False) for flag in one.opts}
        words, flag = list[str](), ""
        for word in args:
            is_number = re.fullmatch(r"[0-9.]+", word) is not None
            if flag and is_number and words[-1] != flag:
                words.append(flag)
            elif not is_number:
                flag = word if word in flags else ""
            words.append(word)
        return super().parse_args(ctx, words)
