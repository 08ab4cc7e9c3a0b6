"""What `trimsft tokens` and `trimsft report` do, but for reading options and rows: where tables go, what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.objectives import PARAMETERS
from trimsft.text.templates import TemplateError
from trimsft.tokens.measure import options_for, write_token_table
from trimsft.tokens.parts import parts_folder
from trimsft.tokens.statistics.weighting import confidence, diagnose, objective_of
from trimsft.tokens.table import TokenTable, read_token_table, same_tokens

REFUSALS = (RunError, TemplateError, ValueError, NotImplementedError)
"""What is wrong with a request, said in one line."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a table says in a few numbers."""

    model: str
    path: str
    is_new: bool
    """False where it was there already, made with the same inputs."""
    template: str | None
    system_prompt: str | None
    max_length: int | None
    cut: Mapping[str, int]
    """What the maximum length took: rows_cut, tokens_cut, rows_lost."""
    tokens: int
    examples: int
    mean_nll: float
    median_gap: float
    first_choice: float
    """Percent of the tokens that no other one has a larger logit than."""
    effective_ratio: float
    """Of TrimSFT's weights at the paper's margin and bandwidth."""
    high_weight: float
    """Percent of the tokens with such a weight above one half."""


@dataclass(frozen=True)
class Outcome:
    """What came of `trimsft tokens`."""

    summaries: list[Summary]
    pending: list[Path]
    """Tables that wait for the shares of other processes."""
    incomparable: str
    """Why the tables cannot be compared; empty where they can."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "tables": [asdict(summary) for summary in self.summaries],
            "pending": [str(path) for path in self.pending],
            "comparable": not self.incomparable,
            "reason": self.incomparable or None,
        }


# ---- tokens


def places_for(models: Sequence[str], out: Path | None) -> dict[str, Path]:
    """Where the table of each model goes.

    By default a run directory has its own and any other model's is ./tokens-NAME.parquet. `out` is a .parquet file or
    a folder for one model; for several it is a folder, with one inside for each.
    """
    if len(models) > 1 and out is not None and out.suffix == ".parquet":
        raise ValueError(f"out: {str(out)!r} is one file for {len(models)} models; name a folder")
    if out is not None:
        _check_out(out)
    places: dict[str, Path] = {}
    for model in models:
        if out is None:
            is_run = (Path(model) / "manifest.json").is_file()
            place = Path(model) / "tokens.parquet" if is_run else Path(f"tokens-{name_of(model)}.parquet")
        elif len(models) == 1:
            place = out if out.suffix == ".parquet" else out / "tokens.parquet"
        else:
            place = out / name_of(model) / "tokens.parquet"
        if model in places or place in places.values():
            raise ValueError(f"models: {model!r} would be written to {str(place)!r}, as another one; name it once")
        places[model] = place
    return places


def _check_out(out: Path) -> None:
    if out.suffix == ".parquet" and out.is_dir():
        raise ValueError(f"out: {str(out)!r} is a folder; name a file in it, or a folder without .parquet")
    folders = [out, *out.parents][out.suffix == ".parquet" :]
    if file := next((folder for folder in folders if folder.exists() and not folder.is_dir()), None):
        raise ValueError(f"out: {str(file)!r} is a file; name a folder, or a file that ends in .parquet")


def name_of(model: str) -> str:
    """The last part of a path or of a name of the hub; of RUN/model, the run's."""
    path = Path(model)
    path = path.resolve() if path.exists() else path
    return path.parent.name if path.name == "model" and path.parent.name else path.name


