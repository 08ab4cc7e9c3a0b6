"""`trimsft audit`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from trimsft.audit.run import AuditSettings
from trimsft.cli.base import JsonFlag, make_console, make_table
from trimsft.cli.declared import command_of
from trimsft.cli.ending import is_quiet
from trimsft.cli.progress import progress_bar
from trimsft.errors import UsageError, counted

if TYPE_CHECKING:
    from trimsft.audit.run import AuditResult, Suspect

SPAN, LEFT, RIGHT = 10, 16, 6  # characters shown of a span and of what stands around it


@command_of(AuditSettings, resumes=True)
def audit(
    settings: AuditSettings,
    *,
    show: Annotated[int, typer.Option(help="Suspects to print, the worst ones.", metavar="N")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Rank what looks wrong in training data.

    A suspect is a token far below the model's own choice in a row that the model supports otherwise, and still so
    after a short training on other rows: noise stays low, news rises. Writes suspects.jsonl and flagged.jsonl, and
    report shows them; the data itself is never changed. Rerun the command to resume.

    \b
    Examples:
      trimsft audit train.jsonl --model Qwen/Qwen2.5-Math-1.5B
      trimsft audit train.jsonl --model runs/sft --no-training --out quick
      trimsft audit train.jsonl --model runs/sft --threshold 7 --clean
    """
    from trimsft.audit.run import audit as run_audit

    if show < 0:
        raise UsageError("must be at least 0", field="--show", value=show)
    with progress_bar() as on_progress:
        result = run_audit(settings, on_progress=on_progress)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    if result.suspects[:show]:
        _print_suspects(result.suspects[:show])
    if not is_quiet():
        typer.echo(_said(result), err=True)


def _print_suspects(suspects: list[Suspect]) -> None:
    from rich.text import Text

    table = make_table("row", "before", "after", "score", "expected", "written")
    for one in suspects:
        after = "" if one.gap_after is None else f"{one.gap_after:.1f}"
        written = f"{_shown(one.left)[-LEFT:]}[{_shown(one.text)[:SPAN] or 'end'}]{_shown(one.right)[:RIGHT]}"
        texts = [Text(text) for text in (_shown(one.expected)[:SPAN], written)]  # as Text: data is no markup
        table.add_row(str(one.row), f"{one.gap_before:.1f}", after, f"{one.score:.1f}", *texts)
    make_console().print(table)


def _shown(text: str) -> str:
    """Text of models and data on one line, with nothing that acts on a terminal."""
    from trimsft.data.visible import visible

    return visible(text).replace("\n", "↵").replace("\t", "⇥")


def _said(result: AuditResult) -> str:
    folder, flagged = result.folder, f"{len(result.flagged):,} of {counted(result.rows, 'row')} flagged"
    files = f"the ranking is {folder.suspects_path}, the data with flags {folder.flagged_path}"
    return f"{counted(len(result.suspects), 'suspect')}, {flagged}; {files}"
