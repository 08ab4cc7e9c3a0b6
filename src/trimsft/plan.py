"""Plan a training on named GPUs by arithmetic on the shape of a model: memory, hours, downloads.

    peak_gib(Training(shape=shape_of(config_of("Qwen/Qwen3-4B-Base")), rows=4, length=2048), GPUS["H200"])

What was measured on one H200 comes out within 20 % (tests/test_plan.py). `HEADROOM` is left for
what is not known here: fragmentation, workspaces of kernels, buffers of collectives.
"""

import copy
import itertools
import json
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from trimsft.errors import UsageError
from trimsft.head.memory import most_bytes
from trimsft.models import load_config
from trimsft.options import unknown_name

HEADROOM = 0.1  # share of the device that a run which fits leaves free
UTILISATION = 0.5
"""Share of the peak that training reaches; on an H200 with 8,192 tokens at a time 0.44 to 0.6."""
DECODING = {"vllm": 0.5, "transformers": 0.2}
"""Share of the bandwidth that generation reaches: assumed; as SmolLM2-135M on an H200."""
ANSWERS_AT_ONCE = 256  # assumed, too


class Gpu(NamedTuple):
    """A device, by its vendor's data sheet."""

    gib: float
    tflops: float  # dense bfloat16, sums in float32
    bandwidth: float  # TB/s


TABLE = json.loads(files("trimsft").joinpath("plan.json").read_text(encoding="utf-8"))
"""GPUs, and the recipes' models with licence and sizes, for when the hub cannot be reached."""
GPUS = {name: Gpu(**facts) for name, facts in TABLE["gpus"].items()}


def read_gpus(text: str) -> tuple[int, Gpu]:
    """Return number and kind of "2xA6000" or "H200"."""
    number, _, name = text.rpartition("x") if re.match(r"\d+x", text) else ("1", "", text)
    if name not in GPUS or int(number) < 1:
        raise unknown_name("gpus", text, [f"2x{known}" for known in GPUS])
    return int(number), GPUS[name]


def config_of(name: str, **options: Any) -> Any:
    """Return the configuration of a model; without the hub, of a recipe's what is known here."""
    try:
        return load_config(name, **options)
    except UsageError:
        if name not in TABLE["models"]:
            raise
        known = TABLE["models"][name]
        return AutoConfig.for_model(known["kind"], **dict(zip(TABLE["sizes"], known["sizes"], strict=True)))


@dataclass(frozen=True)
class Shape:
    """Sizes of a model of dense layers."""

    text: Any  # its configuration
    parameters: int
    trained: int
    in_layers: int  # parameters, but those of embeddings and head


