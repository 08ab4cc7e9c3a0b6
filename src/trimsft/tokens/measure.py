"""`measure_tokens`: from settings to tables and their summaries; nothing heavy is imported before."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.data.load import RowSettings
from trimsft.errors import TrimSFTError, UsageError
from trimsft.options import option
from trimsft.runs import RunDirectory
from trimsft.tables import Cell, Table, Tabular

if TYPE_CHECKING:
    from trimsft.data.preview import Preview
    from trimsft.tokens.statistics import Verdict
    from trimsft.tokens.table import TokenTable

_FORMATS = (",", ".3f", ".2f", ".1f", ".3f", ".1f")
Progress = Callable[[str, int, int], None]  # called with the model, rows done, and rows in all


@dataclass(frozen=True, kw_only=True)
class TokenSettings(RowSettings):
    """Models, rows, and how they are measured."""

    models: tuple[str, ...] = option(
        argument="MODEL...", flags=("--model",), help="Run directories, model folders or names on the hub."
    )
    sample: int | None = option(None, help="Choose this many rows at random.", least=1)
    seed: int | None = option(None, help="Seed of the random choice of rows (default: 0).", least=0)
    out: Path | None = option(None, help="File or folder (default: the run, or ./tokens-NAME.parquet).")
    objective: str = option("trim", metavar="NAME", help="Whose R_eff is shown: a name, or module:Name.")
    device: str = option("auto", metavar="DEVICE", help="auto (GPU, else cpu), cpu, cuda or cuda:N.")
    batch_tokens: int | None = option(None, help="Most tokens in a batch, with padding.", least=1)
    show: int | None = option(None, metavar="N", help="Show so many rows, measure nothing.", least=1)
    overwrite: bool = option(False, flags=("--overwrite",), help="Replace a table of other inputs.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UsageError("there are none", field="models", hint="name at least one")
        if self.seed is not None and self.sample is None:
            raise UsageError("has no effect without a sample", field="seed", value=self.seed, hint="leave it out")
        if self.show is None:
            self.places()

    def places(self) -> dict[str, Path]:
        """Return where the table of each model goes.

        By default a run directory has its own and any other model's is ./tokens-NAME.parquet. `out` is a .parquet
        file or a folder for one model; for several it is a folder, with one inside for each.
        """
        out, places, is_alone = self.out, dict[str, Path](), len(self.models) == 1
        for model in self.models:
            run = RunDirectory(model)
            if out is None:
                place = run.tokens_path if run.is_run() else Path(f"tokens-{name_of(model)}.parquet")
            elif out.suffix == ".parquet":
                place = out
            else:
                place = out / ("" if is_alone else name_of(model)) / "tokens.parquet"
            if place.is_dir() or (place == out and not is_alone) or any(one.is_file() for one in place.parents):
                problem = "must be a folder, or for one model a file that ends in .parquet"
                raise UsageError(problem, field="out", value=str(out))
            if model in places or place in places.values():
                problem = f"{model!r} would be written to {str(place)!r}, as another one"
                raise UsageError(problem, field="models", hint="name it once")
            places[model] = place
        return places


def name_of(model: str) -> str:
    """Return the last part of a path (a link's own) or of a hub's name; of RUN/model, the run's."""
    path = Path(model)
    path = Path(os.path.abspath(path)) if path.exists() else path  # . and .. have no name
    return path.parent.name if path.name == "model" and path.parent.name else path.name


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A table in a few numbers; shares from 0 to 1."""

    model: str
    path: str
    is_new: bool  # false where it was there already
    tokens: int
    examples: int
    mean_nll: float
    median_gap: float
    first_choice: float  # share of tokens that no other one has a larger logit than
    objective: str  # whose weights the next two are about, at its defaults
    effective_ratio: float  # R_eff of the weights
    high_weight: float  # share of the tokens with such a weight above one half
    verdict: Verdict  # whether the model supports the data, and a band to try


@dataclass(frozen=True)
class TokenTables(Tabular):
    """Result of `measure_tokens`."""

    summaries: list[Summary]
    incomparable: TrimSFTError | None  # why the tables cannot be compared; None where they can

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `--json`."""
        return {
            "tables": [asdict(one) | {"verdict": one.verdict.as_dict()} for one in self.summaries],
            "comparable": self.incomparable is None,
            "reason": None if self.incomparable is None else str(self.incomparable),
        }

    @property
    def tables(self) -> list[Table]:
        header = ("model", "tokens", "mean nll", "median gap", "first choice %", "R_eff", "High-Weight %")
        rows = []
        for one in self.summaries:
            shares = (100 * one.first_choice, one.effective_ratio, 100 * one.high_weight)
            values = (one.tokens, one.mean_nll, one.median_gap, *shares)
            cells = (Cell(format(value, form), data=value) for value, form in zip(values, _FORMATS, strict=True))
            rows.append((Cell(name_of(one.model)), *cells))
        return [Table("", header, tuple(rows))] if rows else []

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(one.verdict.sentence for one in self.summaries)])


