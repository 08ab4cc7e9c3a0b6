"""Rows token by token, as a training would see them: masked, trained and with which weight, or cut off. No model runs.

    row 0: 61 tokens, 45 masked, 16 trained; eos is trained
    masked, 45 tokens
    <|im_start|>user↵
    What·is·1+1?<|im_end|>↵
    <|im_start|>assistant↵
    trained with weight 0.5, 16 tokens
    It·is·\\boxed{2}.<|im_end|>

Text of data and tokenizers is not trusted: nothing in it is markup, no control character reaches the terminal.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from trimsft.data.encode import Encoder, LengthReport, kept_window, report_lengths
from trimsft.data.visible import TokenTexts, spaced
from trimsft.errors import counted

STYLES = {
    "masked": ("dim", "dim"),
    "trained": ("black on green", "black on cyan"),  # in turn, so that the borders of tokens show
    "weighed": ("black on yellow", "black on bright_yellow"),
    "cut": ("red strike", "red strike"),
}


@dataclass(frozen=True)
class Token:
    """One token of a row."""

    id: int
    text: str  # inside a text; its bytes where it is only part of a character
    fate: str  # masked, trained or cut
    weight: float  # by the data
    special: bool


@dataclass(frozen=True)
class ShownRow:
    """One row as the trainer sees it."""

    row: int
    masked_tokens: int
    trained_tokens: int
    cut_tokens: int  # lost to the maximum length
    eos_trained: bool  # whether one of the last two tokens that are left is eos, and trained
    tokens: list[Token]


@dataclass(frozen=True)
class Preview:
    """The first rows, and the lengths of all."""

    rows: list[ShownRow]
    lengths: LengthReport

    def as_json(self) -> list[dict[str, Any]]:
        """Return the rows as objects that JSON can hold, every text exact."""
        return [asdict(row) for row in self.rows]

    def as_html(self) -> str:
        """Return a page that shows the same as a terminal."""
        console = Console(record=True, file=io.StringIO(), force_terminal=True, width=120)
        show(self, console)
        return console.export_html()


def preview(rows: Sequence[Mapping[str, Any]], encoder: Encoder, count: int) -> Preview:
    """Return the first `count` rows as training on all of them would see them."""
    tokenizer = encoder.tokenizer
    texts, special = TokenTexts(tokenizer), set(tokenizer.all_special_ids)
    special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    encoded, shown = encoder.encode_rows(rows), []
    for number, (ids, weights) in enumerate(encoded[:count]):
        low, high = kept_window(len(ids), encoder.max_length, encoder.keep)
        # the first token left is predicted by nothing, whatever its weight
        fates = [
            "cut" if not low <= at < high else "masked" if weight == 0 or at == low else "trained"
            for at, weight in enumerate(weights)
        ]
        tokens = [
            Token(token, texts[token], fate, float(weight) if fate == "trained" else 0.0, token in special)
            for token, fate, weight in zip(ids, fates, weights, strict=True)
        ]
        # a chat template may put a line break behind it
        last = [token for token in tokens if token.fate != "cut"][-2:]
        eos_trained = any(token.fate == "trained" and token.id == tokenizer.eos_token_id for token in last)
        masked, left, cut = map(fates.count, ("masked", "trained", "cut"))
        shown.append(ShownRow(number, masked, left, cut, eos_trained, tokens))
    trained = [len(encoder.truncated(0, *one).trained) for one in encoded]
    return Preview(shown, report_lengths([len(ids) for ids, _ in encoded], trained, encoder.max_length))


def show(seen: Preview, console: Console) -> None:
    """Print the rows, the prompt dim and trained tokens in colour, and a line on all rows."""
    for one in seen.rows:
        cut = f", {one.cut_tokens:,} lost to the maximum length" if one.cut_tokens else ""
        head = (
            f"row {one.row}: {counted(len(one.tokens), 'token')}, {one.masked_tokens:,} masked, "
            f"{one.trained_tokens:,} trained{cut}; eos is {'' if one.eos_trained else 'NOT '}trained"
        )
        console.print(head, style="bold", soft_wrap=True, markup=False, highlight=False)
        for (fate, weight), group in itertools.groupby(one.tokens, key=lambda token: (token.fate, token.weight)):
            tokens, drawn = list(group), Text()
            is_weighed = fate == "trained" and weight != 1
            heading = f"trained with weight {weight:g}" if is_weighed else fate
            console.print(Text(f"{heading}, {counted(len(tokens), 'token')}", style="italic"))
            for number, token in enumerate(tokens):
                style = STYLES["weighed" if is_weighed else fate][number % 2]
                drawn.append(spaced(token.text) or f"<token {token.id}>", style + " bold underline" * token.special)
            console.print(drawn, soft_wrap=True, end="" if drawn.plain.endswith("\n") else "\n")
        console.print()
    console.print(f"all rows: {seen.lengths}", soft_wrap=True)
