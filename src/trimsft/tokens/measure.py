"""`measure_tokens`: `trimsft tokens`, from settings to tables and their summaries."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trimsft.errors import TrimSFTError
from trimsft.objectives import BANDWIDTH, MARGIN, make_objective
from trimsft.tables import Cell, Table, Tabular
from trimsft.tokens.settings import TokenSettings, name_of
from trimsft.tokens.statistics.verdict import Verdict, judge_table
from trimsft.tokens.statistics.weighting import confidence, diagnose
from trimsft.tokens.table import TokenTable, incomparable, read_token_table
from trimsft.tokens.write import shares_of, write_token_table

Progress = Callable[[str, int, int], None]  # called with the name of the model, rows done, and rows in all


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A table in a few numbers."""

    model: str
    path: str
    is_new: bool  # false where it was there already, made with the same inputs
    template: str | None
    system_prompt: str | None
    max_length: int | None
    cut: Mapping[str, int]  # what the maximum length took: rows_cut, tokens_cut, rows_lost
    tokens: int
    examples: int
    mean_nll: float
    median_gap: float
    first_choice_percent: float  # percent of the tokens that no other one has a larger logit than
    objective: str  # whose weights the last two are about, at its defaults: for TrimSFT the paper's band
    effective_ratio: float  # R_eff of the weights
    high_weight_percent: float  # percent of the tokens with such a weight above one half
    verdict: Verdict  # whether the model supports the data, and a band to try

    def as_dict(self) -> dict[str, Any]:
        """Return shares from 0 to 1 in place of percent, under names without `_percent`."""
        values = {**asdict(self), "verdict": self.verdict.as_dict()}
        return {
            name.removesuffix("_percent"): value / 100 if name.endswith("_percent") else value
            for name, value in values.items()
        }


@dataclass(frozen=True)
class TokenTables(Tabular):
    """Result of `measure_tokens`."""

    summaries: list[Summary]
    pending: list[Path]  # tables that wait for the shares of other processes
    incomparable: TrimSFTError | None  # why the tables cannot be compared; None where they can

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `--json`, with shares in place of percent."""
        return {
            "tables": [summary.as_dict() for summary in self.summaries],
            "pending": [str(path) for path in self.pending],
            "comparable": self.incomparable is None,
            "reason": None if self.incomparable is None else str(self.incomparable),
        }

    @property
    def tables(self) -> list[Table]:
        header = ("model", "tokens", "mean nll", "median gap", "first choice %", "R_eff", "High-Weight %")
        formats = {
            "tokens": ",", "mean_nll": ".3f", "median_gap": ".2f", "first_choice_percent": ".1f",
            "effective_ratio": ".3f", "high_weight_percent": ".1f",
        }  # fmt: skip
        rows = []
        for one in self.summaries:
            values = {name: getattr(one, name) for name in formats}
            cells = [Cell(format(value, formats[name]), data=value) for name, value in values.items()]
            rows.append((Cell(name_of(one.model)), *cells))
        return [Table("", header, tuple(rows))] if rows else []

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(one.verdict.sentence for one in self.summaries)])


def measure_tokens(settings: TokenSettings, *, on_progress: Progress | None = None) -> TokenTables:
    """Write a table for each model over the same rows; a model that is no run is rendered like the runs beside it."""
    places = settings.places()  # before rows are read
    objective = make_objective(settings.objective)
    rows, _ = settings.read(sample=settings.sample, sample_seed=settings.seed or 0)
    options = {name: getattr(settings, name) for name in ("limit", "top", "batch_tokens", "shard", "overwrite")}
    options |= asdict(settings.as_trained(settings.models))
    options["device"] = settings.device.split(",") if "," in settings.device else settings.device
    tables: dict[str, TokenTable] = {}
    summaries, pending = [], []
    for model, place in places.items():
        before = _stamp(place)
        progress = partial(on_progress, name_of(model)) if on_progress is not None else None
        write_token_table(model, rows, place, on_progress=progress, **options)
        if not place.exists() or shares_of(place):
            pending.append(place)
            continue
        table = tables[model] = read_token_table(place)
        weighed = diagnose(table, objective, margin=MARGIN, bandwidth=BANDWIDTH)
        sure = confidence(table, margin=MARGIN, bandwidth=BANDWIDTH)
        summary = Summary(
            model=model,
            path=str(place),
            is_new=_stamp(place) != before,
            **{name: table.metadata.get(name) for name in ("template", "system_prompt", "max_length")},
            cut=table.metadata.get("cut", {}),
            tokens=len(table),
            examples=table.example_count,
            mean_nll=sure.mean_nll,
            median_gap=sure.median_gap,
            first_choice_percent=sure.first_choice_percent,
            objective=settings.objective,
            effective_ratio=weighed.effective_ratio,
            high_weight_percent=weighed.high_weight_percent,
            verdict=judge_table(table),
        )
        summaries.append(summary)
    return TokenTables(summaries, pending, next(iter(incomparable(tables).values()), None))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes with the file that has the name."""
    return (status.st_ino, status.st_mtime_ns) if path.exists() and (status := path.stat()) else None
