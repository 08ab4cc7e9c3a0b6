"""The commands: settings in, a result out that is printed as tables or as JSON. Heavy imports stand inside them."""

from __future__ import annotations

import io
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
from trimsft.cli.terminal import JsonFlag, Output, Progress, ending, note, print_output
from trimsft.errors import UsageError, counted
from trimsft.evaluate.settings import EvalSettings
from trimsft.models import ExportSettings
from trimsft.options import given_options
from trimsft.report.comparison import CompareSettings
from trimsft.report.report import ReportSettings
from trimsft.report.watch import WatchSettings, look
from trimsft.runs import RunDirectory
from trimsft.shipped import copy_shipped, list_shipped, title_of
from trimsft.tokens.measure import TokenSettings, name_of

if TYPE_CHECKING:
    from trimsft.evaluate.prompts import Prompts
    from trimsft.tokens.measure import TokenTables

EVAL = "model benchmarks out engine server samples temperatures max_tokens limit"
TOKENS = "models data out sample max_length template train_on weights objective show"
AUDIT = "data model out sample training threshold"
"""The fields that --help lists."""
ROWS = ("problem_column", "solution_column", "template", "system_prompt", "train_on", "weights")
"""The fields of `tokens` that `train` has, too."""


commands = typer.Typer(rich_markup_mode=None)


# ---- training


def train_flag(field: str) -> str:
    """Return what `train` calls a field: the names that all commands share, else the field's own."""
    shared = {"model_name_or_path": "--model", "dataset_name": "--data", "output_dir": "--out"}
    return shared.get(field, field if field.startswith("-") else f"--{field}")


