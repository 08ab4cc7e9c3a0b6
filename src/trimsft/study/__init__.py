"""The paper's tables and figures as runnable studies: models x objectives x settings -> runs -> tables.

for outcome in run_study(StudySettings(names=("main",), out=Path("runs/study-lab"))):
    outcome.failures(), outcome.files
"""

from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.plan import plan_study
from trimsft.study.run import StudyOutcome, StudySettings, run_study
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
