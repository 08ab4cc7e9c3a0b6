"""Weights that data gives: rules, rows, messages, parts and tokens, through collators and losses."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset

from examples.own_objective import Answer
from tests.data.test_chat import QWEN, SPECIAL, TEMPLATES, turn
from tests.data.toys import CHAT, ROWS, local, make_tokenizer
from tests.train import tiny
from trimsft import TokenStats, make_objective
from trimsft.data.chat import TrlEncoder
from trimsft.data.encode import Encoder, load_training_data
from trimsft.data.templates import choose_template
from trimsft.data.weights import parse_weights
from trimsft.errors import DataError, UsageError
from trimsft.train import TrimSFTTrainer

TURNS = [turn("user", "a"), turn("assistant", "one"), turn("user", "b"), turn("assistant", "two")]
TWO_ANSWERS = {"messages": TURNS}
THINKS = "<think>so 4</think>It is \\boxed{\\frac{4}{1}}, 4."


# ---- rules


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("thinkin=1", "weights: unknown name 'thinkin'; did you mean 'thinking'"),
        ("answer", "weights: is no list of rules, got 'answer'; write rules such as"),
        ("answer=-1", "answer.* must be a finite number of at least 0"),
        ("/(/=1", r"weights: /\(/: missing \), unterminated"),
    ],
)
def test_rules_that_are_none_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_weights(text)


def weighed(weights: str | None, row: Any, template: str = QWEN, **options: Any) -> list[tuple[str, float]]:
    """The text of a row in pieces of equal weight."""
    tokenizer = make_tokenizer(chat=template, special=SPECIAL)
    rules = parse_weights(weights)
    if "problem" in row:
        encoder = Encoder(tokenizer, rules=rules, template=choose_template("plain", tokenizer))
        ids, values = encoder.encode_rows([row])[0]
    else:
        ids, values = TrlEncoder(tokenizer, rules=rules, **options).encode(row)
    borders = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(ids)]
    pairs = pairwise(borders)
    return [(tokenizer.decode(ids[start:end]), float(values[start])) for start, end in pairs]


@pytest.mark.parametrize(
    ("weights", "piece", "weight"),
    [
        ("thinking=0.5", "<think>so 4</think>", 0.5),
        ("answer=2", "It is \\boxed{\\frac{4}{1}}, 4.", 2),
        ("boxed=3", "\\boxed{\\frac{4}{1}}", 3),
        ("/frac/=0.25", "frac", 0.25),
        (r"/<\/think>/=3", "</think>", 3),
        ("thinking=0", "<think>so 4</think>", 0),
        ("last_line=2", "It is \\boxed{\\frac{4}{1}}, 4.", 2),
        ("completion=2, boxed=2", "\\boxed{\\frac{4}{1}}", 4),
    ],
)
def test_spans_of_an_answer(weights: str, piece: str, weight: float) -> None:
    """In an answer, in a completion and in a solution alike."""
    rows: list[Any] = [
        {"messages": [turn("user", "<think>2+2?</think>"), turn("assistant", THINKS)]},
        {"prompt": "2+2? ", "completion": THINKS},
        {"problem": "2+2?", "solution": THINKS},
    ]
    for row in rows:
        options = {"train_on": "assistant"} if "messages" in row else {}
        prompt, *pieces = weighed(weights, row, **options)
        assert prompt[1] == 0 and "2+2?" in prompt[0]
        near = [text for text, value in (prompt, *pieces) if value == weight and piece in text]
        # eos, or the end of a turn, may follow
        assert near and (weight == 0 or len(near[0]) <= len(piece) + 14), (row, pieces)


def test_roles_and_turns() -> None:
    row = TWO_ANSWERS
    ask, one, two = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant", "\none<|im_end|>\n", "\ntwo<|im_end|>\n"
    first = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    by_prompt = weighed("prompt=0.1", row, train_on="assistant")
    assert by_prompt == [(first + ask.format("a"), 0.1), (one, 1), (ask.format("b"), 0.1), (two, 1)]
    last = weighed("last_turn=2, assistant=0.5", row, train_on="assistant")
    assert [piece for piece in last if piece[1]] == [(one, 0.5), (two, 1.0)]
    only_last = weighed("prompt=0.5", row, train_on="last")
    assert only_last[-1] == (two, 1) and only_last[0][1] == 0.5 and one in only_last[0][0]
    users = weighed("user=0.5", row, train_on="assistant")
    assert users[0][1] == 0.5 and [weight for _, weight in users].count(1) == 2


def test_tool_calls_are_spans() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    row = {"messages": [turn("user", "1?"), turn("assistant", "Hm.", tool_calls=[call]), turn("tool", "1", name="add")]}
    pieces = weighed("tool_call=2, tool=0.5, answer=0.25", row, train_on="assistant")
    by_weight = {weight: text for text, weight in pieces}
    assert by_weight[2].startswith("<tool_call>") and "</tool_call>" in by_weight[2]
    assert "tool_response" in by_weight[0.5] and ("\nHm.\n", 0.25) in pieces


# ---- what the data says


def test_weights_of_rows_messages_and_parts_multiply() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "slip", "train": False}]
    parts += [{"type": "text", "text": " more", "weight": 0.5}]
    row = {"messages": [turn("user", "a"), turn("assistant", parts, weight=3)], "weight": 2}
    found = weighed(None, row, train_on="assistant")
    assert [weight for _, weight in found] == [0, 6, 0, 3, 6]
    assert [text.strip() for text, _ in found[1:4]] == ["one", "slip", "more"]
    assert weighed(None, {"text": "a b c", "weight": 0.5})[0][1] == 0.5
    assert [weight for _, weight in weighed(None, {"problem": "a", "solution": "b c", "weight": 0})] == [0]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": "a", "weight": -1}, "'weight' must be a finite number of at least 0"),
        ({"input_ids": [5, 6], "token_weights": [1.0]}, "'token_weights' has 1 values for 2 tokens"),
        ({"input_ids": [5, 6], "token_weights": [1.0, math.nan]}, "'token_weights' must be finite numbers"),
    ],
)
def test_weights_that_are_none_are_refused(row: Any, says: str, tmp_path: Path) -> None:
    good = {name: [1, 1] if isinstance(value, list) else "a" for name, value in row.items() if name != "weight"}
    with pytest.raises(DataError, match=f"train data, row 1: {says}"):
        load_training_data(local(tmp_path, [good, row]), make_tokenizer(), with_eval=False)


def test_rules_that_fit_nothing_are_refused(tmp_path: Path) -> None:
    for weights, rows in (("thinking=0.5", ROWS), ("tool=2", ROWS)):
        with pytest.raises(UsageError, match=r"weights: \w+=.* fits no token of the data; remove it"):
            load_training_data(local(tmp_path, rows, weights=weights), make_tokenizer(chat=CHAT), with_eval=False)
    with pytest.raises(DataError, match=r"weights: .*row 0: have no effect on rows of token ids"):
        load_training_data(local(tmp_path, [{"input_ids": [5]}], weights="prompt=1"), make_tokenizer(), with_eval=False)


MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)  # SmolLM's, too
FORGETS = CHATML.replace("{{ m.content }}", "{{ m.content if loop.last else m.content.split('</think>')[-1] }}")
ENDS = {"qwen2_5": "<|im_end|>", "qwen3": "<|im_end|>", "llama3": "<|eot_id|>", "gemma": "<end_of_turn>"}
ENDS |= {"deepseekv3": "<｜end▁of▁sentence｜>", MISTRAL: "<eos>", CHATML: "<|im_end|>"}  # noqa: RUF001


def trained_of(path: Path, row: Any, template: str, **options: Any) -> str:
    """The text that the command trains of a row, without spaces."""
    tokenizer = make_tokenizer(chat=TEMPLATES.get(template, template), special=SPECIAL)
    rows, _ = load_training_data(local(path, [row], **options), tokenizer, with_eval=False)
    return "".join(tokenizer.decode([label for label in rows[0]["labels"] if label != -100]).split())


@pytest.mark.parametrize("template", ENDS)
def test_the_command_trains_the_assistant(template: str, tmp_path: Path) -> None:
    row = TWO_ANSWERS
    mark = "<｜Assistant｜>" if template == "deepseekv3" else ""  # noqa: RUF001  TRL has it trained
    for train_on, answers in ((None, ["one", "two"]), ("assistant", ["one", "two"]), ("last", ["two"])):
        wanted = "".join(mark + answer + ENDS[template] for answer in answers)
        assert trained_of(tmp_path, row, template, train_on=train_on) == wanted, train_on
    everything = trained_of(tmp_path, row, template, train_on="all")
    assert everything.endswith(ENDS[template]) and everything.index("a") < everything.index("one")


def test_thoughts_that_templates_write_or_drop_are_masked(tmp_path: Path) -> None:
    thinks = [turn("assistant", f"<think>why {text}</think>{text}") for text in ("one", "two")]
    row = {"messages": [turn("user", "a"), thinks[0], turn("user", "b"), thinks[1]]}
    end = "<|im_end|>"
    assert trained_of(tmp_path, row, "qwen3") == f"one{end}<think>whytwo</think>two{end}"
    assert trained_of(tmp_path, row, "qwen3", weights="history_thinking=0.5").startswith("<think>whyone</think>")
    bare = {"messages": [turn("user", "a"), turn("assistant", "one")]}
    assert trained_of(tmp_path, bare, "qwen3", weights="empty_thinking=1") == f"<think></think>one{end}"
    assert trained_of(tmp_path, bare, "qwen3") == f"one{end}"
    # a template that forgets: its answers stand elsewhere where others follow, but for the last
    says = "writes message 1 differently where others follow.*train the last turn alone"
    with pytest.raises(DataError, match=says):
        trained_of(tmp_path, row, FORGETS)
    assert trained_of(tmp_path, row, FORGETS, train_on="last") == f"<think>whytwo</think>two{end}"
    with pytest.raises(DataError, match=r"message 1: .* leaves '<think>' of assistant out"):
        trained_of(tmp_path, row, "deepseekv3")


# ---- losses

TOKENISED = [
    {
        "input_ids": (ids := tiny.make_tokenizer()(row["text"] + " <eos>")["input_ids"]),
        "token_weights": [[1.0, 0.5, 2.0, 0.0][(place + number) % 4] for place in range(len(ids))],
        "token_roles": [place % 5 for place in range(len(ids))],
    }
    for number, row in enumerate(tiny.TEXTS)
]
SOFT_ROWS = [{**row, "weight": [1, 0.25, 3, 0][number % 4]} for number, row in enumerate(tiny.PAIRS)]
SOFT_CHATS = [
    {"messages": [*row["messages"][:1], {**row["messages"][1], "weight": 0.5}, *row["messages"][2:]]}
    for row in tiny.MESSAGES
]
FORMS = {"tokens": TOKENISED, "rows": SOFT_ROWS, "chats": SOFT_CHATS}


class Knowing:
    """Reads everything that is known of a token beside its logits."""

    needs = ("position", "row", "role", "data_weight")

    def weights(self, tokens: TokenStats) -> torch.Tensor:
        assert tokens.position is not None and tokens.row is not None and tokens.gold is not None
        assert tokens.role is not None and tokens.data_weight is not None
        plain = make_objective("trim", **tiny.BAND).weights(tokens)
        return plain * (1 + tokens.position / 9) * (1 + tokens.role) * (2 + tokens.data_weight)


def by_hand(
    trainer: Any, rows: Any, train_on: Any = "all", objective: Any = None
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of all rows, one at a time, by the formula."""
    encoder = TrlEncoder(tiny.make_tokenizer(), train_on)
    weigh, model = objective or make_objective("trim", **tiny.BAND), tiny.unpatched(trainer.model)
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        ids, weights = encoder.encode(row)
        labels = torch.tensor([[token if weight else -100 for token, weight in zip(ids, weights, strict=True)]])
        kept = torch.tensor([weight for weight in weights[1:] if weight])
        count += len(kept)
        if len(kept):
            logits, is_kept = model(input_ids=torch.tensor([ids])).logits, weights[1:] > 0
            facts: dict[str, Any] = {"data_weight": kept, "gold": labels[0, 1:][is_kept]}
            if objective:
                facts |= {"position": torch.arange(1, len(ids))[is_kept], "row": torch.zeros(len(kept))}
                facts["role"] = torch.from_numpy(encoder.roles(row, ids)[1:][is_kept])

            def data(tokens: TokenStats, known: Any = facts) -> torch.Tensor:
                return weigh.weights(replace(tokens, **known)) * known["data_weight"]

            total = total + tiny.plain_loss(logits, labels, data, normalizer=1.0).loss
    (total / count).backward()
    return float(total.detach() / count), tiny.gradients_of(model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "settings",
    [
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "packing": True},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "padding_free": True, "max_length": None},
    ],
    ids=["padded", "accumulated", "packed", "padding free"],
)
def test_losses_are_those_of_a_plain_loop(form: str, settings: Any, tmp_path: Path) -> None:
    train_on = "assistant" if form == "chats" else "all"
    only = {"assistant_only_loss": True} if form == "chats" else {}
    trainer = tiny.make_ours(tmp_path, FORMS[form], max_steps=1, objective="trim", **only, **settings)
    loss, gradients = by_hand(trainer, FORMS[form], train_on)
    trainer.train()
    assert tiny.logged(trainer, "loss")[0] == pytest.approx(loss, rel=1e-4)
    assert tiny.logged(trainer, "weighted_loss")[0] == pytest.approx(loss, rel=1e-4)
    tiny.assert_same_gradients(trainer.grads[0], gradients)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("settings", [{}, {"packing": True}, {"padding_free": True, "max_length": None}], ids=str)
