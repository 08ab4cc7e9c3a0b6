"""Commands made from settings: options, defaults, bounds and the names that errors use."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from trimsft.cli.from_settings import command_of
from trimsft.cli.terminal import Output
from trimsft.errors import UsageError
from trimsft.options import check_options, option
from trimsft.tables import text_table


@dataclass(frozen=True, kw_only=True)
class Sampling:
    temperature: float = option(1.0, help="Temperature of the samples.", least=0)
    top_k: int = option(0, help="Most probable tokens to draw from (0: all).", least=0)


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    models: tuple[str, ...] = option(help="Models to measure.", argument="MODEL...")
    benchmark: tuple[str, ...] = option((), help="A benchmark; may be repeated.", flags=("--benchmark", "-b"))
    out: Path | None = option(None, help="Folder for the results.")
    extra: tuple[Path, ...] = option((), help="A file to read beside the data; may be repeated.")
    limit: int | None = option(None, help="Number of rows to read.", least=1)
    engine: str = option("auto", help="Where texts are generated.", choices=("auto", "vllm"))
    greedy: bool = option(True, help="Add one greedy answer.")
    force: bool = option(False, help="Replace what is there.", flags=("--force",))
    derived: list[str] = field(default_factory=list)

    __post_init__ = check_options


def run(*words: str, seen: list[object] | None = None) -> Result:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @command_of(Settings)
    def measure(settings: Settings, *, own: int = 3) -> Output:
        """Measure models."""
        if seen is not None:
            seen.extend([settings, own])
        failures = ["one failed"] if settings.force else []
        return Output({"n": 1}, [text_table(("model",), [settings.models])], ["measured"], failures)

    return CliRunner().invoke(app, list(words))


def test_every_field_is_an_option_with_its_default() -> None:
    seen: list[object] = []
    assert run("m", seen=seen).exit_code == 0
    assert seen == [Settings(models=("m",)), 3]
    words = "a b -b x -b y --limit 3 --engine vllm --no-greedy --temperature 0.5 --top-k 2 --own 4"
    assert run(*words.split(), seen=(seen := [])).exit_code == 0
    expected = {"limit": 3, "engine": "vllm", "greedy": False, "temperature": 0.5, "top_k": 2}
    assert seen == [Settings(models=("a", "b"), benchmark=("x", "y"), **expected), 4]  # type: ignore[arg-type]


def test_the_result_is_printed_as_tables_or_json_and_failures_end_with_1() -> None:
    result = run("m")
    assert result.exit_code == 0 and "model" in result.stdout and result.stdout.endswith("measured\n")
    assert run("m", "--json").stdout == '{"n": 1}\n'
    failed = run("m", "--force")
    assert (failed.exit_code, failed.stderr) == (1, "trimsft: one failed\n")
    refused = run("m", "--limit", "0")
    assert (refused.exit_code, refused.stderr) == (2, "trimsft: --limit: must be at least 1, got 0\n")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"extra": ("a", 5)}, r"extra: must be Path, got 5"),
        ({"limit": True}, "limit: must be int \\| None, got True"),
        ({"temperature": float("nan")}, "temperature: must be a finite number, got nan"),
        ({"engine": "vlm"}, r"engine: unknown name 'vlm'; did you mean 'vllm'\? known: auto, vllm"),
    ],
)
def test_python_gets_the_same_checks_by_the_names_of_fields(bad: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}"):
        Settings(**{"models": (), **bad})  # type: ignore[arg-type]
    paths = Settings(models=Path("a"), extra=["b"], limit=np.int64(3))  # type: ignore[arg-type]
    assert (paths.models, paths.extra, paths.limit) == (("a",), (Path("b"),), 3)
