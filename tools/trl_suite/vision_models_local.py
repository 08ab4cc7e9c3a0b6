"""Vision-language models that stand in for the tiny ones of TRL's SFT tests: a class, a processor, small pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .models_local import EXPERTS, REPOSITORY, SMALL, make_tokenizer, randomize, snapshot

QWEN_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_VISION = {
    "hidden_size": 16,
    "embed_dim": 16,
    "intermediate_size": 32,
    "depth": 2,
    "num_heads": 4,
    "out_hidden_size": 16,
    "patch_size": 14,
}
HYBRID = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 8} | {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
CLIP = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAVA_TOKENS = ["<image>"]


@dataclass(frozen=True)
class VisionRecipe:
    """How to make one model: its class, its tokenizer, the halves of its config, and its processor."""

    architecture: str
    template: str
    eos: str
    tokens: list[str]
    text: dict[str, Any]
    vision: dict[str, Any]
    processor: Callable[[Any], Any]
    config: Callable[[Any], dict[str, Any]] = lambda tokenizer: {}


def rope(sections: list[int], **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections, **more}}


def qwen_ids(tokenizer: Any) -> dict[str, Any]:
    names = ["vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"]
    return dict(zip(names, tokenizer.convert_tokens_to_ids(QWEN_TOKENS), strict=True))


def qwen_processor(kind: str, video: str, patch: int = 14) -> Callable[[Any], Any]:
    """Qwen's processors cut a picture into patches of its own size; these keep it at a few of them."""

    def make(tokenizer: Any) -> Any:
        import transformers

        sizes = {"patch_size": patch, "size": {"shortest_edge": 4 * patch * patch, "longest_edge": 16 * patch * patch}}
        return getattr(transformers, f"{kind}Processor")(
            image_processor=transformers.Qwen2VLImageProcessor(**sizes),
            tokenizer=tokenizer,
            video_processor=getattr(transformers, f"{video}VideoProcessor")(**sizes),
            chat_template=tokenizer.chat_template,
        )

    return make


def gemma3_processor(tokenizer: Any) -> Any:
    from transformers import Gemma3ImageProcessor, Gemma3Processor

    pictures = Gemma3ImageProcessor(size={"height": 56, "width": 56})
    return Gemma3Processor(
        image_processor=pictures, tokenizer=tokenizer, image_seq_length=4, chat_template=tokenizer.chat_template
    )


def gemma3_ids(tokenizer: Any) -> dict[str, Any]:
    ids = tokenizer.convert_tokens_to_ids(["<image_soft_token>", "<start_of_image>", "<end_of_image>"])
    return {"image_token_index": ids[0], "boi_token_index": ids[1], "eoi_token_index": ids[2], "mm_tokens_per_image": 4}


def gemma4_processor(tokenizer: Any) -> Any:
    from transformers import Gemma4AudioFeatureExtractor, Gemma4ImageProcessor, Gemma4Processor, Gemma4VideoProcessor

    return Gemma4Processor(
        feature_extractor=Gemma4AudioFeatureExtractor(),
        image_processor=Gemma4ImageProcessor(max_soft_tokens=70),
        video_processor=Gemma4VideoProcessor(),
        tokenizer=tokenizer,
        image_seq_length=70,
        chat_template=tokenizer.chat_template,
    )


def gemma4_ids(tokenizer: Any) -> dict[str, Any]:
    names = {"image_token_id": "<|image|>", "boi_token_id": "<|image>", "eoi_token_id": "<image|>"}
    names |= {"audio_token_id": "<|audio|>", "boa_token_id": "<|audio>", "eoa_token_id": "<audio|>"}
    names |= {"video_token_id": "<|video|>"}
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()} | {"audio_config": None}


def llava_processor(kind: str) -> Callable[[Any], Any]:
    def make(tokenizer: Any) -> Any:
        import transformers

        edge = {"shortest_edge": 28}
        sizes: dict[str, Any] = {"size": edge, "crop_size": {"height": 28, "width": 28}}
        if kind == "LlavaNext":
            sizes["image_grid_pinpoints"] = [[28, 56], [56, 28]]
        pictures = "CLIP" if kind == "Llava" else kind
        return getattr(transformers, f"{kind}Processor")(
            image_processor=getattr(transformers, f"{pictures}ImageProcessor")(**sizes),
            tokenizer=tokenizer,
            patch_size=14,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
            chat_template=tokenizer.chat_template,
        )

    return make


def llava_ids(tokenizer: Any) -> dict[str, Any]:
    ids = {"image_token_index": tokenizer.convert_tokens_to_ids("<image>"), "vision_feature_layer": -2}
    return ids | {"image_seq_length": 4, "image_grid_pinpoints": [[28, 56], [56, 28]]}


LLAVA_VISION = CLIP | {"model_type": "clip_vision_model", "image_size": 28, "patch_size": 14, "projection_dim": 16}
GEMMA4_TOKENS = ["<|image|>", "<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>", "<|video|>"]
GEMMA4_TEXT = SMALL | {
    "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0,
    "head_dim": 8,
    "global_head_dim": 8,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 800,
}

