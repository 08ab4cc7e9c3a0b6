"""Decoding in slots: the same texts as `generate`, whatever the build, whatever is refilled or cut; its kernels."""

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from trimsft.evaluate.engines import Completion, EngineError, Request, Sampling
from trimsft.evaluate.engines.drawing import Drawer
from trimsft.evaluate.engines.transformers_engine import TransformersEngine
from trimsft.evaluate.slots import attention
from trimsft.evaluate.slots import decoder as slots

from .model_kinds import IN_BATCHES, IN_SLOTS, make_kind
from .tiny_model import make_model, make_tokenizer

KINDS = ("llama", "mistral, window")
GPU_KINDS = (*KINDS, "qwen2, window in one layer", "gemma3, window and two bases")


def make_requests(prompts: int = 6, samples: int = 3, **sampling: Any) -> list[Request]:
    """Prompts of 1 to many tokens; a greedy answer and samples of each."""
    generator = torch.Generator().manual_seed(1)
    texts = [tuple(torch.randint(1, 262, (1 + 5 * at,), generator=generator).tolist()) for at in range(prompts)]
    settings = {"max_tokens": 10} | sampling
    kinds = [Sampling(**settings | {"temperature": 0.0}), *[Sampling(**settings)] * samples]
    return [Request("", 10 * at + n, kind, text) for at, text in enumerate(texts) for n, kind in enumerate(kinds)]


def complete(model: Any, requests: list[Request], **settings: Any) -> list[Completion]:
    engine = TransformersEngine(model, make_tokenizer(), **settings)
    completions = {completion.index: completion for completion in engine.generate(requests)}
    assert engine.decoding == settings.get("decoding", "slots")
    return [completions[index] for index in range(len(requests))]


