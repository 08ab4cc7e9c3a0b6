"""Encoding and everything between settings and trainer: what is masked, what is trained, what is counted."""

import logging
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from trimsft.errors import DataError
from trimsft.text.templates import SYSTEM_PROMPT
from trimsft.text.training_data import DataConfig, encode, load_rows, load_training_data

from .toys import CHAT, ROWS, SHARED, local, make_tokenizer, needs_shared, split, write


def one(tokenizer: Any, *, problem: str = "What?", solution: str = "It is 2.", **options: Any) -> dict[str, list[int]]:
    """The single encoded row of one problem."""
    rows = Dataset.from_dict({"problem": [problem], "solution": [solution]})
    return encode(rows, tokenizer, DataConfig(**options))[0]


# ---- encoding


def test_chat_prompt_is_masked_and_solution_with_eos_trained() -> None:
    tokenizer = make_tokenizer(chat=CHAT, adds_bos=True)  # both write bos: it must not be there twice
    row = one(tokenizer)
    prompt = f"<bos>[system]{SYSTEM_PROMPT}<end>[user]What?<end>[assistant]"
    assert split(tokenizer, row) == (prompt, "It is 2.<eos>")
    assert row["input_ids"].count(tokenizer.bos_token_id) == 1
    assert row["labels"][-1] == row["input_ids"][-1] == tokenizer.eos_token_id


def test_a_chat_template_without_bos_gets_none() -> None:
    tokenizer = make_tokenizer(chat=CHAT.removeprefix("{{ bos_token }}"), adds_bos=True)
    assert split(tokenizer, one(tokenizer, system_prompt=""))[0] == "[user]What?<end>[assistant]"


@pytest.mark.parametrize(("adds_bos", "start"), [(True, "<bos>"), (False, "")])
def test_plain_prompt_begins_as_the_tokenizer_begins_texts(adds_bos: bool, start: str) -> None:
    tokenizer = make_tokenizer(adds_bos=adds_bos)
    prompt = f"{start}{SYSTEM_PROMPT}\n\nProblem:\nWhat?\n\nSolution:\n"
    assert split(tokenizer, one(tokenizer)) == (prompt, "It is 2.<eos>")
    already = split(tokenizer, one(tokenizer, system_prompt="<bos>Go.", template="plain"))
    assert already[0] == "<bos>Go.\n\nProblem:\nWhat?\n\nSolution:\n"


def test_a_tokenizer_that_adds_eos_to_prompts() -> None:
    from tokenizers import processors

    tokenizer = make_tokenizer()
    special = [("<bos>", tokenizer.bos_token_id), ("<eos>", tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=special
    )
    prompt, trained = split(tokenizer, one(tokenizer, system_prompt=""))
    assert (prompt, trained) == ("<bos>Problem:\nWhat?\n\nSolution:\n", "It is 2.<eos>")


@pytest.mark.parametrize("solution", ["It is 2.", "It is 2.<eos>", "It is 2.<eos>\n", "It is 2.<eos> <eos>"])
def test_eos_is_trained_once(solution: str) -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    trained = split(tokenizer, one(tokenizer, solution=solution))[1]
    assert trained.rstrip() == trained and trained.count("<eos>") == 1
    assert trained.replace(" ", "") == "Itis2.<eos>"


def test_spaces_around_a_solution_stay() -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    assert split(tokenizer, one(tokenizer, solution="  two \n"))[1] == "  two \n<eos>"


@settings(max_examples=10)
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=5, max_size=20))
def test_prompt_and_completion_are_tokenised_apart(pairs: list[tuple[str, str]]) -> None:
    """The prompt's tokens are those of generation, whatever the solution begins with."""
    tokenizer = make_tokenizer(chat=CHAT)
    rows = Dataset.from_dict({"problem": [pair[0] for pair in pairs], "solution": [pair[1] for pair in pairs]})
    for row, (problem, solution) in zip(encode(rows, tokenizer, DataConfig(system_prompt="")), pairs, strict=True):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": problem}], add_generation_prompt=True, return_dict=False
        )
        answer = [*tokenizer(solution, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        assert row == {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def test_nothing_is_cut_even_if_the_tokenizer_file_says_so() -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    tokenizer.model_max_length = 8
    assert split(tokenizer, one(tokenizer, solution="It is 2. " * 40))[1] == "It is 2. " * 40 + "<eos>"


def test_columns_of_the_result(tmp_path: Path) -> None:
    rows = [{**row, "source": 3, "messages": []} for row in ROWS]
    config = local(tmp_path, rows)
    encoded = encode(load_rows(config), make_tokenizer(), config)
    assert (encoded.column_names, len(encoded)) == (["input_ids", "labels"], len(ROWS))


def test_without_eos() -> None:
    with pytest.raises(DataError, match="tokenizer: has no eos_token"):
        one(make_tokenizer(eos=None))


def test_chat_asked_for_but_absent() -> None:
    with pytest.raises(DataError, match="template: 'chat' needs a chat template"):
        one(make_tokenizer(), template="chat")


# ---- evaluation data and overlap


def test_evaluation_data(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    test_file = write(tmp_path / "held_out.jsonl", ROWS[:3])
    config = local(tmp_path, sample=2, dataset_test_file=test_file)
    train, test = load_training_data(config, tokenizer, with_eval=True)
    assert test is not None
    assert (len(train.dataset), len(test.dataset), test.kind, test.overlap) == (
        2,
        3,
        "problem-solution",
        None,
    )
    with pytest.raises(DataError, match="dataset_test_file: is needed"):
        load_training_data(local(tmp_path), tokenizer, with_eval=True)


def test_overlap_is_counted_and_dropped_on_request(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "benchmarks").mkdir()
    write(tmp_path / "benchmarks/toy.jsonl", [{"problem": "WHAT is 2 + 1"}, {"problem": "what is 5+1"}])
    options = {"benchmarks_dir": str(tmp_path / "benchmarks")}
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        train, _ = load_training_data(local(tmp_path, **options), make_tokenizer(), with_eval=False)
    assert train.overlap is not None
    assert (train.overlap.rows, train.overlap.per_benchmark, len(train.dataset)) == ((2, 5), {"toy": 2}, 8)
    assert "2 of 8 training problems are also benchmark problems (toy 2): rows 2, 5" in caplog.text
    tokenizer = make_tokenizer(chat=CHAT)
    train, _ = load_training_data(local(tmp_path, drop_overlap=True, **options), tokenizer, with_eval=False)
    answers = [split(tokenizer, row)[1] for row in train.dataset]
    assert answers == [f"It is \\boxed{{{n + 1}}}.<eos>" for n in (0, 1, 3, 4, 6, 7)]
    with pytest.raises(DataError, match="drop_overlap: every row is a benchmark problem"):
        load_training_data(local(tmp_path, ROWS[2:3], drop_overlap=True, **options), tokenizer, with_eval=False)


# ---- real data


@needs_shared
def test_real_rows() -> None:
    config = DataConfig(dataset_name=str(SHARED / "data/train/numina_cot_2k.jsonl.gz"), sample=50)
    tokenizer = make_tokenizer(chat=CHAT)
    rows = load_rows(config)
    encoded = encode(rows, tokenizer, config)
    for row, (prompt, trained) in zip(rows, (split(tokenizer, row) for row in encoded), strict=True):
        assert prompt == f"<bos>[system]{SYSTEM_PROMPT}<end>[user]{row['problem']}<end>[assistant]"
        assert trained == f"{row['solution']}<eos>"
