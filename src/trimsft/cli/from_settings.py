"""Commands made from settings: each field of a dataclass becomes an option.

@app.command("eval")
@command_of(EvalSettings)
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


def command_of(kind: type) -> Callable[[Callable[..., Output | None]], Callable[..., None]]:
    """Turn a function of settings into one that typer can read."""

    def wrap(run: Callable[..., Output | None]) -> Callable[..., None]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]

        def call(*, as_json: bool, **given: Any) -> None:
            extra = {parameter.name: given.pop(parameter.name) for parameter in own}
            with ending(flag_names(kind)):
                output = run(kind(**given), **extra)
            if output is not None:
                print_output(output, as_json)

        as_json = inspect.Parameter("as_json", KEYWORD, default=False, annotation=JsonFlag)
        parameters = [*_parameters_of(kind), *own, as_json]
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


def _parameters_of(kind: type) -> list[inspect.Parameter]:
    """Return a parameter for each option of a dataclass, as typer wants it."""
    hints = typing.get_type_hints(kind)
    defaults = {one.name: one.default for one in dataclasses.fields(kind)}
    parameters = []
    for name, option in options_of(kind).items():
        default = defaults[name]
        # the type of one value, text where typer does not know it
        is_list = typing.get_origin(hints[name]) in (tuple, Sequence)
        kinds = typing.get_args(hints[name]) or (hints[name],)
        plain = next((one for one in kinds if one in METAVARS), str)
        text = option.help + (f" One of: {', '.join(option.choices)}." if option.choices else "")
        if option.argument is not None:
            declared: Any = typer.Argument(metavar=option.argument, help=text, show_default=False)
        else:
            metavar = option.metavar or ("NAME" if option.choices else METAVARS[plain])
            declared = typer.Option(*option.flags, help=text, metavar=metavar)
        annotation = list[plain] if is_list else plain | None if default is None else plain  # type: ignore[valid-type]
        default = inspect.Parameter.empty if default is dataclasses.MISSING else default
        default = list(default) if isinstance(default, tuple) else default
        annotation = typing.cast(Any, Annotated)[annotation, declared]
        parameters.append(inspect.Parameter(name, KEYWORD, default=default, annotation=annotation))
    return parameters