@pytest.mark.parametrize("shares", [("cpu",), ()])
@pytest.mark.parametrize("name", KINDS)
def test_the_texts_are_those_of_generate(name: str, shares: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SHARES", shares)
    model, requests = make_kind(name), make_requests()
    plain = complete(model, requests, decoding="batches")
    assert len({c.text for c in plain}) > len(requests) // 2
    for rows in (1, 3, 24):
        assert complete(model, requests, batch_size=rows) == plain


def test_a_stop_text_is_seen_across_tokens() -> None:
    model = make_model()
    requests = make_requests(samples=8, max_tokens=30)
    whole = max((c.text for c in complete(model, requests)), key=lambda text: len(text.encode("ascii", "ignore")))
    at = next(at for at in range(1, len(whole) - 2) if whole[at : at + 2].isascii() and whole[at : at + 2].strip())
    stopped = make_requests(samples=8, max_tokens=30, stop=(whole[at : at + 2],))
    found = complete(model, stopped, batch_size=8)
    assert found == complete(model, stopped, decoding="batches")
    assert any(c.finish == "stop" for c in found)


@pytest.mark.parametrize(("short", "factor"), [(1, 1.0), (0, torch.nan)])
def test_wrong_logits_are_found_out(short: int, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention.attend
    wrong = lambda q, k, v, lengths, *rest: factor * right(q, k, v, lengths - short, *rest)  # noqa: E731
    monkeypatch.setattr(attention, "attend", wrong)
    with pytest.warns(UserWarning, match=r"logits differ by .* of their spread"):
        list(TransformersEngine(make_model(), make_tokenizer()).generate(make_requests()[4:]))


def test_logits_that_are_not_finite_are_no_answers() -> None:
    model = make_model()
    model.lm_head.weight.data[5] = torch.inf
    with pytest.raises(EngineError, match=r"model: its logits for a prompt of \d+ tokens are not finite in float32"):
        list(TransformersEngine(model, make_tokenizer()).generate(make_requests()))


def test_a_model_gets_its_own_attention_back() -> None:
    model = make_model()
    before = model.config._attn_implementation
    first = TransformersEngine(model, make_tokenizer()).generate(make_requests())
    next(first)
    with pytest.raises(EngineError, match="this model is generating already; finish or close that first"):
        next(TransformersEngine(model, make_tokenizer()).generate(make_requests()))
    first.close()
    assert model.config._attn_implementation == before
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_nothing_is_answered_twice_when_slots_fail_late(monkeypatch: pytest.MonkeyPatch) -> None:
    advance, calls = slots.SlotDecoder._advance, []

    def failing(self: slots.SlotDecoder) -> None:
        calls.append(1)
        if len(calls) in (14, 15):
            raise torch.OutOfMemoryError if len(calls) == 14 else RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")
        if len(calls) == 30:
            raise torch.OutOfMemoryError
        if len(calls) == 31:
            raise RuntimeError("something else")
        advance(self)

    plain = complete(make_model(), make_requests(), decoding="batches")
    monkeypatch.setattr(slots.SlotDecoder, "_advance", failing)
    engine = TransformersEngine(make_model(), make_tokenizer(), batch_size=8)
    with pytest.warns(UserWarning, match="something else"):
        found = list(engine.generate(make_requests()))
    assert sorted(found, key=lambda c: c.index) == plain


def test_what_cannot_be_asked() -> None:
    engine = TransformersEngine(make_model(), make_tokenizer())
    with pytest.raises(EngineError, match="prompt 0 has no tokens, or one beyond the 262 that the model knows"):
        next(engine.generate([Request("", 1, Sampling(max_tokens=2), (1, 262))]))
    with pytest.raises(EngineError, match=r"max_tokens: 255 new tokens after a prompt of 2 .*; use at most 254"):
        next(engine.generate([Request("", 1, Sampling(max_tokens=255), (1, 2))]))


# kernels ------------------------------------------------------------------------------------------------------------


SCALE = 0.2


def oracle(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int], window: int | None = None
) -> torch.Tensor:
    """Row by row and head by head in float64."""
    out = torch.zeros(query.shape, dtype=torch.float64)
    shared = query.shape[1] // key.shape[1]
    for row, length in enumerate(lengths):
        first = 0 if window is None else max(0, length - window)
        for head in range(query.shape[1]):
            keys, values = (states[row, head // shared, first:length].double().cpu() for states in (key, value))
            scores = keys @ query[row, head].double().cpu() * SCALE
            out[row, head] = scores.softmax(dim=0) @ values
    return out


def attention_case(dtype: torch.dtype, device: str = "cpu", width: int = 40) -> tuple[Any, ...]:
    torch.manual_seed(2)
    lengths = [1, 2, 63, 64, 65, 150]
    query, key, value = torch.randn(6, 6, width), torch.randn(6, 2, 150, width), torch.randn(6, 2, 150, width)
    key[0, :, 1:], value[0, :, 1:] = torch.nan, torch.inf  # beyond a row's length may stand anything
    states = (states.to(device, dtype) for states in (query, key, value))
    return (*states, torch.tensor(lengths, dtype=torch.int32, device=device), lengths)


@pytest.mark.parametrize("window", [None, 1, 64, 70])
@pytest.mark.parametrize("backend", ["masked", "triton"])
def test_attention_agrees_with_float64(backend: str, window: int | None) -> None:
    query, key, value, lengths, counts = attention_case(torch.float32)
    if backend == "triton":
        from trimsft.evaluate.slots.kernels import attend
    else:
        attend = attention.attend_masked
        value[0, :, 1:], key[0, :, 1:] = 0, 0  # sdpa multiplies what it masks; slots hold numbers everywhere
    found = attend(query, key, value, lengths, SCALE, window)
    bound = 150 * torch.finfo(torch.float32).eps  # of a sum over 150 keys
    torch.testing.assert_close(found.double(), oracle(query, key, value, counts, window), rtol=bound, atol=bound)


def test_triton_draws_what_torch_draws() -> None:
    from trimsft.evaluate.slots import kernels

    torch.manual_seed(3)
    rows, size = 40, 5000
    logits = torch.randn(rows, size) * 3
    samplings = [Sampling(temperature=t) for t in (0.0, 0.5, 1.0, 2.0)] * (rows // 4)
    drawer = Drawer(range(rows), samplings, logits.device)
    steps = torch.arange(rows) * 7
    chosen = kernels.choose(logits, drawer._keys, steps, drawer._inverse)
    assert torch.equal(chosen, drawer.scores(logits, steps).argmax(dim=1))
    assert torch.equal(chosen[::4], logits[::4].argmax(dim=1)) and not torch.equal(chosen, logits.argmax(dim=1))
    tied = torch.zeros(1, size)
    assert kernels.choose(tied, drawer._keys[:1], steps[:1], drawer._inverse[:1]).item() == 0


# builds -------------------------------------------------------------------------------------------------------------


NEW = 10
LENGTHS = (3, 14, 9, 9)  # longer than every window, and across the borders of positions


def greedy_requests() -> list[Request]:
    generator = torch.Generator().manual_seed(1)
    texts = [tuple(torch.randint(3, 262, (length,), generator=generator).tolist()) for length in LENGTHS]
    return [Request("", 0, Sampling(max_tokens=NEW, temperature=0.0), text) for text in texts]


def generate_alone(name: str) -> list[str]:
    """Greedy texts of the model's own `generate`, one prompt at a time."""
    texts: list[str] = []
    model = make_kind(name)
    for request in greedy_requests():
        if "soft cap" in name:
            model.set_attn_implementation("eager")  # sdpa leaves it out
        model.generation_config = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=0, pad_token_id=0)
        ids = torch.tensor([request.tokens])
        with torch.inference_mode():
            new = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids))[0, ids.shape[1] :]
        texts.append(make_tokenizer().decode(new, skip_special_tokens=True))
    return texts


@pytest.mark.parametrize("name", IN_SLOTS)
def test_slots_say_what_each_prompt_gets_alone(name: str) -> None:
    found = [completion.text for completion in complete(make_kind(name), greedy_requests(), batch_size=3)]
    assert found == generate_alone(name)
    assert len({*found}) == len(found) and len(set("".join(found))) > NEW // 2  # no model that says one thing


@pytest.mark.parametrize("name", IN_BATCHES)
def test_other_builds_are_found_out(name: str) -> None:
    engine = TransformersEngine(make_kind(name), make_tokenizer(), batch_size=3)
    with pytest.warns(UserWarning, match="this model goes through its own generate"):
        found = sorted(engine.generate(greedy_requests()), key=lambda completion: completion.index)
    assert [completion.text for completion in found] == generate_alone(name)
    assert engine.decoding == "batches"


# on a GPU -----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_KINDS)
def test_gpu_texts_are_those_of_generate(name: str) -> None:
    """In float32, with graphs, refills and shrinking; rounding may move a draw in rare rows."""
    model = make_kind(name).float().cuda()
    requests = make_requests(prompts=12, samples=40, max_tokens=100)
    plain = complete(model, requests, decoding="batches")
    for rows in (17, 64, 600):
        found = complete(model, requests, batch_size=rows)
        assert sum(a != b for a, b in zip(found, plain, strict=True)) <= len(requests) // 50


@pytest.mark.gpu
def test_gpu_a_model_that_asks_the_host_has_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    model, run = make_model().float().cuda(), slots.SlotDecoder._run_model

    decoders: set[slots.SlotDecoder] = set()

    def asking(self: slots.SlotDecoder) -> torch.Tensor:
        assert int(self.token[0]) >= 0
        decoders.add(self)
        return run(self)

    plain = complete(model, make_requests(), decoding="batches")
    monkeypatch.setattr(slots.SlotDecoder, "_run_model", asking)
    found = complete(model, make_requests())
    assert sum(a != b for a, b in zip(found, plain, strict=True)) <= len(plain) // 10
    assert decoders and not any(one._may_capture for one in decoders)
    assert torch.rand(8, device="cuda").unique().numel() == 8
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.empty_cache()


@pytest.mark.gpu
@pytest.mark.parametrize("width", [32, 40, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gpu_attention_agrees_with_float64(dtype: torch.dtype, width: int) -> None:
    query, key, value, lengths, counts = attention_case(dtype, "cuda", width)
    error = 1e-5 if dtype == torch.float32 else 2e-2
    found = attention.attend(query, key, value, lengths, SCALE).cpu().double()
    torch.testing.assert_close(found, oracle(query, key, value, counts), rtol=error, atol=error)


@pytest.mark.gpu
def test_gpu_draws_what_torch_draws() -> None:
    torch.manual_seed(4)
    logits = torch.randn(512, 49152, device="cuda") * 3
    drawer = Drawer(range(512), [Sampling(), Sampling(temperature=0)] * 256, logits.device)
    steps = torch.arange(512, device="cuda")
    same = drawer.choose(logits, steps) == drawer.scores(logits, steps).argmax(dim=1)
    assert same.float().mean() > 0.99
