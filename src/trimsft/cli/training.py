"""`trimsft train` and `trimsft data`."""

import json
import logging
from typing import Annotated

import typer

from trimsft.cli.base import JsonFlag, make_console
from trimsft.cli.ending import ending, is_first_process
from trimsft.errors import UsageError

ANY_FIELD = {"allow_extra_args": True, "ignore_unknown_options": True}
"""`train` and `data` take every field of the configuration, which TrlParser knows."""
REMEDIES = {name: f"--{name}" for name in ("attn_implementation", "drop_incomplete")}
"""Fields that an error may tell the user to set."""


def train(
    context: typer.Context,
    help_all: Annotated[bool, typer.Option("--help-all", help="List every field and its default.")] = False,
) -> None:
    """Fine-tune a model; the same command continues.

    Takes a YAML file, and any of its fields as --field value.

    \b
    The fields that matter:
      --config FILE            a YAML file, or a recipe by name: trimsft recipes
      --model                  hub name or folder; also --model_name_or_path
      --data                   hub name, or a local .jsonl .json .parquet .csv (.gz);
                               also --dataset_name
      --objective              sft fsft dft trim trim-e trim-h, others, or my_module:MyObjective
      --margin --bandwidth     where and how wide the band of trained gaps is
      --out                    the run directory; also --output_dir
      --dry-run                memory, steps and time, without training

    \b
    Examples:
      trimsft train --config qwen2.5-math-1.5b --objective dft
      trimsft train --model Qwen/Qwen2.5-Math-1.5B --data data.jsonl --dry-run
      accelerate launch --config_file recipes/accelerate/fsdp2.yaml -m trimsft train --config RECIPE
    """
    if help_all:
        from trimsft.train.settings import Parser

        Parser().print_help()
        return
    words = [word for word in context.args if word not in ("--dry-run", "--dry_run")]
    with ending(REMEDIES, level=logging.INFO):
        if not context.args:
            raise UsageError("train: nothing to train", hint="see trimsft train --help")
        from trimsft.train import parse

        settings = parse(words)
        if len(words) == len(context.args):
            from trimsft.train.run import train

            train(settings)
            return
        from trimsft.train.estimate import describe, dry_run

        estimate = dry_run(settings)
        if is_first_process():
            make_console().print(describe(estimate))


data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at training data.")


@data_app.command(context_settings=ANY_FIELD)
def preview(
    context: typer.Context,
    count: Annotated[int, typer.Option(help="Number of examples.")] = 3,
    show_ids: Annotated[bool, typer.Option("--ids", help="Show token ids.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show examples as the model will see them.

    Prompt, trained tokens, what is cut off. Takes the fields of train.

    \b
    Example:
      trimsft data preview --model Qwen/Qwen2.5-Math-1.5B --data data.jsonl --count 2
    """
    with ending(REMEDIES, level=logging.INFO):
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