@commands.command("train", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train_command(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", hidden=True)] = False,
    gpus: Annotated[str | None, typer.Option(hidden=True)] = None,
    as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", hidden=True)] = False,
    help_all: Annotated[bool, typer.Option("--help-all", help="List every field and its default.")] = False,
) -> None:
    """Fine-tune a model.

    Takes a YAML file, and any of its fields as --field value. Interrupted, it saves a checkpoint; rerun the command to
    resume.

    \b
    The fields that matter:
      --config FILE          a YAML file, or a recipe by name: trimsft recipes
      --model MODEL          hub name or folder; also --model_name_or_path
      --data DATA            hub name, or a .jsonl .json .parquet .csv file (.gz);
                             also --dataset_name
      --objective NAME       auto-trim sft fsft dft trim trim-e trim-h, others,
                             or my_module:MyObjective
      --margin NUMBER        of trim: the gap whose tokens count in full
      --bandwidth NUMBER     of trim: how fast weights fall off around it
      --out PATH             the run directory; also --output_dir
      --seed N               seed of the order of rows and of dropout
      --dry-run              measure one step on the longest rows; keep nothing
      --dry-run --gpus 2xA6000
                             memory, hours and downloads on GPUs elsewhere
      --json                 print the result as JSON
      --quiet                print results and errors only

    \b
    Examples:
      trimsft train --config qwen2.5-math-1.5b --objective dft
      trimsft train --model Qwen/Qwen2.5-Math-1.5B --data data.jsonl --dry-run
      torchrun --nproc-per-node 2 -m trimsft train --config RECIPE
    """
    if help_all:
        from trimsft.train.config import Parser

        Parser().print_help()
        return
    with ending(train_flag, level=logging.INFO, quiet=quiet):
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
            output = Output(step.figures, lines=step.lines)
        else:
            from trimsft.train.run import train

            lines = io.StringIO() if quiet else sys.stderr
            with redirect_stdout(lines) if quiet or as_json else nullcontext():
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
    Examples:
      trimsft watch runs/trim
      trimsft watch runs/quickstart --once
    """
    from rich.live import Live
    from rich.text import Text

    console, has_ended = terminal.make_console(), False
    with Live(console=console, auto_refresh=False) as live:  # where nobody sees it change, the last state alone
        while not has_ended:
            text, has_ended = look(settings.run.expanduser(), console.width)
            live.update(Text(f"{text}\n"), refresh=True)
            if settings.once or has_ended:
                return
            time.sleep(2)


# ---- evaluation


@commands.command("eval")
@command_of(EvalSettings, resumes=True, shown=EVAL)
def evaluate(settings: EvalSettings) -> Output:
    """Sample, grade and score the answers of a model.

    8 samples at temperature 1 and a greedy answer to every problem, as in the paper. Rerun the command to resume: what
    is recorded is never generated again. A record may grow (samples, temperatures, greedy, limit).

    \b
    Examples:
      trimsft eval runs/trim -b math500 -b gsm8k
      trimsft eval ./model -b problems.jsonl --problem-column question
      trimsft eval runs/trim -b lab-easy --temperatures 0.6 --temperatures 0.3
      trimsft eval my-model -b aime24 --server http://localhost:8000
    """
    from trimsft.data.visible import visible
    from trimsft.evaluate import run
    from trimsft.report.score_tables import summary_table

    def start(benchmark: str, prompts: Prompts) -> None:
        # a template is somebody's text: nothing in it may act on the terminal
        shown = visible(prompts.example).replace("\n", "\n  ")
        for text in (f"{benchmark}, the first prompt:\n  {shown}", *prompts.notes):
            note(text)

    with Progress() as show:
        evaluated = run.evaluate(
            settings,
            on_load=lambda names: note(f"loading {settings.model}, to be evaluated on {', '.join(names)}"),
            on_start=start,
            on_progress=lambda name, now: show(name, now.done, now.total, text=now.line()),
        )
    note(f"recorded in {settings.run.eval_dir}")
    return Output(evaluated.as_json(), [summary_table(evaluated.scores, Path(settings.model).name)])


@commands.command("compare")
@command_of(CompareSettings)
def compare(settings: CompareSettings) -> Output:
    """Compare evaluated runs, problem by problem.

    Shows the differences from the first run as they were sampled, greedily, and at the temperature where the first run
    is right most often, with 95 % intervals and sign-flip p-values that are corrected for the number of comparisons.

    \b
    Examples:
      trimsft compare runs/sft runs/trim --metric greedy
      trimsft compare runs/sft runs/dft runs/trim --format markdown > table.md
    """
    from trimsft.report.comparison import compare as compare_scores

    compared = compare_scores(settings)
    value = json.loads(compared.render("json"))
    if settings.style == "terminal":
        return Output(value, compared.tables)
    for sentence in compared.left_out:  # on a terminal they stand below the tables
        note(sentence)
    return Output(value, lines=[compared.render(settings.style)])


# ---- tokens and reports


@commands.command("tokens")
@command_of(TokenSettings, resumes=True, shown=TOKENS)
def tokens(settings: TokenSettings) -> Output:
    """Measure what a model thinks of every trained token.

    One pass over the data writes tokens.parquet: nll, gap, competitor, entropy, rank, gradient norm and category of
    each token, from which report makes everything else. It says whether the model supports the data, and which band to
    train with. Several models are compared on the same rows. Finished tables are kept when the command is run again.

    \b
    Examples:
      trimsft tokens runs/trim --data train.jsonl --sample 2000
      trimsft tokens Qwen/Qwen3-4B-Base runs/trim --data train.jsonl --out both
      trimsft tokens Qwen/Qwen3-4B-Base --data train.jsonl --show 2
    """
    from trimsft.data.preview import show as show_preview
    from trimsft.tokens.measure import measure_tokens, preview_rows

    if settings.show is not None:
        seen, console = preview_rows(settings), terminal.make_console()
        with console.capture() as text:
            show_preview(seen, console)
        return Output(seen.as_json(), lines=[text.get().rstrip("\n")])
    with Progress() as show:
        tables = measure_tokens(settings, on_progress=show)
    for one in tables.summaries:
        already = f"{one.path} is there already, made with the same inputs; left as it is"
        note(f"wrote {one.path}" if one.is_new else already)
    if tables.incomparable is not None:
        terminal.tell(tables.incomparable.message(flag_names(TokenSettings)))
    return Output(tables.as_dict(), tables.tables, _verdicts(tables, settings))


def _verdicts(tables: TokenTables, settings: TokenSettings) -> list[str]:
    """Return what the tokens say about training on these rows; for a model that is no run, the commands, too."""
    given = [(name, str(value)) for name, value in given_options(settings).items() if name in ROWS]
    columns = [word for name, value in given for word in (f"--{name}", value)]
    program, lines = terminal.program_name(), []
    for one in tables.summaries:
        lines.append(f"{f'{name_of(one.model)}: ' if len(tables.summaries) > 1 else ''}{one.verdict.sentence}")
        if not RunDirectory(one.model).is_run():
            train = shlex.join(["train", "--model", one.model, "--data", settings.data, *columns])
            lines += ["Train with AutoTrim, which needs no band:", f"  {program} {train} --objective auto-trim"]
            if one.verdict.band is not None:
                lines.append("or with a fixed band, to be compared with it:")
                lines.append(f"  {program} {train} {one.verdict.band.words}")
    return lines


@commands.command("report")
@command_of(ReportSettings)
def report(settings: ReportSettings) -> Output:
    """Write one page about runs.

    What is learned from each token, scores, answers, gaps, trainings. Made from the runs' files alone, in seconds.

    \b
    Examples:
      trimsft report runs/trim
      trimsft report Base=tokens-base.parquet SFT=runs/sft runs/trim --out report
    """
    from trimsft.report import make_report
    from trimsft.study.paper_tables import write_paper_tables

    with terminal.make_console(stderr=True).status("reading runs"):
        files = make_report(settings, write_more=write_paper_tables)
    for warning in files.warnings:
        terminal.tell(warning)
    value = {"page": str(files.page), "files": [str(path) for path in (files.page, *files.others)]}
    return Output(value, lines=[f"Wrote {files.page}", *map(str, files.others)])


@commands.command("audit")
@command_of(AuditSettings, resumes=True, shown=AUDIT)
def audit(settings: AuditSettings) -> Output:
    """Rank what looks wrong in training data.

    A suspect is a token far below the model's own choice in a row that the model supports otherwise, and still so
    after a short training on other rows: noise stays low, news rises. Writes suspects.jsonl, and report shows
    it; the data itself is never changed. Rerun the command to resume.

    \b
    Examples:
      trimsft audit train.jsonl --model Qwen/Qwen2.5-Math-1.5B
      trimsft audit train.jsonl --model runs/sft --no-training --out quick
    """
    from trimsft.audit.run import audit as run_audit

    with Progress() as show:
        result = run_audit(settings, on_progress=show)
    flagged = f"{len(result.flagged):,} of {counted(result.rows, 'row')} flagged"
    note(f"{counted(len(result.suspects), 'suspect')}, {flagged}; the ranking is {result.folder.suspects_path}")
    return Output(result.as_dict(), result.tables if result.suspects else [])


# ---- files


@commands.command("export")
@command_of(ExportSettings)
def export(settings: ExportSettings) -> Output:
    """Write a trained model as one folder for other programs.

    Merges LoRA adapters into their base, in float32, and stores all weights as safetensors in one dtype, beside the
    configuration, the tokenizer and its chat template: for vLLM, llama.cpp and whatever loads a folder of the hub.

    \b
    Examples:
      trimsft export runs/auto-trim --out model
      trimsft export runs/lora --out model --dtype bfloat16
    """
    from trimsft.models import export_model

    exported = export_model(settings.model, settings.out, dtype=settings.dtype)
    merged = ", the adapter merged into its base" if exported.is_merged else ""
    lines = [
        f"Wrote {exported.folder}: {exported.parameters:,} parameters in {exported.dtype}{merged}",
        f"  vllm serve {exported.folder}",
        f"  python convert_hf_to_gguf.py {exported.folder}    # of llama.cpp",
    ]
    return Output(vars(exported), lines=lines)


Shipped = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="A recipe, an example, a folder of them, or all.", show_default=False),
]
CopyFolder = Annotated[Path, typer.Option(metavar="PATH", help="The folder to copy to.")]


@commands.command("recipes")
def recipes(names: Shipped = None, out: CopyFolder = Path(), as_json: JsonFlag = False) -> None:
    """List the shipped recipes and examples, or copy some.

    train takes a recipe by its name. What is to be changed, or is for accelerate, Slurm or Python, is copied first, to
    where the documentation has it. What is there already is never replaced.

    \b
    Examples:
      trimsft recipes
      trimsft recipes smollm2-gsm8k accelerate
      trimsft recipes all --out trimsft-files
    """
    with ending({"names": "NAME", "out": "--out"}.__getitem__):
        if names:
            copies = [str(path) for path in copy_shipped(names, out)]
            output = Output(copies, lines=[f"Wrote {path}" for path in copies])
        else:
            listed = {name: title_of(path) for name, path in list_shipped().items()}
            output = Output(listed, lines=[f"{name:40} {title}" for name, title in listed.items()])
    print_output(output, as_json)


commands.command("quickstart")(study.quickstart)
commands.command("sweep")(study.sweep)
commands.command("doctor")(doctor)
commands.add_typer(study.study_app, name="study")
