"""The options that `trimsft study` and `trimsft sweep` have in common, each with its one description."""

from __future__ import annotations

from typing import Annotated

import typer

from trimsft.cli.base import whole_number

ScaleName = Annotated[str, typer.Option("--scale", help="lab (CPU, minutes), small (one GPU) or paper.")]
Data = Annotated[str | None, typer.Option(help="File or hub name to train on instead.")]
Rows = Annotated[int | None, whole_number("--rows", "Of the lab's task; elsewhere --set sample=N.")]
Benchmarks = Annotated[list[str], typer.Option("-b", "--benchmark", help="Name or file; repeat it.")]
BenchmarkData = Annotated[str | None, typer.Option(help="Folder of benchmarks as NAME.jsonl.")]
Fields = Annotated[list[str], typer.Option("--set", help="NAME=VALUE: any field of trimsft train, for every cell.")]
Samples = Annotated[int | None, whole_number("--samples", "Of each problem.")]
Problems = Annotated[int | None, whole_number("--problems", "Of each benchmark, the first ones.")]
MaxTokens = Annotated[int | None, whole_number("--max-tokens", "Of an answer, at most.")]
EngineName = Annotated[str | None, typer.Option(help="auto, transformers or vllm.")]
Dtype = Annotated[str | None, typer.Option(help="Of generation: auto, float32, bfloat16 or float16.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.")]
Gpus = Annotated[int | None, whole_number("--gpus", "For each training.")]
KeepWeights = Annotated[
    bool | None, typer.Option("--keep-weights/--no-keep-weights", help="After a cell's evaluation.")
]
Executor = Annotated[str, typer.Option(help="local, or ray: a cluster, see RAY_ADDRESS.")]
Workers = Annotated[int | None, whole_number("--workers", "Cells side by side; by default what fits.")]
Retries = Annotated[int, whole_number("--retries", "Of a cell that fails.", least=0)]
Smoke = Annotated[bool, typer.Option("--smoke", help="Next to nothing of everything: does it run?")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what it would take; run nothing.")]