def preview_rows(settings: TokenSettings) -> Preview:
    """Return rows as a training would see them; `out` may name a page of HTML that shows them, too."""
    from trimsft.data.preview import preview
    from trimsft.runs import find_weights, write_whole
    from trimsft.tokens.write import make_encoder

    if len(settings.models) > 1 or (settings.out is not None and settings.out.suffix != ".html"):
        problem = "shows the rows of one model, on the screen or in a file that ends in .html"
        raise UsageError(problem, field="show", value=settings.show)
    rows, _ = settings.read(sample=settings.sample, sample_seed=settings.seed or 0)
    rows = rows[: settings.limit]
    source, rendering = find_weights(settings.models[0]), settings.as_trained(settings.models)
    seen = preview(rows, make_encoder(source, None, rendering, rows)[0], settings.show or 1)
    if settings.out is not None:
        write_whole(settings.out, seen.as_html().encode())
    return seen


def measure_tokens(settings: TokenSettings, *, on_progress: Progress = lambda model, done, rows: None) -> TokenTables:
    """Write a table for each model over the same rows; what is no run is rendered like the runs."""
    from trimsft.objectives import BANDWIDTH, MARGIN, make_objective
    from trimsft.tokens.statistics import confidence, diagnose, judge_table
    from trimsft.tokens.table import incomparable, read_token_table
    from trimsft.tokens.write import write_token_table

    objective = make_objective(settings.objective)
    rows, _ = settings.read(sample=settings.sample, sample_seed=settings.seed or 0)
    names = ("limit", "batch_tokens", "overwrite", "device")
    options = {name: getattr(settings, name) for name in names} | asdict(settings.as_trained(settings.models))
    tables: dict[str, TokenTable] = {}
    summaries = []
    for model, place in settings.places().items():
        before = place.stat().st_mtime_ns if place.exists() else None
        write_token_table(model, rows, place, on_progress=partial(on_progress, name_of(model)), **options)
        table = tables[model] = read_token_table(place)
        weighed = diagnose(table, objective, margin=MARGIN, bandwidth=BANDWIDTH)
        sure = confidence(table, margin=MARGIN, bandwidth=BANDWIDTH)
        summaries.append(
            Summary(
                model=model,
                path=str(place),
                is_new=place.stat().st_mtime_ns != before,
                tokens=len(table),
                examples=table.example_count,
                mean_nll=sure.mean_nll,
                median_gap=sure.median_gap,
                first_choice=sure.first_choice_percent / 100,
                objective=settings.objective,
                effective_ratio=weighed.effective_ratio,
                high_weight=weighed.high_weight_percent / 100,
                verdict=judge_table(table),
            )
        )
    return TokenTables(summaries, next(iter(incomparable(tables).values()), None))
