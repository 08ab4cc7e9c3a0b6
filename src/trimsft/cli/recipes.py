"""`trimsft recipes`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli.base import JsonFlag, make_console
from trimsft.cli.ending import ending
from trimsft.errors import UsageError
from trimsft.shipped import Shipped, copy_shipped, list_shipped

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="A recipe, an example, a folder of them, or all.", show_default=False),
]
Out = Annotated[
    Path | None, typer.Option(metavar="PATH", help="The folder to copy to.  [default: this one]", show_default=False)
]


def recipes(names: Names = None, out: Out = None, as_json: JsonFlag = False) -> None:
    """List the shipped recipes and examples, or copy some.

    train takes a recipe by its name. What is to be changed, or is for accelerate, Slurm or Python, is copied first, to
    where the documentation has it: recipes/accelerate/fsdp2.yaml, examples/trl_trainer.py, constraints.txt. What is
    there already is never replaced.

    \b
    Examples:
      trimsft recipes
      trimsft train --config smollm2-gsm8k --data train.jsonl --dry-run
      trimsft recipes smollm2-gsm8k accelerate
      trimsft recipes all --out trimsft-files
    """
    with ending({"names": "NAME", "out": "--out"}):
        if not names:
            if out is not None:
                raise UsageError("has no effect without a name", field="out", hint="name what to copy, or all")
            _list(list_shipped(), as_json)
            return
        copies = copy_shipped([] if "all" in names else names, Path() if out is None else out)
    typer.echo(json.dumps([str(path) for path in copies]) if as_json else "\n".join(f"Wrote {path}" for path in copies))


def _list(files: list[Shipped], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{"name": one.name, "path": str(one.path), "title": one.title()} for one in files]))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    for one in files:
        table.add_row(Text(one.name), Text(one.title()))  # as Text: a title is no markup
    make_console().print(table)
