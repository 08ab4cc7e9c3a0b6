"""`trimsft study list | show | run | status | table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli import scale_options as given
from trimsft.cli.base import JsonFlag, make_console, refusing, whole_number, writing

HELP = """The paper's tables and figures, on your models.

\b
Examples:
  trimsft study list
  trimsft study run main --scale lab
  trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run
"""
study_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)

Models = Annotated[list[str], typer.Option("--model", help="NAME of the scale's, or NAME=PATH of another; repeat it.")]
Seeds = Annotated[int | None, whole_number("--seeds", "Seeds of each training.")]
OutFolder = Annotated[
    Path | None, typer.Option(help="Folder for everything; by default runs/study-SCALE, which studies share.")
]


@study_app.command("list")
def study_list(as_json: JsonFlag = False) -> None:
    """Every study, and which tables and figures of the paper it makes again."""
    from trimsft.study import STUDIES, command

    if as_json:
        listed = [{"study": s.name, "title": s.title, "paper": list(s.paper)} for s in STUDIES.values()]
        typer.echo(json.dumps(listed))
    else:
        make_console().print(command.list_table())


@study_app.command("show")
def study_show(
    name: Annotated[str, typer.Argument(help="A study, see trimsft study list.")],
    scale: given.ScaleName = "lab",
    model: Models = [],  # noqa: B006 -- typer copies it
    seeds: Seeds = None,
    as_json: JsonFlag = False,
) -> None:
    """What a study is made of: models, benchmarks, and the run directory of each cell."""
    from trimsft.study import command
    from trimsft.study.options import Options, changed, find_scale
    from trimsft.study.studies import find_study

    with refusing(command.REFUSALS):
        asked = changed(find_scale(scale), Options(models=model, seeds=seeds))
        described = command.describe(find_study(name), asked)
    if as_json:
        typer.echo(json.dumps(described))
        return
    typer.echo(f"{name}: {described['title']} ({', '.join(described['paper'])})")
    for what in ("models", "benchmarks", "needs"):
        typer.echo(f"{what}: {', '.join(described[what])}")
    typer.echo("\n".join(f"  {cell}" for cell in described["cells"]))


@study_app.command("run")
def study_run(
    names: Annotated[list[str], typer.Argument(help="Studies, see trimsft study list; or all.")],
    scale: given.ScaleName = "lab",
    out: OutFolder = None,
    model: Models = [],  # noqa: B006
    data: given.Data = None,
    rows: given.Rows = None,
    benchmark: given.Benchmarks = [],  # noqa: B006
    benchmark_data: given.BenchmarkData = None,
    setting: given.Fields = [],  # noqa: B006
    seeds: Seeds = None,
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
    """Run what is missing of a study and write its tables beside the paper's; the same command continues.

    Several of these may run at once in one folder, on one machine or on many that share it.

    \b
    Examples:
      trimsft study run main
      trimsft study run main ablation --scale lab --seeds 3
      trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run
    """
    from rich.console import Console

    from trimsft.study import command
    from trimsft.study.options import Options, changed, find_scale
    from trimsft.study.studies import left_out_models

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
    running = command.Running(executor=executor, workers=workers, retries=retries)
    failed, told = False, []
    with refusing(command.REFUSALS):
        asked = changed(find_scale(scale), options)
        folder = out or command.default_folder(asked, smoke=smoke)
        studies = command.find_studies(names)
        for line in left_out_models(studies, asked):
            typer.echo(line, err=True)
        if dry_run:
            cost = command.dry_run(studies, asked, folder)
            if as_json:
                typer.echo(json.dumps({"studies": [study.name for study in studies], **cost.as_dict()}))
            else:
                command.show_cost(cost, asked, make_console())
            return
        for study in studies:
            with writing(folder):
                outcome = command.run_study(
                    study, asked, folder, Console(stderr=True, highlight=False), running=running
                )
            told.append(outcome.as_dict())
            if not as_json:
                command.show_outcome(outcome, make_console())
            for line in outcome.failures():
                typer.echo(f"trimsft: {line}", err=True)
            failed |= outcome.has_failed
    if as_json:
        typer.echo(json.dumps(told))
    if failed:
        raise typer.Exit(1)


@study_app.command("status")
def study_status(
    out: Annotated[Path, typer.Argument(help="The folder of the study.")], as_json: JsonFlag = False
) -> None:
    """What is done, running and where, failed and why, or missing; also while it runs."""
    from trimsft.study import command
    from trimsft.study.running.status import read_status, status_table

    with refusing(command.REFUSALS):
        states = read_status(out)
    if as_json:
        typer.echo(json.dumps([state.as_dict() for state in states]))
    else:
        make_console().print(status_table(states))


@study_app.command("table")
def study_table(
    name: Annotated[str, typer.Argument(help="A study, see trimsft study list.")],
    out: Annotated[Path, typer.Argument(help="The folder it was run in.")],
    as_json: JsonFlag = False,
) -> None:
    """The tables and figures of a study once more, from what is finished."""
    from trimsft.study import command

    with refusing(command.REFUSALS), writing(out):
        files = command.rebuild_tables(name, out)
    typer.echo(json.dumps([str(path) for path in files]) if as_json else "\n".join(map(str, files)))
