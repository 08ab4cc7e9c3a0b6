"""`trimsft eval` and `trimsft compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli.base import JsonFlag, make_console, status_line, whole_number
from trimsft.cli.declared import command_of
from trimsft.errors import one_line
from trimsft.report.comparison import CompareSettings


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
    from trimsft.errors import TrimSFTError, exit_code
    from trimsft.evaluate.engines.base import Sampling
    from trimsft.evaluate.run import evaluate as run_evaluation
    from trimsft.evaluate.settings import EvalSettings

    try:
        settings = EvalSettings(
            model=model, benchmarks=benchmark, data_dir=data_dir, out=out, engine=engine, server=server,
            samples=samples, greedy=greedy, seed=seed,
            sampling=Sampling(temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens),
            limit=limit, template=template, system_prompt=system_prompt, dtype=dtype, revision=revision,
            grader=grader, gpu_memory=gpu_memory,
        )  # fmt: skip
        with status_line() as status:
            evaluated = run_evaluation(
                settings,
                on_start=lambda name, prompts: _show_prompt(name, prompts.example, prompts.notes),
                on_progress=lambda name, progress: status(f"{name}: {progress.line()}"),
            )
    except TrimSFTError as error:
        typer.echo(f"trimsft: {one_line(error)}", err=True)
        raise typer.Exit(exit_code(error)) from None
    except KeyboardInterrupt:
        typer.echo("trimsft: interrupted; the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(evaluated.as_json()))
        return
    from trimsft.report.table import to_rich
    from trimsft.report.tables.scores import summary_table

    make_console().print(to_rich(summary_table(evaluated.scores, Path(model).name)))
    typer.echo(f"Recorded in {evaluated.run.eval_dir}", err=True)


def _show_prompt(benchmark: str, prompt: str, notes: tuple[str, ...]) -> None:
    # a template is somebody's text: nothing in it may act on the terminal
    from trimsft.text.visible import visible

    shown = visible(prompt).replace("\n", "\n  ")
    typer.echo(f"{benchmark}, the first prompt:\n  {shown}", err=True)
    for note in notes:
        typer.echo(f"trimsft: {note}", err=True)


@command_of(CompareSettings)
def compare(settings: CompareSettings) -> None:
    """Compare evaluated runs, problem by problem.

    Differences to the first run with 95 % intervals and sign-flip p-values, corrected for how many there are.

    \b
    Example:
      trimsft compare runs/sft runs/trim --metric greedy
    """
    from trimsft.report.comparison import compare as compare_scores

    compared = compare_scores(settings)
    if settings.out is None:
        typer.echo(compared.render(settings.style))
