import pytest
from datasets import Dataset, disable_progress_bars

from tests.tokens.tiny import CHAT, ROWS, make_tokenizer
from trimsft.text.encoding import check_rows, count_cut, encode_rows
from trimsft.text.lengths import measure_lengths
from trimsft.text.templates import choose_template
from trimsft.text.training_data import DataConfig, encode

disable_progress_bars()
ODD = [
    {"problem": "Ends in eos", "solution": "It is so. <eos> <eos>"},
    {"problem": "  spaces\n", "solution": "\n It is so. €  "},
    {"problem": "<bos>What?", "solution": "<eos>"},
]


@pytest.mark.parametrize("options", [{}, {"adds_bos": True}, {"chat": CHAT}, {"adds_bos": True, "chat": CHAT}])
@pytest.mark.parametrize(
    ("template", "system_prompt"), [("auto", None), ("auto", ""), ("plain", "Think."), ("deepseek", None)]
)
def test_tokens_and_mask_are_those_of_training(options, template, system_prompt) -> None:
    tokenizer, rows = make_tokenizer(**options), ROWS + ODD
    config = DataConfig(dataset_name="x.jsonl", template=template, system_prompt=system_prompt)
    trained = encode(Dataset.from_list(rows), tokenizer, config)
    examples = encode_rows(rows, tokenizer, choose_template(template, tokenizer, system_prompt))
    assert [example.prompt + example.completion for example in examples] == list(trained["input_ids"])
    masks = [[-100] * len(example.prompt) + example.completion for example in examples]
    assert masks == list(trained["labels"])


def test_length_is_cut_at_the_end_as_the_trainer_does() -> None:
    tokenizer = make_tokenizer()
    template = choose_template("plain", tokenizer)
    whole = encode_rows(ROWS, tokenizer, template)
    for length in (len(whole[0].prompt) - 1, len(whole[0].prompt), len(whole[0]) - 2, 10_000):
        cut = encode_rows(ROWS, tokenizer, template, max_length=length)
        for short, long in zip(cut, whole, strict=True):
            assert short.prompt + short.completion == (long.prompt + long.completion)[:length]
            assert long.completion[: len(short.completion)] == short.completion


def test_what_is_cut_is_counted_as_training_counts_it() -> None:
    tokenizer = make_tokenizer()
    config = DataConfig(dataset_name="x.jsonl", template="plain")
    trained = encode(Dataset.from_list(ROWS), tokenizer, config)
    lengths = sorted(map(len, trained["input_ids"]))
    prompt = len(encode_rows(ROWS, tokenizer, choose_template("plain", tokenizer))[0].prompt)
    for length in (prompt, lengths[4], lengths[-1], None):
        report = measure_lengths(trained, length)
        cut = encode_rows(ROWS, tokenizer, choose_template("plain", tokenizer), max_length=length)
        assert count_cut(cut) == {
            "rows_cut": report.truncated,
            "tokens_cut": report.truncated_tokens,
            "rows_lost": report.dropped,
            "longest": min(length or report.longest, report.longest),
        }
    assert measure_lengths(trained, prompt).dropped > 0 < measure_lengths(trained, lengths[4]).truncated
    assert measure_lengths(trained, lengths[4]).dropped == 0


@pytest.mark.parametrize("bad", [{"problem": "x"}, {"problem": "x", "solution": " "}, {"problem": 1, "solution": "x"}])
def test_a_row_that_cannot_be_rendered_is_named(bad) -> None:
    with pytest.raises(ValueError, match=r"row 1 has .* as (problem|solution) \(and 1 more rows\)"):
        check_rows([ROWS[0], bad, bad])


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="rows: there are none"):
        check_rows([])