VISION_MODELS = {
    "Gemma3ForConditionalGeneration": VisionRecipe(
        "Gemma3",
        "gemma3",
        "<eos>",
        ["<image_soft_token>", "<start_of_image>", "<end_of_image>"],
        SMALL | {"head_dim": 4, "layer_types": ["sliding_attention", "full_attention"]},
        CLIP | {"image_size": 56, "patch_size": 14, "vision_use_head": False},
        gemma3_processor,
        gemma3_ids,
    ),
    "Gemma4ForConditionalGeneration": VisionRecipe(
        "Gemma4",
        "gemma4",
        "<eos>",
        GEMMA4_TOKENS,
        GEMMA4_TEXT,
        CLIP | {"num_key_value_heads": 2, "head_dim": 4, "position_embedding_size": 630, "default_output_length": 70},
        gemma4_processor,
        gemma4_ids,
    ),
    "LlavaForConditionalGeneration": VisionRecipe(
        "Llava", "llava_next", "</s>", LLAVA_TOKENS, SMALL, LLAVA_VISION, llava_processor("Llava"), llava_ids
    ),
    "LlavaNextForConditionalGeneration": VisionRecipe(
        "LlavaNext", "llava_next", "</s>", LLAVA_TOKENS, SMALL, LLAVA_VISION, llava_processor("LlavaNext"), llava_ids
    ),
    "Qwen2VLForConditionalGeneration": VisionRecipe(
        "Qwen2VL",
        "qwen2_5_vl",
        "<|im_end|>",
        QWEN_TOKENS,
        SMALL | rope([1, 1]),
        QWEN_VISION | {"hidden_size": 16, "mlp_ratio": 2},
        qwen_processor("Qwen2VL", "Qwen2VL"),
        qwen_ids,
    ),
    "Qwen2_5_VLForConditionalGeneration": VisionRecipe(
        "Qwen2_5_VL",
        "qwen2_5_vl",
        "<|im_end|>",
        QWEN_TOKENS,
        SMALL | rope([1, 1]),
        QWEN_VISION | {"fullatt_block_indexes": [1]},
        qwen_processor("Qwen2_5_VL", "Qwen2VL"),
        qwen_ids,
    ),
    "Qwen3VLForConditionalGeneration": VisionRecipe(
        "Qwen3VL",
        "qwen3_vl",
        "<|im_end|>",
        QWEN_TOKENS,
        SMALL | {"head_dim": 12} | rope([2, 2, 2], mrope_interleaved=True),
        QWEN_VISION | {"patch_size": 16, "deepstack_visual_indexes": [1], "num_position_embeddings": 64},
        qwen_processor("Qwen3VL", "Qwen3VL", 16),
        qwen_ids,
    ),
    "Qwen3_5ForConditionalGeneration-NoThink": VisionRecipe(
        "Qwen3_5",
        "qwen3_5_nothink",
        "<|im_end|>",
        QWEN_TOKENS,
        SMALL | HYBRID,
        QWEN_VISION | {"patch_size": 16, "num_position_embeddings": 64},
        qwen_processor("Qwen3VL", "Qwen3VL", 16),
        qwen_ids,
    ),
    "Qwen3_5MoeForConditionalGeneration-3.6": VisionRecipe(
        "Qwen3_5Moe",
        "qwen3_6",
        "<|im_end|>",
        QWEN_TOKENS,
        SMALL | HYBRID | EXPERTS | {"shared_expert_intermediate_size": 32},
        QWEN_VISION | {"patch_size": 16, "num_position_embeddings": 64},
        qwen_processor("Qwen3VL", "Qwen3VL", 16),
        qwen_ids,
    ),
}


def name_tokens(tokenizer: Any, recipe: VisionRecipe) -> Any:
    """Processors of some families ask their tokenizer for tokens by role."""
    roles = {"Gemma3": ("image_token", "boi_token", "eoi_token")}
    roles["Gemma4"] = ("image_token", "boi_token", "eoi_token", "audio_token", "boa_token", "eoa_token", "video_token")
    named = dict(zip(roles.get(recipe.architecture, ()), recipe.tokens, strict=False))
    if named:
        tokenizer._set_model_specific_special_tokens(special_tokens=named)
        tokenizer.init_kwargs["extra_special_tokens"] = named
        tokenizer.init_kwargs.update(named)
    return tokenizer


def write_vision_model(hub: Path, name: str) -> None:
    import torch
    import transformers

    recipe = VISION_MODELS[name]
    tokenizer = make_tokenizer(recipe.template, recipe.eos, "<pad>", recipe.tokens)
    tokenizer = name_tokens(tokenizer, recipe)
    text = recipe.text | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    text |= {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    if recipe.architecture.startswith("Llava"):
        text["model_type"] = "llama"
    settings = {"text_config": text, "vision_config": recipe.vision} | recipe.config(tokenizer)
    config = getattr(transformers, f"{recipe.architecture}Config")(**settings)
    model = randomize(getattr(transformers, f"{recipe.architecture}ForConditionalGeneration")(config))
    folder = snapshot(hub, REPOSITORY + name)
    model.to(torch.bfloat16).save_pretrained(folder)
    recipe.processor(tokenizer).save_pretrained(folder)
