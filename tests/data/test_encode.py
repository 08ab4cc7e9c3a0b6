"""Encoding: what is masked, trained and cut; lengths."""

from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors

from trimsft.data.encode import Encoder, encode, measure_lengths, report_lengths
from trimsft.data.load import DataConfig
from trimsft.data.templates import SYSTEM_PROMPT, choose_template
from trimsft.errors import DataError

from .toys import CHAT, ROWS, make_tokenizer, split

ODD = [
    {"problem": "Ends in eos", "solution": "It is so. <eos> <eos>"},
    {"problem": "  spaces\n", "solution": "\n It is so. €  "},
    {"problem": "<bos>What?", "solution": "<eos>"},
]


def one(tokenizer: Any, *, problem: str = "What?", solution: str = "It is 2.", **options: Any) -> dict[str, list[int]]:
    """The single encoded row of one problem."""
    rows = Dataset.from_dict({"problem": [problem], "solution": [solution]})
    return encode(rows, tokenizer, DataConfig("d", **options))[0]


def test_chat_prompt_is_masked_and_solution_with_eos_trained() -> None:
    tokenizer = make_tokenizer(chat=CHAT, adds_bos=True)  # both write bos: it must not be there twice
    row = one(tokenizer)
    prompt = f"<bos>[system]{SYSTEM_PROMPT}<end>[user]What?<end>[assistant]"
    assert split(tokenizer, row) == (prompt, "It is 2.<eos>")
    assert row["input_ids"].count(tokenizer.bos_token_id) == 1
    assert row["labels"][-1] == row["input_ids"][-1] == tokenizer.eos_token_id
    without = make_tokenizer(chat=CHAT.removeprefix("{{ bos_token }}"), adds_bos=True)
    assert split(without, one(without, system_prompt=""))[0] == "[user]What?<end>[assistant]"


@pytest.mark.parametrize(("adds_bos", "start"), [(True, "<bos>"), (False, "")])
def test_plain_prompt_begins_as_the_tokenizer_begins_texts(adds_bos: bool, start: str) -> None:
    tokenizer = make_tokenizer(adds_bos=adds_bos)
    prompt = f"{start}{SYSTEM_PROMPT}\n\nProblem:\nWhat?\n\nSolution:\n"
    assert split(tokenizer, one(tokenizer)) == (prompt, "It is 2.<eos>")
    already = split(tokenizer, one(tokenizer, system_prompt="<bos>Go.", template="plain"))
    assert already[0] == "<bos>Go.\n\nProblem:\nWhat?\n\nSolution:\n"


@pytest.mark.parametrize("solution", ["It is 2.", "It is 2.<eos>\n", "It is 2.<eos> <eos>", "  two \n"])
def test_eos_is_trained_once_and_spaces_stay(solution: str) -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    text = solution if "two" in solution else "It is 2."
    assert split(tokenizer, one(tokenizer, solution=solution))[1] == f"{text}<eos>"


def test_tokenizers_that_add_cut_and_pad_and_one_without_eos() -> None:
    tokenizer = make_tokenizer()
    special = [("<bos>", tokenizer.bos_token_id), ("<eos>", tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=special
    )
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    tokenizer.model_max_length = 8
    row = one(tokenizer, system_prompt="", solution="It is 2. " * 40)
    assert split(tokenizer, row) == ("<bos>Problem:\nWhat?\n\nSolution:\n", "It is 2. " * 40 + "<eos>")
    with pytest.raises(DataError, match="tokenizer: has no eos_token"):
        one(make_tokenizer(eos=None))


@settings(max_examples=10)
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=5, max_size=20))
def test_prompt_and_completion_are_tokenised_apart(pairs: list[tuple[str, str]]) -> None:
    """The prompt's tokens are those of generation, whatever the solution begins with."""
    tokenizer = make_tokenizer(chat=CHAT)
    rows = Dataset.from_dict({"problem": [pair[0] for pair in pairs], "solution": [pair[1] for pair in pairs]})
    for row, (problem, solution) in zip(encode(rows, tokenizer, DataConfig("d", system_prompt="")), pairs, strict=True):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": problem}], add_generation_prompt=True, return_dict=False
        )
        answer = [*tokenizer(solution, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        assert row == {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


@pytest.mark.parametrize(
    ("options", "template", "system_prompt"),
    [
        ({}, "auto", None),
        ({"adds_bos": True}, "plain", "Think."),
        ({"chat": CHAT}, "auto", ""),
        ({"adds_bos": True, "chat": CHAT}, "deepseek", None),
    ],
)
def test_an_encoder_sees_and_cuts_rows_as_the_trainer_does(options, template, system_prompt) -> None:
    tokenizer, rows = make_tokenizer(**options), ROWS + ODD
    config = DataConfig(dataset_name="x.jsonl", template=template, system_prompt=system_prompt)
    trained = encode(Dataset.from_list(rows), tokenizer, config)
    chosen = choose_template(template, tokenizer, system_prompt)
    lengths = sorted(map(len, trained["input_ids"]))
    for max_length in (None, 1, 2, 9, lengths[0], lengths[4], lengths[-1] + 1):
        for keep, window in (("start", slice(max_length)), ("end", slice(-max_length if max_length else None, None))):
            examples = Encoder(tokenizer, template=chosen, max_length=max_length, keep=keep).examples(rows)
            for example, row in zip(examples, trained, strict=True):
                ids, labels = row["input_ids"][window], row["labels"][window]
                assert example.prompt + example.completion == ids
                # the first token of a row is predicted by nothing, whatever its label
                assert example.completion == [label for label in labels[1:] if label != -100]
                completion = [label for label in row["labels"] if label != -100]
                assert completion[example.skipped :][: len(example.completion)] == example.completion
            lengths, left = zip(*((len(one) + one.cut, len(one.trained)) for one in examples), strict=True)
            assert report_lengths(lengths, left, max_length) == measure_lengths(trained, max_length, keep=keep)


def test_labels_are_those_of_their_tokens() -> None:
    with pytest.raises(DataError, match="input_ids and labels of a row differ in length"):
        measure_lengths(Dataset.from_dict({"input_ids": [[1, 2]], "labels": [[1]]}), None)
