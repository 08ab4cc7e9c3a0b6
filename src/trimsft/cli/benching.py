"""`trimsft bench`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimsft.cli.base import (
    DTYPES,
    JsonFlag,
    above_zero,
    choose_device,
    failing,
    make_console,
    make_table,
    refuse,
    status_line,
    whole_number,
    writing,
)

if TYPE_CHECKING:
    from trimsft.bench.head import Result


def bench(
    tokens: Annotated[int | None, whole_number("--tokens", "Trained tokens in a batch.")] = None,
    hidden: Annotated[int | None, whole_number("--hidden", "Size of a hidden state.")] = None,
    vocabulary: Annotated[int | None, whole_number("--vocabulary", "Rows of the head's weight.", least=2)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    only: Annotated[str, typer.Option(help="Only methods whose name contains this.")] = "",
    seconds: Annotated[float, above_zero("--seconds", "Time spent on each measurement.")] = 0.1,
    out: Annotated[Path | None, typer.Option(help="JSON file for the results.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Time and memory of the head against plain and compiled torch.

    Forward and backward, on synthetic tokens of your shape.

    Without a shape: 8192 x 1536 x 151936 (Qwen2.5-1.5B) on CUDA, 512 x 512 x 8192 on the CPU. Methods
    that cannot run here are listed with the reason. benchmarks/head.py compares with other fused heads, too.

    \b
    Examples:
      trimsft bench --tokens 8192 --hidden 4096 --vocabulary 128256
      trimsft bench --tokens 512 --hidden 256 --vocabulary 8192 --only trimsft --json
    """
    if dtype not in DTYPES:
        refuse("--dtype", dtype, f"must be one of {', '.join(DTYPES)}")
    if out is not None and out.is_dir():
        refuse("--out", out, "is a folder; name a file")
    import torch

    from trimsft.bench.head import METHODS, Shape, compare, machine

    where = choose_device(device)
    usual = (8192, 1536, 151_936) if where.type == "cuda" else (512, 512, 8192)
    shape = Shape("yours", tokens or usual[0], hidden or usual[1], vocabulary or usual[2])
    kind = dtype if dtype != "auto" else "bfloat16" if where.type == "cuda" else "float32"
    names = [*_method_names(only), "the report"]
    results: list[Result] = []
    with status_line() as status, failing("bench"):
        status("gradients in float32, to compare with")
        methods = [method for method in METHODS if method.name in names]
        runs = compare(shape, methods, device=str(where), dtype=getattr(torch, kind), seconds=seconds)
        for result in runs:
            results.append(result)
            status(f"{len(results)} of {len(names) - 1} done, now {names[len(results)]}")
    report: dict[str, Any] = {
        "machine": machine(),
        "device": str(where),
        "dtype": kind,
        "shape": asdict(shape),
    }
    report["results"] = [asdict(result) for result in results]
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _show_bench(report, results)
    if out is not None:
        from trimsft.runs import write_whole

        with writing(out):
            write_whole(out, (json.dumps(report, indent=1) + "\n").encode())
        typer.echo(f"Wrote {out}", err=True)
    if any(result.ours and result.failed for result in results) or all(result.failed for result in results):
        raise typer.Exit(1)


def _method_names(only: str) -> list[str]:
    from trimsft.bench.head import METHODS

    names = [method.name for method in METHODS]
    chosen = [name for name in names if only.lower() in name.lower()]
    if not chosen:
        refuse("--only", only, f"is part of no name; the names: {'; '.join(names)}")
    return chosen


def _show_bench(report: dict[str, Any], results: list[Result]) -> None:
    table = make_table("method", "ms", "extra\nGiB", "hidden\nerror", "weight\nerror", "kept")
    for result in results:
        cells = (
            (result.milliseconds, ".2f"),
            (result.extra_gib, ".2f"),
            (result.hidden_error, ".1e"),
            (result.weight_error, ".1e"),
            (result.kept, ".0%"),
        )
        if not result.failed:
            table.add_row(result.method, *("" if value is None else format(value, how) for value, how in cells))
    shape, machine = report["shape"], report["machine"]
    typer.echo(
        f"{shape['tokens']} tokens, hidden {shape['hidden_size']}, vocabulary {shape['vocabulary']}, "
        f"{report['dtype']}, on {machine['device']}, torch {machine['torch']}"
    )
    make_console().print(table)
    typer.echo(
        "ms: median, forward and backward. Errors: of the two gradients, relative, against float32. Kept: tokens "
        "with a backward pass."
    )
    failed = [f"  {result.method}: {result.failed}" for result in results if result.failed]
    if failed:
        typer.echo("\n".join(["", "Could not run here:", *failed]))
