"""`trimsft bench` and `trimsft doctor`."""

import json
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trimsft.bench import BenchSettings
from trimsft.cli.base import JsonFlag, make_console, make_table
from trimsft.cli.declared import command_of
from trimsft.cli.ending import ending
from trimsft.cli.progress import status_line
from trimsft.errors import FAILED, UsageError
from trimsft.options import check_path

OutFile = Annotated[Path | None, typer.Option("--out", help="The JSON file for the results.", metavar="PATH")]


@command_of(BenchSettings)
def bench(settings: BenchSettings, *, out: OutFile = None, as_json: JsonFlag = False) -> None:
    """Measure time and memory of the head.

    Forward and backward, against plain and compiled torch, on synthetic tokens of your shape.

    Without a shape: 8192 x 1536 x 151936 (Qwen2.5-1.5B) on CUDA, 512 x 512 x 8192 on the CPU. Methods
    that cannot run here are listed with the reason. benchmarks/head.py compares with other fused heads, too.

    \b
    Examples:
      trimsft bench --tokens 8192 --hidden 4096 --vocabulary 128256
      trimsft bench --tokens 512 --hidden 256 --vocabulary 8192 --json
    """
    if out is not None and (out := check_path("--out", out)).is_dir():
        raise UsageError(f"{str(out)!r} is a folder", field="--out", hint="name a file")
    from trimsft.bench.head import run

    with status_line() as status:
        report = run(settings, status)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _show_bench(report)
    if out is not None:
        from trimsft.runs import write_whole

        write_whole(out, (json.dumps(report, indent=1) + "\n").encode())
        typer.echo(f"Wrote {out}", err=True)
    failed = [result for result in report["results"] if result["failed"]]
    if any(result["ours"] for result in failed) or len(failed) == len(report["results"]):
        raise typer.Exit(FAILED)


def _show_bench(report: dict[str, Any]) -> None:
    shape, machine, results = report["shape"], report["machine"], report["results"]
    table = make_table("method", "ms", "extra\nGiB", "hidden\nerror", "weight\nerror", "kept")
    columns = {"milliseconds": ".2f", "extra_gib": ".2f", "hidden_error": ".1e", "weight_error": ".1e", "kept": ".0%"}
    for result in results:
        if not result["failed"]:
            cells = ((result[name], how) for name, how in columns.items())
            table.add_row(result["method"], *("" if value is None else format(value, how) for value, how in cells))
    typer.echo(
        f"{shape['tokens']} tokens, hidden {shape['hidden_size']}, vocabulary {shape['vocabulary']}, "
        f"{report['dtype']}, on {machine['device']}, torch {machine['torch']}"
    )
    make_console().print(table)
    typer.echo(
        "ms: median of forward and backward. Errors: relative, of the two gradients, against float32. Kept: tokens "
        "with a backward pass."
    )
    failed = [f"  {result['method']}: {result['failed']}" for result in results if result["failed"]]
    if failed:
        typer.echo("\n".join(["", "Could not run here:", *failed]))


def doctor(as_json: JsonFlag = False) -> None:
    """Check this machine, and say what to do about problems.

    Looks for what the commands need: packages and their versions, vLLM, flash attention, a GPU, room on the disk, the
    hub. Checks every backend of the head against float64, and says which one is taken here.

    Exits with 1 if something will make commands fail.

    \b
    Example:
      trimsft doctor
    """
    from trimsft.bench.head import choose_device
    from trimsft.doctor.backends import examine
    from trimsft.doctor.needs import examine_needs

    with ending({}), status_line() as status:
        status("checking the backends")
        facts = examine(choose_device("auto"))
        status("looking for what the commands need")
        facts["needs"] = [asdict(need) for need in examine_needs()]
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show_doctor(facts)
    if any(one["verdict"] in ("failed", "wrong") for one in (*facts["checks"], *facts["needs"])):
        raise typer.Exit(FAILED)


def _show_doctor(facts: dict[str, Any]) -> None:
    for key in ("python", "trimsft", "torch", "triton"):
        typer.echo(f"{key:16} {facts[key] or 'not installed'}")
    for need in facts["needs"]:
        mark = "" if need["verdict"] == "ok" else f" ({need['verdict']})"
        typer.echo(f"{need['name']:16} {need['here']}{mark}")
        if need["remedy"]:
            typer.echo(textwrap.fill(need["remedy"], 80, initial_indent=" " * 19, subsequent_indent=" " * 19))
    typer.echo("{:16} 'auto' is {backend}: {because}".format("backend", **facts["auto"]))
    table = make_table("backend", "dtype", "error", "tolerance", "verdict")
    for check in facts["checks"]:
        error = f"{check['error']:.1e}" if "error" in check else ""
        table.add_row(check["backend"], check["dtype"], error, f"{check['tolerance']:.1e}", check["verdict"])
    make_console().print(table)
    reasons = {check["backend"]: check["reason"] for check in facts["checks"] if "reason" in check}
    for backend, reason in reasons.items():
        typer.echo(f"{backend}: {reason}")
