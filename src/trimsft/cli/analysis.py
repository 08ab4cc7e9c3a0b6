"""`trimsft tokens` and `trimsft report`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimsft.cli.base import (
    JsonFlag,
    failing,
    make_console,
    make_table,
    progress_bar,
    refusing,
    status_line,
    whole_number,
    writing,
)
from trimsft.objectives import BANDWIDTH, GAMMA, MARGIN

if TYPE_CHECKING:
    from trimsft.report.command import Outcome


def tokens(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Run directories, model folders or names of the hub."),
    ],
    data: Annotated[str, typer.Option(help="Hub name, or a local .jsonl .json .parquet .csv (.gz), as for train.")],
    limit: Annotated[int | None, whole_number("--limit", "Only the first rows.")] = None,
    sample: Annotated[int | None, whole_number("--sample", "So many rows, chosen at random.")] = None,
    seed: Annotated[int | None, whole_number("--seed", "Of that choice; 0.", least=0)] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File or folder; a run directory's own, else ./tokens-NAME.parquet."),
    ] = None,
    template: Annotated[
        str, typer.Option(help="How a problem becomes a prompt; auto: as the run was trained.")
    ] = "auto",
    system_prompt: Annotated[str | None, typer.Option(help="Likewise; '' for none.")] = None,
    max_length: Annotated[
        int | None,
        whole_number("--max-length", "Cut rows there; as the run was trained, 0 for not at all.", least=0),
    ] = None,
    problem_column: Annotated[str, typer.Option(help="The column of problems.")] = "problem",
    solution_column: Annotated[str, typer.Option(help="The column of solutions.")] = "solution",
    drop_incomplete: Annotated[
        bool, typer.Option("--drop-incomplete", help="Drop and count rows without problem or solution.")
    ] = False,
    top: Annotated[int, whole_number("--top", "Most probable tokens beside each.", least=0)] = 0,
    device: Annotated[
        str, typer.Option(help="auto: all GPUs, else cpu; or cpu, cuda:N, several with commas.")
    ] = "auto",
    batch_tokens: Annotated[int | None, whole_number("--batch-tokens", "Tokens in a batch, padding included.")] = None,
    shard: Annotated[str | None, typer.Option(help="K/N: the K-th of N shares; the last one joins all.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a table made with other inputs.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """What a model says about every trained token; the same command continues.

    One pass over the data writes tokens.parquet: nll, gap, competitor, entropy, rank, gradient norm and category of
    each token, from which report makes everything else. Several models are compared on the same rows.

    \b
    Examples:
      trimsft tokens runs/trim --data train.jsonl --sample 2000
      trimsft tokens Qwen/Qwen2.5-Math-1.5B runs/sft runs/trim --data train.jsonl --limit 500 --out compared
      torchrun --nproc-per-node 8 -m trimsft tokens runs/trim --data train.jsonl
    """
    from trimsft.report import command

    options = {
        "template": template, "system_prompt": system_prompt, "max_length": max_length, "top": top,
        "device": device.split(",") if "," in device else device, "batch_tokens": batch_tokens, "shard": shard,
        "limit": limit, "overwrite": overwrite,
    }  # fmt: skip
    refused = refusing(command.REFUSALS, dataset_name="--data", sample_seed="--seed")
    with failing("tokens"), refused, _by_the_names_of_options():
        command.places_for(models, out)  # before rows are read
        columns = {"problem_column": problem_column, "solution_column": solution_column}
        rows = _problem_rows(data, sample, seed, drop_incomplete, columns)
        with writing(out or Path()), progress_bar() as on_progress:
            outcome = command.make_tables(models, rows, out=out, on_progress=on_progress, **options)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    _show_tables(outcome, with_numbers=not as_json)


def _show_tables(outcome: Outcome, *, with_numbers: bool) -> None:
    from trimsft.report import command

    if with_numbers and outcome.summaries:
        table = make_table("model", "tokens", "mean\nnll", "median\ngap", "first\nchoice", "R_eff", "High-\nWeight")
        for one in outcome.summaries:
            table.add_row(
                command.name_of(one.model), f"{one.tokens:,}", f"{one.mean_nll:.3f}", f"{one.median_gap:.2f}",
                f"{one.first_choice:.1f} %", f"{one.effective_ratio:.3f}", f"{one.high_weight:.1f} %",
            )  # fmt: skip
        make_console().print(table)
    for one in outcome.summaries:
        already = f"{one.path} is there already, made with the same inputs; left as it is"
        typer.echo(f"Wrote {one.path}" if one.is_new else already, err=True)
    for path in outcome.pending:
        typer.echo(f"trimsft: this share is done; {path} is made with the last one", err=True)
    if outcome.incomparable:
        _warn(_in_options(outcome.incomparable))


_FIELDS = (
    "template", "system_prompt", "max_length", "top", "device", "batch_tokens", "shard", "limit", "out",
)  # fmt: skip


def _in_options(text: str) -> str:
    """What is said of fields, said of the options here."""
    text = text.partition(", or bring a form that TRL knows")[0]
    text = text.replace("overwrite=True", "--overwrite").replace("drop_incomplete=true", "--drop-incomplete")
    pattern = rf"(?<![-\w])(?:(?:{'|'.join(_FIELDS)})(?=:|=| is )|(?:problem|solution)_column)"
    return re.sub(pattern, lambda found: "--" + found[0].replace("_", "-"), text)


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _warn(_in_options(record.getMessage()))


@contextmanager
def _by_the_names_of_options() -> Iterator[None]:
    """Refusals and warnings that name an option where Python has an argument."""
    from trimsft.report.command import REFUSALS

    logger, handler = logging.getLogger("trimsft"), _Echo(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    except REFUSALS as error:
        raise ValueError(_in_options(str(error))) from error
    finally:
        logger.removeHandler(handler)


def _problem_rows(
    data: str, sample: int | None, seed: int | None, drop_incomplete: bool, columns: dict[str, str]
) -> list[dict[str, str]]:
    """Rows as `trimsft train` reads them."""
    from trimsft.text.data_config import NUMINA, DataConfig
    from trimsft.text.rows import kind_of, load_rows

    if seed is not None and sample is None and data != NUMINA:
        raise ValueError(f"sample_seed: {seed} has no effect without --sample; leave it out")
    config = DataConfig(
        dataset_name=data, sample=sample, sample_seed=seed or 0, drop_incomplete=drop_incomplete,
        problem_column=columns["problem_column"], solution_column=columns["solution_column"],
    )  # fmt: skip
    rows = load_rows(config)
    if kind_of(rows.column_names, config, data) != "problem-solution":
        raise ValueError(
            f"dataset_name: {data!r} has the columns {', '.join(rows.column_names)}; a token table needs problems and "
            "solutions, see --problem-column and --solution-column"
        )
    pairs = zip(*(rows[name] for name in columns.values()), strict=True)
    return [{"problem": problem, "solution": solution} for problem, solution in pairs]


def _warn(text: str) -> None:
    typer.echo(f"trimsft: {text}", err=True)


def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="[LABEL=]RUN...", help="Run directories or token tables; the first is the base."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder; the run's own, for several ./report.")] = None,
    margin: Annotated[float, typer.Option(help="Of TrimSFT's weights.")] = MARGIN,
    bandwidth: Annotated[float, typer.Option(help="Likewise.")] = BANDWIDTH,
    gamma: Annotated[float, typer.Option(help="Of FSFT's weights.")] = GAMMA,
    sweep: Annotated[Path | None, typer.Option(help="Folder or sweep.json of a sweep, shown as a heatmap.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """One page, tables and figures about tokens and scores of runs.

    Made from tokens.parquet and eval/ alone, in seconds, without a model or a GPU.

    \b
    Examples:
      trimsft report runs/trim
      trimsft report Base=tokens-Qwen2.5-Math-1.5B.parquet SFT=runs/sft TrimSFT=runs/trim --out report
    """
    from trimsft.report import command

    parameters = {"margin": margin, "bandwidth": bandwidth, "gamma": gamma}
    with refusing(command.REFUSALS):
        named = command.named_runs(runs)
        folder = command.place_for_report(named, out)
        with writing(folder), status_line() as status:
            status("reading tables, drawing figures")
            files = command.write_all(named, folder, title=title, parameters=parameters, sweep=sweep, warn=_warn)
    if as_json:
        typer.echo(json.dumps({"page": str(files[0]), "files": [str(path) for path in files]}))
        return
    typer.echo(f"Wrote {files[0]} and {len(files) - 1} tables and figures in {folder}")
