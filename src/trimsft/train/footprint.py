"""What one process holds while a Llama-like model is trained, and the operations it performs.

The parts of `trimsft.train.estimate`, each a sum that can be followed by hand. Lengths are in tokens, sizes in bytes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig

from trimsft.errors import UsageError
from trimsft.head import chunked
from trimsft.head.memory import SLICE_BYTES, most_bytes, rows_of_a_chunk
from trimsft.objectives import OBJECTIVES
from trimsft.train.config import TrimSFTConfig
from trimsft.train.masks import window_of

if TYPE_CHECKING:
    from peft import PeftConfig

KEPT_SHARE = {"trim": 0.8}
"""Rows that take part in the head's backward pass, where any are left out: SmolLM2 before training on GSM8K or on a mix
(gaps of -3.4 to 5.6, results/smollm2); 0.15 after it."""

_STATES = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused"), 2),
    **dict.fromkeys(("adagrad", "rmsprop"), 1),
    **dict.fromkeys(("sgd", "adafactor"), 0),
}
"""Optimizers that keep so many numbers a trained parameter, in its dtype (adafactor: rows and columns only)."""
_STATE_BYTES = {
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"), 2.0),
    **dict.fromkeys(("lion_8bit", "paged_lion_8bit", "rmsprop_bnb_8bit", "adamw_torch_4bit"), 1.0),
    **dict.fromkeys(("lion_32bit", "paged_lion_32bit", "rmsprop_bnb", "rmsprop_bnb_32bit"), 4.0),
    "paged_adamw_32bit": 8.0,
}
"""Optimizers that keep so many bytes a trained parameter, whatever its dtype."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be trained, on what and how."""

    model: PretrainedConfig
    args: TrimSFTConfig
    lengths: Sequence[int]  # tokens of each training sequence, after truncation
    trained_tokens: int  # how many of them are trained on: completions, not prompts
    dtype: torch.dtype = torch.float32  # what the weights are loaded in
    attention: str = "sdpa"
    processes: int = 1
    sharded: bool = False  # FSDP2: each process holds its part of weights, gradients and optimizer state
    adapter: PeftConfig | None = None

    def __post_init__(self) -> None:
        if len(self.lengths) == 0 or min(self.lengths) < 1:
            raise UsageError("must be one or more numbers >= 1", field="lengths", value=self.lengths)
        if not 0 <= self.trained_tokens <= self.tokens:
            problem = f"must be from 0 to {self.tokens}"
            raise UsageError(problem, field="trained_tokens", value=self.trained_tokens)
        if self.processes < 1:
            raise UsageError("must be at least 1", field="processes", value=self.processes)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def batch(self) -> int:
        return int(self.args.per_device_train_batch_size)

    @property
    def compute_bytes(self) -> int:
        """Size of a number in the matmuls."""
        return self.dtype.itemsize if str(self.args.mixed_precision) == "no" else 2

    @property
    def stream_bytes(self) -> int:
        """Size of a number between the layers: autocast leaves it in the weights' dtype, FSDP2 casts it."""
        return self.compute_bytes if self.sharded else self.dtype.itemsize

    @property
    def kept_share(self) -> float:
        """Share of the trained rows in the head's backward pass; all, where it has not been measured."""
        return KEPT_SHARE.get(self.args.objective, 1.0) if self.skips else 1.0

    @property
    def skips(self) -> bool:
        """Whether rows may be left out of the head's backward pass."""
        if self.args.skip_below is None:
            return getattr(OBJECTIVES.get(self.args.objective), "trims", False)
        return bool(self.args.skip_below > 0)

    @property
    def is_padding_free(self) -> bool:
        return bool(self.args.packing or self.args.padding_free)

    @property
    def largest_row(self) -> int:
        longest = max(self.lengths)
        return int(self.args.max_length or longest) if self.args.packing else longest

    @property
    def mask_width(self) -> int:
        """Keys of a row in the mask of torch's attention; 0 where it goes without (`trimsft.train.masks`)."""
        if self.attention != "sdpa":
            return 0
        if self.args.padding_free and not self.args.packing:  # all texts of a batch are one row
            return self.batch * self.largest_row if self.batch > 1 else 0
        is_masked = self.args.packing or self.args.use_cpu or self.largest_row >= window_of(self.model)
        return self.largest_row if is_masked else 0

    @property
    def rows(self) -> int:
        """Sequences as the loader sees them; packing by best fit leaves next to nothing free."""
        return math.ceil(self.tokens / self.largest_row) if self.args.packing else len(self.lengths)

    @cached_property
    def positions(self) -> int:
        """Tokens of one epoch with padding, as many as are expected when sequences are drawn at random."""
        if self.is_padding_free:
            return self.tokens
        ordered, total = sorted(self.lengths), len(self.lengths)
        batch = min(self.batch, total)
        # chance that the longest of a batch is the one at a place of the order, from the last place down
        chance, longest = batch / total, 0.0
        for place in range(total, batch - 1, -1):
            longest += chance * ordered[place - 1]
            if place > batch:
                chance *= (place - batch) / (place - 1)
        return round(longest * total)


