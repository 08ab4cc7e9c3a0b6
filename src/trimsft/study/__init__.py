"""The paper's tables and figures as runnable studies: models x objectives x settings -> runs -> tables.

for outcome in run_study(StudySettings(names=("main",), out=Path("runs/study-lab"))):
    outcome.done, outcome.failures(), outcome.files
"""

from trimsft.study.plan import plan_study
from trimsft.study.run import Outcome, StudySettings, run_study

__all__ = ["Outcome", "StudySettings", "plan_study", "run_study"]
