"""What a causal LM says about each token it is trained on, without logits of all of them.

The model's own forward runs with its output embedding replaced, so that the hidden states are those the head would
get, whatever the model does before it; the statistics come from them in float32, chunk by chunk.

    look = Reader(model).start(batch)     # a device is given work and not waited for
    look.wait()["gap"]

Shapes: T trained tokens, H hidden size, K alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimsft.data.encode import Example
from trimsft.errors import UnsuitedHead, UsageError
from trimsft.head.embedding import check_product, has_adapter, is_plain
from trimsft.head.statistics import TokenStatistics, token_statistics
from trimsft.head.transform import PROBE, check_transform, logit_transform

_FLOATS = ("nll", "gap", "entropy", "gradient_norm")
_WHOLE = ("competitor_id", "rank")


@dataclass(frozen=True)
class Batch:
    """Examples that go through the model together, padded on the right."""

    examples: list[Example]
    ids: Tensor  # [examples, longest]
    places: Tensor
    """For each trained token, in order: where in the flattened batch the hidden state stands that predicts it."""
    labels: Tensor  # the trained tokens


class Reader:
    """A model and its head."""

    def __init__(self, model: Any, *, top: int = 0) -> None:
        self.model = model.eval()
        self.head = model.get_output_embeddings()
        if self.head is None:
            raise UsageError(f"{type(model).__name__} has no output embedding (lm_head)", field="model")
        if has_adapter(self.head):
            hint = "merge it first: trimsft export"
            raise UsageError(
                "has an adapter on lm_head, whose logits the table would leave out", field="model", hint=hint
            )
        self.scale, self.softcap = logit_transform(model)
        self.top = top
        config = model.config.get_text_config()
        self.device: torch.device = self.head.weight.device
        self.vocabulary = len(self.head.weight)
        # another token than the model's own padding, at which some models print a warning
        self.filler = 1 if getattr(config, "pad_token_id", None) == 0 else 0
        # no token sees what stands to its right, so padding there needs no mask, and attention is faster without one
        self._needs_mask = bool(getattr(config, "use_bidirectional_attention", False))
        self._is_checked = False
        # made once: a copy from the host would be waited for
        self._probe = self.head.weight.new_tensor(PROBE).reshape(1, 1, -1)

    @torch.no_grad()
    def start(self, batch: Batch) -> Look:
        """Statistics of every trained token of a batch, in order, as soon as the device has them."""
        if int(batch.ids.max()) >= self.vocabulary:
            name, hint = type(self.model).__name__, "use the tokenizer that belongs to the model"
            problem = f"has token {int(batch.ids.max())}, the head of {name} only {self.vocabulary}"
            raise UsageError(problem, field="tokenizer", hint=hint)
        ids, places_T, labels_T = (
            tensor.to(self.device, non_blocking=True) for tensor in (batch.ids, batch.places, batch.labels)
        )
        mask = None
        if self._needs_mask:
            lengths = torch.tensor([[len(example)] for example in batch.examples])
            mask = (torch.arange(batch.ids.shape[1]) < lengths).long().to(self.device)
        hidden_TH = self._hidden_states(ids, mask).flatten(end_dim=-2).index_select(0, places_T)
        statistics = token_statistics(
            hidden_TH,
            self.head.weight,
            labels_T,
            bias=getattr(self.head, "bias", None),
            logit_scale=self.scale,
            softcap=self.softcap,
            top=self.top,
        )
        return Look(batch, statistics)

    def _hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        seen: list[Tensor] = []
        with _in_place_of_the_head(self.head, seen, self._probe):
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        if len(seen) != 1:
            problem = f"{type(self.model).__name__} uses its output embedding {len(seen)} times a pass"
            raise UsageError(problem, field="model", hint="the token table needs models that use it once")
        if not self._is_checked:  # once: the answer has to be waited for, and does not change
            self._check(out.logits, seen[0])
            self._is_checked = True
        return seen[0]

    def _check(self, logits: Tensor, hidden: Tensor) -> None:
        """That logits are what the statistics take them for."""
        name, harm = type(self.model).__name__, "its token table would be wrong"
        try:
            check_transform(logits, self.scale, self.softcap, name, harm=harm)
            if not is_plain(self.head):
                check_product(self.head, self.head.forward, hidden, harm=harm)
        except UnsuitedHead as error:
            error.field = "model"
            raise


class Look:
    """Statistics on their way to the host."""

    def __init__(self, batch: Batch, statistics: TokenStatistics) -> None:
        self.batch = batch
        tokens = statistics.tokens
        assert tokens.entropy is not None
        floats = [tokens.nll, tokens.gap, tokens.entropy, statistics.gradient_norm]
        parts = [torch.stack(floats), torch.stack([tokens.competitor.int(), statistics.rank])]
        parts += [part for part in (statistics.top_ids, statistics.top_logprobs) if part is not None]
        self._host = [_copied(part) for part in parts]
        self._arrived = torch.cuda.Event() if statistics.rank.is_cuda else None
        if self._arrived is not None:
            self._arrived.record(torch.cuda.current_stream(statistics.rank.device))

    def wait(self) -> dict[str, NDArray[Any]]:
        """The statistics, once they have arrived, by the names of the table's columns."""
        if self._arrived is not None:
            self._arrived.synchronize()
        floats, whole, *top = (part.numpy() for part in self._host)
        named = dict(zip(_FLOATS, floats, strict=True)) | dict(zip(_WHOLE, whole, strict=True))
        named |= dict(zip(("top_ids", "top_logprobs"), top, strict=False))
        bad = ~(np.isfinite(named["nll"]) & np.isfinite(named["gap"]))
        if bad.any():
            numbers = [example.number for example in self.batch.examples]
            rows = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
            raise FloatingPointError(
                f"rows {rows}: non-finite logits at {bad.sum()} of {len(bad)} trained tokens; look for NaN or inf in "
                "the weights of the model, or give it another dtype"
            )
        return named


def _copied(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor.cpu()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


@contextmanager
def _in_place_of_the_head(head: Any, seen: list[Tensor], probe: Tensor) -> Iterator[None]:
    def catch(hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        seen.append(hidden)
        return probe.clone()  # models may write over their logits

    own = head.__dict__.get("forward")
    head.forward = catch
    try:
        yield
    finally:
        del head.forward
        if own is not None:
            head.forward = own
