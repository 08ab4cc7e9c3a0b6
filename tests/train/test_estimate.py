"""The estimate against what can be measured here: parameters, what autograd keeps, live memory, the Trainer's steps."""

import dataclasses
import itertools
import weakref
from contextlib import nullcontext

import pytest
import torch
from peft import LoraConfig
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen3Config,
    Trainer,
)
from trl import ModelConfig

from trimsft.errors import UsageError
from trimsft.train import footprint
from trimsft.train.config import TrimSFTConfig
from trimsft.train.estimate import Estimate, Plan, describe, estimate, peak_flops, plan_from

SMALL = {
    "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 100,
}  # fmt: skip
PRECISIONS = {"float32": (torch.float32, False), "bfloat16": (torch.bfloat16, False), "autocast": (torch.float32, True)}


QWEN = Qwen2Config(
    hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
    num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
)  # fmt: skip
LLAMA = LlamaConfig(
    hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False,
)  # fmt: skip


def make_args(**fields) -> TrimSFTConfig:
    fields = {"bf16": False, "per_device_train_batch_size": 4, "num_train_epochs": 1, **fields}
    args = TrimSFTConfig(output_dir="unused", use_cpu=True, report_to="none", **fields)
    args.use_cpu = False  # bf16 would be refused without a GPU; the estimate is for one
    return args


def make_plan(model=None, lengths=(32,) * 8, trained=None, **fields) -> Plan:
    of_plan = {field.name for field in dataclasses.fields(Plan)}
    plan = {name: fields.pop(name) for name in list(fields) if name in of_plan}
    tokens = sum(lengths) if trained is None else trained
    return Plan(model=model or small(), args=make_args(**fields), lengths=lengths, trained_tokens=tokens, **plan)


def small(kind=LlamaConfig, **changes):
    return kind(**{**SMALL, **changes})


def estimated(*args, **fields) -> Estimate:
    return estimate(make_plan(*args, **fields))


# ---- parameters, weights, gradients, optimizer


def test_parameters_and_weights_are_exact() -> None:
    for config, parameters in ((QWEN, 1_543_714_304), (LLAMA, 8_030_261_248)):  # as they are published
        result = estimated(config)
        assert result.parameters == result.trainable == parameters
    for tied in (True, False):
        config = small(tie_word_embeddings=tied)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        result = estimated(config, dtype=torch.bfloat16)
        assert result.parameters == sum(p.numel() for p in model.parameters())
        assert result.weights_bytes == sum(p.nbytes for p in model.parameters())


def test_a_lora_trains_its_adapters_only() -> None:
    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    full, lora = (estimated(adapter=chosen, skip_below=0.0) for chosen in (None, adapter))
    a_layer = 4 * (64 + 64) + 4 * (64 + 16)
    assert lora.trainable == 3 * a_layer and lora.parameters == full.parameters + 3 * a_layer
    assert (lora.gradient_bytes, lora.optimizer_bytes) == (4 * lora.trainable, 8 * lora.trainable)
    assert lora.flops < full.flops and lora.head_bytes < full.head_bytes


@pytest.mark.parametrize(
    ("optim", "bytes_each"),
    [("adamw_torch", 8), ("adamw_torch_fused", 8), ("adamw_8bit", 2), ("lion_32bit", 4), ("adagrad", 4), ("sgd", 0)],
)
def test_optimizer_state(optim, bytes_each) -> None:
    result = estimated(optim=optim)
    assert result.optimizer_bytes == bytes_each * result.trainable


def test_adamw_state_is_what_torch_allocates() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_config(small(), dtype=dtype)
        optimizer = torch.optim.AdamW(model.parameters())
        model(input_ids=torch.arange(8)[None]).logits.sum().backward()
        optimizer.step()
        kept = [t for state in optimizer.state.values() for t in state.values() if t.dim()]
        assert estimated(dtype=dtype).optimizer_bytes == sum(t.nbytes for t in kept)


def test_several_processes_share_what_they_keep() -> None:
    config = small(num_hidden_layers=40)
    one, four = estimated(config, bf16=True), estimated(config, bf16=True, processes=4, sharded=True)
    assert (four.optimizer_bytes * 4, four.gradient_bytes * 4) == (one.optimizer_bytes, one.gradient_bytes)
    gathered = 2 * (2 * (one.parameters - 2 * 6400) // 40 + 6400)
    assert four.weights_bytes == pytest.approx(one.parameters * 4 / 4 + gathered, abs=4)
    # FSDP2 keeps float32 whatever was loaded
    assert estimated(config, bf16=True, processes=4, sharded=True, dtype=torch.bfloat16) == four
    # gradients wait whole for the last micro-batch unless each is reduced
    settings = {"bf16": True, "processes": 16, "sharded": True, "gradient_accumulation_steps": 2}
    sync = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    whole, reduced = estimated(**settings), estimated(**settings, accelerator_config=sync)
    assert whole.gradient_bytes == 2 * whole.trainable
    assert reduced.gradient_bytes == round(4 * reduced.trainable / 16)
    replicated = estimated(processes=2)
    assert replicated.gradient_bytes == 2 * 4 * replicated.trainable, "DDP holds its buckets too"


# ---- activations


def kept_by_autograd(config, batch, length, dtype, autocast, attention, padded) -> int:
    """Bytes of the storages that autograd saves in a forward pass of the layers, weights and their casts aside."""
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention).train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    shapes = {shape for p in model.parameters() for shape in (p.shape, p.shape[::-1])}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in weights and tensor.shape not in shapes:
            kept[place] = tensor
        return tensor

    ids = torch.randint(config.vocab_size, (batch, length))
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0 if padded else 1
    context = torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), context:
        model.model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


