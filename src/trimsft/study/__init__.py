"""The paper's tables and figures as runnable studies: models x objectives x settings -> runs -> tables.

study, scale = STUDIES["main"], SCALES["lab"]
outcome = run_cells(study.cells(scale), scale, Path("runs/study-lab"), needs=study.needs)
load_results(study.cells(scale), Path("runs/study-lab"))

Who does what: `cells` names a run, `scales` says what all have in common, `studies` declares the paper's, `places` is
the folder; `training` and `steps` are what is done for one cell, `claims` who does it; `execution` leads, with
`workers` and `slots` on this machine (`local`) or tasks on many (`ray_executor`); `progress` and `status` show it,
`cost` says what it would take, `results` reads it; `tables` set it beside the paper's numbers, `grid`, `sweep` and
`variance` are for grids of one's own; `options` and `command` are the command line's.
"""

from trimsft.study.cells import Cell
from trimsft.study.execution import Event, Outcome, run_cells
from trimsft.study.results import load_results
from trimsft.study.scales import SCALES, ModelAt, Scale
from trimsft.study.studies import STUDIES, Study

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