def test_an_objective_sees_what_is_known_of_a_token(form: str, settings: Any, tmp_path: Path) -> None:
    options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_steps": 1, **settings}
    only = {"assistant_only_loss": True} if form == "chats" else {}
    trainer = tiny.make_ours(tmp_path, FORMS[form], {"objective": Knowing()}, **only, **options)
    loss, gradients = by_hand(trainer, FORMS[form], "assistant" if form == "chats" else "all", Knowing())
    trainer.train()
    assert tiny.logged(trainer, "loss")[0] == pytest.approx(loss, rel=1e-4)
    tiny.assert_same_gradients(trainer.grads[0], gradients)


def test_the_example_weighs_the_end_of_thoughts_and_the_last_line() -> None:
    tokenizer = make_tokenizer(chat=QWEN, special=(*SPECIAL, "</think>"))
    row = {"messages": [turn("user", "a"), turn("assistant", "<think>b</think>c\nd")]}
    encoder = TrlEncoder(tokenizer)
    ids, _ = encoder.encode(row)
    nll, gold, role = torch.zeros(len(ids)), torch.tensor(ids), torch.from_numpy(encoder.roles(row, ids))
    tokens = TokenStats(nll=nll, gap=nll + 9, gold_logit=nll, competitor=gold, gold=gold, role=role)
    weights = Answer(think_end=tokenizer.convert_tokens_to_ids("</think>")).weights(tokens)
    counted = [token for token, weight in zip(ids, weights, strict=True) if weight == 1]
    assert tokenizer.decode(counted) == "</think>d<|im_end|>\n"