KINDS, ATTENTIONS = (LlamaConfig, Qwen2Config, Qwen3Config), ("sdpa", "sdpa, padded", "eager")
LATIN_SQUARE = [  # every pair of two of them once
    (kind, precision, ATTENTIONS[(row + column) % 3])
    for row, kind in enumerate(KINDS)
    for column, precision in enumerate(PRECISIONS)
]


@pytest.mark.parametrize(
    ("kind", "precision", "attention"), LATIN_SQUARE, ids=lambda value: getattr(value, "model_type", value)
)
def test_what_a_layer_keeps_is_exact(kind, precision, attention) -> None:
    (dtype, autocast), batch, length = PRECISIONS[precision], 4, 32
    name, padded = attention.split(",")[0], "padded" in attention
    one, two = (
        kept_by_autograd(small(kind, num_hidden_layers=layers), batch, length, dtype, autocast, name, padded)
        for layers in (1, 2)
    )
    plan = make_plan(small(kind), dtype=dtype, bf16=autocast, attention=name, lengths=(length,) * 8)
    plan.args.use_cpu = padded  # on a GPU padding needs no mask
    assert footprint.layer_bytes(plan, footprint.Shape.of(plan.model)) * batch * length == two - one


def test_a_mask_is_counted_where_there_is_one() -> None:
    padded, packed, free = make_plan(), make_plan(packing=True, max_length=50), make_plan(padding_free=True)
    assert (padded.mask_width, packed.mask_width, free.mask_width) == (0, 50, 4 * 32)  # TRL makes one row of four
    assert make_plan(padding_free=True, per_device_train_batch_size=1).mask_width == 0
    windows = [make_plan(small(Qwen2Config, use_sliding_window=True, sliding_window=width)) for width in (32, 33)]
    assert [plan.mask_width for plan in windows] == [32, 0]
    assert make_plan(attention="flash_attention_2", packing=True, max_length=50).mask_width == 0
    padded.args.use_cpu = True
    assert padded.mask_width == 32


