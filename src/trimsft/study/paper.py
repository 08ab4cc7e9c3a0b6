"""What the paper reports: every number of its tables, to stand beside ours. Data only.

    >>> scores("main")[4].method, scores("main")[4].average
    ('trim', 4.14)
    >>> weight_diagnostics()[0].effective_ratio
    0.212

`paper.json` names the LaTeX label of each table and the line of each row in the paper's source. Methods carry the
names of `trimsft.objectives` (and "base"), benchmarks those of `trimsft.evaluate`. Where the paper disagrees with
itself the printed numbers stand, and `disagreements()` lists them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from trimsft.objectives.paper import Setting

SCORE_TABLES = ("main", "half_trims", "half_trims_complete", "bandwidth_ablation", "margin_ablation")
"""Tables of average@8: Table 1, the half trims (main text and appendix), the two ablations."""

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class Score:
    """One model trained one way."""

    model: str
    method: str
    setting: Setting | None = None
    """None for methods without one, and in Table 1, where it is (1.5, 0.8) throughout."""
    scores: Mapping[str, float]  # average@8 in percent, by benchmark
    average: float | None = None  # as printed; the tables of half trims have none
    line: int


@dataclass(frozen=True, kw_only=True)
class WeightRow:
    """What the weights of one setting look like; SFT has no setting."""

    method: str
    setting: Setting | None = None
    high_weight_percent: float  # of the tokens
    effective_ratio: float
    average: float
    line: int


@dataclass(frozen=True, kw_only=True)
class MassRow:
    """Percent of the gradient mass by region."""

    method: str
    setting: Setting
    low: float
    middle: float
    high: float
    line: int


@dataclass(frozen=True, kw_only=True)
class CategoryRow:
    """Percent, but for the mean weight."""

    category: str
    ratio: float
    mean_weight: float
    middle: float
    sft_mass: float
    trim_mass: float
    line: int


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Where the paper's numbers contradict each other."""

    kind: str
    """average (not the mean of its row), repeated (printed otherwise elsewhere), grid (no score of so many answers),
    count (scores of another number of problems), statement (the text says otherwise than a table), name."""
    label: str
    line: int
    what: str
    printed: float | None
    expected: float | None
    why: str


def scores(table: str) -> list[Score]:
    """Return the rows of one of `SCORE_TABLES`."""
    if table not in SCORE_TABLES:
        raise ValueError(f"table: unknown name {table!r}; known: {', '.join(SCORE_TABLES)}")
    return _rows(Score, table)


def weight_diagnostics() -> list[WeightRow]:
    return _rows(WeightRow, "weight_diagnostics")


def gradient_mass() -> list[MassRow]:
    return _rows(MassRow, "gradient_mass")


def token_categories() -> list[CategoryRow]:
    return _rows(CategoryRow, "token_categories")


def disagreements() -> list[Disagreement]:
    return [Disagreement(**entry) for entry in _content()["disagreements"]]


def label(table: str) -> str:
    """Return the LaTeX label of a table, such as tab:main."""
    return str(_content()["tables"][table]["label"])


def _rows(kind: type[Row], table: str) -> list[Row]:
    """Return the rows of a table; margin and bandwidth, where a row has them, are its setting."""
    rows = []
    for row in _content()["tables"][table]["rows"]:
        values = {name: value for name, value in row.items() if name not in Setting._fields}
        if "margin" in row:
            values["setting"] = Setting(row["margin"], row["bandwidth"])
        rows.append(kind(**values))
    return rows


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files("trimsft.study").joinpath("paper.json").read_text(encoding="utf-8"))
    return content
