"""`trimsft train` and `trimsft data`."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from trimsft.cli.base import JsonFlag, make_console
from trimsft.cli.ending import ending, is_first_process, is_quiet
from trimsft.errors import UsageError

if TYPE_CHECKING:
    from trimsft.train.settings import Settings

ANY_FIELD = {"allow_extra_args": True, "ignore_unknown_options": True}
"""`train` and `data` take every field of the configuration, which TrlParser knows."""


class Flags(Mapping[str, str]):
    """What every field is called on the command line: `--field`, and the names that all commands share."""

    _SHARED: ClassVar = {"model_name_or_path": "--model", "dataset_name": "--data", "output_dir": "--out"}

    def __getitem__(self, field: str) -> str:
        return self._SHARED.get(field, field if field.startswith("-") else f"--{field}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._SHARED)

    def __len__(self) -> int:
        return len(self._SHARED)


def train(
    context: typer.Context,
    help_all: Annotated[bool, typer.Option("--help-all", help="List every field and its default.")] = False,
    gpus: Annotated[str | None, typer.Option(help="GPUs to plan --dry-run for.", metavar="NxNAME")] = None,
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
        from trimsft.train.settings import Parser

        Parser().print_help()
        return
    own = {word.replace("_", "-") for word in context.args} & {"--dry-run", "--json", "--quiet", "-q"}
    words = [word for word in context.args if word.replace("_", "-") not in own]
    quiet = not own.isdisjoint(("--quiet", "-q"))
    with ending(Flags(), level=logging.INFO, quiet=quiet):
        if not words:
            raise UsageError("train: nothing to train", hint="see trimsft train --help")
        from trimsft.train import parse

        if gpus is not None and "--dry-run" not in own:
            raise UsageError("has no effect without --dry-run", field="--gpus", value=gpus)
        settings = parse(words)
        if "--dry-run" in own:
            _dry_run(settings, gpus, as_json="--json" in own)
        else:
            _train(settings, as_json="--json" in own)


def _train(settings: Settings, *, as_json: bool) -> None:
    from trimsft.train.run import train

    steps = io.StringIO() if is_quiet() else sys.stderr  # stdout is for the JSON
    with redirect_stdout(steps) if is_quiet() or as_json else nullcontext():
        result = train(settings)
    if as_json and is_first_process():
        done = {"run": str(result.run.path), "model": str(result.run.model_dir), "steps": result.steps}
        typer.echo(json.dumps(done | {"metrics": result.metrics}, default=str))


def _dry_run(settings: Settings, gpus: str | None, *, as_json: bool) -> None:
    from trimsft.train.dry_run import measure_step
    from trimsft.train.planning import plan_run

    with redirect_stdout(sys.stderr):  # stdout is for the result
        result = measure_step(settings) if gpus is None else plan_run(settings, gpus)
    if is_first_process():
        typer.echo(json.dumps(asdict(result)) if as_json else "\n".join(result.lines()))


data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at training data.")


def preview(
    context: typer.Context,
    count: Annotated[int, typer.Option(help="How many examples to show.", metavar="N")] = 3,
    show_ids: Annotated[bool, typer.Option("--ids", help="Show token ids.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show examples as the model will see them.

    Prompt, trained tokens, what is cut off. Takes the fields of train.

    \b
    Example:
      trimsft data preview --model runs/sft --data data.jsonl --count 2
    """
    with ending(Flags(), level=logging.INFO):
        if count < 1:
            raise UsageError("must be at least 1", field="--count", value=count)
        from trimsft.train import parse
        from trimsft.train.preview import preview as preview_rows
        from trimsft.train.preview import show

        seen = preview_rows(parse(context.args), count=count)
        if as_json:
            typer.echo(json.dumps(seen.as_json()))
        else:
            show(seen, make_console(), show_ids=show_ids)
