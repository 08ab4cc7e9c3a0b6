"""The backend for CUDA: which of the two ways a problem is solved, and what it can be used for."""

from dataclasses import replace

import torch
import triton
from torch import Tensor

from trimsft.head.memory import room_for_logit_gradients
from trimsft.head.parts import InParts, rows_of_a_part
from trimsft.head.problem import BackendUnavailable, Problem, Solution
from trimsft.head.solver import Solver


def solve(problem: Problem) -> Solution:
    if problem.low_memory is None and problem.wants_gradient:
        room = room_for_logit_gradients(problem.hidden_TH, problem.weight_VH, problem.wants_weight)
        problem = replace(problem, buffer_bytes=room)
    in_parts = problem.skip_below == 0 and rows_of_a_part(problem) < len(problem.hidden_TH)
    # Triton launches on the current device, whichever the tensors are on
    with torch.cuda.device_of(problem.hidden_TH):
        try:
            return (InParts if in_parts else Solver)(problem).run()
        except torch.OutOfMemoryError:
            if problem.low_memory:
                raise
        # out of the handler, whose traceback holds the memory
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
