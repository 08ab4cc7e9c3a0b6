"""Rows as the model sees them in training: prompt and completion tokens, the completion trained, eos included.

{"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}
-> Example(number=0, prompt=[31, 7, ...], completion=[12, 40, ..., 1])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimsft.templates import PromptTemplate, encode_completions, encode_prompts


@dataclass(frozen=True)
class Example:
    """One row; its completion is what is trained."""

    number: int
    """Which row it is."""
    prompt: list[int]
    completion: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


def encode_rows(
    rows: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    template: PromptTemplate,
    *,
    max_length: int | None = None,
    first: int = 0,
) -> list[Example]:
    """The tokens that training on these rows sees; what lies beyond `max_length` is cut off, as training does."""
    prompts = encode_prompts([row["problem"] for row in rows], tokenizer, template)
    completions = encode_completions([row["solution"] for row in rows], tokenizer)
    examples = []
    for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True), start=first):
        room = None if max_length is None else max(0, max_length - len(prompt))
        examples.append(Example(number, prompt[:max_length], completion[:room]))
    return examples


def check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse rows that cannot be rendered, before a model is loaded."""
    if not rows:
        raise ValueError("rows: there are none; give at least one with the fields problem and solution")
    for name in ("problem", "solution"):
        bad = [number for number, row in enumerate(rows) if not _is_text(row.get(name))]
        if bad:
            more = f" (and {len(bad) - 1:,} more rows)" if len(bad) > 1 else ""
            raise ValueError(
                f"rows: row {bad[0]} has {rows[bad[0]].get(name)!r} as {name}{more}; it must be text that is not blank"
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
