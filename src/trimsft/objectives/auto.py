"""AutoTrim: begins as SFT where the model does not support the data, ends trimmed; see docs/method.md.

    w = x + (1 - x) p^a

The gate x is 1 while support is missing and falls to 0 as it is gained; the exponent a rises late, and not before the
gate has closed. News is learned within tens of updates and noise is not: what is still far below by then is noise.
Noise does not become more by being ignored: where more and more tokens are wrong, the gate opens again.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from trimsft.objectives.base import TokenStats, require_number
from trimsft.objectives.following import FollowsUpdates

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor

SHARPENS_FROM, SHARPENS_FOR = 0.3, 0.4
"""From this share of the training on, or from when the gate has closed, the exponent rises over that share of it."""

WHOLE_UPDATE = 512
"""Updates of fewer tokens count in proportion: from few tokens a lowest mean or a worse one is often chance."""

WORSE_BY, WORSE_FROM, WORSE_FULLY = 1.1, 0.01, 0.02
"""The gate opens again where the share of wrong tokens is more than WORSE_BY times its least and WORSE_FROM."""

SETTLED = 10
"""Whole updates after which a share of wrong tokens can be its least: by then little of the first is left in it."""


@dataclass(frozen=True)
class Support:
    """What is missing: a column for all tokens, then one for each fixed part of the format; NaN where none was seen.

    Its first row is the mean of max(0, -gap), the missing support in logits, the second the share of wrong tokens,
    those that have a competitor above them.
    """

    smoothed: Tensor
    """The means of an update, smoothed over updates."""
    lowest: Tensor
    """The lowest that they have been. What was given up on as noise drifts away, and must not open the gate again."""
    open_until: Tensor
    """The share of the training after which the gate for all tokens was last open; a scalar."""
    updates: Tensor
    """How many there were, small ones in proportion; a scalar."""

    def rows(self) -> tuple[Tensor, ...]:
        """In the order of `_ROWS`."""
        return *self.smoothed, *self.lowest


_ROWS = ("smoothed", "wrong", "lowest", "least")
"""What a checkpoint calls the rows of `Support`: both means as they are, then both at their lowest."""


@dataclass(frozen=True)
class AutoTrim(FollowsUpdates):
    """w = x + (1 - x) p^a, with a gate x that follows the missing support and an exponent a that follows the time.

    Args:
        closed_below: the missing support at which the gate is closed: weights are p^a.
        open_above: the missing support from which on it is open: weights are 1, as in SFT.
        smoothing: how much of the means of the updates before is kept at each update of 512 tokens or more.
        exponent: what a ends at; it begins at 1.
        fixed: ids of the tokens that every row has, such as eos; each has a gate of its own besides, so that a format
            the base has never seen is learned even where everything else is supported.
    """

    closed_below: float = 0.3
    open_above: float = 1.5
    smoothing: float = 0.8
    exponent: float = 3.0
    fixed: tuple[int, ...] = ()

    # what it has seen of the training, and what follows from that for the weights of the next update
    _progress: ClassVar[float] = 0.0
    _support: ClassVar[Support | None] = None
    _gates: ClassVar[Tensor | None] = None
    _exponent: ClassVar[Tensor | None] = None

    def __post_init__(self) -> None:
        require_number(self, "closed_below", at_least=0)
        require_number(self, "open_above", above=self.closed_below)
        require_number(self, "smoothing", at_least=0, below=1)
        require_number(self, "exponent", at_least=1)
        vars(self)["fixed"] = tuple(self.fixed)  # a list, where settings come from a file

    # what tokens are worth ------------------------------------------------------------------------------------------

    def weights(self, tokens: TokenStats) -> Tensor:
        gate = self.gates(tokens.nll, tokens.gold)
        return gate + (1 - gate) * (-self.exponent_now(tokens.nll) * tokens.nll).exp()

    def exponent_now(self, like: Tensor) -> Tensor:
        """a, a scalar in the dtype of `like`."""
        return like.new_ones(()) if self._exponent is None else self._exponent.to(like)

    def gates(self, like: Tensor, gold: Tensor | None) -> Tensor:
        """x of each token, in the dtype of `like`; without their ids, `gold`, fixed parts have no gate of their own."""
        if self._gates is None:
            return like.new_ones(like.shape)
        gates = self._gates.to(like)
        if gold is None or not self.fixed:
            return gates[0].expand_as(like)
        return gates[self._columns(gold)]

    def _columns(self, gold: Tensor) -> Tensor:
        """The column of `Support` that each token has a gate in: 0 but for fixed parts."""
        is_fixed = gold[:, None] == _on(self.fixed, gold.device)
        return (is_fixed * _on(tuple(range(1, len(self.fixed) + 1)), gold.device)).sum(dim=1)

    # what it follows ------------------------------------------------------------------------------------------------

    def sums(self, tokens: TokenStats) -> Tensor:
        """Missing support, wrong tokens and count, of all tokens and of each fixed part: [3, 1 + fixed parts]."""
        import torch

        wide = torch.float32 if tokens.gap.device.type == "mps" else torch.float64
        missing = (-tokens.gap).clamp(min=0).to(wide)
        counted = torch.stack([missing, missing.sign(), torch.ones_like(missing)])
        sums = counted.sum(dim=1, keepdim=True)
        if not self.fixed:
            return sums
        if tokens.gold is None:
            raise TypeError("AutoTrim: tokens must know their gold ids where it is given ids of fixed parts")
        is_fixed = (tokens.gold[:, None] == _on(self.fixed, tokens.gold.device)).to(wide)
        return torch.cat([sums, counted @ is_fixed], dim=1)

    def advance(self, progress: float, seen: Tensor | None = None) -> Self:
        import torch

        seen = self._seen if seen is None else seen
        if seen is None:
            return self._at(progress, self._support, self._gates)
        mean = seen[:2] / seen[2]  # NaN where none was seen
        mean = torch.where(mean[0].isnan(), math.nan, mean)  # nor does a gap that is NaN say that a token is right
        whole = self._whole(seen[2, 0])
        smoothed, lowest = mean, torch.full_like(mean, math.nan)
        open_until, updates = mean.new_zeros(()), whole
        if self._support is not None:
            before, lowest, open_until, updates = (one.to(seen) for one in vars(self._support).values())
            smoothed, updates = torch.lerp(mean, before, self.smoothing**whole), updates + whole
            smoothed = torch.where(mean.isnan(), before, torch.where(before.isnan(), mean, smoothed))
        share = torch.where(updates >= SETTLED, smoothed[1], math.nan)
        lowest = torch.fmin(lowest, torch.stack([smoothed[0], share]))
        gates = self._gates_of(smoothed, lowest)
        open_until = torch.where(gates[0] > 0, progress, open_until)
        return self._at(progress, Support(smoothed, lowest, open_until, updates), gates)

    def _whole(self, tokens: Tensor) -> Tensor:
        """How much an update of so many tokens counts."""
        return (tokens / WHOLE_UPDATE).clamp(max=1)

    def _at(self, progress: float, support: Support | None, gates: Tensor | None) -> Self:
        """After this much of the training; the exponent is computed once an update, as the gates are."""
        exponent = None
        if support is not None:
            begin = support.open_until.clamp(min=SHARPENS_FROM)
            exponent = 1 + (self.exponent - 1) * ((progress - begin) / SHARPENS_FOR).clamp(0, 1)
        return self._with(_progress=progress, _support=support, _gates=gates, _exponent=exponent, _seen=None)

    def _gates_of(self, smoothed: Tensor, lowest: Tensor) -> Tensor:
        """The gate of all tokens, then that of each fixed part; the latter is never the narrower one."""
        import torch

        missing, wrong, least = lowest[0], smoothed[1, 0], lowest[1, 0]
        closed, width, unseen = _bounds(self.closed_below, self.open_above, len(missing), missing.device, missing.dtype)
        gates = torch.where(missing.isnan(), unseen, ((missing - closed) / width).clamp(0, 1))
        worse = (wrong - WORSE_BY * least - WORSE_FROM) / (WORSE_FULLY - WORSE_FROM)
        return gates.maximum(gates[0].fmax(worse.clamp(0, 1)))

    def fallen(self) -> tuple[float, float] | None:
        """The share of wrong tokens at best and now, where there are so many more that the gate is open for them."""
        if self._support is None:
            return None
        least, wrong = float(self._support.lowest[1, 0]), float(self._support.smoothed[1, 0])
        return (least, wrong) if wrong >= WORSE_BY * least + WORSE_FULLY else None

    def with_fixed(self, ids: tuple[int, ...]) -> Self:
        """The same, which also follows these parts; what it has seen of all tokens stays. For one that follows none."""
        from torch.nn.functional import pad

        more, support, gates, seen = (0, len(ids)), self._support, self._gates, self._seen
        if support is not None:
            means = {name: pad(getattr(support, name), more, value=math.nan) for name in ("smoothed", "lowest")}
            support = replace(support, **means)
            gates = self._gates_of(support.smoothed, support.lowest)
        if seen is not None:
            seen = pad(seen, more)
        return self._with(fixed=ids, _support=support, _gates=gates, _seen=seen)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"progress": self._progress, "fixed": list(self.fixed)}
        if self._support is not None:
            state |= {name: _to_json(one) for name, one in zip(_ROWS, self._support.rows(), strict=True)}
            state |= {name: float(getattr(self._support, name)) for name in ("open_until", "updates")}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        import torch

        following, support, gates = self._with(fixed=tuple(state["fixed"])), None, None
        if "lowest" in state:
            # states of before the gate could open again, or of before the exponent waited for it, lack something
            unseen = [None] * len(state["lowest"])
            later: dict[str, Any] = {"wrong": unseen, "least": unseen, "open_until": 0.0, "updates": 0.0}
            rows = torch.stack([_from_json((later | state)[name]) for name in _ROWS])
            scalars = [torch.tensor((later | state)[name], dtype=torch.float64) for name in ("open_until", "updates")]
            support = Support(rows[:2], rows[2:], *scalars)
            gates = self._gates_of(support.smoothed, support.lowest)
        return following._at(state["progress"], support, gates)

    def figures(self) -> dict[str, float]:
        """Return the gate, the missing support and the exponent."""
        import torch

        exponent = float(self.exponent_now(torch.zeros((), dtype=torch.float64)))
        figures = {"gate": 1.0, "exponent": exponent}
        if self._support is not None and self._gates is not None:
            figures |= {"gate": float(self._gates[0]), "missing_support": float(self._support.smoothed[0, 0])}
        return figures


def _to_json(row: Tensor) -> list[float | None]:
    """JSON has no NaN."""
    return [None if math.isnan(value) else value for value in row.tolist()]


def _from_json(values: list[float | None]) -> Tensor:
    import torch

    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


@functools.cache
def _bounds(closed_below: float, open_above: float, columns: int, device: Any, dtype: Any) -> Tensor:
    """For each column of `Support`: where its gate is closed, how far above it is open, what it is when unseen.

    Fixed parts have wider bounds: one word among several good ones has low gaps for ever, a format never seen is out of
    reach.
    """
    import torch

    own = [open_above] * (columns - 1)
    rows = [[closed_below, *own], [open_above - closed_below, *own], [1.0] + [0.0] * (columns - 1)]
    return torch.tensor(rows, dtype=dtype, device=device)


@functools.cache
def _on(ids: tuple[int, ...], device: Any) -> Tensor:
    """Ids as a tensor; copied to a device once."""
    import torch

    return torch.tensor(ids, dtype=torch.int64, device=device)
