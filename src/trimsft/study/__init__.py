"""The paper's tables and figures as runnable studies: models x objectives x settings -> runs -> tables.

for outcome in run_study(StudySettings(names=("main",), out=Path("runs/study-lab"))):
    outcome.failures(), outcome.files

Who does what: `cells` names a run, `scales` says what all have in common, `studies` declares the paper's, `folder` is
where it all is; `running` does what is missing of cells, `tables` sets what came out beside the paper's numbers. Three
commands are made of these: `command` (trimsft study), `sweeps` (grids of one's own) and `quickstart` (a small table).
"""

from trimsft.study.cells import Cell
from trimsft.study.command import StudyOutcome, StudySettings, plan_study, run_study
from trimsft.study.folder import StudyFolder
from trimsft.study.scales import SCALES, ModelAt, Scale, ScaleOptions
from trimsft.study.studies import STUDIES, Study

__all__ = [
    "SCALES",
    "STUDIES",
    "Cell",
    "ModelAt",
    "Scale",
    "ScaleOptions",
    "Study",
    "StudyFolder",
    "StudyOutcome",
    "StudySettings",
    "plan_study",
    "run_study",
]
