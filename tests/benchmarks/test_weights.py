"""The harness that compares objectives trains and samples what transformers and the fused head do."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    get_cosine_schedule_with_warmup,
)

from benchmarks.weights import decoding
from benchmarks.weights.decoding import generate
from benchmarks.weights.rules import Around, TALRBatch
from benchmarks.weights.stacked import Base, StackedModel
from benchmarks.weights.training import Examples, Job, Pair, Schedule, train
from trimsft import TokenStats
from trimsft.head import linear_cross_entropy
from trimsft.objectives import DEFT, SFT, AutoTrim, RankTuner, TrimSFT

VOCABULARY, EOS = 61, 1
STEP = 2.0**-23  # of float32


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 16,
    "max_position_embeddings": 64, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    """Two layers, two heads to a key head; weights large enough for gaps of some logits."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(**SIZES, num_hidden_layers=2, num_key_value_heads=2, initializer_range=0.3)
    ).eval()


@pytest.fixture(scope="module")
def gemma() -> Gemma3ForCausalLM:
    """A layer that sees everything between two that see 5 tokens; norms whose weights are not all alike.

    Its norms keep hidden states large: smaller weights do for the same gaps.
    """
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    rope = {
        kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in zip(kinds, (10.0, 1e6), strict=False)
    }
    config = Gemma3TextConfig(
        **SIZES, num_hidden_layers=3, layer_types=kinds, sliding_window=5, rope_parameters=rope, num_key_value_heads=1,
        query_pre_attn_scalar=24, initializer_range=0.1, bos_token_id=None, eos_token_id=EOS, pad_token_id=None,
    )  # fmt: skip
    model = Gemma3ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_(std=0.3)
    return model


