"""Commands made from settings: each field of a dataclass becomes an option.

@app.command("eval")
@command_of(EvalSettings, shown="benchmarks samples out")
def evaluate(settings: EvalSettings) -> Output: ...

What the function takes beyond the settings are options of the command alone. It may return what is
printed, for which every command has --json. Errors call fields by their options.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trimsft.cli.terminal import JsonFlag, Output, ending, print_output
from trimsft.options import options_of

KEYWORD = inspect.Parameter.KEYWORD_ONLY
METAVARS = {str: "TEXT", Path: "PATH", int: "N", float: "NUMBER", bool: None}


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


HelpAllFlag = Annotated[bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options.")]


def command_of(kind: type, *, shown: str = "") -> Callable[[Callable[..., Output | None]], Callable[..., None]]:
    """Turn a function of settings into one that typer can read.

    Args:
        shown: the fields that --help lists, --help-all lists all; empty for all.
    """

    def wrap(run: Callable[..., Output | None]) -> Callable[..., None]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        flags = {"as_json": JsonFlag} | ({"help_all": HelpAllFlag} if shown else {})

        def call(*, as_json: bool, help_all: bool = False, **given: Any) -> None:
            extra = {parameter.name: given.pop(parameter.name) for parameter in own}
            with ending(flag_names(kind)):
                output = run(kind(**given), **extra)
            if output is not None:
                print_output(output, as_json)

        parameters = [*_parameters_of(kind, shown.split()), *own]
        for name, annotation in flags.items():
            parameters.append(inspect.Parameter(name, KEYWORD, default=False, annotation=annotation))
        parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)
        call.__name__, call.__doc__ = run.__name__, run.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return wrap


def flag_names(kind: type) -> Callable[[str], str]:
    """Return a function that gives the name of a field on the command line."""
    names = {}
    for field, known in options_of(kind).items():
        long = [flag.partition("/")[0] for flag in known.flags if flag.startswith("--")]
        names[field] = known.argument or (long or [f"--{field.replace('_', '-')}"])[0]
    return lambda field: names.get(field, field).removesuffix("...")


def _parameters_of(kind: type, shown: Sequence[str]) -> list[inspect.Parameter]:
    """Return a parameter for each option of a dataclass, as typer wants it; those shown first."""
    hints, known = typing.get_type_hints(kind), options_of(kind)
    defaults = {one.name: one.default for one in dataclasses.fields(kind)}
    parameters = []
    for name in sorted(known, key=lambda name: shown.index(name) if name in shown else len(shown)):
        option, default = known[name], defaults[name]
        # the type of one value, text where typer does not know it
        is_list = typing.get_origin(hints[name]) in (tuple, Sequence)
        kinds = typing.get_args(hints[name]) or (hints[name],)
        plain = next((one for one in kinds if one in METAVARS), str)
        text = option.help + (f" One of: {', '.join(option.choices)}." if option.choices else "")
        if option.argument is not None:
            declared: Any = typer.Argument(metavar=option.argument, help=text, show_default=False)
        else:
            metavar = option.metavar or ("NAME" if option.choices else METAVARS[plain])
            hidden = bool(shown) and name not in shown
            declared = typer.Option(*option.flags, help=text, metavar=metavar, hidden=hidden)
        annotation = list[plain] if is_list else plain | None if default is None else plain  # type: ignore[valid-type]
        default = inspect.Parameter.empty if default is dataclasses.MISSING else default
        default = list(default) if isinstance(default, tuple) else default
        annotation = typing.cast(Any, Annotated)[annotation, declared]
        parameters.append(inspect.Parameter(name, KEYWORD, default=default, annotation=annotation))
    return parameters
