"""`trimsft eval` and `trimsft compare`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimsft.cli.base import JsonFlag, make_console
from trimsft.cli.declared import command_of
from trimsft.cli.ending import is_quiet, leaving, note
from trimsft.cli.progress import progress_lines
from trimsft.evaluate.settings import EvalSettings
from trimsft.report.comparison import CompareSettings

if TYPE_CHECKING:
    from typing import Self

    from trimsft.evaluate.generate import Progress
    from trimsft.evaluate.prompts import Prompts


@command_of(EvalSettings, resumes=True)
def evaluate(settings: EvalSettings, *, as_json: JsonFlag = False) -> None:
    """Sample, grade and score the answers of a model.

    8 samples at temperature 1 and a greedy answer to every problem, as in the paper. Rerun the command to resume: what
    is recorded is never generated again. A record may grow (samples, greedy, limit); other settings are refused.

    \b
    Examples:
      trimsft eval runs/trim -b math500 -b gsm8k
      trimsft eval ./model -b problems.jsonl --problem-column question
      trimsft eval my-model -b aime24 --server http://localhost:8000
    """
    from trimsft.evaluate import run

    with _Watched(settings) as watched, leaving(watched.there):
        evaluated = run.evaluate(settings, on_load=watched.load, on_start=watched.begin, on_progress=watched.progress)
    if as_json:
        typer.echo(json.dumps(evaluated.as_json()))
        return
    from trimsft.evaluate.scores import read_scores
    from trimsft.report.tables.scores import group_tables, summary_table
    from trimsft.tables import to_rich

    name = Path(settings.model).name
    groups = group_tables({name: evaluated.scores}, "average" if settings.samples else "greedy")
    graders = [read_scores(evaluated.run.eval_dir / score.benchmark).grader for score in evaluated.scores]
    for table in (summary_table(evaluated.scores, name, graders), *groups):
        make_console().print(to_rich(table))
    if not is_quiet():
        typer.echo(f"Recorded in {evaluated.run.eval_dir}", err=True)


class _Watched:
    """An evaluation as it goes on: its prompts, how far it is, and what is there when it is interrupted."""

    def __init__(self, settings: EvalSettings) -> None:
        self._model, self._folder = settings.model, settings.run.eval_dir
        self._held = ExitStack()
        self._latest: tuple[str, Progress] | None = None

    def __enter__(self) -> Self:
        self._show = self._held.enter_context(progress_lines())
        return self

    def __exit__(self, *failure: object) -> None:
        self._held.close()

    def load(self, benchmarks: Sequence[str]) -> None:
        note(f"loading {self._model}, to be evaluated on {', '.join(benchmarks)}")

    def begin(self, benchmark: str, prompts: Prompts) -> None:
        from trimsft.data.visible import visible

        if is_quiet():
            return
        # a template is somebody's text: nothing in it may act on the terminal
        shown = visible(prompts.example).replace("\n", "\n  ")
        typer.echo(f"{benchmark}, the first prompt:\n  {shown}", err=True)
        for text in prompts.notes:
            note(text)

    def progress(self, benchmark: str, progress: Progress) -> None:
        self._latest = (benchmark, progress)
        self._show(f"{benchmark}: {progress.line()}", about=benchmark, is_last=progress.is_complete)

    def there(self) -> str:
        """What an interrupted evaluation has recorded."""
        if self._latest is None or not self._latest[1].done:
            return "no sample was recorded; rerun the command to start again"
        name, progress = self._latest
        recorded = f"{progress.done:,} of {progress.total:,} samples are recorded in {self._folder / name}"
        return f"{recorded}; rerun the command to resume"


@command_of(CompareSettings)
def compare(settings: CompareSettings, *, as_json: JsonFlag = False) -> None:
    """Compare evaluated runs, problem by problem.

    Shows the differences from the first run, with 95 % intervals and sign-flip p-values that are corrected for the
    number of comparisons. Benchmarks that a run has no scores of are left out, and named.

    \b
    Examples:
      trimsft compare runs/sft runs/trim --metric greedy
      trimsft compare runs/sft runs/dft runs/trim --format markdown --out table.md
    """
    from trimsft.report.comparison import compare as compare_scores

    style = "json" if as_json else settings.style
    compared = compare_scores(replace(settings, style=style))
    if settings.out is None:
        typer.echo(compared.render(style))
    if style != "terminal":
        for sentence in compared.left_out:
            note(sentence)