@pytest.fixture(params=["llama", "gemma"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def _pairs(seed: int, rows: int = 12) -> list[Pair]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 9, size=(rows, 2)).tolist()
    return [(rng.integers(2, 20, a).tolist(), [*rng.integers(2, 20, b).tolist(), EOS]) for a, b in lengths]


def _close(ours: torch.Tensor, theirs: torch.Tensor, roundings: int) -> bool:
    """Whether they differ by no more than so many roundings of the largest number among them."""
    return bool((ours - theirs).abs().max() <= roundings * STEP * theirs.abs().max())


OBJECTIVES = [SFT(), DEFT(), TrimSFT(), RankTuner(), AutoTrim(), TALRBatch()]


@pytest.mark.parametrize(("model", "fused"), [("llama", False), ("llama", True), ("gemma", True)], indirect=["model"])
def test_models_are_trained_as_if_alone(model: Any, fused: bool) -> None:
    """Several objectives and data sets in one stack, against a plain loop for each."""
    sets = [Examples.of(_pairs(0)), Examples.of(_pairs(1))]
    # each at a rate of its own
    jobs = [Job(one, sets[at % 2], at, 1e-2 / (1 + at % 2)) for at, one in enumerate(OBJECTIVES)]
    trained = train(Base.of(model), jobs, Schedule(batch=4, trace_every=1), fused=fused)
    for at, job in enumerate(jobs):
        alone = _trained_alone(model, job, _pairs(at % 2), skip_below=None if fused else 0.0)
        for name, parameter in alone.named_parameters():
            # Adam divides a gradient by its own size, so roundings of a tiny one are not tiny in the step. The rate of
            # the first update is 0: a step of 1e-2 follows from two gradients, of which one is above 5e-5 of the usual
            # size but for 1 in 10^8 weights, and then the step is known to 2e-3
            difference = (trained.model.parameters[name][at] - parameter).abs().max()
            assert difference <= job.rate * 2e-3, f"{job.objective}: {name} differs by {float(difference)}"


def test_what_stands_alone_is_trimmed_and_what_is_new_is_not() -> None:
    """The model would have written the first row but for its third token, and nothing of the second."""
    gap = torch.tensor([1.0, 1, -1, 1, 1, -1, -1])
    row = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    tokens = TokenStats(torch.full((7,), 50.0), gap, gap, row, row=row)  # a probability of almost 0
    expected = torch.tensor([1 / 3, 1 / 4, 1 / 5, 1 / 4, 1 / 3, 1, 1])
    assert torch.allclose(Around(floor=0.1, power=1, reach=2).weights(tokens), expected)
    whole = torch.tensor([0.2] * 5 + [1.0] * 2)
    assert torch.allclose(Around(floor=0.1, power=1, reach=0).weights(tokens), whole)
    assert torch.allclose(Around(floor=0.01, power=2, reach=0).weights(tokens), whole**2)


def _trained_alone(base: Any, job: Job, pairs: Sequence[Pair], skip_below: float | None) -> Any:
    model = copy.deepcopy(base)
    decayed = [
        {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.01},
        {"params": [one for one in model.parameters() if one.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(decayed, lr=job.rate, betas=(0.9, 0.95))
    rate = get_cosine_schedule_with_warmup(optimizer, math.ceil(0.1 * 3), 3)
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(job.seed)).tolist()
    objective = job.objective
    for update in range(3):
        chosen = [pairs[row] for row in order[update * 4 : update * 4 + 4]]
        hidden = [model.model(torch.tensor([[*a, *b]])).last_hidden_state[0, len(a) - 1 : -1] for a, b in chosen]
        labels = torch.tensor([token for _, completion in chosen for token in completion])
        head = linear_cross_entropy(
            torch.cat(hidden), model.lm_head.weight, labels, objective, skip_below=skip_below, entropy=True
        )
        head.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
    return model


def test_rows_are_those_of_transformers(model: Any, monkeypatch) -> None:
    monkeypatch.setattr(decoding, "LOGITS", 2 * 7 * VOCABULARY)  # of seven rows of both models
    prompts = [prompt for prompt, _ in _pairs(5, rows=5)]
    both = StackedModel.of(Base.of(model), 2).trainable()
    with torch.no_grad():
        last, offset = both.parameters["model.norm.weight"], both.architecture.norm_offset
        last[1] = 2 * (last[1] + offset) - offset  # twice as sure: other samples, other ends, the same first choices
    rows = {"temperatures": (0.0, 1.0, 1.0, 1.0), "new": 40, "eos": EOS}
    wrote, surer = generate(both, prompts, rows_at_once=1000, **rows)
    (alone,) = generate(both.part(0, 1), prompts, rows_at_once=8, **rows)  # two problems at a time
    assert np.array_equal(wrote[:, 0], surer[:, 0]) and np.array_equal(wrote[:, 0], alone[:, 0])
    lengths = (wrote[:, 1:] != EOS).sum(axis=2), (surer[:, 1:] != EOS).sum(axis=2)
    assert min(map(np.min, lengths)) < 32 and not np.array_equal(*lengths)  # some rows left before the others
    for prompt, rows in zip(prompts, wrote, strict=True):
        ids = torch.tensor([prompt])
        theirs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=40,
            do_sample=False,
            eos_token_id=EOS,
            pad_token_id=EOS,
        )[0, len(prompt) :].tolist()
        assert rows[0].tolist() == theirs + [EOS] * (40 - len(theirs))
    assert len({tuple(row) for row in wrote[:, 1:].reshape(-1, 40).tolist()}) > 5


@pytest.mark.parametrize("t", [1.0, 0.6])
def test_samples_have_the_models_probabilities(llama: LlamaForCausalLM, t: float) -> None:
    """Second tokens after the same first one: the likeliest is as frequent as it should be."""
    prompt, samples = [5, 7, 9], 6000
    (wrote,) = generate(
        StackedModel.of(Base.of(llama), 1), [prompt], temperatures=(0.0, *[t] * samples), new=2, eos=EOS,
        rows_at_once=10**5,
    )  # fmt: skip
    first, count = np.unique(wrote[0, 1:, 0], return_counts=True)
    commonest = int(first[np.where(first == EOS, 0, count).argmax()])
    second = wrote[0, 1:][wrote[0, 1:, 0] == commonest, 1]
    with torch.no_grad():
        expected = llama(torch.tensor([[*prompt, commonest]])).logits[0, -1].div(t).softmax(-1)
    likeliest = int(expected.argmax())
    share, error = float(expected[likeliest]), math.sqrt(0.25 / len(second))
    assert abs(float((second == likeliest).mean()) - share) < 5 * error
