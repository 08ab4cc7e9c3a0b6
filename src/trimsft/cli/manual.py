"""What --help shows: how a command is called, what it does, its arguments and options, each with its default.

Usage: trimsft eval MODEL -b NAME [OPTIONS]

Made from the parameters of a command alone, so that it reads alike with every version of typer.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class Manual(TyperCommand):
    """A command whose help names arguments, options and defaults as a manual does."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        shown = self.get_params(ctx)
        twins = [one.name for one in shown]
        words = [_usage_of(one, f"{one.name}_option" in twins) for one in shown if is_argument(one)]
        words += [f"{flag_of(one)} {metavar_of(one)}" for one in shown if not is_argument(one) and one.required]
        formatter.write_usage(ctx.command_path, " ".join([*words, "[OPTIONS]"]))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown: list[Any] = [one for one in self.get_params(ctx) if not getattr(one, "hidden", False)]
        arguments = [(metavar_of(one), one.help or "") for one in shown if is_argument(one)]
        options = [(_names_of(one), _described(one)) for one in shown if not is_argument(one)]
        for title, entries in (("Arguments", arguments), ("Options", options)):
            if entries:
                with formatter.section(title):
                    formatter.write_dl(entries)


def is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def is_switch(parameter: Any) -> bool:
    """Whether it stands alone, without a value."""
    return bool(getattr(parameter, "is_flag", False)) or flag_of(parameter) == "--help"


def flag_of(parameter: Any) -> str:
    """The long name of an option."""
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))


def metavar_of(parameter: Any) -> str:
    return str(parameter.metavar or (parameter.name if is_argument(parameter) else "VALUE")).upper()


def _usage_of(parameter: Any, may_be_named: bool) -> str:
    """An argument is left out in brackets only if the command can do without it, by whatever name."""
    name = metavar_of(parameter)
    name = f"{name}..." if parameter.nargs != 1 and not name.endswith("...") else name
    return name if parameter.required or may_be_named else f"[{name}]"


def _names_of(parameter: Any) -> str:
    names = ", ".join(sorted(parameter.opts, key=lambda name: name.startswith("--")))
    if parameter.secondary_opts:
        return f"{names} / {', '.join(parameter.secondary_opts)}"
    return names if is_switch(parameter) else f"{names} {metavar_of(parameter)}"


def _described(parameter: Any) -> str:
    """The help and the default, unless the help has named it."""
    text, default = parameter.help or "", parameter.default
    if parameter.required:
        return f"{text} (required)"
    if not getattr(parameter, "show_default", True) or "default" in text or default is None:
        return text
    if parameter.secondary_opts:
        return f"{text} (default: {flag_of(parameter) if default else parameter.secondary_opts[0]})"
    if is_switch(parameter) or callable(default) or default in ("", [], ()):
        return text
    listed = ", ".join(map(str, default)) if isinstance(default, list | tuple) else default
    return f"{text} (default: {listed})"


def add(app: typer.Typer, name: str, run: Any, **settings: Any) -> None:
    """Make a function a command of the program."""
    app.command(name, cls=Manual, **settings)(run)
