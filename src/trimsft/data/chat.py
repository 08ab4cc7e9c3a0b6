"""Rows in the forms that TRL tokenises, as tokens: the same that its `SFTTrainer` trains on.

    encoder = TrlEncoder(tokenizer, assistant_only_loss=True)
    ids, is_trained = encoder.encode({"messages": [{"role": "user", "content": "1+1?"}, {"role": "assistant", ...}]})

A test holds it against the trainer's own dataset, form by form.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trimsft.data.formats import at
from trimsft.errors import DataError, UsageError, one_line

Row = Mapping[str, Any]
SWITCHES = ("weight", "train")
"""Keys of a message that say whether it is trained, in the formats of OpenAI and of Axolotl."""
_KEYS = ("role", "content", "tool_calls", "tool_call_id", *SWITCHES)
log = logging.getLogger("trimsft")


def check_chats(rows: Iterable[Row], encoder: "TrlEncoder", where: str) -> bool:
    """Refuse chats that would not be trained as they are, log whose turns are trained, and return if any has a switch.

    TRL does not know the `SWITCHES`.
    """
    roles: set[str] = set()
    has_switches = False
    for number, row in enumerate(rows):
        at(f"{where}, row {number}", encoder.check, row)
        for message, is_trained in encoder.turns(row):
            has_switches |= any(message.get(name) is not None for name in SWITCHES)
            if is_trained and not _is_off(message):
                roles.add(message["role"])
    others = " and ".join(sorted(roles - {"assistant"}))
    if others and os.environ.get("RANK", "0") == "0":
        log.warning("%s: turns of %s are trained, too; assistant_only_loss trains the assistant's only", where, others)
    return has_switches


@dataclass(frozen=True)
class TrlEncoder:
    """Tokenises rows of text, of prompt and completion, of messages, or of token ids."""

    tokenizer: Any
    assistant_only_loss: bool = False
    """Train only the assistant's messages; else every token is trained."""
    completion_only_loss: bool | None = None
    """Mask prompts; None does so, too."""
    _shown: set[Any] = field(default_factory=set, init=False, repr=False, compare=False)
    """Parts of chats that the template is known to write."""

    def encode(self, row: Row) -> tuple[list[int], list[bool]]:
        """Return the tokens of a row, at full length, and which of them are trained."""
        from trimsft.head import IGNORED  # torch is loaded with it

        if "input_ids" in row and row.get("labels") is not None:
            return list(row["input_ids"]), [label != IGNORED for label in row["labels"]]
        if "input_ids" in row:
            names = ("assistant_masks", *(("completion_mask",) if self.completion_only_loss else ()))
            ids, masks = list(row["input_ids"]), [row[name] for name in names if row.get(name) is not None]
        elif "prompt" in row:
            ids, masks = self._prompt_completion(row)
        else:
            ids, masks = self._whole(row["messages"] if "messages" in row else self._ended(row["text"]), row)
        masks = [*masks, *self._switched_off(row, ids)]
        return ids, [all(bits) for bits in zip(*masks, strict=True)] if masks else [True] * len(ids)

    def turns(self, row: Row) -> list[tuple[Any, bool]]:
        """Return the messages of a row, and whether the settings train each; none where it holds text or tokens."""
        if "input_ids" in row:
            return []
        parts = [(row.get("messages"), True)]
        if "prompt" in row:
            parts = [(row["prompt"], self.completion_only_loss is False), (row["completion"], True)]
        turns = [(turn, is_on) for part, is_on in parts if isinstance(part, list) for turn in part]
        every = not self.assistant_only_loss
        return [(turn, is_on and (every or _field(turn, "role") == "assistant")) for turn, is_on in turns]

    def check(self, row: Row) -> None:
        """Refuse a chat of which the template leaves a part out, or whose switches the settings contradict."""
        chat = [message for message, _ in self.turns(row)]
        for turn, (message, is_trained) in enumerate(self.turns(row)):
            where, role, calls = f"message {turn}", _field(message, "role"), _field(message, "tool_calls")
            if not isinstance(role, str):
                raise DataError(f"{where}: must be an object with a role", value=message)
            for name in SWITCHES:
                if message.get(name) not in (None, 0, 1):
                    raise DataError(f"{where}: {name!r} must be 0, 1, false or true", value=message[name])
                if message.get(name) and not is_trained:
                    hint = "remove it, or change assistant_only_loss or completion_only_loss"
                    raise DataError(f"{where}: {name!r} trains a turn of {role}, and the settings do not", hint=hint)
            known = (*_KEYS, "name") if role == "tool" else _KEYS
            unknown = [key for key, value in message.items() if key not in known and value not in (None, "", [], {})]
            others = {key: _without(message, key) for key in unknown}
            if calls and not (isinstance(calls, list) and all(isinstance(call, Mapping) for call in calls)):
                raise DataError(f"{where}: tool_calls must be a list of objects", value=calls)
            if calls:
                others["tool_calls"] = {**message, "tool_calls": [_renamed(call) for call in calls]}
            if role == "tool" and isinstance(message.get("content"), str):
                others["content"] = {**message, "content": message["content"] + "."}
            for key, other in others.items():
                # only up to here, since templates leave the thoughts of earlier answers out by intention
                if not self._shows((role, key), row, chat[: turn + 1], row, [*chat[:turn], other]):
                    problem = f"{where}: the chat template of the model leaves {key!r} of {role} out"
                    raise DataError(problem, value=message[key], hint=_HINT)
        if chat and self._tools(row) and not self._shows("tools", row, chat, _without(row, "tools"), chat):
            raise DataError("the chat template of the model leaves 'tools' out", hint=_HINT)

    def _shows(self, part: Any, row: Row, chat: list[Any], other_row: Row, other: list[Any]) -> bool:
        """Return whether a template renders two chats to different texts; of each part one difference is enough."""
        if part not in self._shown:
            try:
                if self._render(chat, row, tokenize=False) == self._render(other, other_row, tokenize=False):
                    return False
            except DataError:  # what cannot be rendered is refused where it is tokenised
                return True
            self._shown.add(part)
        return True

    def _switched_off(self, row: Row, ids: list[int]) -> list[list[int]]:
        """Return the mask of the turns that a switch leaves out, if there are any."""
        turns = self.turns(row)
        off = [turn for turn, (message, is_trained) in enumerate(turns) if is_trained and _is_off(message)]
        mask = [1] * len(ids)
        for turn in off:
            start, end = (self._tokens_before(border, row, ids) for border in (turn, turn + 1))
            mask[start:end] = [0] * (end - start)
        return [mask] if off else []

    def _tokens_before(self, turn: int, row: Row, ids: list[int]) -> int:
        """Return how many tokens of a chat come before a turn."""
        chat = [message for message, _ in self.turns(row)]
        if turn in (0, len(chat)):
            return len(ids) if turn else 0
        whole, start = (self._render(part, row, tokenize=False) for part in (chat, chat[:turn]))
        if not whole.startswith(start):
            problem = f"the chat template of the model writes message {turn - 1} differently where others follow"
            raise DataError(f"{problem}: no turn can be left out", hint="try assistant_only_loss, or another template")
        return _common_prefix(list(self._render(chat[:turn], row, tokenize=True)["input_ids"]), ids)

    def text(self, row: Row) -> str | None:
        """Return the text that is tokenised of a row; None where it comes as token ids."""
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

    def _whole(self, content: Any, row: Row) -> tuple[list[int], list[list[int]]]:
        """Return the tokens of a text or a chat, and the mask of the assistant's where only those are trained."""
        if isinstance(content, str):
            if self.assistant_only_loss:
                problem = "has no effect on rows that hold no messages"
                raise DataError(problem, field="assistant_only_loss", value=True, hint="leave it out")
            return list(self.tokenizer(text=content)["input_ids"]), []
        rendered = self._render(content, row, tokenize=True, return_assistant_tokens_mask=self.assistant_only_loss)
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
        options |= {"return_dict": True} if options["tokenize"] else {}
        options |= {"tools": self._tools(row), "chat_template": self._chat_template}
        options |= row.get("chat_template_kwargs") or {}
        try:
            return self.tokenizer.apply_chat_template([_without(turn, *SWITCHES) for turn in messages], **options)
        except Exception as error:  # templates raise whatever they like
            raise DataError(f"the chat template of the model fails: {one_line(error)}", value=messages) from error

    def _tools(self, row: Row) -> Any:
        tools = row.get("tools")
        try:
            return json.loads(tools) if isinstance(tools, str) else tools
        except ValueError as error:
            raise DataError(f"tools is text that is not JSON ({one_line(error)})", value=tools) from error

    @cached_property
    def _chat_template(self) -> str | None:
        """TRL's own template with marks around answers, where they are needed and the tokenizer's has none."""
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


_HINT = "remove it, or take a model or a chat_template_path that knows it"


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else None


def _is_off(message: Row) -> bool:
    return any(message.get(name) == 0 for name in SWITCHES)


def _without(fields: Row, *names: str) -> Row:
    return {name: value for name, value in fields.items() if name not in names}


def _renamed(call: Row) -> Row:
    """Return a tool call of a function with another name."""
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _renamed(call["function"])}
    return {**call, "name": f"{call.get('name')}_"}


def _common_prefix(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))
