"""Models, a tokenizer and data small enough to train in a test, and the plain formula on logits to compare with.

model = make_model("qwen3")
trainer = make_trainer(TrimSFTTrainer, model, folder, TEXTS, objective="dft")
trainer.grads     # of every optimizer step, by name
"""

import copy
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    CohereConfig,
    FalconH1Config,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
    OlmoeConfig,
    PhiConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    TrainerCallback,
    TrainingArguments,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from trl import SFTConfig

from trimsft import DFT, FSFT, SFT, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.train import TrimSFTConfig, TrimSFTTrainer

disable_progress_bars()

SPECIAL = ["<pad>", "<eos>", "<unk>", "<user>", "<assistant>"]
WORDS = [f"w{index}" for index in range(90)]
PAD, EOS, VOCABULARY = 0, 1, len(SPECIAL) + len(WORDS)
BAND = {"margin": -4.0, "bandwidth": 3.0}
"""Where the tokens of an untrained model are: with the defaults of the paper all of them would weigh nothing."""
OBJECTIVES = [SFT(), FSFT(), DFT(), *(kind(**BAND) for kind in (TrimSFT, TrimSFTEasy, TrimSFTHard))]

LOSS_ERROR = 200 * 2**-24
"""What rounding may do to a loss, relative to it: sums over 32, 48 and 95 float32 numbers in two layers are some 200
roundings one after the other, of 2^-24 each, here all taken to go the same way."""

CHAT = (
    "{% for m in messages %}"
    "{% if m['role'] == 'user' %}<user> {{ m['content'] }} <eos> "
    "{% else %}<assistant> {% generation %}{{ m['content'] }} <eos> {% endgeneration %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*SPECIAL, *WORDS])}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[3:]})
    tokenizer.chat_template = CHAT
    return tokenizer


SIZE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256,
    "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": EOS,
}  # fmt: skip
_MIXTURE = {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.5}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}
_MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 16}

ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZE, tie_word_embeddings=False),
    "llama tied": lambda: LlamaConfig(**SIZE, tie_word_embeddings=True),
    "qwen2": lambda: Qwen2Config(**SIZE, tie_word_embeddings=True),
    "qwen3": lambda: Qwen3Config(**SIZE, head_dim=16, tie_word_embeddings=True),
    "gemma2": lambda: Gemma2Config(**SIZE, head_dim=16, final_logit_softcapping=4.0),
    "granite": lambda: GraniteConfig(**SIZE, logits_scaling=3.0, embedding_multiplier=2.0),
    "cohere": lambda: CohereConfig(**SIZE, logit_scale=0.4),
    "phi": lambda: PhiConfig(**SIZE),  # its head has a bias
    "mixtral": lambda: MixtralConfig(**SIZE, **_MIXTURE, output_router_logits=True, experts_implementation="eager"),
    "qwen3 moe": lambda: Qwen3MoeConfig(**SIZE, **_EXPERTS, moe_intermediate_size=16, head_dim=16),
    "olmoe": lambda: OlmoeConfig(**SIZE, **_EXPERTS),
    "falcon_h1": lambda: FalconH1Config(**SIZE, **_MAMBA, lm_head_multiplier=0.3),
}


