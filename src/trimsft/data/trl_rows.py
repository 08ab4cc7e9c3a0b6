"""Rows in the forms that TRL tokenises, as tokens: the same that its `SFTTrainer` trains on.

    encoder = TrlEncoder(tokenizer, assistant_only_loss=True)
    ids, is_trained = encoder.encode({"messages": [{"role": "user", "content": "1+1?"}, {"role": "assistant", ...}]})

A test holds it against the trainer's own dataset, form by form.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trimsft.errors import DataError, UsageError, one_line

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TrlEncoder:
    """Tokenises rows of text, of prompt and completion, of messages, or of token ids."""

    tokenizer: Any
    assistant_only_loss: bool = False
    """Whether of messages only the assistant's are trained; else every token is."""
    completion_only_loss: bool | None = None
    """Whether prompts are masked; None does so."""

    def encode(self, row: Row) -> tuple[list[int], list[bool]]:
        """The tokens of a row, at full length, and which of them are trained."""
        if "input_ids" in row:
            return self._as_given(row)
        if "prompt" in row:
            ids, masks = self._prompt_completion(row)
        else:
            ids, masks = self._whole(row["messages"] if "messages" in row else self._ended(row["text"]), row)
        return ids, _all(masks, len(ids))

    def text(self, row: Row) -> str | None:
        """What is tokenised of a row; None where it comes as token ids."""
        if "input_ids" in row:
            return None
        first, second = (row["prompt"], row["completion"]) if "prompt" in row else (row.get("messages"), [])
        if isinstance(first, list):
            return str(self._render(first + second, row, tokenize=False))
        return self._ended(row["text"] if first is None else first + second)

    def _prompt_completion(self, row: Row) -> tuple[list[int], list[list[int]]]:
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, list):
            alone = self._render(prompt, row, tokenize=True, add_generation_prompt=True)["input_ids"]
            ids, masks = self._whole(prompt + completion, row)
        else:
            alone = self.tokenizer(text=prompt)["input_ids"]
            ids, masks = self._whole(prompt + self._ended(completion), row)
        if self.completion_only_loss is not False:
            same = _common_prefix(alone, ids)  # tokens may merge across the border
            masks = [*masks, [0] * same + [1] * (len(ids) - same)]
        return ids, masks

    def _whole(self, said: Any, row: Row) -> tuple[list[int], list[list[int]]]:
        """The tokens of a text or a chat, and the mask of the assistant's where only those are trained."""
        if isinstance(said, str):
            if self.assistant_only_loss:
                problem = "has no effect on rows that hold no messages"
                raise DataError(problem, field="assistant_only_loss", value=True, hint="leave it out")
            return list(self.tokenizer(text=said)["input_ids"]), []
        rendered = self._render(said, row, tokenize=True, return_assistant_tokens_mask=self.assistant_only_loss)
        if not self.assistant_only_loss:
            return list(rendered["input_ids"]), []
        mask = list(rendered["assistant_masks"])
        if 1 not in mask:
            hint = "a chat template marks the assistant's by {% generation %}"
            raise DataError("leaves no token to train on in a row", field="assistant_only_loss", hint=hint)
        return list(rendered["input_ids"]), [mask]

    def _render(self, messages: list[Any], row: Row, **options: Any) -> Any:
        if not getattr(self.tokenizer, "chat_template", None):
            problem = "its tokenizer has no chat template, which rows of messages need"
            raise UsageError(problem, field="model", hint="take a model that has one, or rows of prompt and completion")
        tools = row.get("tools")
        options |= {"tools": json.loads(tools) if isinstance(tools, str) else tools}
        if options["tokenize"]:
            options["return_dict"] = True
        options |= {"chat_template": self._chat_template, **(row.get("chat_template_kwargs") or {})}
        try:
            return self.tokenizer.apply_chat_template(messages, **options)
        except Exception as error:  # templates raise whatever they like
            raise DataError(f"the chat template of the model fails: {one_line(error)}", value=messages) from error

    def _as_given(self, row: Row) -> tuple[list[int], list[bool]]:
        """Token ids; what is masked is said by labels, or by masks."""
        from trimsft.head import IGNORED  # torch is loaded with it

        ids, labels = list(row["input_ids"]), row.get("labels")
        if labels is not None:
            return ids, [label != IGNORED for label in labels]
        names = ("assistant_masks", *(("completion_mask",) if self.completion_only_loss else ()))
        masks = [row[name] for name in names if row.get(name) is not None]
        return ids, _all(masks, len(ids))

    @cached_property
    def _chat_template(self) -> str | None:
        """TRL's own with marks around answers, where they are needed and the tokenizer's has none."""
        if not self.assistant_only_loss:
            return None
        from trl.chat_template_utils import get_training_chat_template, has_generation_markers

        if has_generation_markers(self.tokenizer.chat_template):
            return None
        try:
            template: str | None = get_training_chat_template(self.tokenizer)
        except ValueError as error:
            raise UsageError(one_line(error), field="assistant_only_loss", value=True) from error
        return template

    def _ended(self, text: str) -> str:
        eos: str = self.tokenizer.eos_token
        return text if text.endswith(eos) else text + eos


def _all(masks: list[list[int]], length: int) -> list[bool]:
    """Where every mask, if there is any, is set."""
    return [all(bits) for bits in zip(*masks, strict=True)] if masks else [True] * length


def _common_prefix(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))
