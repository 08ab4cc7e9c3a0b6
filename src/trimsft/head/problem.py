"""The problem that the backends of the head solve, their solution, and what they share on the way.

Shapes: T trained tokens, H hidden size, V vocabulary. Labels equal to `ignore_index` are gone by now.
"""

import functools
import importlib.util
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from trimsft.errors import TrimSFTError, UsageError, WrongArgument, one_line
from trimsft.objectives import Objective, TokenStats, needs_of

IGNORED = -100  # the label of a token that is not trained on, as torch and transformers have it

DEFAULT_SKIP_BELOW = 1e-8
"""Of objectives that trim, rows with |w|*(1-p) below this get no backward pass: no element of the head's mean gradient
changes by more than this times the largest hidden state, the size of Adam's epsilon. Adam divides each element by its
own size, so what is small beside the whole gradient may still be all that a row of the head has."""

# what skipped rows may hold at most of the batch's sum of |w|*(1-p), should they all point one way, and of the root of
# its sum of squares, which is what they amount to if they point any way
SKIPPED_MASS, SKIPPED_NORM = 5e-4, 1.5e-3


def skip_below_of(objective: Objective) -> float:
    """Return the threshold of an objective where none is given: 0, exact, unless it says that it trims."""
    return DEFAULT_SKIP_BELOW if getattr(objective, "trims", False) else 0.0


