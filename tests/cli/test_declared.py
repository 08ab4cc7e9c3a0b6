"""Commands made from settings: options, defaults, bounds and the names that errors use."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from trimsft.cli.from_settings import command_of
from trimsft.errors import UsageError
from trimsft.options import check_options, given_options, option


@dataclass(frozen=True, kw_only=True)
class Sampling:
    temperature: float = option(1.0, help="Temperature of the samples.", least=0)
    top_k: int = option(0, help="Most probable tokens to draw from (0: all).", least=0)


@dataclass(frozen=True, kw_only=True)
class Settings:
    models: tuple[str, ...] = option(help="Models to measure.", argument="MODEL...")
    benchmark: tuple[str, ...] = option((), help="A benchmark; may be repeated.", flags=("--benchmark", "-b"))
    out: Path | None = option(None, help="Folder for the results.")
    extra: tuple[Path, ...] = option((), help="A file to read beside the data; may be repeated.")
    limit: int | None = option(None, help="Number of rows to read.", least=1)
    engine: str = option("auto", help="Where texts are generated.", choices=("auto", "vllm"))
    greedy: bool = option(True, help="Add one greedy answer.")
    force: bool = option(False, help="Replace what is there.", flags=("--force",))
    sampling: Sampling = option(factory=Sampling, help="", inline=Sampling)
    derived: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_options(self)
        check_options(self.sampling)
        if self.out is not None and not self.greedy:
            raise UsageError("has no effect without greedy", field="out", value=str(self.out))


def run(*words: str, seen: list[object] | None = None) -> Result:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @command_of(Settings)
    def measure(settings: Settings, *, as_json: bool = False) -> None:
        """Measure models."""
        if seen is not None:
            seen.extend([settings, as_json])

    return CliRunner().invoke(app, list(words))


@dataclass(frozen=True, kw_only=True)
class Either:
    model: str = option(help="The model.", argument="MODEL", flags=("--model",))
    data: tuple[str, ...] = option(help="The data.", argument="DATA...", flags=("--data", "-d"))


def run_either(*words: str) -> Result:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @command_of(Either)
    def measure(settings: Either) -> None:
        """Measure a model."""
        typer.echo(settings)

    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("words", ["m a b", "m a --data b", "m -d a -d b", "-d a -d b --model m"])
def test_an_argument_with_a_flag_may_be_given_by_either(words: str) -> None:
    assert run_either(*words.split()).stdout == f"{Either(model='m', data=('a', 'b'))}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("-d a", "MODEL: is missing; name it as MODEL or as --model MODEL"),
        ("--model m", "DATA: is missing; name it as DATA or as --data DATA"),
        ("m a --model n", "MODEL: is given twice, as 'm' and as 'n'; once will do"),
    ],
)
def test_an_argument_is_given_once(words: str, line: str) -> None:
    result = run_either(*words.split())
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"trimsft: {line}\n")


def test_every_field_is_an_option_with_its_default() -> None:
    seen: list[object] = []
    assert run("m", seen=seen).exit_code == 0
    assert seen == [Settings(models=("m",)), False]
    words = "a b -b x -b y --limit 3 --engine vllm --no-greedy --force --temperature 0.5 --top-k 2 --as-json"
    assert run(*words.split(), seen=(seen := [])).exit_code == 0
    assert seen[0] == Settings(
        models=("a", "b"), benchmark=("x", "y"), limit=3, engine="vllm", greedy=False, force=True,
        sampling=Sampling(temperature=0.5, top_k=2),
    )  # fmt: skip
    assert seen[1] is True


def test_help_is_what_the_fields_say() -> None:
    text = run("--help").stdout
    for part in ("Measure models.", "MODEL...", "--benchmark", "-b", "Temperature of the samples.", "[default: 1.0]",
                 "One of: auto, vllm.", "--no-greedy", "--force"):  # fmt: skip
        assert part in text
    assert "--no-force" not in text and "derived" not in text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--limit 0", "--limit: must be at least 1, got 0"),
        ("--limit many", "--limit: 'many' is not a whole number"),
        ("--temperature -1", "--temperature: must be at least 0, got -1.0"),
        ("--temperature nan", "--temperature: must be a number, got nan"),
        ("--engine vlm", "--engine: unknown name 'vlm'; did you mean 'vllm'? known: auto, vllm"),
        ("--out o --no-greedy", "--out: has no effect without greedy, got 'o'"),
    ],
)
def test_bad_values_are_refused_by_the_names_of_options(words: str, line: str) -> None:
    result = run("m", *words.split())
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"trimsft: {line}\n")


BAD = [
    ({"out": 5}, "out: must be a path, got 5"),
    ({"out": ""}, "out: must be a path, got ''"),
    ({"out": "~nobody-here"}, "out: cannot be a path"),
    ({"extra": ("a", 5)}, r"extra: must be a list of a path, got \('a', 5\)"),
    ({"limit": True}, "limit: must be a whole number, got True"),
    ({"models": ("a", 5)}, "models: must be a list of text, got"),
    ({"engine": None}, "engine: must be text, got None"),
    ({"out": Path("~nobody-here")}, "out: cannot be a path"),
    ({"models": ("a\0",)}, "models: holds characters that cannot be written"),
    ({"sampling": Sampling(temperature=float("inf"))}, "temperature: must be finite, got inf"),
]


def test_python_gets_the_same_checks_by_the_names_of_fields() -> None:
    with pytest.raises(UsageError, match="limit: must be at least 1, got 0"):
        Settings(models=(), limit=0)
    with pytest.raises(UsageError, match="limit: must be a whole number, got 'many'"):
        Settings(models=(), limit="many")  # type: ignore[arg-type]
    for bad, says in BAD:
        with pytest.raises(UsageError, match=f"^{says}"):
            Settings(**{"models": (), **bad})
    assert given_options(Settings(models=("m",), limit=2)) == {"models": ("m",), "limit": 2}


def test_texts_become_paths_where_a_field_holds_paths() -> None:
    given = Settings(models=("a/b",), out="c/d", extra=("e", Path("f")))  # type: ignore[arg-type]
    assert given == Settings(models=("a/b",), out=Path("c/d"), extra=(Path("e"), Path("f")))
    assert isinstance(given.out, Path) and given.models == ("a/b",)


def test_a_home_that_no_shell_has_put_in_its_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    given = Settings(models=("~/m",), out=Path("~/c"), extra=("~/e", "f"))  # type: ignore[arg-type]
    assert (given.out, given.extra) == (Path("/home/me/c"), (Path("/home/me/e"), Path("f")))
    assert given.models == ("~/m",)  # a text stays as it was given
    with pytest.raises(UsageError, match="extra: cannot be a path"):
        Settings(models=(), extra=("~nobody-of-this-name/e",))  # type: ignore[arg-type]
