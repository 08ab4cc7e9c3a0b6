"""The program itself, options that several commands have, and what they print tables with."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimsft.cli.ending import is_quiet

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("_", "-"),  # --max_tokens, as train and TRL have it
    },
)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no progress or notes.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from trimsft import __version__

        typer.echo(f"trimsft {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fine-tune language models on the tokens that matter.

    \b
    Start here:
      trimsft quickstart                        # all of it in minutes, offline
      trimsft tokens MODEL --data DATA.jsonl    # does the model support the data?
      trimsft train --model MODEL --data DATA.jsonl --objective auto-trim
      trimsft eval RUN -b math500               # then: trimsft compare RUN RUN

    Every command has --help with examples. Interrupted, commands that take long resume when they are run again.
    """


def called() -> str:
    """How this program is called in the user's shell, for commands that are printed to be copied.

    `trimsft`, where the shell finds this one by that name; else the path or the `python -m trimsft` that was typed.
    """
    typed = Path(sys.argv[0])
    if typed.parts[-2:] == ("trimsft", "__main__.py"):
        is_known = shutil.which("python") and os.path.samefile(shutil.which("python") or "", sys.executable)
        return f"{'python' if is_known else sys.executable} -m trimsft"
    found = shutil.which("trimsft")
    if typed.name != "trimsft" or (found and typed.exists() and os.path.samefile(found, typed)):
        return "trimsft"
    return str(typed)


def make_console(*, stderr: bool = False) -> Console:
    """A console without colours for numbers and paths; on stderr it is silent with --quiet."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, quiet=stderr and is_quiet())


def make_table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table