# ---- the model


@dataclass(frozen=True)
class Shape:
    """What a Llama-like model is made of."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    head_size: int
    query: int  # width of all queries of a token
    key: int  # width of all keys of a token, as many as values
    vocabulary: int
    normed_queries: bool

    @classmethod
    def of(cls, config: PretrainedConfig) -> Shape:
        text: Any = config.get_text_config()
        kind = text.model_type
        if max(getattr(text, name, 0) or 0 for name in ("num_experts", "num_local_experts", "n_routed_experts")) > 1:
            raise _no_estimate(kind, "which has experts", hint="there is one for dense layers only")
        if getattr(text, "is_heterogeneous", False):
            raise _no_estimate(kind, "whose layers differ in size")
        for field in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"):
            if not isinstance(getattr(text, field, None), int):
                raise _no_estimate(kind, f"whose config has no whole number {field}")
        heads = text.num_attention_heads
        size = getattr(text, "head_dim", None) or text.hidden_size // heads
        return cls(
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            intermediate=text.intermediate_size,
            heads=heads,
            head_size=size,
            query=heads * size,
            key=(getattr(text, "num_key_value_heads", None) or heads) * size,
            vocabulary=text.vocab_size,
            normed_queries=kind.startswith("qwen3"),
        )


def _no_estimate(kind: str, reason: str, hint: str | None = None) -> UsageError:
    return UsageError(f"there is no estimate for {kind!r}, {reason}", field="model", hint=hint)


def build_on_meta(plan: Plan) -> Any:
    """The model without its numbers, adapters attached."""
    loader: Any = AutoModelForCausalLM
    with torch.device("meta"):
        # the attention chosen may not be installed here, and changes no parameter
        config = copy.deepcopy(plan.model)  # which from_config writes into
        model = loader.from_config(config, dtype=plan.dtype, attn_implementation="eager")
        if plan.adapter is None:
            return model
        from peft import get_peft_model

        return get_peft_model(model, plan.adapter)


def count(model: nn.Module, *, trained_only: bool = False) -> int:
    """Parameters, tied ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trained_only)


def _layer_parameters(model: Any) -> list[nn.Parameter]:
    """All but those of the embeddings and the head."""
    outside = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    return [parameter for parameter in model.parameters() if id(parameter) not in outside]


# ---- memory


