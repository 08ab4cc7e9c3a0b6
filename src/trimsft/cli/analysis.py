"""`trimsft tokens` and `trimsft report`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import typer

from trimsft.cli.base import JsonFlag, called, make_console, make_table
from trimsft.cli.declared import command_of, flags_of
from trimsft.cli.ending import is_quiet, note, tell
from trimsft.cli.progress import progress_bar, status_line
from trimsft.options import given_options
from trimsft.report.report import ReportSettings
from trimsft.runs import RunDirectory
from trimsft.tokens.settings import TokenSettings, name_of

if TYPE_CHECKING:
    from trimsft.tokens.measure import TokenTables


@command_of(TokenSettings, resumes=True)
def tokens(settings: TokenSettings, *, as_json: JsonFlag = False) -> None:
    """Measure what a model thinks of every trained token.

    One pass over the data writes tokens.parquet: nll, gap, competitor, entropy, rank, gradient norm and category of
    each token, from which report makes everything else. It says whether the model supports the data, and which band to
    train with. Several models are compared on the same rows. Rerun the command to resume.

    \b
    Examples:
      trimsft tokens runs/trim --data train.jsonl --sample 2000
      trimsft tokens Qwen/Qwen3-4B-Base runs/trim --data train.jsonl --out both
      torchrun --nproc-per-node 8 -m trimsft tokens runs/trim --data train.jsonl
    """
    from trimsft.tokens.measure import measure_tokens

    with progress_bar() as on_progress:
        tables = measure_tokens(settings, on_progress=on_progress)
    if as_json:
        typer.echo(json.dumps(tables.as_dict()))
    elif tables.summaries:
        _print_summaries(tables)
        _print_verdicts(tables, settings)
    for one in tables.summaries:
        already = f"{one.path} is there already, made with the same inputs; left as it is"
        if not is_quiet():
            typer.echo(f"Wrote {one.path}" if one.is_new else already, err=True)
    for path in tables.pending:
        note(f"this share is done; {path} is written when the last share is")
    if tables.incomparable is not None:
        tell(tables.incomparable.told_with(flags_of(TokenSettings)))


def _print_summaries(tables: TokenTables) -> None:
    table = make_table("model", "tokens", "mean\nnll", "median\ngap", "first\nchoice", "R_eff", "High-\nWeight")
    for one in tables.summaries:
        table.add_row(
            name_of(one.model), f"{one.tokens:,}", f"{one.mean_nll:.3f}", f"{one.median_gap:.2f}",
            f"{one.first_choice_percent:.1f} %", f"{one.effective_ratio:.3f}", f"{one.high_weight_percent:.1f} %",
        )  # fmt: skip
    make_console().print(table)


def _print_verdicts(tables: TokenTables, settings: TokenSettings) -> None:
    """What the tokens say about training on these rows; for a model that is no run, the commands, too."""
    console = make_console()
    for one in tables.summaries:
        name = f"{name_of(one.model)}: " if len(tables.summaries) > 1 else ""
        console.print(f"{name}{one.verdict.sentence}", markup=False)
        if not RunDirectory(one.model).is_run():
            train = shlex.join(["train", "--model", one.model, "--data", settings.data, *_column_words(settings)])
            console.print("Train with AutoTrim, which needs no band:", markup=False)
            console.print(f"  {called()} {train} --objective auto-trim", markup=False, soft_wrap=True)
            if one.verdict.band is not None:
                console.print("or with a fixed band, to be compared with it:", markup=False)
                console.print(f"  {called()} {train} {one.verdict.band.words}", markup=False, soft_wrap=True)


def _column_words(settings: TokenSettings) -> list[str]:
    given = given_options(settings)
    names = [name for name in ("problem_column", "solution_column", "template", "system_prompt") if name in given]
    return [word for name in names for word in (f"--{name}", given[name])]


@command_of(ReportSettings)
def report(settings: ReportSettings, *, as_json: JsonFlag = False) -> None:
    """Write a page, tables and figures about runs.

    Tokens, gaps, scores and answers. Made from tokens.parquet and eval/ alone, in seconds, without a model or a GPU.

    \b
    Examples:
      trimsft report runs/trim
      trimsft report Base=tokens-base.parquet SFT=runs/sft runs/trim --out report
    """
    from trimsft.report import make_report
    from trimsft.study.paper_tables import write_paper_tables

    with status_line() as status:
        status("reading tables, drawing figures")
        files = make_report(settings, write_more=write_paper_tables)
    for warning in files.warnings:
        tell(warning)
    if as_json:
        typer.echo(json.dumps({"page": str(files.page), "files": [str(path) for path in (files.page, *files.others)]}))
        return
    typer.echo(f"Wrote {files.page} and {len(files.others)} tables and figures in {files.folder}")
