"""Few-shot examples: solved problems that stand before the one that is asked.

A file of them is JSON Lines, one solved problem a line; all of them are shown, in order:

    {"problem": "What is 1+1?", "solution": "Two. \\\\boxed{2}"}

In the template `plain` they are text, in `chat` earlier turns; the other templates have a fixed text.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trimsft.data.load import is_text
from trimsft.data.templates import ChatTemplate, PromptTemplate, TextTemplate
from trimsft.errors import DataError, UsageError
from trimsft.evaluate.problems import read_rows


class Shot(NamedTuple):
    """A solved problem."""

    problem: str
    solution: str


def read_shots(path: Path) -> tuple[Shot, ...]:
    """The solved problems of a file; an error names the line."""
    if not path.expanduser().is_file():
        raise DataError("no such file", field="few_shot", value=str(path))
    shots = []
    for number, row in read_rows(path.expanduser()):
        for name in Shot._fields:
            if not is_text(row.get(name)):
                raise DataError(f"{path}, line {number}: {name!r} must be a text", field="few_shot")
        shots.append(Shot(row["problem"], row["solution"]))
    if not shots:
        raise DataError(f"{path}: holds no solved problems", field="few_shot")
    return tuple(shots)


def describe_shots(shots: Sequence[Shot]) -> dict[str, Any]:
    """What is recorded of them: how many, and which; None where there are none, as in records of older versions."""
    digest = hashlib.sha256(json.dumps(shots).encode()).hexdigest()
    return {"few_shot": len(shots) or None, "few_shot_sha256": digest if shots else None}


@dataclass(frozen=True)
class _ChatWithShots(ChatTemplate):
    shots: tuple[Shot, ...] = ()

    def messages(self, problem: str) -> list[dict[str, str]]:
        *system, asked = super().messages(problem)
        return [*system, *turns_of(self.shots, self.request), asked]


def turns_of(shots: Sequence[Shot], request: str = "") -> list[dict[str, str]]:
    """The examples as turns of a chat; `request` stands after each problem."""
    turns = []
    for problem, solution in shots:
        turns.append({"role": "user", "content": f"{problem}\n{request}" if request else problem})
        turns.append({"role": "assistant", "content": solution})
    return turns


def with_shots(name: str, template: PromptTemplate, shots: tuple[Shot, ...]) -> PromptTemplate:
    """The template with the examples in it."""
    if not shots:
        return template
    if isinstance(template, ChatTemplate):
        return _ChatWithShots(template.tokenizer, template.system_prompt, template.request, shots)
    if name != "plain":
        problem = f"has no place in the template {name!r}, whose text is fixed"
        raise UsageError(problem, field="few_shot", hint="use the template chat or plain, or leave it out")
    solved = "".join(f"{problem}{template.after}{solution}{template.end}\n" for problem, solution in shots)
    return TextTemplate(template.before + solved, template.after, template.end)
