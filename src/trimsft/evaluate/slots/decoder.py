"""Decoding in slots: a fixed number of rows, each at a position of its own; a row that ends gives its slot to the next.

decoder = SlotDecoder(model, rows=1024, longest_prompt=300, max_tokens=256, stops=[0])
for index, tokens in decoder.run({0: request, ...}): ...            # in the order in which they end

Slots are refilled; the cache stands still; a step is one CUDA graph; a prompt is read once for all of its samples.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from trimsft.errors import one_line
from trimsft.evaluate.engines import EngineError, Request, Sampling
from trimsft.evaluate.engines.drawing import Drawer, require_finite
from trimsft.evaluate.slots import attention

STEPS_AT_ONCE = 8  # on a GPU, steps between two looks at who has ended: a look waits for the device
REFILL_SHARE = 8  # slots are refilled when one in so many is free: reading prompts costs a pass of its own
PROMPT_TOKENS_AT_ONCE = {"cuda": 2**16, "cpu": 2**12}
SHARES = ("cpu",)  # where rows that have said the same so far are computed once; a graph needs fixed shapes
LEAST_ROWS = 16  # below this, fewer rows save nothing
LARGEST_ERROR, LARGEST_ERROR_16_BIT = 0.01, 0.5
"""Error of logits, as a share of their standard deviation; a wrong mask or position is off by several."""

_KEYS_AND_VALUES = {"full_attention", "sliding_attention", "chunked_attention", "attention", "dense", "sparse"}


class UnsuitedModel(Exception):
    """A model that cannot be decoded in slots; `generate` of transformers can."""


class SlotDecoder:
    """The state of all rows, on the device; the host looks at it now and then."""

    def __init__(self, model: Any, *, rows: int, longest_prompt: int, max_tokens: int, stops: Sequence[int]) -> None:
        self.model, self.device, self.max_tokens = model, model.device, max_tokens
        layers = attention.count_cached_layers(model.config.get_text_config())
        self.cache = attention.SlotCache(layers, rows, longest_prompt + max_tokens, self.device)
        self.token = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self.made = torch.zeros_like(self.token)
        self.active = torch.zeros(rows, dtype=torch.bool, device=self.device)
        self.history = torch.zeros(rows, max_tokens + 1, dtype=torch.int64, device=self.device)
        """New tokens of each row; the column more is for rows that are full and idle."""
        self.stops = self._tensor(list(stops))
        self.drawer = Drawer([0] * rows, [Sampling(temperature=0)] * rows, self.device)
        self._jobs: list[tuple[int, Request] | None] = [None] * rows
        self._logits: Tensor | None = None
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._may_capture = self.device.type == "cuda"
        self.group = self.cache.range.clone() if self.device.type in SHARES else None
        """Rows of one group have said the same so far; -1 where they are idle."""

    @torch.inference_mode()
    def _begin(self, waiting: list[tuple[int, Request]]) -> None:
        """Do the first two steps, held against what the model says without any of this."""
        refuse_other_state(self.model, self.cache.width)
        attention.seen_windows.clear()
        try:
            self._refill(waiting)
            self._advance()
            errors = [self._error_of_logits(1)]
            self._advance()
            errors.append(self._error_of_logits(2))
        except (torch.OutOfMemoryError, EngineError):
            raise
        except Exception as failure:  # whatever a model of another build makes of such a call
            if "ALLOC_FAILED" in str(failure):  # cuBLAS has no room, and says so in its own way
                raise torch.OutOfMemoryError(str(failure)) from failure
            raise UnsuitedModel(f"{type(self.model).__name__}: {one_line(failure)}") from failure
        refuse_hidden_windows(self.model.config.get_text_config(), self.cache.width)
        largest = LARGEST_ERROR if torch.finfo(self.model.dtype).bits >= 32 else LARGEST_ERROR_16_BIT
        for error in errors:
            if not error <= largest:  # nor is nan
                raise UnsuitedModel(f"{type(self.model).__name__}: logits differ by {error:.2g} of their spread")

    def _error_of_logits(self, step: int) -> float:
        """Return how far the logits of the shortest prompt, padded most, are from those of a plain pass."""
        made = self.made.tolist()
        taken = [(job[1].tokens, row) for row, job in enumerate(self._jobs) if job is not None and made[row] == step]
        if not taken:
            return 0.0
        prompt, row = min(taken, key=lambda item: len(item[0]))
        assert self._logits is not None
        ids = self._tensor([[*prompt, *self.history[row, : step - 1].tolist()]])
        wanted = self.model(input_ids=ids, use_cache=False).logits[0, -1]
        require_finite(wanted, len(prompt), self.model.dtype)
        difference = (self._logits[row].float() - wanted.float()).abs().max()
        return float(difference / wanted.float().std().clamp(min=1e-6))

    def run(
        self, jobs: Mapping[int, Request], is_over: Callable[[list[int]], bool] | None = None, look_back: int = 0
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield index and new tokens of each job as it ends; `is_over` may end one by its last `look_back` tokens."""
        waiting = sorted(jobs.items(), key=lambda job: (len(job[1].tokens), job[1].tokens))  # the longest comes first
        self.drawer.expect(request.sampling for request in jobs.values())
        with _attention(self.model):
            try:
                self._begin(waiting)
                ended = self._collect(is_over, look_back)
                while waiting or any(self._jobs):
                    self._refill(waiting)
                    if not waiting:
                        self._shrink()
                    self._advance()
                    yield from ended  # while the device works
                    ended = self._collect(is_over, look_back)
                yield from ended
            finally:  # the cache and its layers know each other, which would keep their memory for a while
                self._graph = None
                self.cache.layers.clear()

    @torch.inference_mode()
    def _refill(self, waiting: list[tuple[int, Request]]) -> None:
        """Give free slots to jobs, and read their prompts: all but the last token, which the next step takes."""
        free = [row for row, job in enumerate(self._jobs) if job is None]
        if not waiting or len(free) < max(1, len(self._jobs) // REFILL_SHARE):
            return
        rows = free[: len(waiting)]
        jobs = [waiting.pop() for _ in rows]
        users: dict[tuple[int, ...], list[int]] = {}
        for row, job in zip(rows, jobs, strict=True):
            users.setdefault(job[1].tokens[:-1], []).append(row)
            self._jobs[row] = job
        prompts = [prompt for prompt in users if prompt]
        while prompts:
            at_once = max(1, PROMPT_TOKENS_AT_ONCE.get(self.device.type, 2**12) // max(map(len, prompts)))
            part, prompts = prompts[:at_once], prompts[at_once:]
            width = max(map(len, part))
            # padding stands on the right, where no token of a prompt sees it, and the row overwrites it
            ids = self._tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in part])
            read = DynamicCache()
            self.model(input_ids=ids, past_key_values=read, use_cache=True, logits_to_keep=1)
            targets = self._tensor([row for prompt in part for row in users[prompt]])
            sources = self._tensor([number for number, prompt in enumerate(part) for _ in users[prompt]])
            for layer, made in zip(self.cache.layers, read.layers, strict=True):
                layer.fill(targets, sources, made.keys, made.values)
        where = self._tensor(rows)
        requests = [request for _, request in jobs]
        self.cache.position[where] = self._tensor([len(request.tokens) - 1 for request in requests])
        self.token[where] = self._tensor([request.tokens[-1] for request in requests])
        if self.group is not None:
            numbers = {request.tokens: number for number, request in enumerate(requests, start=len(self._jobs))}
            self.group[where] = self._tensor([numbers[request.tokens] for request in requests])
        self.made[where] = 0
        self.active[where] = True
        self.drawer.assign(rows, [request.seed for request in requests], [request.sampling for request in requests])

    # ---- steps

    @torch.inference_mode()
    def _advance(self) -> None:
        if self._graph is None and self._may_capture and self._steps >= 2:  # all kernels have been loaded by then
            self._capture()
        for _ in range(STEPS_AT_ONCE if self._graph else 1):
            if self._graph:
                self._graph.replay()
            else:
                if self.device.type == "cpu":  # where asking costs nothing
                    self.cache.seen = int(self.cache.position.max()) + 1
                self._step()
        self._steps += 1

    def _step(self) -> None:
        """Draw one token for each row. All of it stays on the device and in place, so that a graph can replay it."""
        logits = self._logits = self._run_model()
        drawn = self.drawer.choose(logits, self.made)
        self.history.scatter_(1, self.made[:, None], drawn[:, None])  # of an idle row: behind its text
        self.made += self.active
        # not by isin: where there are many stops it sorts, and asks the host for the size of the result
        is_stop = (drawn[:, None] == self.stops).any(dim=1)
        self.active &= (self.made < self.max_tokens) & ~is_stop
        self.token.copy_(drawn)
        if self.group is not None:
            self.group = (self.group * 2**32 + drawn).unique(return_inverse=True)[1].where(self.active, -1)
        # an idle row goes on at position 0 of its own slot
        self.cache.position.copy_((self.cache.position + 1).where(self.active, 0))

    def _run_model(self) -> Tensor:
        """Return (rows, vocabulary) logits after one token more in each row of the cache."""
        cache = self.cache
        if self.group is not None:
            groups, shared = self.group.unique(return_inverse=True)
            cache.first = torch.full_like(groups, cache.rows).scatter_reduce_(0, shared, cache.range, "amin")
            cache.shared = shared
        position = cache.position[cache.first]
        out = self.model(
            input_ids=self.token[cache.first, None],
            position_ids=position[:, None],
            attention_mask=(position + 1).to(torch.int32).view(-1, 1, 1, 1),
            past_key_values=cache,
            use_cache=True,
        )
        return out.logits[:, -1][cache.shared]  # type: ignore[no-any-return]

    def _capture(self) -> None:
        """Capture a step as a graph, unless the model waits for the device in the middle of it.

        A capture that fails would leave torch's random numbers capturing, so the logits are computed once before.
        """
        self.cache.seen = self.cache.width
        before, graph = torch.cuda.get_sync_debug_mode(), torch.cuda.CUDAGraph()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
                torch.cuda.set_sync_debug_mode("error")
            try:
                self._run_model()
            finally:
                torch.cuda.set_sync_debug_mode(before)
            with torch.cuda.graph(graph):
                self._step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            torch.cuda.synchronize()
            self._may_capture = False
        else:
            self._graph = graph

    # ---- ends

    @torch.inference_mode()
    def _collect(self, is_over: Callable[[list[int]], bool] | None, look_back: int) -> list[tuple[int, list[int]]]:
        """Free the rows that have ended."""
        active = self.active.tolist()
        over = [row for row, job in enumerate(self._jobs) if job is not None and not active[row]]
        if is_over is not None:
            going = [row for row, job in enumerate(self._jobs) if job is not None and active[row]]
            where = self._tensor(going)
            last = self.made[where, None] - torch.arange(look_back + STEPS_AT_ONCE, 0, -1, device=self.device)
            tails = self.history[where].gather(1, last.clamp(min=0)).where(last >= 0, -1).tolist()
            texts_so_far = ([token for token in tail if token >= 0] for tail in tails)
            if cut := [row for row, tail in zip(going, texts_so_far, strict=True) if is_over(tail)]:
                self.active[cut] = False
                if self.group is not None:
                    self.group[cut] = -1
                self.cache.position[cut] = 0
                over += cut
        if not over:
            return []
        where = self._tensor(over)
        made = self.made[where].tolist()
        texts = self.history[where, : max(made)].tolist()
        ended = []
        for row, text, count in zip(over, texts, made, strict=True):
            job, self._jobs[row] = self._jobs[row], None
            assert job is not None
            ended.append((job[0], text[:count]))
        return ended

    @torch.inference_mode()
    def _shrink(self) -> None:
        """Go on with half the rows as soon as half suffice, once no job waits."""
        taken = [row for row, job in enumerate(self._jobs) if job is not None]
        if len(self._jobs) <= LEAST_ROWS or not 0 < len(taken) <= len(self._jobs) // 2:
            return
        size = max(LEAST_ROWS, 1 << (len(taken) - 1).bit_length())
        idle = [row for row, job in enumerate(self._jobs) if job is None]
        kept = (taken + idle)[:size]
        where = self._tensor(kept)
        self._graph, self._steps = None, 1  # it holds on to the old buffers
        self.cache.keep(where)
        self.drawer.keep(where)
        for name in ("token", "made", "active", "history", *(["group"] if self.group is not None else [])):
            setattr(self, name, getattr(self, name)[where])
        self._jobs = [self._jobs[row] for row in kept]

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