class BackendUnavailable(UsageError):
    """Raised where the backend that was named cannot run here, or not on these tensors."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """sum_t sg(w_t) * nll_t / normalizer, with logits z = softcap(logit_scale * (hidden @ weight.T + bias))."""

    hidden_TH: Tensor
    weight_VH: Tensor
    bias_V: Tensor | None
    labels_T: Tensor
    objective: Objective
    token_weights_T: Tensor | None = None  # float32; weights of the objective are multiplied by them
    facts_T: Mapping[str, Tensor] = field(default_factory=dict)  # what objectives see beside statistics, by name
    normalizer: float | Tensor = 1.0
    logit_scale: float = 1.0
    softcap: float | None = None
    skip_below: float = 0.0
    with_entropy: bool = False
    with_rank: bool = False  # of the gold token, and with it the norm of the logit gradient; needs the entropy
    low_memory: bool | None = None
    wants_hidden: bool = False  # whether the gradient of the hidden states is needed; the next two likewise
    wants_weight: bool = False
    wants_bias: bool = False
    buffer_bytes: int | None = None  # the most that logit gradients of several rows may take; None: any

    def weights_of(self, tokens: TokenStats, rows: slice | Tensor = slice(None)) -> Tensor:
        """Return what these rows count: the objective's weights, times those that were given."""
        facts = {name: values[rows] for name, values in self.facts_T.items()}
        weights = weigh(self.objective, replace(tokens, **facts) if facts else tokens)
        return weights if self.token_weights_T is None else weights * self.token_weights_T[rows]

    @property
    def wants_gradient(self) -> bool:
        return self.wants_hidden or self.wants_weight or self.wants_bias

    @property
    def divisor(self) -> Tensor:
        """Return the normalizer as a scalar on the device, in float32 or float64; a number is not copied there."""
        hidden, dtype = self.hidden_TH, torch.promote_types(self.hidden_TH.dtype, torch.float32)
        if isinstance(self.normalizer, Tensor):
            return self.normalizer.detach().reshape(()).to(hidden.device, dtype)
        return hidden.new_full((), self.normalizer, dtype=dtype)

    @property
    def early_divisor(self) -> Tensor:
        """Return what the logit gradients are divided by in the forward pass; the rest of the divisor comes later.

        Divided by all of it before the loss scale is in, float16 would underflow; by none, its sum could overflow.
        """
        if self.hidden_TH.dtype != torch.float16:
            return self.divisor
        return torch.exp2(torch.floor(torch.log2(self.divisor) / 2))


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Everything one pass of the head yields."""

    tokens: TokenStats
    weights: Tensor
    kept: int  # rows that took part in the backward pass
    finite: bool  # whether every statistic and weight is finite, and the normalizer a number above 0
    grad_hidden_TH: Tensor | None = None
    grad_weight_VH: Tensor | None = None
    grad_bias_V: Tensor | None = None


def weigh(objective: Any, tokens: TokenStats) -> Tensor:
    """Return the objective's weights, detached and checked for shape and type; it must leave its tokens as they are."""
    for name in needs_of(objective):
        tokens.required(name, objective)
    # torch counts how often a tensor was written to, but for its inference mode
    tensors = [one for one in vars(tokens).values() if one is not None and not one.is_inference()]
    before = [one._version for one in tensors]
    try:
        with torch.no_grad():
            weights = getattr(objective, "weights", objective)(tokens)
    except (TrimSFTError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever the code of others does
        place = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"fails in line {place.lineno} of {place.filename} ({type(error).__name__}: {one_line(error)})"
        raise UsageError(problem, field="objective") from error
    if before != [one._version for one in tensors]:
        raise WrongArgument(
            f"objective {objective!r} changed its tokens in place, of which the loss is made; work on a copy, such as "
            "tokens.gap.clone()"
        )
    if (
        not isinstance(weights, Tensor)
        or not (weights.is_floating_point() or weights.dtype == torch.bool)
        or weights.shape != tokens.nll.shape
    ):
        got = f"{weights.dtype} of shape {tuple(weights.shape)}" if isinstance(weights, Tensor) else type(weights)
        raise WrongArgument(
            f"objective {objective!r} must return one floating-point or boolean weight per token "
            f"(shape {tuple(tokens.nll.shape)}), got {got}"
        )
    return weights.detach().float()


def joined(parts: Iterable[TokenStats]) -> TokenStats:
    """Return all tokens of several, without what one of them lacks."""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    values: list[Any] = [None if any(one is None for one in column) else torch.cat(column) for column in columns]
    return TokenStats(*values)


def gradient_mass(tokens: TokenStats, weights: Tensor) -> Tensor:
    """Return |w|*(1-p), the size of each token's logit gradient at the gold token."""
    return weights.abs() * tokens.doubt


def rows_to_keep(mass_T: Tensor, skip_below: float) -> Tensor:
    """Return which rows get a backward pass.

    Those with a mass of at least `skip_below`; and, where the rows left out would together hold more than
    `SKIPPED_MASS` or `SKIPPED_NORM` allow (a batch whose weights are all tiny), as many of them as it takes.
    """
    if skip_below == 0:
        return torch.ones_like(mass_T, dtype=torch.bool)
    mass = mass_T.cpu().double()  # not every device has float64
    skipped = mass[mass < skip_below]
    if too_much_skipped((mass.sum(), skipped.sum(), mass.square().sum(), skipped.square().sum())):
        skip_below = threshold_for(mass_T)
    return mass_T >= skip_below


def too_much_skipped(sums: Sequence[float | Tensor], slack: float = 1.0) -> bool:
    """Return whether the skipped rows hold more of the batch than they may, times `slack`.

    The sums: of the mass of all rows and of the skipped ones, of the squares of the mass of all and of the skipped.
    """
    mass, mass_skipped, squares, squares_skipped = sums
    by_sum = mass_skipped > slack * SKIPPED_MASS * mass
    return bool(by_sum or squares_skipped > (slack * SKIPPED_NORM) ** 2 * squares)


def threshold_for(mass_T: Tensor, slack: float = 1.0) -> float:
    """Return the largest threshold at which the rows below it hold no more than they may, times `slack`."""
    ascending = mass_T.cpu().double().sort().values
    squares = ascending.square()
    below = (ascending.cumsum(0) <= slack * SKIPPED_MASS * ascending.sum()) & (
        squares.cumsum(0) <= (slack * SKIPPED_NORM) ** 2 * squares.sum()
    )
    return float(ascending[below.sum().clamp(max=len(ascending) - 1)])


def all_finite(problem: Problem, tokens: TokenStats, weights: Tensor) -> bool:
    """Return whether every statistic and weight is finite and the normalizer above 0; waits for the device once."""
    # one reduction for all: the sum of x - x is 0 unless some x is not finite
    doubtful = ((tokens.nll - tokens.nll) + (tokens.gap - tokens.gap) + (weights - weights)).sum()
    if not isinstance(problem.normalizer, Tensor):  # checked before
        return bool(doubtful == 0)
    divisor = problem.divisor
    return bool((doubtful == 0) & (divisor > 0) & torch.isfinite(divisor))


def softcapped(logits: Tensor, logit_scale: float, softcap: float | None) -> Tensor:
    """Return softcap * tanh(scale * z / softcap), or scale * z without a cap."""
    if softcap is None:
        return logits if logit_scale == 1.0 else logits * logit_scale
    return softcap * torch.tanh(logits * (logit_scale / softcap))


def copy_to_host(tensor: Tensor) -> Callable[[], list[float]]:
    """Start copying; the function returned waits for this copy, not for work launched after it."""
    if not tensor.is_cuda:
        return tensor.tolist
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def wait() -> list[float]:
        copied.synchronize()
        return host.tolist()

    return wait


@functools.cache
def has_triton() -> bool:
    """Return whether there is Triton; builds of torch for CUDA bring it along."""
    return importlib.util.find_spec("triton") is not None


def auto_backend(hidden: Tensor) -> str:
    return "triton" if hidden.is_cuda and hidden.dtype != torch.float64 and has_triton() else "chunked"
