"""Which objectives the story of a page holds against each other: those of the runs, each with its own settings.

first, second = sides_of(runs, parameters, moment)[:2]
first.name, second.name, second.setting          # "SFT", "TrimSFT", "margin 1.5, bandwidth 0.8"
second.weigher.weights(tokens)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trimsft.objectives import PAPER_OBJECTIVES, PARAMETERS, Objective, display_name
from trimsft.report.colours import method_of
from trimsft.report.course import Moment
from trimsft.report.runs import Run
from trimsft.runs.parsing import checked
from trimsft.tokens.statistics.weighting import objective_of


@dataclass(frozen=True)
class Side:
    """An objective that is held against another."""

    objective: str
    weigher: Objective
    run: Run | None  # the run that was trained with it; None where it is there for comparison
    name: str = ""  # of the objective; of the run where another side has the same objective

    @property
    def setting(self) -> str:
        """What it weighs with, in words; empty for one that has nothing to set, and a run that is called like it."""
        own = self.run is not None and self.run.label != self.name and method_of(self.run.label) != self.objective
        return ", ".join(filter(None, [self.run.label if self.run and own else "", self._values]))

    @property
    def _values(self) -> str:
        if isinstance(self.weigher, Moment):
            return f"step {self.weigher.step}: gate {self.weigher.gate:.2g}, exponent {self.weigher.exponent:.2g}"
        fields = vars(self.weigher)
        return ", ".join(f"{name} {fields[name]:g}" for name in PARAMETERS if name in fields)


def sides_of(runs: Sequence[Run], parameters: Mapping[str, float], moment: Moment | None) -> list[Side]:
    """SFT and TrimSFT where runs were trained with them, else two other settings of the runs; then AutoTrim, if any.

    A run that is missing for two is filled in by SFT, and then by TrimSFT with the page's parameters.
    """
    known: dict[str, Side] = {}
    for run in runs:
        if run.objective is not None and (weigher := _weigher(run, parameters, moment)) is not None:
            known.setdefault(repr(weigher), Side(run.objective, weigher, run))
    trained = list(known.values())
    if not any(side.objective == "sft" for side in trained) and len(trained) < 2:
        trained.insert(0, _implied("sft", parameters))
    if len(trained) < 2:
        trained.append(_implied("trim", parameters))
    first = next((side for side in trained if side.objective == "sft"), trained[0])
    others = [side for side in trained if side is not first]
    wanted = [side for name in ("trim", "auto-trim") for side in others if side.objective == name]
    second = wanted[0] if wanted else others[-1]
    third = [side for side in wanted if side.objective == "auto-trim" and side is not second]
    return _named([first, second, *third[:1]])


def _named(sides: Sequence[Side]) -> list[Side]:
    """The sides with names that tell them apart."""
    objectives = [side.objective for side in sides]
    named = []
    for side in sides:
        shared = side.run is not None and objectives.count(side.objective) > 1
        named.append(replace(side, name=side.run.label if side.run and shared else display_name(side.objective)))
    return named


def _implied(name: str, parameters: Mapping[str, float]) -> Side:
    return Side(name, objective_of(name, parameters), None)


def _weigher(run: Run, parameters: Mapping[str, float], moment: Moment | None) -> Objective | None:
    """By what a run weighs the tokens of a table; None where the page cannot say."""
    if run.objective == "auto-trim":
        return moment
    if run.objective not in PAPER_OBJECTIVES:
        return None
    config = None if run.folder.is_file() else run.directory.read_config()
    if config is None:  # its label alone names the objective
        return objective_of(run.objective, parameters)
    given = {name: config[name] for name in PARAMETERS if config.get(name) is not None}
    return objective_of(run.objective, checked(dict[str, float], given, where=str(run.directory.config_path)))