def state_bytes(plan: Plan, model: Any, shape: Shape) -> tuple[int, int, int]:
    """Weights, gradients and optimizer state."""
    shards = plan.processes if plan.sharded else 1
    # FSDP2 under mixed precision keeps what it trains in float32, whatever it was loaded in
    upcast = plan.sharded and str(plan.args.mixed_precision) != "no"

    def size(parameter: nn.Parameter) -> int:
        return parameter.numel() * (4 if upcast and parameter.requires_grad else parameter.dtype.itemsize)

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = sum(map(size, model.parameters())) / shards + _copies_bytes(plan, model, shape)
    gradients = sum(map(size, trained)) / shards
    optimizer = sum(_optimizer_bytes(plan, p.numel(), size(p)) for p in trained) / shards
    accumulation = getattr(plan.args.accelerator_config, "gradient_accumulation_kwargs", None) or {}
    syncs = accumulation.get("sync_each_batch", False)
    if plan.sharded and plan.args.gradient_accumulation_steps > 1 and not syncs:
        # between micro-batches nothing is reduced, so every process holds all gradients
        gradients = max(gradients, plan.compute_bytes * count(model, trained_only=True))
    elif plan.processes > 1 and not plan.sharded:
        gradients *= 2  # the buckets of DDP
    return round(weights), round(gradients), round(optimizer)


def _copies_bytes(plan: Plan, model: Any, shape: Shape) -> int:
    """Weights in the dtype of the matmuls: of two layers and the head, or, under autocast, of all that are trained."""
    layers = _layer_parameters(model)
    if plan.sharded:
        gathered = 2 * sum(p.numel() for p in layers) // shape.layers + shape.vocabulary * shape.hidden
        return plan.compute_bytes * gathered
    wider = [p for p in layers if p.requires_grad and p.dim() == 2 and p.dtype.itemsize > plan.compute_bytes]
    return plan.compute_bytes * sum(p.numel() for p in wider)


def _optimizer_bytes(plan: Plan, numbers: int, size: int) -> float:
    name = str(getattr(plan.args.optim, "value", plan.args.optim))
    if name in _STATES:
        return _STATES[name] * size
    if name in _STATE_BYTES:
        return _STATE_BYTES[name] * numbers
    known = ", ".join(sorted({*_STATES, *_STATE_BYTES}))
    raise UsageError("there is no estimate for this optimizer", field="optim", value=name, hint=f"known: {known}")


