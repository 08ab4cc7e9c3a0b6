"""The commands: settings in, a result out. Heavy imports stand inside them."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimsft.audit.run import AuditSettings
from trimsft.cli import study, terminal
from trimsft.cli.doctor import doctor
from trimsft.cli.from_settings import command_of, flag_names
from trimsft.cli.terminal import JsonFlag, Output, ending, print_output, progress, tell
from trimsft.errors import UsageError, counted
from trimsft.evaluate.settings import EvalSettings
from trimsft.models import ExportSettings
from trimsft.options import given_options
from trimsft.report.comparison import CompareSettings
from trimsft.report.report import ReportSettings
from trimsft.report.watch import WatchSettings, look
from trimsft.runs import RunDirectory
from trimsft.runs.files import copy_shipped, list_shipped
from trimsft.tokens.measure import TokenSettings, name_of

if TYPE_CHECKING:
    from trimsft.evaluate.prompts import Prompts
    from trimsft.tokens.measure import TokenTables

ROWS = ("problem_column", "solution_column", "template", "system_prompt", "train_on", "weights")
"""The fields of `tokens` that `train` has, too."""

commands = typer.Typer(rich_markup_mode=None)
commands.command("quickstart")(study.quickstart)
commands.command("sweep")(study.sweep)
commands.command("doctor")(doctor)
commands.add_typer(study.study_app, name="study")


def train_flag(field: str) -> str:
    """Return what `train` calls a field: `--data` for `dataset_name`."""
    shared = {"model_name_or_path": "--model", "dataset_name": "--data", "output_dir": "--out"}
    return shared.get(field, field if field.startswith("-") else f"--{field}")


@commands.command("train", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train_command(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure one step on the longest rows; keep nothing.")
    ] = False,
    gpus: Annotated[str | None, typer.Option(help="Plan the dry run for 2xA6000.")] = None,
    as_json: JsonFlag = False,
    help_all: Annotated[bool, typer.Option("--help-all", help="List every field.")] = False,
) -> None:
    """Fine-tune a model.

    Takes a YAML file, and any of its fields as --field value. Interrupted, it saves a checkpoint;
    rerun the command to resume.

    \b
    The fields that matter:
      --config FILE          a YAML file, or a recipe by name: trimsft recipes
      --model MODEL          hub name or folder; also --model_name_or_path
      --data DATA            hub name, or a .jsonl .json .parquet file (.gz)
      --objective NAME       auto-trim sft dft trim ..., or my_module:MyObjective
      --margin NUMBER        of trim: the gap whose tokens count in full
      --bandwidth NUMBER     of trim: how fast weights fall off around it
      --out PATH             the run directory; also --output_dir

    \b
    Example:
      trimsft train --config qwen2.5-math-1.5b --objective dft
    """
    if help_all:
        from trimsft.train.config import Parser

        Parser().print_help()
        return
    with ending(train_flag, level=logging.INFO):
        if not context.args:
            raise UsageError("train: nothing to train", hint="see trimsft train --help")
        if gpus is not None and not dry_run:
            raise UsageError("has no effect without --dry-run", field="--gpus", value=gpus)
        from trimsft.train import parse

        settings = parse(context.args)
        if dry_run:
            from trimsft.train.dry_run import measure_step, plan_run

            with redirect_stdout(sys.stderr):  # stdout is for the result
                step = measure_step(settings) if gpus is None else plan_run(settings, gpus)
            figures = {name: f"{value:,.3g}" if isinstance(value, float) else value for name, value in step.items()}
            output = Output(step, lines=[f"{name}: {value}" for name, value in figures.items()])
        else:
            from trimsft.train.run import train

            with redirect_stdout(sys.stderr) if as_json else nullcontext():
                result = train(settings)
            done = {"run": str(result.run.path), "model": str(result.run.model_dir), "steps": result.steps}
            output = Output(done | {"metrics": result.metrics})
        if terminal.is_first_process():
            print_output(output, as_json)


@commands.command("watch")
@command_of(WatchSettings)
def watch(settings: WatchSettings) -> None:
    """See how a training is going, in small curves.

    \b
    Example:
      trimsft watch runs/trim
    """
    console = terminal.make_console()
    while True:
        text, has_ended = look(settings.run.expanduser(), console.width)
        typer.echo(text)
        if settings.once or has_ended:
            return
        time.sleep(2)
        console.clear()


@commands.command("eval")
@command_of(EvalSettings)
def evaluate(settings: EvalSettings) -> Output:
    """Sample, grade and score the answers of a model.

    8 samples at temperature 1 and a greedy answer to every problem, as in the paper. What is
    recorded is never generated again: rerun the command to resume, or with more samples.

    \b
    Example:
      trimsft eval runs/trim -b math500 -b gsm8k --temperatures 0.6
    """
    from trimsft.data.visible import visible
    from trimsft.evaluate import run
    from trimsft.report.score_tables import summary_table

    def start(benchmark: str, prompts: Prompts) -> None:
        # a template is somebody's text: nothing in it may act on the terminal
        shown = visible(prompts.example).replace("\n", "\n  ")
        tell(f"{benchmark}, template {prompts.template}, the first prompt:\n  {shown}")

    with progress() as show:
        evaluated = run.evaluate(
            settings,
            on_load=lambda names: tell(f"loading {settings.model}, to be evaluated on {', '.join(names)}"),
            on_start=start,
            on_progress=lambda name, done, total, text: show(name, done, total, text=text),
        )
    tell(f"recorded in {settings.run.eval_dir}")
    return Output(evaluated.as_json(), [summary_table(evaluated.scores, Path(settings.model).name)])


@commands.command("compare")
@command_of(CompareSettings)
def compare(settings: CompareSettings) -> Output:
    """Compare evaluated runs, problem by problem.

    Shows the differences from the first run: sampled, greedy, and at its best temperature, with
    95 % intervals and sign-flip p-values, corrected for the number of comparisons.

    \b
    Example:
      trimsft compare runs/sft runs/dft runs/trim --format markdown > table.md
    """
    from trimsft.report.comparison import compare as compare_scores

    compared = compare_scores(settings)
    value = json.loads(compared.render("json"))
    if settings.style == "terminal":
        return Output(value, compared.tables)
    for sentence in compared.left_out:  # on a terminal they stand below the tables
        tell(sentence)
    return Output(value, lines=[compared.render(settings.style)])


@commands.command("tokens")
@command_of(TokenSettings)
def tokens(settings: TokenSettings) -> Output:
    """Measure what a model thinks of every trained token.

    Writes tokens.parquet: nll, gap, competitor, entropy, rank, gradient norm and category of each.
    Says whether the model supports the data, and which band to train with. Several models are
    compared on the same rows. Finished tables are kept when the command is run again.

    \b
    Example:
      trimsft tokens Qwen/Qwen3-4B-Base --data train.jsonl --show 2
    """
    from trimsft.data.preview import show as show_preview
    from trimsft.tokens.measure import measure_tokens, preview_rows

    if settings.show is not None:
        seen, console = preview_rows(settings), terminal.make_console()
        with console.capture() as text:
            show_preview(seen, console)
        return Output(seen.as_json(), lines=[text.get().rstrip("\n")])
    with progress() as show:
        tables = measure_tokens(settings, on_progress=show)
    for one in tables.summaries:
        already = f"{one.path} is there already, made with the same inputs; left as it is"
        tell(f"wrote {one.path}" if one.is_new else already)
    if tables.incomparable is not None:
        tell(tables.incomparable.message(flag_names(TokenSettings)))
    return Output(tables.as_dict(), tables.tables, _verdicts(tables, settings))


def _verdicts(tables: TokenTables, settings: TokenSettings) -> list[str]:
    """Return what the tokens say about training, and the commands for a model that is no run."""
    given = [(f"--{name}", str(value)) for name, value in given_options(settings).items() if name in ROWS]
    lines = []
    for one in tables.summaries:
        lines.append(f"{f'{name_of(one.model)}: ' if len(tables.summaries) > 1 else ''}{one.verdict.sentence}")
        if not RunDirectory(one.model).is_run():
            train = shlex.join(["trimsft", "train", "--model", one.model, "--data", settings.data, *sum(given, ())])
            lines += ["Train with AutoTrim, which needs no band:", f"  {train} --objective auto-trim"]
            if (band := one.verdict.band) is not None:
                words = f"--objective trim --margin {band.margin:g} --bandwidth {band.bandwidth:g}"
                lines += ["or with a fixed band, to be compared with it:", f"  {train} {words}"]
    return lines


@commands.command("report")
@command_of(ReportSettings)
def report(settings: ReportSettings) -> Output:
    """Write one page about runs.

    What is learned from each token, scores, answers, gaps, trainings, from the runs' files alone.

    \b
    Example:
      trimsft report Base=tokens-base.parquet SFT=runs/sft runs/trim --out report
    """
    from trimsft.report import make_report

    with terminal.make_console(stderr=True).status("reading runs"):
        files = make_report(settings)
    for warning in files.warnings:
        tell(warning)
    value = {"page": str(files.page), "files": [str(path) for path in (files.page, *files.others)]}
    return Output(value, lines=[f"Wrote {files.page}", *map(str, files.others)])


@commands.command("audit")
@command_of(AuditSettings)
def audit(settings: AuditSettings) -> Output:
    """Rank what looks wrong in training data.

    A suspect is a token far below the model's own choice in a row that the model supports
    otherwise, and still so after a short training on other rows: noise stays low, news rises.
    The data itself is never changed. Rerun the command to resume.

    \b
    Example:
      trimsft audit train.jsonl --model Qwen/Qwen2.5-Math-1.5B
    """
    from trimsft.audit.run import audit as run_audit

    with progress() as show:
        result = run_audit(settings, on_progress=show)
    flagged = f"{len(result.flagged):,} of {counted(result.rows, 'row')} flagged"
    tell(f"{counted(len(result.suspects), 'suspect')}, {flagged}; the ranking is {result.folder.suspects_path}")
    return Output(result.as_dict(), result.tables if result.suspects else [])


@commands.command("export")
@command_of(ExportSettings)
def export(settings: ExportSettings) -> Output:
    """Write a trained model as one folder for other programs.

    Merges LoRA adapters into their base, in float32, and stores all weights as safetensors in
    one dtype, with configuration, tokenizer and template: for vLLM, llama.cpp and others.

    \b
    Example:
      trimsft export runs/lora --out model --dtype bfloat16
    """
    from trimsft.models import export_model

    exported = export_model(settings.model, settings.out, dtype=settings.dtype)
    return Output(vars(exported), lines=[f"Wrote {exported.folder} in {exported.dtype}"])


CopyFolder = Annotated[Path | None, typer.Option("--out", metavar="PATH", help="The folder to copy them to.")]


@commands.command("recipes")
def recipes(out: CopyFolder = None, as_json: JsonFlag = False) -> None:
    """List the shipped recipes and examples, or copy them.

    train takes a recipe by its name. What is there already is never replaced.

    \b
    Example:
      trimsft recipes --out .
    """
    with ending({"out": "--out"}.__getitem__):
        files = [str(file) for file in (copy_shipped(out) if out else list_shipped())]
    print_output(Output(files, lines=files), as_json)
