"""Models that stand in for the tiny ones TRL's SFT tests load by name: same classes, random weights, two layers.

A stand-in lies in a cache folder as a download from the hub would, so that the code which loads it is the
real one, offline:

    hub/models--trl-internal-testing--tiny-Qwen2ForCausalLM-2.5/refs/main                  says 000...0
    hub/models--trl-internal-testing--tiny-Qwen2ForCausalLM-2.5/snapshots/000...0/config.json, model.safetensors, ...

Chat templates are the ones the installed TRL carries; their special tokens become the tokenizer's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .datasets_local import sentence

SPECIAL = re.compile(
    r"<[|\uff5c][^<>\n|\uff5c]+[|\uff5c]>|</?(?:start_of_turn|end_of_turn|image|tool_call|think|s|bos|eos|pad)>"
)
REPOSITORY = "trl-internal-testing/tiny-"
COMMIT = "0" * 40


@dataclass(frozen=True)
class Recipe:
    """How to make one text model: its class, the tokenizer's template and end, and what its config needs."""

    architecture: str
    template: str | None
    eos: str
    pad: str = "<|endoftext|>"
    settings: dict[str, Any] = field(default_factory=dict)
    dtype: str = "bfloat16"


GQA = {"num_attention_heads": 4, "num_key_value_heads": 2}
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2} | GQA
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {"num_key_value_heads": 4, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
DEEPSEEK_EOS = "<\uff5cend\u2581of\u2581sentence\uff5c>"  # its bars are full-width, its spaces blocks
DEEPSEEK = MLA | {"v_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
LFM2 = {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8}
NEMOTRON = {
    "layers_block_type": ["mamba", "attention", "moe"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 4,
    "mamba_n_groups": 1,
    "n_groups": 1,
    "ssm_state_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "use_mamba_kernels": False,
}

TEXT_MODELS = {
    "CohereForCausalLM": Recipe("Cohere", "cohere", "<|END_OF_TURN_TOKEN|>"),
    "Cohere2ForCausalLM": Recipe("Cohere2", "cohere2", "<|END_OF_TURN_TOKEN|>"),
    "DeepseekV3ForCausalLM": Recipe("DeepseekV3", "deepseekv3", DEEPSEEK_EOS, settings=DEEPSEEK),
    "DeepseekV3ForCausalLM-0528": Recipe("DeepseekV3", "deepseekv3", DEEPSEEK_EOS, settings=DEEPSEEK),
    "GPTNeoXForCausalLM": Recipe("GPTNeoX", None, "<|endoftext|>", dtype="float16"),
    "GemmaForCausalLM": Recipe("Gemma", "gemma", "<eos>", "<pad>", {"head_dim": 4}),
    "Gemma2ForCausalLM": Recipe("Gemma2", "gemma", "<eos>", "<pad>", {"head_dim": 4}),
    "Glm4MoeForCausalLM": Recipe(
        "Glm4Moe",
        "glm4moe",
        "<|endoftext|>",
        settings={"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 4},
    ),
    "GptOssForCausalLM": Recipe(
        "GptOss", "gptoss", "<|return|>", settings={"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
    ),
    "Lfm2ForCausalLM": Recipe("Lfm2", "lfm2", "<|im_end|>", settings=LFM2),
    "Lfm2ForCausalLM-2.5": Recipe("Lfm2", "lfm2_2_5", "<|im_end|>", settings=LFM2),
    "LlamaForCausalLM-3": Recipe("Llama", "llama3", "<|eot_id|>"),
    "LlamaForCausalLM-3.1": Recipe("Llama", "llama3_1", "<|eot_id|>"),
    "LlamaForCausalLM-3.2": Recipe("Llama", "llama3_2", "<|eot_id|>"),
    "MistralForCausalLM-0.1": Recipe("Mistral", "qwen2_5", "</s>"),
    "MistralForCausalLM-0.2": Recipe("Mistral", "qwen2_5", "</s>"),
    "NemotronHForCausalLM-nano": Recipe("NemotronH", "nemotron_3_nano", "<|im_end|>", settings=NEMOTRON),
    "Olmo3ForCausalLM": Recipe("Olmo3", "qwen2_5", "<|im_end|>"),
    "Phi3ForCausalLM": Recipe("Phi3", "phi3", "<|end|>"),
    "Qwen2ForCausalLM-2.5": Recipe("Qwen2", "qwen2_5", "<|im_end|>"),
    "Qwen3ForCausalLM": Recipe("Qwen3", "qwen3", "<|im_end|>", settings={"head_dim": 8}),
    "Qwen3MoeForCausalLM": Recipe("Qwen3Moe", "qwen3", "<|im_end|>", settings=EXPERTS | {"head_dim": 8}),
}


def template_text(name: str | None) -> str | None:
    """The chat template of that name in the installed TRL."""
    import trl

    return None if name is None else (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


def corpus() -> Iterator[str]:
    for i in range(30):
        yield "".join(sentence(i))


def make_tokenizer(template: str | None, eos: str, pad: str, more: list[str] | None = None) -> Any:
    """A byte-level tokenizer of some 400 entries: whole words of the datasets, special tokens of its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = template_text(template)
    bos = "<bos>" if "bos_token" in (text or "") else None
    found = [pad, eos, bos, *(more or []), *SPECIAL.findall(text or "")]
    specials = list(dict.fromkeys(token for token in found if token is not None))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=800, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos,
        pad_token=pad,
        bos_token=bos,
        chat_template=text,
        model_max_length=32768,
    )


def snapshot(hub: Path, repository: str) -> Path:
    """The folder of the one version of a repository in the cache."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
    return folder / "snapshots" / COMMIT


def randomize(model: Any) -> Any:
    """Weights with no zeros or ones among them: the tests ask every parameter to move."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.1)
            elif "norm" not in name.lower() and not name.endswith(("A_log", ".D")):
                parameter.normal_(0.0, 0.05)
    return model


def write_text_model(hub: Path, name: str) -> None:
    import torch
    import transformers

    recipe = TEXT_MODELS[name]
    tokenizer = make_tokenizer(recipe.template, recipe.eos, recipe.pad)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    ids["bos_token_id"] = tokenizer.bos_token_id
    settings = SMALL | recipe.settings | ids | {"vocab_size": len(tokenizer)}
    config = getattr(transformers, f"{recipe.architecture}Config")(**settings)
    model = randomize(getattr(transformers, f"{recipe.architecture}ForCausalLM")(config))
    folder = snapshot(hub, REPOSITORY + name)
    model.to(getattr(torch, recipe.dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_remote_model(hub: Path) -> None:
    """A model whose code lies beside it, which only `trust_remote_code=True` may load."""
    import json

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer("llama3_2", "<|eot_id|>", "<|endoftext|>")
    folder = snapshot(hub, REPOSITORY + "RemoteForCausalLM")
    model = randomize(LlamaForCausalLM(LlamaConfig(**SMALL, vocab_size=len(tokenizer))))
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "remote"}
    config["architectures"] = ["RemoteForCausalLM"]
    config["auto_map"] = {
        "AutoConfig": "remote_model.RemoteConfig",
        "AutoModelForCausalLM": "remote_model.RemoteForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "remote_model.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n\n\n"
        'class RemoteConfig(LlamaConfig):\n    model_type = "remote"\n\n\n'
        "class RemoteForCausalLM(LlamaForCausalLM):\n    config_class = RemoteConfig\n"
    )


def write_tokenizer_only(hub: Path) -> None:
    """The repository one test takes a chat template from."""
    from transformers import Qwen3Config

    folder = snapshot(hub, "Qwen/Qwen3-4B")
    make_tokenizer("qwen3", "<|im_end|>", "<|endoftext|>").save_pretrained(folder)
    Qwen3Config(**SMALL).save_pretrained(folder)  # loading a tokenizer asks for it
