"""Audits of data in other forms than problem and solution."""

from pathlib import Path
from typing import Any

import pytest

from tests.audit.test_run import LOW, lines, quick
from tests.data.toys import write
from tests.tokens.tiny import ROWS, make_folder
from tests.tokens.tiny import make_tokenizer as make_byte_tokenizer
from tests.train.test_forms import CHAT
from trimsft.audit.run import audit
from trimsft.audit.suspects import row_spans
from trimsft.data.chat import TrlEncoder
from trimsft.data.templates import Rendering
from trimsft.tokens.table import read_token_table

CHATS = [
    {"conversations": [{"from": "human", "value": row["problem"]}, {"from": "gpt", "value": row["solution"]}], "id": 7}
    for row in ROWS[:6]
]


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("models") / "chatty", chat=CHAT)


@pytest.mark.parametrize("training", [False, True])
def test_the_answers_of_chats_are_judged_and_found_again(training, chatty, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "chats.jsonl", CHATS)
    result = audit(quick(data, chatty, threshold=LOW, training=training, assistant_only_loss=True))
    flagged = lines(result.folder.flagged_path)
    assert [{name: row[name] for name in ("conversations", "id")} for row in flagged] == CHATS
    assert result.flagged == list(range(len(CHATS))) and result.suspects[0].place.startswith("chats.jsonl, line ")
    for one in result.suspects:
        problem, solution = (turn["value"] for turn in CHATS[one.row]["conversations"])  # type: ignore[index, union-attr]
        before = f"[user]{problem}<end>[assistant]"
        assert (before + solution + "<end>")[one.start : one.end] == one.text and one.start >= len(before)
    assert all((one.gap_after is None) != training for one in result.suspects)
    if training:
        kept = lines(result.folder.fold(1).path / "rows.jsonl")
        assert [list(row) for row in kept] == [["messages"]] * 3


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt": "It is s", "completion": "o. €5"}, "It is so. €5<eos>"),
        ({"text": "It is so."}, "It is so.<eos>"),
        ({"input_ids": make_byte_tokenizer(adds_bos=True)("It is €5")["input_ids"]}, "<bos>It is €5"),
    ],
)
def test_tokens_of_other_forms_stand_in_the_text_of_the_row(row: Any, text: str, tmp_path) -> None:
    tokenizer = make_byte_tokenizer(adds_bos=True)
    whole, spans = row_spans(row, tokenizer, Rendering())
    assert whole == text
    trained = [token for token, is_trained in zip(*TrlEncoder(tokenizer).encode(row), strict=True) if is_trained]
    assert len(spans) == len(trained) and spans[-1][1] == len(text)
    words = [
        (token, span) for token, span in zip(trained, spans, strict=True) if "\ufffd" not in tokenizer.decode(token)
    ]
    assert words and all(
        tokenizer.decode(token).strip() in (whole[slice(*span)].strip(), "<bos>") for token, span in words
    )


def test_rows_of_alpaca_keep_their_lines(tmp_path, monkeypatch, chatty) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"instruction": row["problem"], "input": "", "output": row["solution"]} for row in ROWS[:3]]
    data = write(tmp_path / "alpaca.jsonl", [rows[0], {"instruction": "x", "input": "", "output": ""}, *rows[1:]])
    result = audit(quick(data, chatty, threshold=LOW, drop_incomplete=True))
    assert {(one.row, one.place) for one in result.suspects} == {
        (0, "alpaca.jsonl, line 1"), (2, "alpaca.jsonl, line 3"), (3, "alpaca.jsonl, line 4"),
    }  # fmt: skip
    assert [row["audit"] is None for row in lines(result.folder.flagged_path)] == [False, True, False, False]
    assert len(set(read_token_table(result.folder.tokens_path)["example"].tolist())) == 3
