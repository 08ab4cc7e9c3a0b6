"""`trimsft eval` and `trimsft compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli.base import JsonFlag, make_console, refuse, status_line, whole_number
from trimsft.errors import one_line


def evaluate(
    model: Annotated[str, typer.Argument(help="A run directory, a model folder, or a name of the hub.")],
    benchmark: Annotated[
        list[str],
        typer.Option("--benchmark", "-b", help="Name, or a .jsonl of problems and answers; repeatable."),
    ],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of NAME.jsonl files, instead of the hub.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default the model's own.")] = None,
    engine: Annotated[str, typer.Option(help="auto, transformers, vllm or server.")] = "auto",
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    samples: Annotated[int, whole_number("--samples", "Samples of each problem; 0: greedy only.", least=0)] = 8,
    greedy: Annotated[bool, typer.Option(help="One greedy answer beside the samples.")] = True,
    temperature: Annotated[float, typer.Option(help="Of the samples.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Nucleus; 1 for all tokens.")] = 1.0,
    top_k: Annotated[int, whole_number("--top-k", "0 for all tokens.", least=0)] = 0,
    max_tokens: Annotated[int, whole_number("--max-tokens", "New tokens at most.")] = 2048,
    seed: Annotated[int, typer.Option(help="Seed of all samples.")] = 0,
    limit: Annotated[int | None, whole_number("--limit", "Only the first problems.")] = None,
    template: Annotated[str, typer.Option(help="How a problem becomes a prompt; auto: by tokenizer.")] = "auto",
    system_prompt: Annotated[str | None, typer.Option(help="Instead of the template's; '' for none.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    revision: Annotated[str | None, typer.Option(help="Hub only: branch, tag or commit of the model.")] = None,
    grader: Annotated[str, typer.Option(help="strict, or qwen for comparison with published figures.")] = "strict",
    gpu_memory: Annotated[
        float | None,
        typer.Option(help="Share of a GPU's memory to take, such as 0.4; by default what is free."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Sample, grade and score a model; the same command continues.

    8 samples at temperature 1 and a greedy answer to every problem, as in the paper. What is recorded is never
    generated again. A record may grow (samples, greedy, limit); other settings are refused.

    \b
    Examples:
      trimsft eval runs/trim -b math500 -b gsm8k
      trimsft eval ./model -b problems.jsonl --max-tokens 512
      trimsft eval my-model -b aime24 --server http://localhost:8000
    """
    from trimsft.evaluate import command
    from trimsft.evaluate.engines.base import Sampling

    try:
        settings = command.EvalSettings(
            model=model, benchmarks=benchmark, data_dir=data_dir, out=out, engine=engine, server=server,
            samples=samples, greedy=greedy, sampling=Sampling(temperature, top_p, top_k, max_tokens), seed=seed,
            limit=limit, template=template, system_prompt=system_prompt, dtype=dtype, revision=revision,
            grader=grader, gpu_memory=gpu_memory,
        )  # fmt: skip
        with status_line() as status:
            scores = command.evaluate(
                settings,
                on_start=lambda name, prompts: _show_prompt(name, prompts.example, prompts.notes),
                on_progress=lambda name, progress: status(f"{name}: {progress.line()}"),
            )
    except command.REFUSALS as error:
        typer.echo(f"trimsft: {one_line(error)}", err=True)
        raise typer.Exit(1 if isinstance(error, command.IncompleteEvaluation) else 2) from None
    except KeyboardInterrupt:
        typer.echo("trimsft: interrupted; the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(command.as_json(scores)))
        return
    from trimsft.report.compare import summary
    from trimsft.report.tables.formats import to_rich

    make_console().print(to_rich(summary(scores, Path(model).name)))
    typer.echo(f"Recorded in {settings.run.eval_dir}", err=True)


def _show_prompt(benchmark: str, prompt: str, notes: tuple[str, ...]) -> None:
    # a template is somebody's text: nothing in it may act on the terminal
    visible = "".join(c if c.isprintable() else "\n  " if c == "\n" else f"<U+{ord(c):04X}>" for c in prompt)
    typer.echo(f"{benchmark}, the first prompt:\n  {visible}", err=True)
    for note in notes:
        typer.echo(f"trimsft: {note}", err=True)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; the first is the baseline.")],
    metric: Annotated[str, typer.Option(help="average, greedy, pass@K, majority@K.")] = "average",
    benchmark: Annotated[list[str] | None, typer.Option("--benchmark", "-b", help="Only this one; repeatable.")] = None,
    style: Annotated[str, typer.Option("--format", help="terminal, markdown, latex, csv or json.")] = "terminal",
    out: Annotated[Path | None, typer.Option(help="File for it.")] = None,
) -> None:
    """Compare evaluated runs, problem by problem.

    Differences to the first run with 95 % intervals and sign-flip p-values, corrected for how many there are.

    \b
    Example:
      trimsft compare runs/sft runs/trim --metric greedy
    """
    styles = ("terminal", "markdown", "latex", "csv", "json")
    if style not in styles:
        refuse("--format", style, f"must be one of {', '.join(styles)}")
    if len(runs) < 2:
        refuse("RUNS", " ".join(map(str, runs)), "is one run; name two or more")
    if out is not None and style == "terminal":
        refuse("--out", out, "needs a --format to write: markdown, latex, csv or json")
    from trimsft.evaluate import command
    from trimsft.report.compare import compare_main

    try:
        compare_main(runs, metric, benchmark or (), style, out)
    except command.REFUSALS as error:
        typer.echo(f"trimsft: {one_line(error)}", err=True)
        raise typer.Exit(2) from None
