"""Models of many builds are decoded as their own `generate` decodes one prompt at a time."""

import warnings
from collections.abc import Sequence

import pytest
import torch
from transformers import GenerationConfig

from trimsft.evaluate.engines import Request, Sampling
from trimsft.evaluate.engines.transformers_engine import TransformersEngine

from .model_kinds import IN_BATCHES, IN_SLOTS, make_kind
from .tiny_model import make_tokenizer

NEW = 10
LENGTHS = (3, 14, 9, 9)  # longer than every window, and across the borders of positions
TOKENIZER = make_tokenizer()


def make_prompts() -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randint(3, 262, (length,), generator=generator).tolist()) for length in LENGTHS]


def generate_alone(name: str, prompts: Sequence[Sequence[int]]) -> list[str]:
    """Greedy texts of the model's own `generate`."""
    texts: list[str] = []
    model = make_kind(name)
    for prompt in prompts:
        if "soft cap" in name:
            model.set_attn_implementation("eager")  # sdpa leaves it out
        model.generation_config = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=0, pad_token_id=0)
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            new = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids))[0, len(prompt) :]
        texts.append(TOKENIZER.decode(new, skip_special_tokens=True))
    return texts


def decode(engine: TransformersEngine, prompts: Sequence[Sequence[int]]) -> list[str]:
    sampling = Sampling(max_tokens=NEW, temperature=0.0)
    requests = [Request("", seed, sampling, tuple(prompt)) for seed, prompt in enumerate(prompts)]
    texts = {completion.index: completion.text for completion in engine.generate(requests)}
    return [texts[index] for index in range(len(prompts))]


@pytest.mark.parametrize("name", IN_SLOTS)
def test_slots_say_what_each_prompt_gets_alone(name: str) -> None:
    prompts = make_prompts()
    engine = TransformersEngine(make_kind(name), TOKENIZER, batch_size=3)
    found = decode(engine, prompts)
    assert found == generate_alone(name, prompts)
    assert len({*found}) == len(found) and len(set("".join(found))) > NEW // 2  # no model that says one thing
    assert engine.decoding == "slots"


@pytest.mark.parametrize("name", IN_BATCHES)
def test_other_builds_are_found_out(name: str) -> None:
    prompts = make_prompts()
    engine = TransformersEngine(make_kind(name), TOKENIZER, batch_size=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = decode(engine, prompts)
    assert found == generate_alone(name, prompts)
    assert len({*found}) == len(found)
    assert engine.decoding == "batches"
    said = [warning for warning in caught if "this model goes through its own generate" in str(warning.message)]
    assert len(said) == 1
