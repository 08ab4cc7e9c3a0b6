"""The paper's tables and figures as runnable studies: models x objectives x settings -> runs -> tables.

study, scale = STUDIES["main"], SCALES["lab"]
outcome = run_cells(study.cells(scale), scale, Path("runs/study-lab"), needs=study.needs)
load_results(study.cells(scale), Path("runs/study-lab"))

Who does what: `cells` names a run, `scales` says what all have in common, `studies` declares the paper's, `places` is
the folder; `running` does what is missing of cells, `tables` sets what came out beside the paper's numbers; `sweeps`
are grids of one's own; `options` and `command` are the command line's.
"""

from trimsft.study.cells import Cell
from trimsft.study.running.execution import Event, Outcome, run_cells
from trimsft.study.scales import SCALES, ModelAt, Scale
from trimsft.study.studies import STUDIES, Study
from trimsft.study.tables.results import load_results

__all__ = [
    "SCALES",
    "STUDIES",
    "Cell",
    "Event",
    "ModelAt",
    "Outcome",
    "Scale",
    "Study",
    "load_results",
    "run_cells",
]
