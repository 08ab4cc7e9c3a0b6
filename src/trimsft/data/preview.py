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
from collections import Counter
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


@dataclass(frozen=True)
class Preview:
    """The first rows as the trainer sees them, and the lengths of all."""

    rows: list[list[Token]]
    lengths: LengthReport
    eos_id: int

    def as_json(self) -> list[dict[str, Any]]:
        """Return the rows as objects that JSON can hold, every text exact."""
        return [{"row": row, "tokens": [asdict(token) for token in tokens]} for row, tokens in enumerate(self.rows)]

    def as_html(self) -> str:
        """Return a page that shows the same as a terminal."""
        console = Console(record=True, file=io.StringIO(), force_terminal=True, width=120)
        show(self, console)
        return console.export_html()


def preview(rows: Sequence[Mapping[str, Any]], encoder: Encoder, count: int) -> Preview:
    """Return the first `count` rows as training on all of them would see them."""
    texts, encoded, shown = TokenTexts(encoder.tokenizer), encoder.encode_rows(rows), []
    for ids, weights in encoded[:count]:
        low, high = kept_window(len(ids), encoder.max_length, encoder.keep)
        tokens = []
        for place, (token, weight) in enumerate(zip(ids, weights.tolist(), strict=True)):
            # the first token left is predicted by nothing, whatever its weight
            fate = "masked" if weight == 0 or place == low else "trained"
            fate = fate if low <= place < high else "cut"
            tokens.append(Token(token, texts[token], fate, weight if fate == "trained" else 0.0))
        shown.append(tokens)
    trained = [len(encoder.truncated(0, *one).trained) for one in encoded]
    lengths = report_lengths([len(ids) for ids, _ in encoded], trained, encoder.max_length)
    return Preview(shown, lengths, encoder.tokenizer.eos_token_id)


def show(seen: Preview, console: Console) -> None:
    """Print the rows, the prompt dim and trained tokens in colour, and a line on all rows."""
    for number, row in enumerate(seen.rows):
        fates = Counter(token.fate for token in row)
        head = f"row {number}: {counted(len(row), 'token')}, {fates['masked']:,} masked, {fates['trained']:,} trained"
        head += f", {fates['cut']:,} lost to the maximum length" if fates["cut"] else ""
        # a chat template may put a line break behind it
        last = [token for token in row if token.fate != "cut"][-2:]
        is_ended = any(token.fate == "trained" and token.id == seen.eos_id for token in last)
        head += f"; eos is {'' if is_ended else 'NOT '}trained"
        console.print(head, style="bold", soft_wrap=True, markup=False, highlight=False)
        for (fate, weight), group in itertools.groupby(row, key=lambda token: (token.fate, token.weight)):
            tokens, drawn = list(group), Text()
            is_weighed = fate == "trained" and weight != 1
            heading = f"trained with weight {weight:g}" if is_weighed else fate
            console.print(Text(f"{heading}, {counted(len(tokens), 'token')}", style="italic"))
            for place, token in enumerate(tokens):
                style = STYLES["weighed" if is_weighed else fate][place % 2]
                drawn.append(spaced(token.text) or f"<token {token.id}>", style)
            console.print(drawn, soft_wrap=True, end="" if drawn.plain.endswith("\n") else "\n")
        console.print()
    console.print(f"all rows: {seen.lengths}", soft_wrap=True)
