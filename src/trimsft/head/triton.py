"""The backend for CUDA: which of the ways a problem is solved, and what it can be used for."""

from dataclasses import replace

import torch
import triton
from torch import Tensor

from trimsft.head.memory import room_for_logit_gradients
from trimsft.head.parts import InParts, rows_of_a_part
from trimsft.head.problem import BackendUnavailable, Problem, Solution
from trimsft.head.solver import KeepsTooMuch, Solver


def solve(problem: Problem) -> Solution:
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
            return (InParts if in_parts else Solver)(problem).run()
        except KeepsTooMuch:
            in_parts = True
        except torch.OutOfMemoryError:
            if problem.low_memory:
                raise
            in_parts = False
        if in_parts:
            try:
                return InParts(replace(problem, skip_below=0.0)).run()
            except torch.OutOfMemoryError:
                pass
        return Solver(replace(problem, low_memory=True)).run()


def require_usable(hidden: Tensor) -> None:
    """Raise where the kernels cannot run on such a tensor."""
    if hidden.dtype == torch.float64:
        raise BackendUnavailable("backend: 'triton' takes no float64; use 'chunked' or 'reference'")
    if not hidden.is_cuda and not triton.knobs.runtime.interpret:
        raise BackendUnavailable(
            f"backend: 'triton' needs CUDA tensors, hidden is on {hidden.device}; use 'chunked' "
            "(or set TRITON_INTERPRET=1 before the first import to run the kernels, slowly, on the CPU)"
        )
