"""CUDA, with nothing skipped and little memory: part by part, each with its logits, their gradients and its matmuls.

Three matmuls, as with one buffer for all logit gradients; what it costs is to add up the weight's gradient in float32.

Shapes: T trained tokens, C rows of a part.
"""

import torch
from torch import Tensor

from trimsft.head.memory import padded, rows_of_a_chunk
from trimsft.head.problem import Problem, Solution
from trimsft.head.solver import Solver, add_matmul


def rows_of_a_part(problem: Problem) -> int:
    """How many rows are computed at a time: all of them, if their logit gradients fit into the room that they have."""
    rows, weight_VH, room = len(problem.hidden_TH), problem.weight_VH, problem.buffer_bytes
    row_bytes = padded(len(weight_VH), weight_VH) * weight_VH.itemsize
    if room is None or rows * row_bytes <= room:
        return rows
    if problem.wants_weight:  # the sum takes more than the gradient
        room -= weight_VH.numel() * max(0, 4 - weight_VH.itemsize)
    least = rows_of_a_chunk(row_bytes)
    multiple = min(128, least)
    parts = -(-rows // (max(least, room // row_bytes) // multiple * multiple))
    return min(rows, -(-rows // (parts * multiple)) * multiple)


class InParts(Solver):
    """Every row is kept, but never the logit gradients of all."""

    def _chunk_space(self) -> Tensor:
        return self._matrix(rows_of_a_part(self.problem))

    def run(self) -> Solution:
        problem, weight_VH = self.problem, self.weight_VH
        places_T = torch.arange(self.T, dtype=torch.int32, device=weight_VH.device) % self.chunk_rows
        everything = self.records.all(places_T)
        sum_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if problem.wants_weight else None
        if problem.wants_hidden:
            self.grad_hidden_TH = torch.empty_like(self.hidden_TH)
        if problem.wants_bias:
            self.grad_bias_V = weight_VH.new_zeros(self.V, dtype=torch.float32)
        for number, rows in enumerate(self.chunks):
            grad_CV = self._chunk_logits(number) if number else self._space_of(0)
            self.records.find_statistics(grad_CV, rows)
            self.records.weigh(rows)
            self._claim_slots(rows)  # for what it counts
            if rows.stop == self.T:
                ledger = self.records.ledger()
            self.records.logit_gradients(grad_CV, everything, grad_CV, first_row=rows.start)
            self._add(grad_CV, rows, sum_VH)
        del grad_CV, self.space_CV
        if sum_VH is not None:
            self.grad_weight_VH = sum_VH.to(weight_VH.dtype)
        return self._solution(kept=self.T, finite=ledger().is_sound)

    def _add(self, grad_CV: Tensor, rows: slice, sum_VH: Tensor | None) -> None:
        if sum_VH is not None:
            add_matmul(sum_VH, grad_CV.T, self.hidden_TH[rows])
        if self.grad_hidden_TH is not None:
            torch.mm(grad_CV, self.weight_VH, out=self.grad_hidden_TH[rows])
        if self.grad_bias_V is not None:
            self.grad_bias_V += grad_CV.sum(dim=0, dtype=torch.float32)