class LiveMemory(TorchDispatchMode):
    """Adds up the storages that operations make, until they are gone."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen = known

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.seen:
                self.add(tensor.untyped_storage())
        return made

    def add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self.seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.remove, key, size)

    def remove(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_live_memory_of_a_backward_pass(precision, checkpointing) -> None:
    (dtype, autocast), batch, length = PRECISIONS[precision], 32, 64
    config = small(intermediate_size=320)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    ids = torch.randint(config.vocab_size, (batch, length))
    with LiveMemory({parameter.untyped_storage()._cdata for parameter in model.parameters()}) as live:
        with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        hidden.backward(torch.ones_like(hidden))
    result = estimated(
        config, lengths=(length,) * 64, dtype=dtype, bf16=autocast,
        per_device_train_batch_size=batch, gradient_checkpointing=checkpointing,
    )  # fmt: skip
    assert result.activation_bytes + result.layer_bytes == pytest.approx(live.peak, rel=0.1)


def test_checkpointing_and_offloading_keep_less() -> None:
    everything, inputs = (estimated(gradient_checkpointing=checkpointing) for checkpointing in (False, True))
    nothing = estimated(activation_offloading=True)
    assert everything.activation_bytes > inputs.activation_bytes > nothing.activation_bytes
    assert inputs.flops > everything.flops


# ---- the head

SHAPES = {"qwen": (8192, 1536, 151_936), "llama": (8192, 4096, 128_256), "smollm2": (16_384, 576, 49_152)}
MODES = {
    "default": {"low_memory": False}, "low_memory": {"low_memory": True},
    "exact": {"skip_below": 0.0, "low_memory": False},
    "reference": {"head_backend": "reference", "skip_below": 0.0},
}  # fmt: skip
MEASURED_GIB = {
    ("default", "qwen"): 1.79, ("default", "llama"): 2.17, ("default", "smollm2"): 1.06,
    ("low_memory", "qwen"): 0.60, ("low_memory", "llama"): 1.27, ("low_memory", "smollm2"): 0.24,
    ("exact", "qwen"): 2.78, ("exact", "llama"): 3.00, ("exact", "smollm2"): 1.57,
    ("reference", "qwen"): 13.91, ("reference", "llama"): 11.74, ("reference", "smollm2"): 9.00,
}  # fmt: skip
"""docs/performance.md, one H200; 52 % of the rows kept where any are skipped."""


@pytest.mark.parametrize(("mode", "shape"), MEASURED_GIB)
def test_the_head_takes_what_was_measured(monkeypatch, mode, shape) -> None:
    monkeypatch.setitem(footprint.KEPT_SHARE, "trim", 0.52)
    tokens, hidden, vocabulary = SHAPES[shape]
    config = small(hidden_size=hidden, vocab_size=vocabulary, num_hidden_layers=1)
    settings = {"bf16": True, "dtype": torch.bfloat16, "max_length": None, **MODES[mode]}
    result = estimated(config, lengths=(tokens // 4,) * 4, **settings)
    assert result.head_bytes / 2**30 == pytest.approx(MEASURED_GIB[mode, shape], rel=0.06)


def test_the_head_takes_no_more_than_others_unless_the_device_is_nearly_empty() -> None:
    settings = {"bf16": True, "dtype": torch.bfloat16, "lengths": (2048,) * 16, "per_device_train_batch_size": 16}
    settings |= {"objective": "sft", "max_length": None, "gradient_checkpointing": False}
    everything, some, least = (estimated(QWEN, low_memory=low, **settings) for low in (False, None, True))
    held = some.weights_bytes + some.optimizer_bytes + some.activation_bytes
    assert least.head_bytes < some.head_bytes < everything.head_bytes
    others = 6 * (151_936 + 2048 * 16) * 1536 + 2 * 4096 * 32_768
    assert some.head_bytes == others + held // 64
    large, huge = (estimate(make_plan(QWEN, **settings), device_bytes=size) for size in (2**39, 2**41))
    assert large.head_bytes == some.head_bytes and huge.head_bytes == everything.head_bytes


def test_masked_prompts_make_the_head_smaller() -> None:
    config = small(vocab_size=50_000)
    everything, half = (estimated(config, lengths=(512,) * 8, trained=trained) for trained in (4096, 2048))
    assert half.head_bytes < everything.head_bytes and half.flops < everything.flops


# ---- steps, tokens, time


@pytest.mark.parametrize(
    ("settings", "processes", "steps", "rows"),
    [
        ({"gradient_accumulation_steps": 3}, 2, 834, 20_000),  # the paper: 20,000 rows, global batch 24
        ({"gradient_accumulation_steps": 6}, 1, 834, 20_000),
        ({"gradient_accumulation_steps": 3, "num_train_epochs": 2}, 2, 1668, 40_000),
        ({"gradient_accumulation_steps": 3, "max_steps": 100}, 2, 100, 2400),
    ],
)
def test_steps(settings, processes, steps, rows) -> None:
    result = estimated(lengths=(16,) * 20_000, processes=processes, **settings)
    assert (result.steps, result.global_batch) == (steps, 24)
    assert result.tokens == pytest.approx(16 * rows, rel=0.01)


@pytest.mark.parametrize(
    ("rows", "batch", "accumulation", "drop"), [(10, 4, 2, False), (13, 4, 3, False), (11, 4, 2, True)]
)
def test_steps_are_those_of_the_trainer(tmp_path, rows, batch, accumulation, drop) -> None:
    settings = {
        "per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "dataloader_drop_last": drop,
        "num_train_epochs": 1.5,
    }  # fmt: skip
    args = make_args(**settings)
    args.use_cpu, args.output_dir = True, str(tmp_path)
    model = AutoModelForCausalLM.from_config(small())
    trainer = Trainer(model=model, args=args, train_dataset=[{"input_ids": [1]}] * rows)
    values = trainer.set_initial_training_values(args, trainer.get_train_dataloader())
    assert estimated(lengths=(16,) * rows, **settings).steps == values[-1]


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_padding_is_the_mean_over_all_batches(batch) -> None:
    lengths = (3, 9, 9, 1, 40, 12, 5)
    batches = list(itertools.combinations(lengths, batch))
    longest = sum(map(max, batches)) / len(batches)
    assert make_plan(lengths=lengths, per_device_train_batch_size=batch).positions == round(longest * len(lengths))
    assert make_plan(lengths=lengths, padding_free=True).positions == sum(lengths)


def test_packing_makes_full_rows() -> None:
    packed, padded = (estimated(lengths=(100,) * 96, packing=packing, max_length=400) for packing in (True, False))
    assert (packed.steps, padded.steps) == (6, 24)
    assert packed.positions == packed.tokens == 9600
    assert packed.activation_bytes == 4 * padded.activation_bytes  # rows are four times as long


def test_flops_are_six_a_parameter_and_token() -> None:
    config = small(hidden_size=512, intermediate_size=2048, tie_word_embeddings=False)
    result = estimated(config, gradient_checkpointing=False, skip_below=0.0)
    assert result.flops == pytest.approx(6 * (result.parameters - 512 * 100) * 256, rel=0.02)


def test_time_is_claimed_for_known_devices_only() -> None:
    plan = make_plan(processes=2, bf16=True)
    assert estimate(plan).seconds is None
    assert estimate(make_plan(), device_flops=1e9).seconds is None, "the peak is that of bfloat16"
    assert peak_flops("Some New Chip") is None
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12 > peak_flops("NVIDIA H100 PCIe") == 756e12
    result = estimate(plan, device_flops=1e9)
    assert result.seconds == pytest.approx(result.flops / (2 * 0.4 * 1e9))


def test_fits_leaves_room() -> None:
    plan = make_plan()
    total = estimate(plan).total_bytes
    verdicts = [estimate(plan, device_bytes=room).fits for room in (None, total, round(total * 1.12))]
    assert verdicts == [None, False, True]


MEASURED_STEPS = {
    ("sft", 1): 15.41, ("sft", 4): 33.70, ("sft", 16): 107.39,
    ("trim", 1): 15.09, ("trim", 4): 32.41, ("trim", 16): 102.37,
}  # fmt: skip
"""GiB at the peak: Qwen2.5-1.5B shape, rows of 2048, one H200; results/train_step_h200.json, 40 % of rows kept."""


@pytest.mark.parametrize(("objective", "batch"), MEASURED_STEPS)
def test_whole_steps_take_what_was_measured(monkeypatch, objective, batch) -> None:
    monkeypatch.setitem(footprint.KEPT_SHARE, "trim", 0.40)
    result = estimated(
        QWEN, lengths=(2048,) * batch, dtype=torch.bfloat16, bf16=True,
        objective=objective, per_device_train_batch_size=batch, gradient_checkpointing=False, low_memory=False,
        **({"skip_below": 0.0} if objective == "sft" else {}),
    )  # fmt: skip
    assert result.total_bytes / 2**30 == pytest.approx(MEASURED_STEPS[objective, batch], rel=0.02)


# ---- plans and words


def test_plan_from_settings(monkeypatch) -> None:
    model_args = ModelConfig(dtype="bfloat16", attn_implementation="flash_attention_2", use_peft=True, lora_r=3)
    config, args, data = small(), make_args(), {"lengths": [5], "trained_tokens": 4}
    plan = plan_from(config, args, model_args, **data, processes=2, sharded=True)
    assert (plan.dtype, plan.attention, plan.processes) == (torch.bfloat16, "flash_attention_2", 2)
    assert plan.sharded and plan.adapter.r == 3
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    launched = plan_from(config, args, ModelConfig(), **data)
    assert launched.sharded and launched.processes == 1 and launched.attention == "sdpa"
    with pytest.raises(ValueError, match="load_in_4bit: there is no estimate"):
        plan_from(config, args, ModelConfig(load_in_4bit=True), **data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths": ()}, "lengths: must be one or more"),
        ({"lengths": (4, 0)}, "lengths: must be one or more"),
        ({"lengths": (4,), "trained": 5}, "trained_tokens: must be from 0 to 4, got 5"),
        ({"processes": 0}, "processes: must be at least 1, got 0"),
        ({"model": small(MixtralConfig)}, "'mixtral', which has experts"),
        ({"model": Gemma4TextConfig()}, "'gemma4_text', whose layers differ in size"),
        ({"optim": "lomo"}, r"optim: there is no estimate for this optimizer, got 'lomo'; known: .*adamw_torch"),
    ],
)
def test_what_cannot_be_estimated_is_refused(fields, message) -> None:
    with pytest.raises(UsageError, match=message):
        estimated(**fields)


def test_the_plan_is_left_as_it_was() -> None:
    plan = make_plan(LlamaConfig(**SMALL, attn_implementation="sdpa"))
    before = plan.model.to_dict()
    estimate(plan)
    assert plan.model.to_dict() == before and plan.model._attn_implementation == "sdpa"


def test_the_table_says_what_counts() -> None:
    def shown(**device) -> str:
        console = Console(width=100)
        with console.capture() as capture:
            console.print(describe(estimate(make_plan(lengths=(8, 32) * 12, bf16=True), **device)))
        return capture.get()

    text = shown(device_bytes=1 << 30, device_flops=1e12)
    for words in ("estimate", "parameters", "optimizer", "should fit", "of padding", "steps", "40% of the device"):
        assert words in text
    assert "does not fit" in shown(device_bytes=1 << 10)
    assert "not known" in shown()
