"""What is trained, seen token by token: `preview` for a terminal, `preview_as_json` for a program.

    row 0: 61 tokens, 45 masked, 16 trained; eos is trained
    masked, 45 tokens
    <|im_start|>user↵
    What·is·1+1?<|im_end|>↵
    <|im_start|>assistant↵
    trained, 16 tokens
    It·is·\\boxed{2}.<|im_end|>

Text of data and tokenizers is not trusted: nothing in it is read as markup, and no control character, escape
sequence or invisible character reaches the terminal.
"""

from __future__ import annotations

import itertools
import unicodedata
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.text import Text

from trimsft.errors import DataError
from trimsft.head import IGNORED
from trimsft.text.lengths import Keep, kept_window

Fate = Literal["masked", "trained", "cut"]

_STYLES: dict[Fate, tuple[str, str]] = {
    "masked": ("dim", "dim"),
    "trained": ("black on green", "black on cyan"),  # in turn, so that the borders of tokens show
    "cut": ("red strike", "red strike"),
}
_MARKS = {" ": "·", "\n": "↵\n", "\t": "⇥"}
_UNDECODABLE = "\ufffd"


@dataclass(frozen=True)
class Token:
    """One token of an example."""

    id: int
    text: str
    """What it decodes to by itself; U+FFFD where it is only part of a character."""
    fate: Fate
    special: bool


@dataclass(frozen=True)
class Example:
    """One row as the trainer sees it."""

    row: int
    masked_tokens: int
    trained_tokens: int
    cut_tokens: int
    """Lost to the maximum length."""
    eos_trained: bool
    """Whether one of the last two tokens that are left is eos, and trained."""
    tokens: list[Token]


def preview(
    dataset: Any,
    tokenizer: Any,
    *,
    count: int,
    console: Console,
    max_length: int | None = None,
    keep: Keep = "start",
    show_ids: bool = False,
) -> None:
    """Print the first `count` rows of a tokenised dataset, the prompt dim and trained tokens in colour."""
    for example in examine(dataset, tokenizer, count=count, max_length=max_length, keep=keep):
        console.print(Text(_headline(example), style="bold"), soft_wrap=True)
        for fate, group in itertools.groupby(example.tokens, key=lambda token: token.fate):
            tokens = list(group)
            console.print(Text(f"{fate}, {_tokens(len(tokens))}", style="italic"))
            drawn = _draw(tokens, show_ids=show_ids)
            console.print(drawn, soft_wrap=True, end="" if drawn.plain.endswith("\n") else "\n")
        console.print()


def preview_as_json(
    dataset: Any, tokenizer: Any, *, count: int, max_length: int | None = None, keep: Keep = "start"
) -> list[dict[str, Any]]:
    """The same rows as objects that JSON can hold, every text exact."""
    examples = examine(dataset, tokenizer, count=count, max_length=max_length, keep=keep)
    return [asdict(example) for example in examples]


def examine(dataset: Any, tokenizer: Any, *, count: int, max_length: int | None, keep: Keep = "start") -> list[Example]:
    """The first `count` rows, token by token."""
    missing = [name for name in ("input_ids", "labels") if name not in dataset.column_names]
    if missing:
        raise DataError(
            f"preview: no column {' and '.join(missing)} among {', '.join(dataset.column_names)}: TRL will tokenise "
            "these rows; rows with a problem and a solution can be shown"
        )
    if count < 1:
        raise DataError(f"preview: the number of examples must be at least 1, got {count}")
    rows = dataset.with_format(None).select(range(min(count, len(dataset))))
    texts = _texts({token for ids in rows["input_ids"] for token in ids}, tokenizer)
    special = set(tokenizer.all_special_ids)
    special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    examples = []
    for number, row in enumerate(rows):
        fates = _fates(row["labels"], max_length, keep)
        tokens = [
            Token(token, texts[token], fate, token in special)
            for token, fate in zip(row["input_ids"], fates, strict=True)
        ]
        examples.append(_example(number, tokens, tokenizer.eos_token_id))
    return examples


def _example(row: int, tokens: list[Token], eos: int | None) -> Example:
    fates = [token.fate for token in tokens]
    left = [token for token in tokens if token.fate != "cut"]
    return Example(
        row=row,
        masked_tokens=fates.count("masked"),
        trained_tokens=fates.count("trained"),
        cut_tokens=fates.count("cut"),
        # a chat template may put a line break behind it
        eos_trained=any(token.fate == "trained" and token.id == eos for token in left[-2:]),
        tokens=tokens,
    )


def _fates(labels: list[int], max_length: int | None, keep: Keep) -> list[Fate]:
    (low,), (high,) = kept_window(np.array([len(labels)]), max_length, keep)
    return [
        # the first token left is predicted by nothing, whatever its label
        "cut" if not low <= at < high else "masked" if label == IGNORED or at == low else "trained"
        for at, label in enumerate(labels)
    ]


def _texts(ids: set[int], tokenizer: Any) -> dict[int, str]:
    """The text of each token, decoded behind another one: many decoders strip the space of a first token."""
    known = sorted(ids)
    anchor = tokenizer("a", add_special_tokens=False)["input_ids"][-1:]
    options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    behind = len(tokenizer.decode(anchor, **options))
    return {token: tokenizer.decode([*anchor, token], **options)[behind:] for token in known}


def _draw(tokens: list[Token], *, show_ids: bool) -> Text:
    drawn = Text()
    for number, token in enumerate(tokens):
        style = _STYLES[token.fate][number % 2] + (" bold underline" if token.special else "")
        drawn.append(_visible(token), style=style)
        if show_ids:
            drawn.append(f"[{token.id}]", style="dim")
    return drawn


def _visible(token: Token) -> str:
    if _UNDECODABLE in token.text or not token.text:
        return f"<token {token.id}>"  # part of a character, or nothing by itself
    return "".join(_MARKS.get(character) or _escaped(character) for character in token.text)


def _escaped(character: str) -> str:
    """Itself, or its code point where a terminal would act on it or show nothing."""
    if unicodedata.category(character)[0] in "CZ":  # control, format, surrogate, unassigned; separators
        return f"<U+{ord(character):04X}>"
    return character


def _headline(example: Example) -> str:
    says = (
        f"row {example.row}: {_tokens(len(example.tokens))}, {example.masked_tokens:,} masked, "
        f"{example.trained_tokens:,} trained"
    )
    if example.cut_tokens:
        says += f", {example.cut_tokens:,} lost to the maximum length"
    return f"{says}; eos is {'' if example.eos_trained else 'NOT '}trained"


def _tokens(number: int) -> str:
    return f"{number:,} token{'' if number == 1 else 's'}"
