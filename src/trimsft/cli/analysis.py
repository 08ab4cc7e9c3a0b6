"""`trimsft tokens` and `trimsft report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

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


def tokens(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Run directories, model folders or names of the hub."),
    ],
    data: Annotated[
        str, typer.Option(help="Hub name, or a local .jsonl .json .parquet .csv (.gz), as for train.")
    ],
    limit: Annotated[int | None, whole_number("--limit", "Only the first rows.")] = None,
    sample: Annotated[int | None, whole_number("--sample", "So many rows, chosen at random.")] = None,
    seed: Annotated[int | None, whole_number("--seed", "Of that choice; 0.", least=0)] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File or folder; a run directory's own, else ./tokens-NAME.parquet."),
    ] = None,
    template: Annotated[
        str, typer.Option(help="How a problem becomes a prompt; auto: as in training.")
    ] = "auto",
    system_prompt: Annotated[str | None, typer.Option(help="As in training; '' for none.")] = None,
    max_length: Annotated[
        int | None, whole_number("--max-length", "Cut rows there, as training does.")
    ] = None,
    problem_column: Annotated[str, typer.Option(help="The column of problems.")] = "problem",
    solution_column: Annotated[str, typer.Option(help="The column of solutions.")] = "solution",
    top: Annotated[int, whole_number("--top", "Most probable tokens beside each.", least=0)] = 0,
    device: Annotated[
        str, typer.Option(help="auto: all GPUs, else cpu; or cpu, cuda:N, several with commas.")
    ] = "auto",
    batch_tokens: Annotated[
        int | None, whole_number("--batch-tokens", "Tokens in a batch, padding included.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="K/N: the K-th of N shares; the last one joins all.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a table made with other inputs.")
    ] = False,
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
    from trimsft.analyze import command

    options = {
        "template": template, "system_prompt": system_prompt, "max_length": max_length, "top": top,
        "device": device.split(",") if "," in device else device, "batch_tokens": batch_tokens, "shard": shard,
        "limit": limit, "overwrite": overwrite,
    }  # fmt: skip
    with failing("tokens"), refusing(command.REFUSALS, dataset_name="--data", sample_seed="--seed"):
        command.places_for(models, out)  # before rows are read
        rows = _problem_rows(data, sample, seed, problem_column, solution_column)
        with writing(out or Path()), progress_bar() as on_progress:
            outcome = command.make_tables(models, rows, out=out, on_progress=on_progress, **options)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    elif outcome.summaries:
        table = make_table(
            "model", "tokens", "mean\nnll", "median\ngap", "first\nchoice", "R_eff", "High-\nWeight"
        )
        for one in outcome.summaries:
            table.add_row(
                command.name_of(one.model), f"{one.tokens:,}", f"{one.mean_nll:.3f}", f"{one.median_gap:.2f}",
                f"{one.first_choice:.1f} %", f"{one.effective_ratio:.3f}", f"{one.high_weight:.1f} %",
            )  # fmt: skip
        make_console().print(table)
    for one in outcome.summaries:
        typer.echo(f"Wrote {one.path}", err=True)
    for path in outcome.pending:
        typer.echo(f"trimsft: this share is done; {path} is made with the last one", err=True)
    if outcome.incomparable:
        typer.echo(f"trimsft: {outcome.incomparable}", err=True)


def _problem_rows(
    data: str, sample: int | None, seed: int | None, problem_column: str, solution_column: str
) -> list[dict[str, str]]:
    """Rows as `trimsft train` reads them."""
    from trimsft.train.data_config import NUMINA, DataConfig
    from trimsft.train.rows import kind_of, load_rows

    if seed is not None and sample is None and data != NUMINA:
        raise ValueError(f"sample_seed: {seed} has no effect without --sample; leave it out")
    config = DataConfig(
        dataset_name=data, sample=sample, sample_seed=seed or 0,
        problem_column=problem_column, solution_column=solution_column,
    )  # fmt: skip
    rows = load_rows(config)
    if kind_of(rows.column_names, config, data) != "problem-solution":
        raise ValueError(
            f"dataset_name: {data!r} has the columns {', '.join(rows.column_names)}; a token table needs problems and "
            "solutions, see --problem-column and --solution-column"
        )
    pairs = zip(rows[problem_column], rows[solution_column], strict=True)
    return [{"problem": problem, "solution": solution} for problem, solution in pairs]


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]RUN...", help="Run directories or token tables; the first is the base."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder; the run's own, for several ./report.")] = None,
    margin: Annotated[float, typer.Option(help="Of TrimSFT's weights.")] = 1.5,
    bandwidth: Annotated[float, typer.Option(help="Likewise.")] = 0.8,
    gamma: Annotated[float, typer.Option(help="Of FSFT's weights.")] = 2.0,
    sweep: Annotated[
        Path | None, typer.Option(help="Folder or sweep.json of a sweep, shown as a heatmap.")
    ] = None,
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
    from trimsft.analyze import command

    parameters = {"margin": margin, "bandwidth": bandwidth, "gamma": gamma}
    with refusing(command.REFUSALS):
        named = command.named_runs(runs)
        folder = command.place_for_report(named, out)
        with writing(folder), status_line() as status:
            status("reading tables, drawing figures")
            files = command.write_all(named, folder, title=title, parameters=parameters, sweep=sweep)
    if as_json:
        typer.echo(json.dumps({"page": str(files[0]), "files": [str(path) for path in files]}))
        return
    typer.echo(f"Wrote {files[0]} and {len(files) - 1} tables and figures in {folder}")
