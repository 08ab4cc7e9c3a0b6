"""The preview: what is masked, trained and cut is shown as such, and hostile text stays text."""

import io
import re
from typing import Any

import pytest
from datasets import Dataset
from rich.console import Console

from tests.data.toys import CHAT, make_tokenizer
from trimsft.data.encode import encode, measure_lengths
from trimsft.data.load import DataConfig
from trimsft.train.preview import Preview, examine, show

TOKENIZER = make_tokenizer(chat=CHAT)


def encoded(problem: str = "What is 1+1?", solution: str = "It is \\boxed{2}.", rows: int = 1) -> Dataset:
    data = Dataset.from_dict({"problem": [problem] * rows, "solution": [solution] * rows})
    return encode(data, TOKENIZER, DataConfig("d", system_prompt=""))


def shown(dataset: Dataset, *, colour: bool = False, **settings: Any) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=colour, color_system="standard" if colour else None, width=60)
    examples = examine(dataset, TOKENIZER, **{"count": 1, **settings})
    show(Preview(examples, measure_lengths(dataset, settings.get("max_length"))), console)
    return stream.getvalue()


def pieces(row: dict, fate: str) -> str:
    return "".join(token["text"] for token in row["tokens"] if token["fate"] == fate)


def test_masked_and_trained_parts() -> None:
    text = shown(encoded())
    head, masked, prompt, trained, answer, _, lengths = text.rstrip().split("\n")
    assert re.fullmatch(r"row 0: \d+ tokens, \d+ masked, \d+ trained; eos is trained", head)
    assert (masked.split(",")[0], trained.split(",")[0]) == ("masked", "trained")
    assert prompt == "<bos>[user]What·is·1+1?<end>[assistant]"
    assert answer == "It·is·\\boxed{2}.<eos>"
    assert lengths.startswith("all rows: 1 row, ")


def test_what_the_maximum_length_takes() -> None:
    dataset = encoded()
    length, prompt = len(dataset[0]["labels"]), dataset[0]["labels"].count(-100)
    (row,) = examine(dataset, TOKENIZER, count=1, max_length=length - 1)
    assert (row["cut_tokens"], row["eos_trained"], pieces(row, "cut")) == (1, False, "<eos>")
    assert "1 lost to the maximum length; eos is NOT trained" in shown(dataset, max_length=length - 1)
    (row,) = examine(dataset, TOKENIZER, count=1, max_length=prompt)
    assert (row["trained_tokens"], pieces(row, "cut")) == (0, "It is \\boxed{2}.<eos>")
    (row,) = examine(dataset, TOKENIZER, count=1, max_length=3, keep="end")
    assert (row["masked_tokens"], row["trained_tokens"], row["eos_trained"]) == (1, 2, True)


HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]x[/bold red][/]\r\x00\x9b1m\u202e\u200b\u2028\ue000 \t:smile:"


@pytest.mark.parametrize("colour", [True, False])
def test_hostile_text_stays_text(colour) -> None:
    text = shown(encoded(problem=HOSTILE, solution=HOSTILE), colour=colour)
    plain = re.sub(r"\x1b\[[\d;]*m", "", text) if colour else text
    assert all(character.isprintable() or character == "\n" for character in plain)
    assert plain.count("[bold·red]x[/bold·red][/]⟨U+000D⟩⟨U+0000⟩") == 2
    assert plain.count("⟨U+001B⟩[2J⟨U+001B⟩]0;owned⟨U+0007⟩") == 2
    assert plain.count(":smile:") == 2
