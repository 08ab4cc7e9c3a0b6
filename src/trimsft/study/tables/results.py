"""What the finished cells of a study scored.

results = load_results(study.cells(scale), Path("runs/study-lab"))
results[Cell(model="lab", objective="trim")][0].average.value

Tables of studies show what there is (`load_partial_results`): a benchmark that is added leaves the finished ones there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimsft.study.cells import Cell
from trimsft.study.places import Place

if TYPE_CHECKING:
    from trimsft.scoring.scores import BenchmarkScore


def load_results(cells: Iterable[Cell], out: Path, benchmarks: Sequence[str] = ()) -> dict[Cell, list[BenchmarkScore]]:
    """Of each cell whose evaluation is finished, its scores; by default on the benchmarks of the study's folder."""
    from trimsft.scoring.records import load_run

    place = Place(out)
    names = tuple(benchmarks) or place.read_benchmarks()
    return {cell: load_run(place.run(cell), names) for cell in cells if place.is_evaluated(cell, names) and names}


def load_partial_results(cells: Iterable[Cell], out: Path) -> dict[Cell, list[BenchmarkScore]]:
    """Of each cell its scores on those of the folder's benchmarks that are finished, where any is."""
    from trimsft.scoring.records import load_run

    place = Place(out)
    names = place.read_benchmarks()
    found = {cell: [name for name in names if place.is_evaluated(cell, [name])] for cell in cells}
    return {cell: load_run(place.run(cell), there) for cell, there in found.items() if there}
