"""The runs of a quickstart as the job of a team of workers, see `trimsft.study.running.workers`.

with Team(place, settings, count=2) as team:
    for message in team.work(["base", "sft", "trim"]):       # Told, Done or Failed, as they come
        ...
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimsft.study.quickstart.settings import Settings
from trimsft.study.quickstart.steps import Place, do_run
from trimsft.study.running import workers
from trimsft.study.running.slots import CoreSlots, how_many
from trimsft.study.running.steps import Tell
from trimsft.study.running.workers import Done, Failed, Told

__all__ = ["Done", "Failed", "Runs", "Team", "Told", "how_many"]


@dataclass(frozen=True)
class Runs:
    """What a worker does for one run."""

    place: Place
    settings: Settings

    def environment(self) -> dict[str, str]:
        return {"HF_HUB_OFFLINE": "1"}

    def log(self, name: str) -> Path:
        return self.place.log(name)

    def do(self, name: str, tell: Tell) -> dict[str, float]:
        return do_run(self.place, self.settings, name, tell)


class Team(workers.Team):
    """So many processes, each with one thread; unless the settings ask for one, no GPU is seen."""

    def __init__(self, place: Place, settings: Settings, count: int) -> None:
        slots = CoreSlots(count, sees_gpus=settings.device == "cuda")
        super().__init__(Runs(place, settings), slots)