@contextlib.contextmanager
def _attention(model: Any) -> Iterator[None]:
    """Give the model our attention, and afterwards its own again."""
    attention.register()
    before = model.config._attn_implementation
    if before == attention.NAME:
        raise EngineError("this model is generating already", field="engine", hint="finish or close that first")
    model.set_attn_implementation(attention.NAME)
    if model.config._attn_implementation != attention.NAME:
        raise UnsuitedModel(f"{type(model).__name__} does not let its attention be chosen")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


# ---- models that slots would decode wrongly


def refuse_other_state(model: Any, width: int) -> None:
    """Refuse models whose texts of up to `width` tokens depend on more than the keys and values of each row."""
    config = model.config.get_text_config()
    others = set(getattr(config, "layer_types", None) or ()) - _KEYS_AND_VALUES
    if others or getattr(model, "_is_stateful", False):
        raise UnsuitedModel(f"{type(model).__name__}: its layers keep more than keys and values")
    rope = getattr(config, "rope_parameters", None) or {}
    for kind in (rope, *(part for part in rope.values() if isinstance(part, dict))):
        limit = kind.get("original_max_position_embeddings") or config.max_position_embeddings
        if kind.get("rope_type") == "longrope" and width > limit:
            raise UnsuitedModel(f"longrope positions beyond {limit:,} depend on the longest text of a batch")


def refuse_hidden_windows(config: Any, width: int) -> None:
    """Refuse a window that layers do not ask for: it would be forgotten as soon as a text outgrows it."""
    for name in ("sliding_window", "attention_chunk_size"):
        window = getattr(config, name, None)
        if isinstance(window, int) and window < width and window not in attention.seen_windows:
            raise UnsuitedModel(f"{name} of {window:,} is in its masks only")
