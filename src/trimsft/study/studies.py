"""The paper's studies as declarations: which cells each has, and what must be known of them.

    >>> STUDIES["half-trims"].paper
    ('tab:variants', 'tab:variants-complete')
    >>> len(STUDIES["main"].cells(SCALES["lab"], seeds=3))
    13

Cells are shared: the ablation's (1, 1) is the half trims', and `main` is all that `passes` and `gaps` train.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimsft.study.cell import BASE, Cell
from trimsft.study.paper import rows
from trimsft.study.scales import SCALES as SCALES
from trimsft.study.scales import Scale

SCORES, TOKENS = "scores", "tokens"


@dataclass(frozen=True)
class Study:
    """One table or figure of the paper, or several that rest on the same runs."""

    name: str
    title: str
    paper: tuple[str, ...]  # LaTeX labels of the tables and figures
    runs: Callable[[Scale], Iterable[Cell]]  # the cells at seed 0
    shows: str  # either "scores" (of the benchmarks) or "tokens" (of training rows)
    write: Callable[[Sequence[Cell], Path], list[Path]] | None = None  # of cells and a folder: a sweep's own files

    def cells(self, scale: Scale, seeds: int | None = None) -> list[Cell]:
        """Return every run with every seed, by default the scale's, seed by seed; a base is evaluated once."""
        runs = list(dict.fromkeys(self.runs(scale)))
        bases, trained = ([run for run in runs if run.is_base is is_base] for is_base in (True, False))
        return bases + [replace(run, seed=seed) for seed in range(seeds or scale.seeds) for run in trained]


# ---- which cells


def _compared(models_of: Callable[[Scale], Iterable[str]]) -> Callable[[Scale], Iterable[Cell]]:
    """Return the scale's methods on these of its models."""
    return lambda scale: [
        Cell(model=model, objective=objective) for model in models_of(scale) for objective in scale.compared
    ]


def _from_paper(*tables: str, more: Sequence[str] = ()) -> Callable[[Scale], Iterable[Cell]]:
    """Return the methods and settings of the paper's tables, on the scale's one model; its base beside them."""

    def runs(scale: Scale) -> Iterable[Cell]:
        yield Cell(model=scale.focus_model, objective=BASE)
        for row in (row for table in tables for row in rows(table)):
            fields = () if row.setting is None else tuple(row.setting._asdict().items())
            yield Cell(model=scale.focus_model, objective=row.method, fields=fields)
        for objective in more:
            yield Cell(model=scale.focus_model, objective=objective)

    return runs


_ABLATION = ("fig:ablation", "tab:ablation-fixed-m", "tab:ablation-fixed-tau")
_VARIANTS = ("tab:variants", "tab:variants-complete")
_main = _compared(lambda scale: scale.models)
_gaps = _compared(lambda scale: [scale.focus_model])
_base = _from_paper()
_ablation = _from_paper("bandwidth_ablation", "margin_ablation")
_half_trims = _from_paper("half_trims_complete", more=("sft",))
_ALL = (
    Study("main", "average@8 of the base and each method", ("tab:main",), _main, SCORES),
    Study("passes", "pass@8 and best-of-8 by majority vote", ("fig:passk_results",), _main, SCORES),
    Study("ablation", "average@8 by margin and bandwidth", _ABLATION, _ablation, SCORES),
    Study("half-trims", "TrimSFT against its halves, by margin", _VARIANTS, _half_trims, SCORES),
    Study("gaps", "distribution of logit gaps before and after training", ("fig:gap_distribution",), _gaps, TOKENS),
    Study("weights", "how many tokens count, by margin and bandwidth", ("tab:weight-diagnostic",), _base, TOKENS),
    Study("gradient-mass", "where the gradient goes, by gap", ("tab:gradient-mass",), _base, TOKENS),
    Study("categories", "weights and gradient mass by kind of token", ("tab:token-category",), _base, TOKENS),
)
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}
