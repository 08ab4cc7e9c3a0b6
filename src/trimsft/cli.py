"""The command line: `trimsft quickstart | train | data | eval | compare | bench | doctor`.

Thin; what is heavy is imported inside its command.

Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.table import Table

    from trimsft.bench.head import Result

SHORT_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SHORT_HELP,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
DTYPES = ("auto", "float32", "bfloat16", "float16")


def _refuse(field: str, value: object, right: str) -> NoReturn:
    typer.echo(f"trimsft: {field}: {str(value)!r} {right}", err=True)
    raise typer.Exit(2)


def _count(field: str, explanation: str, *, least: int = 1) -> Any:
    """An option that takes a whole number."""

    def parse(given: str | int) -> int:
        text = str(given)  # a default comes as it is
        if not text.isdecimal() or int(text) < least:
            _refuse(field, text, f"must be a whole number, at least {least}")
        return int(text)

    return typer.Option(field, help=explanation, parser=parse, metavar="<int>")


def _duration(field: str, explanation: str) -> Any:
    """An option that takes a number above 0."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            _refuse(field, text, "must be a number above 0")
        return number

    return typer.Option(field, help=explanation, parser=parse, metavar="<float>")


def _print_version(wanted: bool) -> None:
    if wanted:
        from trimsft import __version__

        typer.echo(f"trimsft {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fine-tune language models on the tokens that matter.

    \b
    Start here:
      trimsft quickstart
    """


@app.command()
def quickstart(
    out: Annotated[
        Path | None, typer.Option(help="Folder for everything; runs/quickstart, or runs/quickstart-fast.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="SFT and TrimSFT only, under a minute.")] = False,
    seed: Annotated[int, _count("--seed", "Of training data, training and samples.", least=0)] = 0,
    as_json: JsonFlag = False,
) -> None:
    """The paper's comparison on a small model, in minutes on a CPU, offline; the same command continues.

    Trains the lab's base model with each of the six objectives, samples and grades, and writes a report.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    from rich.console import Console

    from trimsft.quickstart import Settings, command
    from trimsft.runs import RunError

    settings = Settings.fast(seed) if fast else Settings(seed=seed)
    folder = out or Path("runs/quickstart-fast" if fast else "runs/quickstart")
    try:
        with _writing(folder):
            outcome = command.run(folder, settings, Console(stderr=True, highlight=False))
    except RunError as error:
        typer.echo(f"trimsft: --out: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("trimsft: interrupted; what is done is kept; the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        command.show(outcome, folder, _console())
    for name, reason in outcome.failures.items():
        typer.echo(f"trimsft: {command.describe_failure(folder, name, reason)}", err=True)
    if outcome.failures:
        raise typer.Exit(1)


# ---- train


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    help_all: Annotated[bool, typer.Option("--help-all", help="List every field and its default.")] = False,
) -> None:
    """Fine-tune a model; the same command continues.

    Takes a YAML file, and any of its fields as --field value.

    \b
    The fields that matter:
      --config FILE            a recipe, see the folder recipes/
      --model_name_or_path     hub name or folder
      --dataset_name           hub name, or a local .jsonl .json .parquet .csv (.gz)
      --objective              sft fsft dft trim trim-e trim-h
      --margin --bandwidth     where and how wide the band of trained gaps is
      --output_dir             the run directory
      --dry-run                memory, steps and time, without training

    \b
    Examples:
      trimsft train --config recipes/qwen2.5-math-1.5b.yaml --objective dft
      trimsft train --model_name_or_path Qwen/Qwen2.5-Math-1.5B --dataset_name data.jsonl --dry-run
      accelerate launch --config_file recipes/accelerate/fsdp2.yaml -m trimsft train --config RECIPE
    """
    if help_all:
        from trimsft.train.settings import Parser

        Parser().print_help()
        return
    if not context.args:
        typer.echo("trimsft: train: nothing to train; see trimsft train --help", err=True)
        raise typer.Exit(2)
    from trimsft.train.command import main as train_main

    raise typer.Exit(train_main(context.args))


data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at training data.")
app.add_typer(data_app, name="data")


@data_app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def preview(
    context: typer.Context,
    count: Annotated[int, _count("--count", "How many examples.")] = 3,
    show_ids: Annotated[bool, typer.Option("--ids", help="Show token ids.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show examples as the model will see them.

    Prompt, trained tokens, what is cut off. Takes the fields of train.

    \b
    Example:
      trimsft data preview --model_name_or_path Qwen/Qwen2.5-Math-1.5B --dataset_name data.jsonl --count 2
    """
    from trimsft.train.look import preview_main

    raise typer.Exit(preview_main(context.args, count=count, show_ids=show_ids, as_json=as_json))


# ---- eval and compare


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="A run directory, a model folder, or a name of the hub.")],
    benchmark: Annotated[
        list[str],
        typer.Option("--benchmark", "-b", help="Name, or a .jsonl of problems and answers; repeatable."),
    ],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of NAME.jsonl files, instead of the hub.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default the model's own.")] = None,
    engine: Annotated[str, typer.Option(help="auto, transformers, vllm or server.")] = "auto",
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    samples: Annotated[int, _count("--samples", "Samples of each problem; 0: greedy only.", least=0)] = 8,
    greedy: Annotated[bool, typer.Option(help="One greedy answer beside the samples.")] = True,
    temperature: Annotated[float, typer.Option(help="Of the samples.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Nucleus; 1 for all tokens.")] = 1.0,
    top_k: Annotated[int, _count("--top-k", "0 for all tokens.", least=0)] = 0,
    max_tokens: Annotated[int, _count("--max-tokens", "New tokens at most.")] = 2048,
    seed: Annotated[int, typer.Option(help="Seed of all samples.")] = 0,
    limit: Annotated[int | None, _count("--limit", "Only the first problems.")] = None,
    template: Annotated[
        str, typer.Option(help="How a problem becomes a prompt; auto: by tokenizer.")
    ] = "auto",
    system_prompt: Annotated[str | None, typer.Option(help="Instead of the template's; '' for none.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    revision: Annotated[
        str | None, typer.Option(help="Hub only: branch, tag or commit of the model.")
    ] = None,
    grader: Annotated[
        str, typer.Option(help="strict, or qwen for comparison with published figures.")
    ] = "strict",
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
            grader=grader,
        )  # fmt: skip
        with _status() as status:
            scores = command.evaluate(
                settings,
                on_start=lambda name, prompts: _show_prompt(name, prompts.example, prompts.notes),
                on_progress=lambda name, progress: status(f"{name}: {progress.line()}"),
            )
    except command.REFUSALS as error:
        typer.echo(f"trimsft: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1 if isinstance(error, command.IncompleteEvaluation) else 2) from None
    except KeyboardInterrupt:
        typer.echo("trimsft: interrupted; the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(command.as_json(scores)))
        return
    from trimsft.evaluate.formats import to_rich

    _console().print(to_rich(command.summary(scores, Path(model).name)))
    typer.echo(f"Recorded in {settings.run.eval_dir}", err=True)


def _show_prompt(benchmark: str, prompt: str, notes: tuple[str, ...]) -> None:
    # a template is somebody's text: nothing in it may act on the terminal
    visible = "".join(c if c.isprintable() else "\n  " if c == "\n" else f"<U+{ord(c):04X}>" for c in prompt)
    typer.echo(f"{benchmark}, the first prompt:\n  {visible}", err=True)
    for note in notes:
        typer.echo(f"trimsft: {note}", err=True)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; the first is the baseline.")],
    metric: Annotated[str, typer.Option(help="average, greedy, pass@K, majority@K.")] = "average",
    benchmark: Annotated[
        list[str] | None, typer.Option("--benchmark", "-b", help="Only this one; repeatable.")
    ] = None,
    style: Annotated[
        str, typer.Option("--format", help="terminal, markdown, latex, csv or json.")
    ] = "terminal",
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
        _refuse("--format", style, f"must be one of {', '.join(styles)}")
    if len(runs) < 2:
        _refuse("RUNS", " ".join(map(str, runs)), "is one run; name two or more")
    if out is not None and style == "terminal":
        _refuse("--out", out, "needs a --format to write: markdown, latex, csv or json")
    from trimsft.evaluate import command

    try:
        command.compare_main(runs, metric, benchmark or (), style, out)
    except command.REFUSALS as error:
        typer.echo(f"trimsft: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


# ---- bench


@app.command()
def bench(
    tokens: Annotated[int | None, _count("--tokens", "Trained tokens in a batch.")] = None,
    hidden: Annotated[int | None, _count("--hidden", "Size of a hidden state.")] = None,
    vocabulary: Annotated[int | None, _count("--vocabulary", "Rows of the head's weight.", least=2)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    only: Annotated[str, typer.Option(help="Only methods whose name contains this.")] = "",
    seconds: Annotated[float, _duration("--seconds", "Time spent on each measurement.")] = 0.1,
    out: Annotated[Path | None, typer.Option(help="JSON file for the results.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Time and memory of the head against its peers.

    Forward and backward, on synthetic tokens of your shape.

    Without a shape: 8192 x 1536 x 151936 (Qwen2.5-1.5B) on CUDA, 512 x 512 x 8192 on the CPU. Peers that are
    not installed, or cannot run here, are listed with the reason.

    \b
    Examples:
      trimsft bench --tokens 8192 --hidden 4096 --vocabulary 128256
      trimsft bench --tokens 512 --hidden 256 --vocabulary 8192 --only trimsft --json
    """
    if dtype not in DTYPES:
        _refuse("--dtype", dtype, f"must be one of {', '.join(DTYPES)}")
    if out is not None and out.is_dir():
        _refuse("--out", out, "is a folder; name a file")
    import torch

    from trimsft.bench.head import Shape, compare, machine

    where = _device(device)
    usual = (8192, 1536, 151_936) if where.type == "cuda" else (512, 512, 8192)
    shape = Shape("yours", tokens or usual[0], hidden or usual[1], vocabulary or usual[2])
    kind = dtype if dtype != "auto" else "bfloat16" if where.type == "cuda" else "float32"
    names = [*_method_names(only), "the report"]
    results: list[Result] = []
    with _status() as status, _failing("bench"):
        status("gradients in float32, to compare with")
        runs = compare(shape, device=str(where), dtype=getattr(torch, kind), only=only, seconds=seconds)
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

        with _writing(out):
            write_whole(out, (json.dumps(report, indent=1) + "\n").encode())
        typer.echo(f"Wrote {out}", err=True)
    if any(result.ours and result.failed for result in results) or all(result.failed for result in results):
        raise typer.Exit(1)


def _method_names(only: str) -> list[str]:
    from trimsft.bench.head import our_methods
    from trimsft.bench.peers import PEERS

    names = [method.name for method in our_methods()] + [peer.name for peer in PEERS]
    chosen = [name for name in names if only.lower() in name.lower()]
    if not chosen:
        _refuse("--only", only, f"is part of no name; the names: {'; '.join(names)}")
    return chosen


def _show_bench(report: dict[str, Any], results: list[Result]) -> None:
    table = _table("method", "ms", "extra\nGiB", "hidden\nerror", "weight\nerror", "kept")
    for result in results:
        cells = (
            (result.milliseconds, ".2f"),
            (result.extra_gib, ".2f"),
            (result.hidden_error, ".1e"),
            (result.weight_error, ".1e"),
            (result.kept, ".0%"),
        )
        if not result.failed:
            table.add_row(
                result.method, *("" if value is None else format(value, how) for value, how in cells)
            )
    shape, machine = report["shape"], report["machine"]
    typer.echo(
        f"{shape['tokens']} tokens, hidden {shape['hidden_size']}, vocabulary {shape['vocabulary']}, "
        f"{report['dtype']}, on {machine['device']}, torch {machine['torch']}"
    )
    _console().print(table)
    typer.echo(
        "ms: median, forward and backward. Errors: of the two gradients, relative, against float32. Kept: tokens "
        "with a backward pass."
    )
    failed = [f"  {result.method}: {result.failed}" for result in results if result.failed]
    if failed:
        typer.echo("\n".join(["", "Could not run here:", *failed]))


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()) or name.endswith(":"):
        _refuse("--device", name, "must be auto, cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        _refuse("--device", name, f"is not there: torch sees {torch.cuda.device_count()} CUDA devices")
    if kind == "cuda":
        torch.cuda.set_device(int(number or 0))
    return torch.device(name)


# ---- doctor


@app.command()
def doctor(as_json: JsonFlag = False) -> None:
    """Say what works here.

    What is installed, which backend the head takes here; checks every backend against float64.

    Exits with 1 if a backend that should work is wrong or breaks.

    \b
    Example:
      trimsft doctor
    """
    from trimsft.doctor import examine

    with _status() as status:
        status("checking the backends")
        facts = examine(_device("auto"))
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show_doctor(facts)
    if any(check["verdict"] == "failed" for check in facts["checks"]):
        raise typer.Exit(1)


def _show_doctor(facts: dict[str, Any]) -> None:
    cuda = facts["cuda"] and "{device}, {free_gib} of {total_gib} GiB free".format(**facts["cuda"])
    lines = {key: facts[key] for key in ("python", "trimsft", "torch")}
    lines |= {"triton": facts["triton"] or "not installed", "cuda": cuda or "no device"}
    lines["backend"] = "'auto' is {backend}: {because}".format(**facts["auto"])
    for key, value in lines.items():
        typer.echo(f"{key:8} {value}")
    table = _table("backend", "dtype", "error", "tolerance", "verdict")
    for check in facts["checks"]:
        error = f"{check['error']:.1e}" if "error" in check else ""
        table.add_row(check["backend"], check["dtype"], error, f"{check['tolerance']:.1e}", check["verdict"])
    _console().print(table)
    reasons = {check["backend"]: check["reason"] for check in facts["checks"] if "reason" in check}
    for backend, reason in reasons.items():
        typer.echo(f"{backend}: {reason}")


# ---- what the commands share


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Torch's errors, such as too little memory, in one line."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, typer.Exit):
            raise
        typer.echo(f"trimsft: {what} failed: {str(error).partition(chr(10))[0]}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        typer.echo(f"trimsft: --out: cannot write {str(path)!r}: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is going on, where someone is watching."""
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(text)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table


if __name__ == "__main__":
    app()