def make_model(kind: str = "llama", *, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Any:
    """Random weights, with a head that spreads its logits over several units."""
    torch.manual_seed(seed)
    config = ARCHITECTURES[kind]()
    for name, value in changes.items():
        setattr(config, name, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.eos_token_id = EOS
    head = model.get_output_embeddings()
    head.weight.data.normal_(0, 0.3)
    if head.bias is not None:
        head.bias.data.normal_(0, 1)
    return model.to(dtype)


class Evil:
    """Unpickled, it makes the folder `mark`."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (str(self._mark), 0o777, True)


LENGTHS = (2, 31, 5, 17, 3, 44, 9, 12)
"""Very uneven, so that a mean of means is not the mean."""


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


TEXTS = [{"text": words(length, seed)} for seed, length in enumerate(LENGTHS)]
PAIRS = [
    {"prompt": words(4 + seed % 3, seed), "completion": " " + words(length, 100 + seed)}
    for seed, length in enumerate(LENGTHS)
]
MESSAGES = [
    {
        "messages": [
            {"role": "user", "content": words(3, seed)},
            {"role": "assistant", "content": words(length, 100 + seed)},
            {"role": "user", "content": words(2, 200 + seed)},
            {"role": "assistant", "content": words(4, 300 + seed)},
        ]
    }
    for seed, length in enumerate(LENGTHS)
]
ROLES = {"prompt": "user", "completion": "assistant"}
CHATS = [{part: [{"role": ROLES[part], "content": row[part].strip()}] for part in row} for row in PAIRS]


def make_batch(rows: int = 3, length: int = 11, *, seed: int = 0) -> dict[str, Tensor]:
    """Padded on the right, some labels ignored."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(len(SPECIAL), VOCABULARY, (rows, length), generator=generator)
    mask = (torch.arange(length) < torch.tensor([[length - 3 * (row % 3)] for row in range(rows)])).long()
    labels = torch.where(mask.bool(), input_ids, -100)
    labels[:, :2] = -100
    return {"input_ids": input_ids * mask, "attention_mask": mask, "labels": labels}


class KeepsGradients(TrainerCallback):
    """What each optimizer step was given; None stands for a gradient that never was."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.steps.append(gradients_of(model))


def gradients_of(model: Any) -> dict[str, Tensor]:
    grads = ((name, parameter.grad) for name, parameter in model.named_parameters())
    return {name: grad.detach().clone() for name, grad in grads if grad is not None}


def make_config(kind: type[TrainingArguments], folder: Path, **changes: Any) -> Any:
    """Two updates of plain gradient descent on 8 rows, logged each."""
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 2,
        "optim": "sgd", "learning_rate": 0.03, "lr_scheduler_type": "constant", "max_grad_norm": 0.0,
        "logging_steps": 1, "logging_first_step": False, "logging_nan_inf_filter": False, "save_strategy": "no",
        "report_to": [], "gradient_checkpointing": False, "use_cpu": True, "bf16": False,
        "dataloader_pin_memory": False, "disable_tqdm": True,
    }  # fmt: skip
    if issubclass(kind, SFTConfig):
        settings["max_length"] = 64
    if issubclass(kind, TrimSFTConfig):
        settings["skip_below"] = 0.0  # exact
        if str(changes.get("objective", "trim")).startswith("trim"):
            settings |= BAND
    return kind(output_dir=str(folder), **settings | changes)


def make_trainer(
    kind: type[Any], model: Any, folder: Path, rows: Any, options: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """A trainer of either kind; `options` go to the trainer, `settings` to its configuration."""
    config = make_config(TrimSFTConfig if issubclass(kind, TrimSFTTrainer) else SFTConfig, folder, **settings)
    keeps, dataset = KeepsGradients(), Dataset.from_list(rows) if isinstance(rows, list) else rows
    options = {"processing_class": make_tokenizer(), "callbacks": [], **(options or {})}
    options["callbacks"] = [keeps, *options["callbacks"]]
    trainer = kind(model, args=config, train_dataset=dataset, **options)
    trainer.grads = keeps.steps
    return trainer


def make_ours(folder: Path, rows: Any = None, options: dict[str, Any] | None = None, **settings: Any) -> Any:
    """`TrimSFTTrainer` of a small Llama on prompts and completions."""
    return make_trainer(TrimSFTTrainer, make_model(), folder, PAIRS if rows is None else rows, options, **settings)


def history_of(trainer: Any) -> list[dict[str, Any]]:
    """What was logged, without what stands before the names of figures."""
    return [{name.removeprefix("trim/"): value for name, value in log.items()} for log in trainer.state.log_history]


def logged(trainer: Any, name: str) -> list[float]:
    """What each log of the training said, without the one that ends it."""
    history = [record for record in history_of(trainer) if "train_runtime" not in record]
    return [record[name] for record in history if name in record]


def record_batches(trainer: Any, *, evaluated: bool = False) -> list[tuple[dict[str, Tensor], Any]]:
    """Filled, as the trainer goes on, with every micro-batch that the model is trained on, or evaluated, too, and what
    comes back."""
    batches: list[tuple[dict[str, Tensor], Any]] = []

    def keep(module: Any, args: Any, kwargs: dict[str, Any], outputs: Any) -> None:
        if kwargs.get("labels") is not None and (evaluated or torch.is_grad_enabled()):
            batches.append(({name: value for name, value in kwargs.items() if isinstance(value, Tensor)}, outputs))

    trainer.model.register_forward_hook(keep, with_kwargs=True)
    return batches


class Plain(NamedTuple):
    """What one batch yields by the formula, on logits, in float64."""

    loss: Tensor
    tokens: TokenStats
    weights: Tensor


def plain_loss(
    logits: Tensor, labels: Tensor, objective: Any, *, normalizer: float | Tensor | None = None, shift: bool = True
) -> Plain:
    """sum_t sg(w_t) * nll_t / normalizer, the labels shifted here unless they are already."""
    logits_NV = (logits[:, :-1] if shift else logits).double().flatten(0, 1)
    labels_N = (labels[:, 1:] if shift else labels).flatten()
    logits_TV, gold_T1 = logits_NV[labels_N != -100], labels_N[labels_N != -100][:, None]
    gold_T = logits_TV.gather(1, gold_T1)[:, 0]
    nll_T = logits_TV.logsumexp(dim=1) - gold_T
    other_T, competitor_T = logits_TV.scatter(1, gold_T1, -torch.inf).max(dim=1)
    entropy_T = torch.special.entr(logits_TV.softmax(dim=1)).sum(dim=1)
    tokens = TokenStats(*(x.detach() for x in (nll_T, gold_T - other_T, gold_T, competitor_T, entropy_T)))
    weights_T = getattr(objective, "weights", objective)(tokens)
    return Plain((weights_T * nll_T).sum() / (len(nll_T) if normalizer is None else normalizer), tokens, weights_T)


def trained(batch: dict[str, Tensor]) -> int:
    return int((batch["labels"][:, 1:] != -100).sum())


def plain_step(model: Any, micro_batches: list[dict[str, Tensor]], objective: Any) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one update by a hand-written loop over an unpatched model."""
    model.zero_grad()
    count, total = sum(map(trained, micro_batches)), 0.0
    for batch in micro_batches:
        inputs = {name: value for name, value in batch.items() if name not in ("labels", "num_items_in_batch")}
        loss = plain_loss(model(**inputs).logits, batch["labels"], objective, normalizer=count).loss
        loss.backward()
        total += loss.item()
    return total, gradients_of(model)


def unpatched(model: Any) -> Any:
    """The same weights in a model that nothing was done to."""
    twin = type(model)(copy.deepcopy(model.config)).to(model.dtype)
    twin.load_state_dict(model.state_dict())
    return twin.train(model.training)


def assert_same_gradients(got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = LOSS_ERROR) -> None:
    """Relative to the norm of each, or of all where one is next to nothing."""
    assert got.keys() == expected.keys()
    norm = torch.stack([gradient.double().norm() for gradient in expected.values()]).norm()
    for name, gradient in expected.items():
        error = float((got[name].double() - gradient.double()).norm())
        size = max(float(gradient.double().norm()), 1e-3 * float(norm))
        assert error <= tolerance * size, f"{name}: off by {error / size:.1e} of {size:.1e}"
