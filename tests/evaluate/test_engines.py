"""Engines: explicit sampling, seeds that do not depend on the batch, prompts, and where texts end."""

from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from trimsft.evaluate.engines import Completion, Engine, EngineError, Request, Sampling
from trimsft.evaluate.engines.drawing import Drawer
from trimsft.evaluate.engines.transformers_engine import TransformersEngine
from trimsft.evaluate.engines.vllm_engine import VllmEngine
from trimsft.evaluate.prompts import make_prompts
from trimsft.evaluate.slots import decoder as slots

from .tiny_model import CHAT, make_model, make_tokenizer, save_model

CPU = torch.device("cpu")
PROBLEMS = ["1+1?", "What is 1+1?", "A longer problem than the others: what is 2 and 2?"]


def make_requests(samples: int = 4, problems: list[str] = PROBLEMS, **sampling: Any) -> list[Request]:
    """Greedy first, then samples, of each problem."""
    prompts = make_prompts(problems, make_tokenizer())
    settings = {"max_tokens": 12, "stop_tokens": prompts.stop_tokens} | sampling
    kinds = [Sampling(**settings | {"temperature": 0.0}), *[Sampling(**settings)] * samples]
    return [
        Request(prompt.text, 100 * row + number, kind, prompt.tokens, prompt.messages)
        for row, prompt in enumerate(prompts.prompts)
        for number, kind in enumerate(kinds)
    ]


def complete(engine: Engine, requests: list[Request]) -> list[Completion]:
    completions = {completion.index: completion for completion in engine.generate(requests)}
    return [completions[index] for index in range(len(requests))]


def fits(drawn: torch.Tensor, shares: torch.Tensor) -> bool:
    """Chi-square at one in ten thousand, rare tokens taken together."""
    counts, expected = torch.bincount(drawn, minlength=len(shares)).double(), shares.double() * len(drawn)
    often = expected >= 5
    observed = torch.cat([counts[often], counts[~often].sum()[None]])
    wanted = torch.cat([expected[often], expected[~often].sum()[None]])
    kept = wanted > 0
    assert observed[~kept].sum() == 0
    return bool(stats.chisquare(observed[kept], wanted[kept] * observed.sum() / wanted.sum()).pvalue > 1e-4)


@pytest.mark.parametrize(("temperature", "over"), [(0.5, "seeds"), (1.0, "steps")])
def test_tokens_are_drawn_with_their_probabilities(temperature: float, over: str) -> None:
    torch.manual_seed(0)
    logits, count = torch.randn(300) * 2, 4000
    sampling = Sampling(temperature=temperature)
    third = torch.full((count,), 3)
    seeds, step = (range(count), third) if over == "seeds" else ([5] * count, torch.arange(count))
    drawn = Drawer(seeds, [sampling] * count, CPU).scores(logits.expand(count, -1), step).argmax(dim=1)
    assert fits(drawn, (logits / temperature).softmax(dim=0))
    assert not fits(drawn, (logits / temperature * 1.3).softmax(dim=0))


def test_top_k_and_top_p_leave_the_likeliest() -> None:
    shares = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05])
    logits, count = shares.log(), 2000

    def drawn(**sampling: Any) -> torch.Tensor:
        drawer = Drawer(range(count), [Sampling(**sampling)] * count, CPU)
        return drawer.scores(logits.expand(count, -1), torch.zeros(count, dtype=torch.int64)).argmax(dim=1)

    assert fits(drawn(top_k=2), torch.tensor([0, 0.4, 0, 0.25, 0]) / 0.65)
    assert fits(drawn(top_p=0.8), torch.tensor([0, 0.4, 0.2, 0.25, 0]) / 0.85)
    assert set(drawn(top_p=1e-6).tolist()) == {1}
    assert fits(drawn(top_k=5), shares)


def test_a_draw_depends_on_its_own_seed_and_step_only() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    samplings = [Sampling(), Sampling(temperature=0.0), Sampling(temperature=0.7), Sampling(top_k=3)] + [Sampling()] * 2
    seeds = [1, 2, 3, 4, 1, 5]
    together = Drawer(seeds, samplings, CPU).scores(logits, torch.full((6,), 7))
    for row in range(6):
        alone = Drawer([seeds[row]], [samplings[row]], CPU).scores(logits[row : row + 1], torch.tensor([7]))
        assert torch.equal(together[row], alone[0])
    assert torch.equal(together[1], logits[1])
    noise = together - logits
    rounding = 2 * torch.finfo(torch.float32).eps * float(together[0].abs().max() + logits.abs().max())
    assert torch.allclose(noise[0], noise[4], rtol=0, atol=rounding) and not torch.allclose(noise[0], noise[5], atol=1)
    later = Drawer(seeds, samplings, CPU).scores(logits, torch.full((6,), 8))
    assert not torch.allclose(later[0], together[0], atol=1)


def greedy_tokens(request: Request) -> list[int]:
    """What the model prefers, one token after the other, without `generate`."""
    model, ids = make_model(), list(request.tokens)
    for _ in range(request.sampling.max_tokens):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(request.tokens) :]