def make_tables(
    models: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    out: Path | None,
    on_progress: Callable[[str, int, int], None],
    **options: Any,
) -> Outcome:
    """A table for each model over the same rows, and what they say; those that are no runs are asked like the runs."""
    options = options_for(models, options)
    tables: dict[str, TokenTable] = {}
    summaries, pending = [], []
    for model, place in places_for(models, out).items():
        before = _stamp(place)
        write_token_table(model, rows, place, on_progress=partial(on_progress, name_of(model)), **options)
        if not place.exists() or parts_folder(place).exists():
            pending.append(place)
            continue
        tables[model] = read_token_table(place)
        summaries.append(summarise(tables[model], model, place, is_new=_stamp(place) != before))
    try:
        same_tokens(tables)
    except RunError as error:
        return Outcome(summaries, pending, str(error))
    return Outcome(summaries, pending, "")


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes with the file that has the name."""
    return (found.st_ino, found.st_mtime_ns) if path.exists() and (found := path.stat()) else None


def summarise(table: TokenTable, model: str, path: Path, *, is_new: bool) -> Summary:
    band = {name: PARAMETERS[name] for name in ("margin", "bandwidth")}
    sure = confidence(table, **band)
    trimmed = diagnose(table, objective_of("trim"), **band)
    return Summary(
        model=model,
        path=str(path),
        is_new=is_new,
        **{name: table.metadata.get(name) for name in ("template", "system_prompt", "max_length")},
        cut=table.metadata.get("cut", {}),
        tokens=len(table),
        examples=len(set(table["example"].tolist())),
        mean_nll=sure.mean_nll,
        median_gap=sure.median_gap,
        first_choice=sure.top,
        effective_ratio=trimmed.effective_ratio,
        high_weight=trimmed.high_weight,
    )


# ---- report


def named_runs(arguments: Sequence[str]) -> dict[str, Path]:
    """[LABEL=]PATH of run directories or token tables; without a label the folder's name is one."""
    runs: dict[str, Path] = {}
    for argument in arguments:
        label, equals, name = argument.partition("=")
        if not equals or Path(argument).exists():
            label, name = "", argument
        path = Path(name).expanduser()
        if not path.exists():
            raise RunError(f"runs: no such run directory or token table: {name!r}")
        if path.is_file() and path.suffix != ".parquet":
            raise RunError(f"runs: {name!r} must be a run directory or a token table, NAME.parquet")
        if path.is_dir() and not _has_results(path):
            raise RunError(
                f"runs: {name!r} has neither tokens.parquet nor eval/BENCHMARK/scores.json; make one with trimsft "
                "tokens or trimsft eval, or name another folder"
            )
        label = label.strip() or _label(path)
        if label in runs:
            raise RunError(f"runs: two are called {label!r}; tell them apart as LABEL={name}")
        runs[label] = path
    return runs


def _has_results(folder: Path) -> bool:
    return (folder / "tokens.parquet").is_file() or any(folder.glob("eval/*/scores.json"))


def _label(path: Path) -> str:
    whole = path.resolve()
    if whole.is_dir():
        return whole.name
    return whole.parent.name if whole.name == "tokens.parquet" else whole.stem.removeprefix("tokens-")


def write_all(
    runs: Mapping[str, Path],
    out: Path,
    *,
    title: str | None,
    parameters: Mapping[str, float],
    sweep: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> list[Path]:
    """The page, tables and figures; returns the files. `warn` is told why tables cannot be compared."""
    from trimsft.report.analysis import write_analysis
    from trimsft.report.page.build import write_report

    for name in ("trim", "fsft"):
        objective_of(name, parameters)  # refuses what is no margin, bandwidth or gamma
    title = title or (" and ".join(runs) if len(runs) < 3 else f"{len(runs)} runs")
    page = write_report(out / "report.html", runs, title=title, settings=dict(parameters), sweep=sweep)
    return [page, *write_analysis(out, runs, parameters=dict(parameters), sweep=sweep, warn=warn)]


def place_for_report(runs: Mapping[str, Path], out: Path | None) -> Path:
    """Where a report goes: into the run it is about, or, of several, into ./report."""
    if out is not None:
        if out.is_file() or out.suffix == ".html":
            raise ValueError(f"out: {str(out)!r} must be a folder; the page in it is called report.html")
        return out
    only = next(iter(runs.values()))
    return only if len(runs) == 1 and only.is_dir() else Path("report")
