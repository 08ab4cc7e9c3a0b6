"""The course of a training: what its telemetry.jsonl said at each step, and how AutoTrim weighed tokens at that moment.

course = read_course(run)
course[-1].nll, course[-1].gap_p50, course[-1].counts_from
moments = moments_of(course)                     # of AutoTrim; none of other objectives
moments[-1].weights(tokens)                      # x + (1 - x) p^a, as at the last step
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trimsft.objectives import PARAMETERS, AutoTrim, TokenStats
from trimsft.runs import JsonLines
from trimsft.runs.parsing import checked
from trimsft.runs.records import TelemetryLine

if TYPE_CHECKING:
    from torch import Tensor

    from trimsft.report.runs import Run

MOST_MOMENTS = 200  # that a page carries of one training
_HALF = math.sqrt(2 * math.log(2))  # a Gaussian is one half so many bandwidths from its middle


@dataclass(frozen=True, kw_only=True)
class Logged(TelemetryLine):
    """A line of telemetry.jsonl, and what `read_course` computes from it."""

    counts_from: float | None = None
    """The gap from which on a token has a weight of one half at least."""


@dataclass(frozen=True)
class _Still(AutoTrim):
    """AutoTrim with a gate and an exponent that follow nothing."""

    gate: float = 0.0

    def gates(self, like: Tensor, gold: Tensor | None) -> Tensor:
        return like.new_full(like.shape, self.gate)

    def exponent_now(self, like: Tensor) -> Tensor:
        return like.new_tensor(self.exponent)


@dataclass(frozen=True)
class Moment:
    """AutoTrim as it was at one step of a training, but for the gates that fixed parts have of their own."""

    step: int
    gate: float
    exponent: float

    def weights(self, tokens: TokenStats) -> Tensor:
        return _Still(gate=self.gate, exponent=self.exponent).weights(tokens)

    @property
    def counts_from(self) -> float | None:
        """The gap between two tokens from which on the weight is one half at least; None where every weight is."""
        if self.gate >= 0.5:
            return None
        log_prob = math.log((0.5 - self.gate) / (1 - self.gate)) / self.exponent
        return log_prob - math.log(-math.expm1(log_prob))


ENDED = Moment(step=0, gate=0.0, exponent=AutoTrim().exponent)
"""What AutoTrim ends as where the base supports the data."""


def read_course(run: Run) -> list[Logged]:
    """Return what a training logged of its tokens, step by step; empty where nothing was recorded."""
    path = run.directory.telemetry_path
    if run.folder.is_file() or not path.is_file():
        return []
    lines = checked(list[Logged], JsonLines(path).read(), where=str(path))
    fixed = counts_from(run.objective, run.directory.read_config() or {}, where=str(run.directory.config_path))
    steps = [(line, _moment(line)) for line in lines if line.nll is not None]  # neither an evaluation nor the end
    return [replace(line, counts_from=moment.counts_from if moment else fixed) for line, moment in steps]


def moments_of(course: Sequence[Logged]) -> list[Moment]:
    """Return AutoTrim's states at no more steps than a page carries; empty for other objectives."""
    moments = [moment for line in course if (moment := _moment(line))]
    every = -(-len(moments) // (MOST_MOMENTS - 2)) or 1
    return moments[:2] + moments[2:][::-1][::every][::-1]  # the first two and the last one are always among them


def moments_shown(courses: Iterable[Sequence[Logged]]) -> list[Moment]:
    """The moments of the first training that has any; else how AutoTrim ends."""
    return next(filter(None, map(moments_of, courses)), [ENDED])


def start_of(moments: Sequence[Moment]) -> Moment | None:
    """Return AutoTrim as it first weighed by what it had seen: by the logits of the base; None without a log of it."""
    return next((moment for moment in moments if moment.step > 1), None)


def _moment(line: Logged) -> Moment | None:
    if line.gate is None or line.exponent is None or not 0 <= line.gate <= 1 <= line.exponent < math.inf:
        return None
    return Moment(line.step, line.gate, line.exponent)


def counts_from(objective: str | None, config: Mapping[str, Any], *, where: str) -> float | None:
    """The same gap under an objective that does not move; None for those that give low gaps a high weight.

    Args:
        where: the file of `config`, for errors.
    """
    if objective == "dft":
        return 0.0  # p = 1/2
    if objective not in ("trim", "trim-e"):
        return None
    given = {name: config.get(name) for name in ("margin", "bandwidth")}
    known = {name: PARAMETERS[name] if value is None else value for name, value in given.items()}
    band = checked(dict[str, float], known, where=where)
    return band["margin"] - _HALF * band["bandwidth"]
