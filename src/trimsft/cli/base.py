"""The program itself, and what its commands share: options that are checked, errors in one line, progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trimsft.errors import one_line

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.table import Table

SHORT_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SHORT_HELP,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
DTYPES = ("auto", "float32", "bfloat16", "float16")


def refuse(field: str, value: object, right: str) -> NoReturn:
    typer.echo(f"trimsft: {field}: {str(value)!r} {right}", err=True)
    raise typer.Exit(2)


def whole_number(field: str, explanation: str, *, least: int = 1) -> Any:
    """An option that takes a whole number."""

    def parse(given: str | int) -> int:
        text = str(given)  # a default comes as it is
        if not text.isdecimal() or int(text) < least:
            refuse(field, text, f"must be a whole number, at least {least}")
        return int(text)

    return typer.Option(field, help=explanation, parser=parse, metavar="<int>")


def above_zero(field: str, explanation: str) -> Any:
    """An option that takes a number above 0."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            refuse(field, text, "must be a number above 0")
        return number

    return typer.Option(field, help=explanation, parser=parse, metavar="<float>")


def _print_version(wanted: bool) -> None:
    if wanted:
        from trimsft import __version__

        typer.echo(f"trimsft {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fine-tune language models on the tokens that matter.

    \b
    Start here:
      trimsft quickstart
    """


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Torch's errors, such as too little memory, in one line."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, typer.Exit):
            raise
        typer.echo(f"trimsft: {what} failed: {str(error).partition(chr(10))[0]}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def refusing(errors: tuple[type[Exception], ...], **names: str) -> Iterator[None]:
    """What is wrong with a request in one line, by the names of the options here; how to go on after an interrupt."""
    try:
        yield
    except errors as error:
        if isinstance(error, typer.Exit):
            raise
        text = one_line(error)
        for field, option in names.items():
            text = text.replace(f"{field}:", f"{option}:")
        typer.echo(f"trimsft: {text}", err=True)
        raise typer.Exit(2) from None
    except FloatingPointError as error:
        typer.echo(f"trimsft: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("trimsft: interrupted; what is done is kept; the same command continues", err=True)
        raise typer.Exit(130) from None


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr for each thing that is counted, where someone is watching."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        lines: dict[str, Any] = {}

        def tell(name: str, done: int, total: int) -> None:
            if name not in lines:
                lines[name] = progress.add_task(f"{name}: rows")
            progress.update(lines[name], completed=done, total=total)

        yield tell


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        typer.echo(f"trimsft: --out: cannot write {str(path)!r}: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is going on, where someone is watching."""
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(text)


def make_console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def make_table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table


def choose_device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()) or name.endswith(":"):
        refuse("--device", name, "must be auto, cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        refuse("--device", name, f"is not there: torch sees {torch.cuda.device_count()} CUDA devices")
    if kind == "cuda":
        torch.cuda.set_device(int(number or 0))
    return torch.device(name)