def test_no_default_of_the_checkpoint_leaks_but_eos() -> None:
    requests = make_requests()
    plain = complete(TransformersEngine(make_model(), make_tokenizer()), requests)
    model = make_model()
    model.generation_config.update(
        do_sample=True, temperature=0.1, top_k=1, top_p=0.1, repetition_penalty=9.0, min_new_tokens=5, max_length=3
    )
    assert complete(TransformersEngine(model, make_tokenizer()), requests) == plain


@pytest.mark.parametrize("whose", ["model", "request"])
def test_every_stop_token_ends_a_text(whose: str) -> None:
    tokens = greedy_tokens(make_requests(samples=0)[0])
    stop = next(token for token in tokens[3:] if token not in tokens[:3])
    model = make_model()
    model.generation_config.eos_token_id = [0, stop] if whose == "model" else 0
    requests = make_requests(samples=0, stop_tokens=() if whose == "model" else (stop,))
    completion = complete(TransformersEngine(model, make_tokenizer()), requests)[0]
    assert (completion.tokens, completion.finish) == (tokens.index(stop) + 1, "stop")
    assert completion.text == make_tokenizer().decode(tokens[: tokens.index(stop)])


@pytest.mark.parametrize(("decoding", "method"), [("slots", "forward"), ("batches", "generate")])
def test_out_of_memory_halves_the_rows(decoding: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SHARES", ())  # as on a GPU
    engine = TransformersEngine(make_model(), make_tokenizer(), batch_size=8, decoding=decoding)
    whole = complete(engine, make_requests())
    sizes: list[int] = []

    def scarce(self: Any, input_ids: torch.Tensor, **settings: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > most:
            raise torch.OutOfMemoryError
        return plenty(self, input_ids=input_ids, **settings)

    most, plenty = 2, getattr(type(engine.model), method)
    monkeypatch.setattr(type(engine.model), method, scarce)
    assert complete(engine, make_requests()) == whole
    assert max(sizes) == (8 if decoding == "slots" else 5) and max(sizes[9:]) <= 2 and engine.batch_size == 2
    most = 0
    with pytest.raises(EngineError, match=r"a row of \d+ prompt tokens .* does not fit into memory, got 12"):
        complete(engine, make_requests())


def test_a_model_is_known_by_what_it_holds(tmp_path: Path) -> None:
    first = TransformersEngine(save_model(tmp_path / "a"), dtype="float32")
    moved = TransformersEngine(str(save_model(tmp_path / "b")), dtype="float32")
    assert first.identity == moved.identity and first.identity["dtype"] == "float32"
    assert first.details != moved.details
    plain = complete(TransformersEngine(make_model(), make_tokenizer()), make_requests())
    assert complete(first, make_requests()) == plain


def test_vllm_repeats_itself_and_agrees_on_greedy(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vllm is not installed")
    engine = VllmEngine(save_model(tmp_path / "model"), dtype="float32", eager=True)
    requests = make_requests()
    whole = complete(engine, requests)
    assert [complete(engine, [request])[0].text for request in requests] == [c.text for c in whole]
    plain = complete(TransformersEngine(make_model(), make_tokenizer()), requests)
    greedy = range(0, len(requests), 5)
    # half of a character at the end is nothing to vLLM, and a mark to the others
    assert [whole[at].text for at in greedy] == [plain[at].text.rstrip("\ufffd") for at in greedy]
    with pytest.raises(EngineError, match="max_tokens: 250 new tokens"):
        next(engine.generate(make_requests(max_tokens=250)))


# ---- what is asked, and what ends an answer


@pytest.mark.parametrize(
    ("template", "chat", "stop", "stop_tokens"),
    [
        ("auto", CHAT, (), (0, 2)),  # the turn ends with a token that is not eos
        ("qwen-boxed", None, (), (0, 2)),
        ("plain", None, ("\n\nProblem:",), (0,)),
        ("deepseek", None, (), (0,)),
        ("llama-base-boxed", None, ("<|end_of_text|>",), (0,)),
        ("chat", "{{ messages[0]['content'] }} and so on", (), (0,)),  # words of a template end nothing
    ],
)
def test_what_ends_an_answer(
    template: str, chat: str | None, stop: tuple[str, ...], stop_tokens: tuple[int, ...]
) -> None:
    prompts = make_prompts(["1+1?"], make_tokenizer(chat=chat), template=template)
    assert (prompts.stop, prompts.stop_tokens) == (stop, stop_tokens)


def test_without_a_tokenizer_the_server_renders_the_chat() -> None:
    prompts = make_prompts(["1+1?"], system_prompt="Be brief.")
    assert prompts.template == "chat" and prompts.prompts[0].tokens == ()
    assert prompts.example == "[system] Be brief.\n[user] 1+1?"
    plain = make_prompts(["1+1?"], template="plain")
    assert plain.template == "plain" and plain.example.endswith("Problem:\n1+1?\n\nSolution:\n")
    assert plain.stop == ("\n\nProblem:",)