def shape_of(config: Any, adapter: Any = None) -> Shape:
    """Count parameters on the meta device, an adapter's too; refuse layers of experts."""
    text = config.get_text_config()
    other = ("num_experts", "num_local_experts", "n_routed_experts", "is_heterogeneous", "attn_logit_softcapping")
    if any(getattr(text, name, None) for name in other):
        raise UsageError(f"{text.model_type!r} has layers that the plan does not know", field="model")
    with torch.device("meta"):  # which writes into the configuration
        model: Any = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager")
        model = model if adapter is None else get_peft_model(model, adapter)
    outside = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    everything = list(model.parameters())
    trained = [one for one in everything if one.requires_grad]
    in_layers = [one for one in everything if id(one) not in outside]
    return Shape(text, *(sum(one.numel() for one in some) for some in (everything, trained, in_layers)))


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings that decide how much memory a process holds."""

    shape: Shape
    rows: int  # of a micro-batch
    length: int  # tokens of the longest row
    gpus: int = 1
    sharded: bool = False  # FSDP2: weights, gradients, optimizer state
    dtype_bytes: int = 4  # of a number of the loaded weights
    mixed: bool = True  # matmuls in bfloat16 beside weights of another type
    states: float = 2.0  # numbers that the optimizer keeps of each trained one: AdamW's
    accumulates: bool = False  # gradients of several micro-batches are summed
    checkpointing: bool = True
    liger: bool = False
    low_memory: bool | None = None


def peak_gib(plan: Training, device: Gpu | None = None) -> float:
    """Return what a process holds at the peak of a step."""
    shape, text, tokens = plan.shape, plan.shape.text, plan.rows * plan.length
    hidden, vocabulary, layers = text.hidden_size, text.vocab_size, text.num_hidden_layers
    size = 2 if plan.mixed else plan.dtype_bytes  # of a number in the matmuls, and between layers
    width = 4 if plan.sharded and plan.mixed else plan.dtype_bytes  # FSDP2 trains float32, whatever was loaded
    stream, matrix = size if plan.sharded else width, vocabulary * hidden
    shards = plan.gpus if plan.sharded else 1
    weights, gradients = width * shape.parameters / shards, width * shape.trained / shards
    held = weights + plan.states * gradients
    if plan.sharded:
        held += size * (2 * shape.in_layers / layers + matrix)  # two layers and the head, gathered
    elif width > size:
        held += size * min(shape.trained, shape.in_layers)  # copies that autocast keeps
    gradients *= 2 if plan.gpus > shards else 1  # the buckets of DDP
    heads = text.num_attention_heads
    each = getattr(text, "head_dim", None) or hidden // heads
    keys = (getattr(text, "num_key_value_heads", None) or heads) * each
    norm = (stream if plan.liger else 4 + stream) * hidden
    inputs = (2 if stream == size else 5) * size * hidden  # autocast casts them for each matmul
    attention = 2 * size * (heads * each + keys) + 4 * heads
    layer = 2 * norm + inputs + attention + (3 if plan.liger else 4) * size * text.intermediate_size
    backward = 2 * size * text.intermediate_size
    kept = (layers * (stream * hidden if plan.checkpointing else layer) + norm + 2 * stream * hidden) * tokens
    working = (layer + backward if plan.checkpointing else backward) * tokens
    # while the head works there are no gradients yet, unless several micro-batches are summed or DDP has its buckets;
    # in the backward pass they take the place of activations
    before = gradients if plan.accumulates or plan.gpus > shards else 0
    sums = size * (tokens * hidden + (matrix if shape.trained == shape.parameters else 0))
    head = sums if plan.low_memory else sums + size * tokens * vocabulary
    if plan.low_memory is None:
        whole, beside = int(2**30 * device.gib) if device else 0, int(held + before + kept)
        head = min(head, most_bytes(tokens, hidden, vocabulary, size, held=beside, device_bytes=whole))
    head += 0 if plan.sharded or width <= size else size * matrix
    return float(held + max(before + kept + head, max(gradients, before + kept) + working)) / 2**30


def require_room(plan: Training, device: Gpu) -> None:
    """Refuse what cannot fit, and name the fewest settings that make it fit."""
    room = device.gib * (1 - HEADROOM)
    if (needed := peak_gib(plan, device)) <= room:
        return
    ways: dict[str, dict[str, Any]] = {
        "gradient_checkpointing=true": {"checkpointing": True},
        "per_device_train_batch_size=1": {"rows": 1, "accumulates": True},
        "FSDP (recipes/accelerate/fsdp2.yaml)": {"sharded": plan.gpus > 1},
        "dtype=bfloat16 and bf16=false": {"dtype_bytes": 2, "mixed": False},
    }
    hint = "no setting changes that: take more GPUs with FSDP, or larger ones"
    for names in itertools.chain(*(itertools.combinations(ways, count) for count in range(1, 5))):
        changed = replace(plan, **{name: value for way in names for name, value in ways[way].items()})
        if (less := peak_gib(changed, device)) <= room:
            hint = f"with {' and '.join(names)} it takes {less:.0f} GiB"
            break
    raise UsageError(f"a step takes {needed:.0f} GiB, and each has {room:.0f} to spare", field="gpus", hint=hint)


def training_hours(plan: Training, device: Gpu, tokens: float) -> float:
    """Return GPU hours: those of all GPUs together."""
    text = plan.shape.text
    matmuls = 2 * (plan.shape.in_layers + text.vocab_size * text.hidden_size)
    attention = 2 * text.hidden_size * plan.length * text.num_hidden_layers  # half of a row on average
    passes = 3 + plan.checkpointing  # also of adapters, which cost about what frozen weights save
    return float(tokens * (matmuls + attention) * passes) / (device.tflops * 1e12 * UTILISATION) / 3600


def generation_hours(shape: Shape, device: Gpu, tokens: float, *, engine: str, length: float) -> float:
    """Return hours of one GPU: a step reads the weights and all caches, in bfloat16."""
    text = shape.text
    keys = (getattr(text, "num_key_value_heads", None) or text.num_attention_heads) / text.num_attention_heads
    cache = 4 * text.num_hidden_layers * text.hidden_size * keys * length
    seconds = (2 * shape.parameters + ANSWERS_AT_ONCE * cache) / (device.bandwidth * 1e12 * DECODING[engine])
    return float(tokens / ANSWERS_AT_ONCE * seconds) / 3600


def describe_download(name: str) -> str:
    """Say whether a model is fetched, and under which licence, where a recipe has it."""
    licence = TABLE["models"].get(name, {"licence": "as its card says"})["licence"]
    return f"{name}: is here" if Path(name).exists() else f"to download: {name}, licence {licence}"
