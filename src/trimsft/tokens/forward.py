"""The statistics of a causal LM for each token that it is trained on, without logits of all of them.

The model's own forward runs with its output embedding replaced, so that the hidden states are those the head would
get, whatever the model does before it; the statistics come from them in float32, chunk by chunk.

Shapes: T trained tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimsft.data.encode import Example
from trimsft.errors import UnsuitedHead, UsageError
from trimsft.head.lm_head import PROBE, check_product, check_transform, has_adapter, is_plain, logit_transform
from trimsft.head.token_statistics import token_statistics

WINDOW = 256  # rows that are sorted into batches together
Progress = Callable[[int, int], None]  # called with the rows that are done, and with all


@dataclass(frozen=True)
class Batch:
    """Examples that go through the model together, padded on the right."""

    examples: list[Example]
    ids: Tensor  # [examples, longest]
    places: Tensor
    """Where in the flattened batch the hidden state stands that predicts each trained token."""
    labels: Tensor  # the trained tokens


def make_batches(
    examples: Sequence[Example], batch_tokens: int, *, filler: int = 0, pinned: bool = False
) -> Iterator[Batch]:
    """Yield rows of like length together, padded within `batch_tokens`; those with a trained token."""
    for start in range(0, len(examples), WINDOW):
        batch: list[Example] = []
        for example in sorted(examples[start : start + WINDOW], key=len):  # each new one is the longest so far
            if batch and (len(batch) + 1) * len(example) > batch_tokens:
                yield _padded(batch, filler, pinned)
                batch = []
            if example.completion:
                batch.append(example)
        if batch:
            yield _padded(batch, filler, pinned)


def _padded(examples: list[Example], filler: int, pinned: bool) -> Batch:
    longest = len(examples[-1])
    ids = np.full((len(examples), longest), filler, dtype=np.int64)
    for row, example in enumerate(examples):
        ids[row, : len(example)] = example.prompt + example.completion
    # a token is predicted by the one before it
    places = [row * longest + len(one.prompt) - 1 + one.trained for row, one in enumerate(examples)]
    arrays = (ids, np.concatenate(places), np.concatenate([one.labels for one in examples]))
    tensors = map(torch.from_numpy, arrays)
    return Batch(examples, *(tensor.pin_memory() if pinned else tensor for tensor in tensors))


class Reader:
    """A model and its head."""

    def __init__(self, model: Any) -> None:
        self.model, self.head = model.eval(), model.get_output_embeddings()
        if self.head is None:
            raise UsageError(f"{type(model).__name__} has no output embedding (lm_head)", field="model")
        if has_adapter(self.head):
            problem = "has an adapter on lm_head, whose logits the table would leave out"
            raise UsageError(problem, field="model", hint="merge it first: trimsft export")
        self.config = model.config.get_text_config()
        self.scale, self.softcap = logit_transform(model)
        self.device: torch.device = self.head.weight.device
        self._is_checked = False
        # made once: a copy from the host would be waited for
        self._probe = self.head.weight.new_tensor(PROBE).reshape(1, 1, -1)

    @torch.inference_mode()
    def read(self, examples: Sequence[Example], batch_tokens: int, on_progress: Progress) -> dict[str, NDArray[Any]]:
        """Return columns of the token table: a value for each trained token, in order of examples."""
        results: list[dict[str, Tensor]] = []
        batched: list[Example] = []
        # not the model's own padding, at which some models warn
        filler = 1 if getattr(self.config, "pad_token_id", None) == 0 else 0
        on_gpu = self.device.type == "cuda"
        # kernels belong to the current device
        with torch.cuda.device(self.device) if on_gpu else nullcontext():
            for batch in make_batches(examples, batch_tokens, filler=filler, pinned=on_gpu):
                # columns stay on the device, so that no batch waits for the one before
                results.append(self._columns(batch))
                batched += batch.examples
                on_progress(len(batched), len(examples))
        if not results:
            return {}
        rows = np.concatenate([np.full(len(example.trained), example.number) for example in batched])
        order = np.argsort(rows, kind="stable")
        columns = {name: torch.cat([one[name] for one in results]).cpu().numpy()[order] for name in results[0]}
        bad = ~(np.isfinite(columns["nll"]) & np.isfinite(columns["gap"]))
        if bad.any():
            raise FloatingPointError(
                f"rows {', '.join(map(str, np.unique(rows[order][bad])[:8]))}: non-finite logits at {bad.sum()} of "
                f"{len(bad)} trained tokens; look for NaN or inf in the model's weights, or give it another dtype"
            )
        return columns

    def _columns(self, batch: Batch) -> dict[str, Tensor]:
        largest, vocabulary = int(batch.ids.max()), len(self.head.weight)
        if largest >= vocabulary:
            problem = f"has token {largest}, the head of {type(self.model).__name__} only {vocabulary}"
            raise UsageError(problem, field="tokenizer", hint="use the tokenizer that belongs to the model")
        ids, places_T, labels_T = (
            tensor.to(self.device, non_blocking=True) for tensor in (batch.ids, batch.places, batch.labels)
        )
        mask = None
        # no token sees padding to its right, and attention is faster without a mask
        if getattr(self.config, "use_bidirectional_attention", False):
            lengths = torch.tensor([[len(example)] for example in batch.examples])
            mask = (torch.arange(ids.shape[1]) < lengths).long().to(self.device)
        tokens = token_statistics(
            self.hidden_states(ids, mask).flatten(end_dim=-2).index_select(0, places_T),
            self.head.weight,
            labels_T,
            bias=getattr(self.head, "bias", None),
            logit_scale=self.scale,
            softcap=self.softcap,
        )
        columns = {name: getattr(tokens, name) for name in ("nll", "gap", "entropy", "gradient_norm", "rank")}
        return {**columns, "competitor_id": tokens.competitor.int()}

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return what the model gives to its head; refuse one whose logits are made in another way."""
        seen: list[Tensor] = []
        name, harm = type(self.model).__name__, "its token table would be wrong"
        with _in_place_of_the_head(self.head, seen, self._probe):
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        if len(seen) != 1:
            problem = f"{name} uses its output embedding {len(seen)} times a pass"
            raise UsageError(problem, field="model", hint="the token table needs models that use it once")
        if not self._is_checked:  # the answer has to be waited for
            try:
                check_transform(out.logits, self.scale, self.softcap, name, harm=harm)
                if not is_plain(self.head):
                    check_product(self.head, self.head.forward, seen[0], harm=harm)
            except UnsuitedHead as error:
                error.field = "model"
                raise
            self._is_checked = True
        return seen[0]


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
