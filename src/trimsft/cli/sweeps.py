"""`trimsft sweep`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli import scale_options as given
from trimsft.cli.base import JsonFlag, make_console, refusing, whole_number, writing


def sweep(
    grid: Annotated[
        list[str],
        typer.Option("--grid", help="FIELD=VALUES: 0.5,1,2 or START:STOP:STEP; repeat it for the product."),
    ] = [],  # noqa: B006 -- typer copies it
    scale: given.ScaleName = "lab",
    objective: Annotated[
        str, typer.Option(help="Of every point, unless the grid has it: sft fsft dft trim trim-e trim-h.")
    ] = "trim",
    seeds: Annotated[int, whole_number("--seeds", "Trainings of each point.")] = 1,
    select_on: Annotated[
        str | None, typer.Option(help="Benchmark to choose the best point on; reports on the others.")
    ] = None,
    metric: Annotated[str, typer.Option(help="average, greedy, pass@K or majority@K.")] = "average",
    baseline: Annotated[
        bool, typer.Option(help="Train SFT beside them, with each value of the fields it takes too.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for everything; runs/sweep-SCALE.")] = None,
    model: Annotated[list[str], typer.Option(help="NAME of the scale's, or NAME=PATH of another; one, and once.")] = [],  # noqa: B006
    data: given.Data = None,
    rows: given.Rows = None,
    benchmark: given.Benchmarks = [],  # noqa: B006
    benchmark_data: given.BenchmarkData = None,
    setting: given.Fields = [],  # noqa: B006
    samples: given.Samples = None,
    problems: given.Problems = None,
    max_tokens: given.MaxTokens = None,
    engine: given.EngineName = None,
    dtype: given.Dtype = None,
    device: given.Device = None,
    gpus: given.Gpus = None,
    executor: given.Executor = "local",
    workers: given.Workers = None,
    retries: given.Retries = 1,
    keep_weights: given.KeepWeights = None,
    smoke: given.Smoke = False,
    dry_run: given.DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a grid of settings, say which is best and what matters; the same command continues.

    Any field of trimsft train may be varied. Every point is a run directory.

    \b
    Examples:
      trimsft sweep --grid margin=0:6:1 --grid bandwidth=0.5,1,2 --seeds 3 --select-on lab-easy
      trimsft sweep --grid objective=trim,dft --grid learning_rate=2e-4,5e-4 --dry-run
    """
    import shlex

    from rich.console import Console

    from trimsft.study import command
    from trimsft.study.options import Options, changed, find_scale
    from trimsft.study.running.checks import check_settings
    from trimsft.study.running.cost import estimate_cost
    from trimsft.study.sweeps import command as sweep_command

    options = Options(
        models=model,
        data=data,
        rows=rows,
        benchmarks=benchmark,
        benchmark_data=benchmark_data,
        fields=setting,
        seeds=seeds,
        samples=samples,
        problems=problems,
        max_tokens=max_tokens,
        engine=engine,
        dtype=dtype,
        device=device,
        gpus=gpus,
        keep_weights=keep_weights,
        smoke=smoke,
    )
    with refusing(command.REFUSALS):
        sweep_command.check_one_model(model)
        asked = changed(find_scale(scale), options)
        folder = out or Path("runs") / f"sweep-{asked.name}{'-smoke' if smoke else ''}"
        plan = sweep_command.plan_sweep(grid, asked, objective=objective, seeds=seeds, baseline=baseline)
        sweep_command.check_choice(asked, metric, select_on)
        if dry_run:
            check_settings(asked, folder)
            cost = estimate_cost(plan.cells, asked, folder, frozenset({"scores"}))
            if as_json:
                typer.echo(json.dumps(cost.as_dict()))
            else:
                command.show_cost(cost, asked, make_console())
            return
        with writing(folder):
            outcome = sweep_command.run_sweep(
                plan, asked, folder, Console(stderr=True, highlight=False), metric=metric, select_on=select_on,
                running=command.Running(executor=executor, workers=workers, retries=retries),
                command=shlex.join(["trimsft", *sys.argv[1:]]),
            )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(sweep_command.as_json(outcome)))
    else:
        sweep_command.show_sweep(outcome, plan.notes, make_console())
    for line in outcome.failures():
        typer.echo(f"trimsft: {line}", err=True)
    if outcome.cells.failed:
        raise typer.Exit(1)