def layer_bytes(plan: Plan, shape: Shape) -> int:
    """What autograd keeps of one layer, a token."""
    stream, compute = plan.stream_bytes, plan.compute_bytes
    # under autocast q, k, v, gate and up each cast the normed states for themselves
    inputs = (2 if stream == compute else 5) * compute * shape.hidden
    norms = 2 * norm_bytes(shape.hidden, 1, stream)
    if shape.normed_queries:
        norms += norm_bytes(shape.query + shape.key, (shape.query + shape.key) // shape.head_size, compute)
    gated = 4 * compute * shape.intermediate  # gate, its activation, up, their product
    return norms + inputs + _attention_bytes(plan, shape) + gated


def norm_bytes(width: int, groups: int, size: int) -> int:
    """An RMSNorm: its input in float32, what it is divided by, and the normed states in their own dtype."""
    return 4 * width + 4 * groups + size * width


def _attention_bytes(plan: Plan, shape: Shape) -> int:
    """Rotated queries and keys, values, the output, and what the softmax leaves."""
    size, row = plan.compute_bytes, plan.largest_row
    key, softmax = shape.key, 4 * shape.heads
    if plan.attention == "eager":
        key, softmax = shape.query, shape.heads * row * (4 if size == 4 else 4 + size)
    elif plan.mask_width:
        # a mask rules out grouped keys, and is kept as numbers
        key, softmax = shape.query, softmax + size * plan.mask_width
    return size * (2 * shape.query + 2 * key) + softmax


# ---- the head


def head_bytes(plan: Plan, model: Any, shape: Shape, *, held: int, device_bytes: int) -> int:
    """The fused head at work on the largest micro-batch: gradients, logits of a chunk, logit gradients of kept rows.

    held: what is in memory beside it; device_bytes: memory of the device, 0 if it is not known.
    """
    size, matrix = plan.compute_bytes, shape.vocabulary * shape.hidden
    tokens = plan.batch * plan.largest_row
    trained = math.ceil(tokens * plan.trained_tokens / plan.tokens)
    weight: nn.Parameter = model.get_output_embeddings().weight
    # the gradient of trained rows; where some are ignored, also a copy of those rows and the gradient of all
    rows = size * shape.hidden * (trained if trained == tokens else 2 * trained + tokens)
    cast = 0 if plan.sharded or weight.dtype.itemsize == size else size * matrix
    backend = plan.args.head_backend
    if backend == "auto":
        backend = "chunked" if plan.args.use_cpu else "triton"
    if backend == "reference":
        # logits, their softmax and its gradient in float32, as measured
        return cast + 12 * trained * shape.vocabulary
    if backend == "chunked":
        sums = 4 * matrix if weight.requires_grad else 0
        return rows + cast + sums + chunked.CHUNK_BYTES["cpu" if plan.args.use_cpu else "cuda"]
    gradient = size * matrix if weight.requires_grad else 0
    least = _triton_bytes(plan, trained, rows, gradient, shape, low_memory=True)
    if plan.args.low_memory:
        return cast + least
    most = _triton_bytes(plan, trained, rows, gradient, shape, low_memory=False)
    if plan.args.low_memory is None:
        sizes = (trained, shape.hidden, shape.vocabulary, size)
        allowed = most_bytes(*sizes, held=held, wants_weight=weight.requires_grad, device_bytes=device_bytes)
        allowed += size * shape.hidden * trained if trained < tokens else 0  # the copy of those rows is held by then
        most = min(most, max(least, allowed))
    return cast + most


def _triton_bytes(plan: Plan, trained: int, rows: int, gradient: int, shape: Shape, *, low_memory: bool) -> int:
    size = plan.compute_bytes
    row = -(-shape.vocabulary * size // 128) * 128
    if not plan.skips and not low_memory:
        return rows + gradient + trained * row
    chunk_rows = min(trained, rows_of_a_chunk(row, low_memory=low_memory))
    chunk = chunk_rows * row
    kept = round(trained * plan.kept_share)
    if low_memory:
        return max(chunk, rows + gradient + SLICE_BYTES + (size + 4) * kept * shape.hidden)
    # room for chance, since the buffer is sized by the first chunk
    spread = 2.5 * math.sqrt(plan.kept_share * (1 - plan.kept_share) / max(1, chunk_rows))
    buffer_rows = math.ceil(trained * min(1.0, plan.kept_share + spread))
    return rows + buffer_rows * (row + 2 * size * shape.hidden) + max(gradient, chunk)


# ---- operations


def flops_per_epoch(plan: Plan, model: Any, shape: Shape) -> float:
    """Operations of all processes together, recomputed layers included."""
    again = 1 if plan.args.gradient_checkpointing else 0
    passes = 2 + again + (1 if plan.adapter is None else 0)
    matmuls = 2 * sum(p.numel() for p in _layer_parameters(model) if p.dim() == 2) * plan.positions
    # causal: on average a token sees half of its row
    row = plan.largest_row if plan.args.packing else sum(n * n for n in plan.lengths) / plan.tokens
    attention = 2 * shape.query * row * plan.positions * shape.layers
    weight: nn.Parameter = model.get_output_embeddings().weight
    backward = (2 if weight.requires_grad else 1) * plan.kept_share
    head = 2 * plan.trained_tokens * shape.hidden * shape.vocabulary * (1 + backward)
    return float(matmuls * passes + attention * (3 + again) + head)


def steps_and_epochs(plan: Plan) -> tuple[int, float]:
    """Optimizer steps as the Trainer counts them, and how often the data is seen."""
    args = plan.args
    per_round = plan.batch * plan.processes
    batches = plan.rows // per_round if args.dataloader_drop_last else math.ceil(plan.rows / per_round)
    per_epoch = max(1, math.ceil(batches / args.gradient_accumulation_steps))
    if args.max_steps > 0:
        return int(args.max_steps), args.max_steps / per_epoch
    return math.ceil(args.num_train_epochs * per_epoch), float(args.num_train_epochs)
