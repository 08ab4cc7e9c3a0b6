"""The backend for CUDA: which of the ways a problem is solved, and what it can be used for."""

from dataclasses import replace
from typing import Any

import torch
import triton
from torch import Tensor

from trimsft.head.memory import room_for_logit_gradients
from trimsft.head.parts import InParts, rows_of_a_part
from trimsft.head.problem import BackendUnavailable, Problem, Solution
from trimsft.head.solver import KeepsTooMuch, Solver

LOOK_EVERY = 16
"""Of so many calls one looks whether skipping pays, once it did not. On a small head that costs 7 % of a call."""

_exact_calls: dict[Any, int] = {}
"""How many calls of a kind are still to go without a look."""


def solve(problem: Problem) -> Solution:
    asked = problem
    if not problem.low_memory and problem.skip_below > 0 and not _is_to_look(problem):
        problem = replace(problem, skip_below=0.0)
    if problem.low_memory is None and problem.wants_gradient:
        room = room_for_logit_gradients(
            problem.hidden_TH, problem.weight_VH, problem.wants_weight, skips=problem.skip_below > 0
        )
        problem = replace(problem, buffer_bytes=room)
    in_parts = problem.skip_below == 0 and rows_of_a_part(problem) < len(problem.hidden_TH)
    # Triton launches on the current device, whichever the tensors are on
    with torch.cuda.device_of(problem.hidden_TH):
        # each is tried out of the handler of the one before, whose traceback holds the memory
        try:
            return InParts(problem).run() if in_parts else _solve_at_once(problem)
        except KeepsTooMuch:
            in_parts = True
        except torch.OutOfMemoryError:
            if problem.low_memory:
                raise
            in_parts = False
        if in_parts:
            _look_later(problem)
            try:
                return InParts(replace(problem, skip_below=0.0)).run()
            except torch.OutOfMemoryError:
                pass
        return Solver(replace(asked, low_memory=True)).run()


def _solve_at_once(problem: Problem) -> Solution:
    solver = Solver(problem)
    solution = solver.run()
    if problem.skip_below > 0 and solver.skip_below == 0:  # it has seen that skipping does not pay
        _look_later(problem)
    return solution


def _look_later(problem: Problem) -> None:
    _exact_calls[_kind(problem)] = LOOK_EVERY - 1


def _is_to_look(problem: Problem) -> bool:
    """Whether to find out which rows could be skipped: unless a call before has just found that it does not pay.

    Where torch is to be deterministic, what happened before does not count.
    """
    left = _exact_calls.get(_kind(problem), 0)
    if left == 0 or torch.are_deterministic_algorithms_enabled() or not problem.wants_gradient:
        return True
    _exact_calls[_kind(problem)] = left - 1
    return False


def _kind(problem: Problem) -> tuple[Any, ...]:
    """What calls of one training have in common, if they are of a size: whether skipping pays depends on it."""
    size = len(problem.hidden_TH).bit_length()
    return type(problem.objective), problem.weight_VH.shape, problem.weight_VH.device, size


def require_usable(hidden: Tensor) -> None:
    """Raise where the kernels cannot run on such a tensor."""
    if hidden.dtype == torch.float64:
        raise BackendUnavailable("backend: 'triton' takes no float64; use 'chunked' or 'reference'")
    if not hidden.is_cuda and not triton.knobs.runtime.interpret:
        raise BackendUnavailable(
            f"backend: 'triton' needs CUDA tensors, hidden is on {hidden.device}; use 'chunked' "
            "(or set TRITON_INTERPRET=1 before the first import to run the kernels, slowly, on the CPU)"
        )