def test_evaluation_weighs_likewise(tmp_path: Path) -> None:
    options = {"eval_dataset": Dataset.from_list(SOFT_ROWS)}
    trainer = tiny.make_ours(tmp_path, SOFT_ROWS, options, objective="trim", per_device_eval_batch_size=8)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(by_hand(trainer, SOFT_ROWS)[0], rel=1e-4)


def test_truncation_cuts_weights_with_their_tokens(tmp_path: Path) -> None:
    for rows in (TOKENISED, IterableDataset.from_generator(lambda: iter(TOKENISED))):
        trainer = tiny.make_ours(tmp_path, rows, max_length=7)
        for row in trainer.train_dataset:
            assert len(row["input_ids"]) == len(row["labels"]) == len(row["token_weights"]) <= 7
            assert [label != -100 for label in row["labels"]] == [weight > 0 for weight in row["token_weights"]]


def test_a_trainer_of_rows_with_weights_and_problems(tmp_path: Path) -> None:
    rows = [{"problem": "w1 w2", "solution": "w3 w4", "weight": weight} for weight in (0.5, 1, 0, 2)]
    trainer = tiny.make_ours(tmp_path, rows)
    assert isinstance(trainer, TrimSFTTrainer)
    weights = [max(row["token_weights"]) for row in trainer.train_dataset]
    assert weights == [0.5, 1, 2]  # a row of weight 0 has nothing to train
