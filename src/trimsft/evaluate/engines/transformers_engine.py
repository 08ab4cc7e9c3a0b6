"""The default engine: a model of transformers in this process, with our own drawing of tokens.

engine = TransformersEngine("runs/trim/model", dtype="bfloat16")
for completion in engine.generate(requests): ...

Nothing of the checkpoint's generation defaults survives but its eos tokens. A kill costs what is in flight.
"""

import bisect
import contextlib
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from trimsft.data.encode import load_tokenizer
from trimsft.evaluate.engines import Completion, EngineError, Request, Sampling, identify_model, require_room
from trimsft.evaluate.engines.drawing import Drawer, require_finite
from trimsft.evaluate.slots.attention import count_cached_layers
from trimsft.evaluate.slots.decoder import SlotDecoder, UnsuitedModel
from trimsft.models import load_model, omits_soft_cap

MOST_ROWS = 2048
CPU_ROWS = 64
CPU_ROWS_SMALL = 256
ROWS_CHANGE_EACH_OTHER = ("rwkv",)  # its cached states mix up the rows of a batch, as of transformers 5.17
SMALL = 50_000_000  # parameters; a step of a smaller model is mostly overhead


class TransformersEngine:
    """A causal language model in this process.

    Args:
        model: a folder, a name of the hub, or a loaded model.
        batch_size: rows at once; None: what memory allows.
        decoding: in slots, or in batches of one prompt length by the model's own `generate`, which takes every model.
    """

    name = "transformers"

    def __init__(
        self,
        model: str | Path | Any,
        tokenizer: Any = None,
        *,
        dtype: str = "auto",
        batch_size: int | None = None,
        decoding: Literal["slots", "batches"] = "slots",
    ) -> None:
        self.model: Any = model
        self.tokenizer = tokenizer
        if isinstance(model, str | Path):
            self.model = load_model(model, dtype=dtype)
            self.model.to("cuda" if torch.cuda.is_available() else "cpu")
            self.tokenizer = load_tokenizer(model)
        self.model.eval()
        self.batch_size, self.decoding = batch_size, decoding
        eos = getattr(self.model.generation_config, "eos_token_id", None)
        self._eos = [self.tokenizer.eos_token_id, *(eos if isinstance(eos, list | tuple) else [eos])]
        name = model if isinstance(model, str | Path) else model.name_or_path or type(model).__name__
        kind = {"dtype": str(self.model.dtype).removeprefix("torch."), "device": self.model.device.type}
        self.identity: Mapping[str, Any] = {**identify_model(name), **kind}
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        self.details: Mapping[str, Any] = {"versions": versions, "model": str(name)}

    def check(self, requests: Sequence[Request]) -> None:
        known = self.model.get_input_embeddings().num_embeddings
        for index, request in enumerate(requests):
            if not request.tokens or not 0 <= min(request.tokens) <= max(request.tokens) < known:
                problem = f"prompt {index} has no tokens, or one beyond the {known:,} that the model knows"
                raise EngineError(problem, field="model", hint="is the tokenizer another model's?")
        # beyond these, dynamic scaling would make a text depend on those before it
        require_room(requests, getattr(self.model.config.get_text_config(), "max_position_embeddings", None))

    def generate(self, requests: Sequence[Request]) -> Generator[Completion, None, None]:
        """Yield completions, the longest prompts first: if memory fails, it fails at once."""
        self.check(requests)
        ends = {(one.sampling.max_tokens, one.sampling.stop, one.sampling.stop_tokens) for one in requests}
        assert len(ends) < 2, "all requests end alike"
        waiting = dict(enumerate(requests))
        while waiting:
            sampling = next(iter(waiting.values())).sampling
            longest = max(len(request.tokens) for request in waiting.values())
            rows = min(self._rows_that_fit(longest, sampling.max_tokens), len(waiting))
            decode = self._in_slots if self.decoding == "slots" else self._in_batches
            try:
                for index, row in decode(dict(waiting), rows, longest):
                    del waiting[index]
                    yield self._completion(index, row, sampling)
            except torch.OutOfMemoryError:
                if rows == 1:
                    problem = f"a row of {longest:,} prompt tokens and as many new ones does not fit into memory"
                    raise EngineError(problem, field="max_tokens", value=sampling.max_tokens) from None
                self.batch_size = (rows + 1) // 2
                torch.cuda.empty_cache()
            except UnsuitedModel as reason:
                self.decoding = "batches"
                warnings.warn(f"this model goes through its own generate, which is slower: {reason}", stacklevel=2)

    def _in_slots(self, jobs: dict[int, Request], rows: int, longest: int) -> Iterator[tuple[int, list[int]]]:
        sampling = next(iter(jobs.values())).sampling
        look_back = max((len(stop.encode()) for stop in sampling.stop), default=0)
        sizes = {"rows": rows, "longest_prompt": longest, "max_tokens": sampling.max_tokens}
        decoder = SlotDecoder(self.model, stops=self._stops(sampling), **sizes)
        return decoder.run(jobs, partial(self._says, sampling.stop) if sampling.stop else None, look_back)

    def _in_batches(self, jobs: dict[int, Request], rows: int, longest: int) -> Iterator[tuple[int, list[int]]]:
        """Batches hold prompts of one length: padding and longer rows change what models of some builds say."""
        rows = 1 if self.model.config.model_type in ROWS_CHANGE_EACH_OTHER else rows
        for length in sorted({len(request.tokens) for request in jobs.values()}, reverse=True):
            group = iter([job for job in jobs.items() if len(job[1].tokens) == length])
            while batch := list(islice(group, rows)):
                texts = self._generate([request for _, request in batch])
                yield from zip((index for index, _ in batch), texts, strict=True)

    def _generate(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return new tokens of each row by the model's own `generate`, and padding after its end."""
        sampling, stops = requests[0].sampling, self._stops(requests[0].sampling)
        ids = torch.tensor([list(request.tokens) for request in requests], device=self.model.device)
        width = ids.shape[1]
        drawer = Drawer([r.seed for r in requests], [r.sampling for r in requests], self.model.device)

        def noisy(seen: Tensor, logits: Tensor) -> Tensor:
            if seen.shape[1] == width:
                require_finite(logits, width, self.model.dtype)
            return drawer.scores(logits, torch.full((len(seen),), seen.shape[1] - width, device=seen.device))

        config = GenerationConfig(
            max_new_tokens=sampling.max_tokens,
            do_sample=False,  # the drawing is ours
            eos_token_id=stops or None,
            pad_token_id=stops[0] if stops else 0,
            stop_strings=list(sampling.stop) or None,
        )
        processors = LogitsProcessorList([noisy])
        with bare_generation(self.model):
            asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "tokenizer": self.tokenizer}
            texts = self.model.generate(**asked, generation_config=config, logits_processor=processors)
        tokens: list[list[int]] = texts[:, width:].tolist()
        return tokens

    def _says(self, stops: Sequence[str], tokens: list[int]) -> bool:
        """Return whether tokens say one of the stop texts."""
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return any(stop in text for stop in stops)

    def _completion(self, index: int, row: list[int], sampling: Sampling) -> Completion:
        """Cut a row before its first stop token, and its text before the first stop text."""
        stops = set(self._stops(sampling))
        end = next((at for at, token in enumerate(row) if token in stops), None)
        kept = row[:end]
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        cuts = [text.index(stop) for stop in sampling.stop if stop in text]
        if cuts:  # first, because after a stop text the row is padded with a stop token
            # the fewest tokens whose text holds a stop text: what came after is padding
            tokens = bisect.bisect_left(range(1, len(kept)), True, key=lambda n: self._says(sampling.stop, kept[:n]))
            return Completion(index, text[: min(cuts)], 1 + tokens, "stop")
        if end is not None:
            return Completion(index, text, end + 1, "stop")
        return Completion(index, text, len(row), "length")

    def _stops(self, sampling: Sampling) -> list[int]:
        return list(dict.fromkeys(token for token in (*self._eos, *sampling.stop_tokens) if token is not None))

    def _rows_that_fit(self, longest: int, new: int) -> int:
        """Guess from the size of the cache; running out of memory halves it."""
        if self.batch_size is not None:
            return self.batch_size
        if self.model.device.type != "cuda":
            return CPU_ROWS_SMALL if self.model.num_parameters() < SMALL else CPU_ROWS
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_attention_heads", 1)
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        numbers = 2 * count_cached_layers(config) * width * (getattr(config, "num_key_value_heads", None) or heads)
        cache = numbers * self.model.dtype.itemsize * (longest + new)
        copies = 1 if self.decoding == "slots" else 2  # batches copy the cache as it grows
        row = copies * cache + 24 * config.vocab_size  # scores and noise in float32
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(min(MOST_ROWS, max(1, 0.8 * free // row)))


@contextlib.contextmanager
def bare_generation(model: Any) -> Iterator[None]:
    """Let `generate` run without a checkpoint's defaults, and with soft caps, which sdpa leaves out."""
    attention, is_uncapped = model.config._attn_implementation, omits_soft_cap(model)
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        if is_uncapped:
            model.set_attn_implementation("eager")
        with torch.inference_mode():
            yield
    finally:
        model.generation_config = own
        if is_uncapped:
            model.set_attn_implementation(attention)
