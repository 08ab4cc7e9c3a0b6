"""`trimsft eval` and `trimsft compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimsft.cli.base import JsonFlag, make_console, status_line
from trimsft.cli.declared import command_of
from trimsft.cli.ending import tell
from trimsft.evaluate.settings import EvalSettings
from trimsft.report.comparison import CompareSettings

if TYPE_CHECKING:
    from trimsft.evaluate.prompts import Prompts


@command_of(EvalSettings)
def evaluate(settings: EvalSettings, *, as_json: JsonFlag = False) -> None:
    """Sample, grade and score a model; run it again to continue.

    8 samples at temperature 1 and a greedy answer to every problem, as in the paper. What is recorded is never
    generated again. A record may grow (samples, greedy, limit); other settings are refused.

    \b
    Examples:
      trimsft eval runs/trim -b math500 -b gsm8k
      trimsft eval ./model -b problems.jsonl --max-tokens 512
      trimsft eval my-model -b aime24 --server http://localhost:8000
    """
    from trimsft.evaluate import run

    with status_line() as status:
        evaluated = run.evaluate(
            settings, on_start=_show_prompt, on_progress=lambda name, progress: status(f"{name}: {progress.line()}")
        )
    if as_json:
        typer.echo(json.dumps(evaluated.as_json()))
        return
    from trimsft.report.table import to_rich
    from trimsft.report.tables.scores import group_tables, summary_table

    name = Path(settings.model).name
    groups = group_tables({name: evaluated.scores}, "average" if settings.samples else "greedy")
    for table in (summary_table(evaluated.scores, name), *groups):
        make_console().print(to_rich(table))
    typer.echo(f"Recorded in {evaluated.run.eval_dir}", err=True)


def _show_prompt(benchmark: str, prompts: Prompts) -> None:
    from trimsft.text.visible import visible

    # a template is somebody's text: nothing in it may act on the terminal
    shown = visible(prompts.example).replace("\n", "\n  ")
    typer.echo(f"{benchmark}, the first prompt:\n  {shown}", err=True)
    for note in prompts.notes:
        tell(note)


@command_of(CompareSettings)
def compare(settings: CompareSettings) -> None:
    """Compare evaluated runs, problem by problem.

    Differences to the first run with 95 % intervals and sign-flip p-values, corrected for how many there are.

    \b
    Example:
      trimsft compare runs/sft runs/trim --metric greedy
    """
    from trimsft.report.comparison import compare as compare_scores

    compared = compare_scores(settings)
    if settings.out is None:
        typer.echo(compared.render(settings.style))
