"""Rows in the forms that TRL tokenises, as tokens and the weight of each: 0 is not trained.

    encoder = TrlEncoder(tokenizer, train_on="assistant")
    ids, weights = encoder.encode({"messages": [{"role": "user", "content": "1+1?"}, {"role": "assistant", ...}]})

The tokens are those that TRL's `SFTTrainer` trains on; a test holds them against the trainer's own dataset, form by
form. What TRL knows nothing of are weights: `weight` of a row; `weight` or `train` of a message, or of a part of one
({"type": "text", "text": ..., "weight": 0.5}), in the formats of OpenAI and of Axolotl; `token_weights`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimsft.data.formats import at
from trimsft.data.templates import TrainOn
from trimsft.data.weights import OF_TEMPLATES, RowText, Rule, Turn, as_weight
from trimsft.errors import DataError, UsageError, one_line

Row = Mapping[str, Any]
Weights = NDArray[np.float64]
SWITCHES = ("weight", "train")
"""Keys of a message, or of a part of one, that say how much it is trained."""
_KEYS = ("role", "content", "tool_calls", "tool_call_id", *SWITCHES)
_HINT = "remove it, or take a model or a chat_template_path that knows it"
log = logging.getLogger("trimsft")


def check_chats(rows: Iterable[Row], encoder: TrlEncoder, where: str) -> bool:
    """Refuse chats that would not be trained as they are, log whose turns are, return if any has weights."""
    roles: set[str] = set()
    is_weighed = False
    for number, row in enumerate(rows):
        at(f"{where}, row {number}", encoder.check, row)
        is_weighed |= row.get("weight") is not None or row.get("token_weights") is not None
        for message, is_trained in encoder.turns(row):
            is_weighed |= has_weights(message)
            if is_trained and _weight_of(message) > 0:
                roles.add(message["role"])
    others = " and ".join(sorted(roles - {"assistant"}))
    if others and os.environ.get("RANK", "0") == "0":
        log.warning("%s: turns of %s are trained, too; --train_on assistant trains the assistant's only", where, others)
    return is_weighed


@dataclass(frozen=True)
class TrlEncoder:
    """Tokenises rows of text, of prompt and completion, of messages, or of token ids."""

    tokenizer: Any
    train_on: TrainOn = "all"
    """The turns of messages that are trained: of the assistant, the last of those, or every one."""
    completion_only_loss: bool | None = None
    """Mask prompts; None does so, too."""
    rules: tuple[Rule, ...] = ()
    with_roles: bool = False
    """True where an objective needs the role of each token."""
    used: set[Rule] = field(default_factory=set, init=False, repr=False, compare=False)
    """The rules that have fitted a token."""
    _shown: set[Any] = field(default_factory=set, init=False, repr=False, compare=False)
    """Parts of chats that the template is known to write."""

    def encode(self, row: Row) -> tuple[list[int], Weights]:
        """Return the tokens of a row, at full length, and the weight of each."""
        self.check(row)
        if "input_ids" in row:
            if set(self.rules) - set(OF_TEMPLATES):
                raise DataError("have no effect on rows of token ids", field="weights", hint="use token_weights")
            ids, weights = self._tokenised(row)
        else:
            ids, is_trained = self._masked(row)
            weights = is_trained.astype(np.float64)
            chat = [message for message, _ in self.turns(row)]
            is_placed = bool(set(self.rules) - set(OF_TEMPLATES)) or any(map(has_weights, chat))
            if is_placed or (chat and self.rules and "</think>" in self.text(row)):
                # a template that is not TRL's drops thoughts itself, and turns may have no place
                has_turns = is_placed or isinstance(self._chat_template, str)
                text = self._placed(row, chat, ids, has_turns=has_turns)
                for place, message in enumerate(chat if is_placed else ()):
                    _weigh(weights, text, place, message)
                weights = self.apply_rules(text, is_trained, weights)
        return ids, weights * as_weight(row.get("weight"), "weight")

    def roles(self, row: Row, ids: list[int]) -> NDArray[np.int64]:
        """Return the role of each token of a row, see `trimsft.objectives.token_stats.ROLES`."""
        if "input_ids" in row:
            roles = row.get("token_roles")
            if roles is None or len(roles) != len(ids):
                problem = "needs the role of each token, and rows of token ids have none"
                raise DataError(problem, field="objective", hint="give them as token_roles, or rows of text")
            return np.array(roles, dtype=np.int64)
        return self._placed(row, [message for message, _ in self.turns(row)], ids).roles()

    def apply_rules(self, text: RowText, is_trained: NDArray[np.bool_], weights: Weights) -> Weights:
        """Return weights times the rules that fit; what a rule alone trains begins with 1."""
        fits = {rule: text.fitting(rule, is_trained) for rule in self.rules}
        alone = np.any([mask & ~is_trained for mask in fits.values()], axis=0) if fits else False
        weights = np.where(alone, 1.0, weights)
        for rule, mask in fits.items():
            weights[mask] *= rule.weight
            self.used.update([rule] if mask.any() else [])
        return weights

    def turns(self, row: Row) -> list[tuple[Any, bool]]:
        """Return the messages of a row, if it has some, and whether the settings train each."""
        if "input_ids" in row:
            return []
        parts = [(row.get("messages"), True)]
        if "prompt" in row:
            parts = [(row["prompt"], self.completion_only_loss is False), (row["completion"], True)]
        turns = [(turn, is_on) for part, is_on in parts if isinstance(part, list) for turn in part]
        answers = [place for place, (turn, _) in enumerate(turns) if _field(turn, "role") == "assistant"]
        trained = {"all": range(len(turns)), "assistant": answers, "last": answers[-1:]}[self.train_on]
        return [(turn, is_on and place in trained) for place, (turn, is_on) in enumerate(turns)]

    def check(self, row: Row) -> None:
        """Refuse a chat that the template does not write whole, or whose weights the settings contradict."""
        as_weight(row.get("weight"), "weight")
        turns = self.turns(row)
        chat = [message for message, _ in turns]
        for turn, (message, is_trained) in enumerate(turns):
            where, role, calls = f"message {turn}", _field(message, "role"), _field(message, "tool_calls")
            if not isinstance(role, str):
                raise DataError(f"{where}: must be an object with a role", value=message)
            parts = [*at(where, _parts, message), message]
            for part in parts:
                at(where, _weight_of, part)
            trains = [name for part in parts for name in SWITCHES if part.get(name)]
            if trains and not is_trained:
                hint = "remove it, or change train_on or completion_only_loss"
                raise DataError(f"{where}: {trains[0]!r} trains a turn of {role}, and the settings do not", hint=hint)
            if calls and not (isinstance(calls, list) and all(isinstance(call, Mapping) for call in calls)):
                raise DataError(f"{where}: tool_calls must be a list of objects", value=calls)
            # only up to here, since templates leave the thoughts of earlier answers out by intention
            before = chat[:turn]
            for key, other in _variants(message).items():
                if not self._shows((role, key), row, [*before, message], row, [*before, other]):
                    problem = f"{where}: the chat template of the model leaves {key!r} of {role} out"
                    raise DataError(problem, value=message.get(key, message.get("content")), hint=_HINT)
        if chat and self._tools(row) and not self._shows("tools", row, chat, _without(row, "tools"), chat):
            raise DataError("the chat template of the model leaves 'tools' out", hint=_HINT)

    def text(self, row: Row) -> str:
        """Return the text that is tokenised of a row."""
        first, second = (row["prompt"], row["completion"]) if "prompt" in row else (row.get("messages"), [])
        if isinstance(first, list):
            return str(self._render(first + second, row, tokenize=False))
        return self._ended(row["text"] if first is None else first + second)

    def _shows(self, part: Any, row: Row, chat: list[Any], other_row: Row, other: list[Any]) -> bool:
        """Return whether a template renders two chats differently; of each part once is enough."""
        if part not in self._shown:
            try:
                if self._render(chat, row, tokenize=False) == self._render(other, other_row, tokenize=False):
                    return False
            except DataError:  # what cannot be rendered is refused where it is tokenised
                return True
            self._shown.add(part)
        return True

    # ---- tokens, and which of them are trained

    def _tokenised(self, row: Row) -> tuple[list[int], Weights]:
        """Return tokens as they are, with the weights and masks beside them."""
        from trimsft.head import IGNORED  # torch is loaded with it

        ids = list(row["input_ids"])
        weights = np.ones(len(ids))
        for name in ("labels", "assistant_masks", "completion_mask", "token_weights"):
            if row.get(name) is None or (name == "completion_mask" and self.completion_only_loss is False):
                continue
            values = np.array([np.nan if value is None else value for value in row[name]], dtype=np.float64)
            if len(values) != len(ids):
                raise DataError(f"{name!r} has {len(values)} values for {len(ids)} tokens")
            if name == "token_weights" and not (np.isfinite(values) & (values >= 0)).all():
                raise DataError(f"{name!r} must be finite numbers of at least 0", value=row[name])
            weights *= values != IGNORED if name == "labels" else values
        return ids, weights

    def _masked(self, row: Row) -> tuple[list[int], NDArray[np.bool_]]:
        """Return the tokens of a row of text or messages, and which of them the settings train."""
        whole = row["prompt"] + row["completion"] if "prompt" in row else row.get("messages", row.get("text"))
        if isinstance(whole, list):
            ids, is_trained = self._whole_chat(whole, row)
        elif self.train_on != "all":
            raise DataError("has no effect on rows that hold no messages", field="train_on", value=self.train_on)
        else:
            ids = list(self.tokenizer(text=self._ended(whole))["input_ids"])
            is_trained = np.ones(len(ids), dtype=bool)
        if "prompt" in row and self.completion_only_loss is not False:
            prompt = row["prompt"]
            if isinstance(prompt, list):
                alone = self._render(prompt, row, tokenize=True, add_generation_prompt=True)["input_ids"]
            else:
                alone = self.tokenizer(text=prompt)["input_ids"]
            pairs = enumerate(zip(alone, ids, strict=False))
            same = next((place for place, (left, right) in pairs if left != right), min(len(alone), len(ids)))
            is_trained[:same] = False  # tokens may merge across the border
        return ids, is_trained

    def _whole_chat(self, chat: list[Any], row: Row) -> tuple[list[int], NDArray[np.bool_]]:
        """Return the tokens of a chat, and which of them are of the turns that are trained."""
        is_marked = self.train_on != "all" and self._chat_template is not False
        rendered = self._render(chat, row, tokenize=True, return_assistant_tokens_mask=is_marked)
        ids = list(rendered["input_ids"])
        if self.train_on == "all":
            return ids, np.ones(len(ids), dtype=bool)
        is_trained = np.array(rendered["assistant_masks"], dtype=bool) if is_marked else np.ones(len(ids), dtype=bool)
        if not is_marked or self.train_on == "last":
            answers = [place for place, message in enumerate(chat) if message["role"] == "assistant"]
            text, is_inside = self.text(row), np.zeros(len(ids), dtype=bool)
            tokens = RowText(text, token_ends(self.tokenizer, text, ids))
            for place in answers[-1:] if self.train_on == "last" else answers:
                start = self._border(chat, place, row, text, add_generation_prompt=not is_marked)
                is_inside |= tokens.inside(start, self._border(chat, place + 1, row, text))
            is_trained &= is_inside
        if not is_trained.any():
            raise DataError("leaves no token to train on in a row", field="train_on", value=self.train_on)
        return ids, is_trained

    # ---- where things stand in the text

    def _placed(self, row: Row, chat: Sequence[Any], ids: list[int], *, has_turns: bool = True) -> RowText:
        """Return the text of a row, where its tokens end in it, and its turns."""
        text = self.text(row)
        ends = token_ends(self.tokenizer, text, ids, add_special_tokens=not chat)
        if not has_turns:
            return RowText(text, ends, [Turn("assistant", 0, len(text))], text)
        if chat:
            borders = [self._border(chat, place, row, text) for place in range(len(chat) + 1)]
            turns = zip(chat, borders[:-1], borders[1:], strict=True)
            own = self._render(list(chat), row, tokenize=False, is_own=True) if "</think>" in text else text
            return RowText(text, ends, [Turn(message["role"], start, end) for message, start, end in turns], own)
        start = len(row["prompt"]) if "prompt" in row else 0
        return RowText(text, ends, [Turn("prompt", 0, start), Turn("completion", start, len(text))])

    def _border(self, chat: Sequence[Any], place: int, row: Row, text: str, **options: Any) -> int:
        """Return the character at which the messages before `place` end."""
        if place in (0, len(chat)) and not options.get("add_generation_prompt"):
            return len(text) if place else 0
        alone = self._render(list(chat[:place]), row, tokenize=False, **options) if place else ""
        if text.startswith(alone):
            return len(alone)
        if options.get("add_generation_prompt"):  # a template may open answers otherwise
            return self._border(chat, place, row, text)
        problem = f"the chat template of the model writes message {place - 1} differently where others follow"
        hint = "train the last turn alone, take a template with {% generation %}, or bring prompts and completions"
        raise DataError(f"{problem}: its turns have no place", hint=hint)

    # ---- rendering

    def _render(self, messages: list[Any], row: Row, *, is_own: bool = False, **options: Any) -> Any:
        if not getattr(self.tokenizer, "chat_template", None):
            problem = "its tokenizer has no chat template, which rows of messages need"
            raise UsageError(problem, field="model", hint="take a model that has one, or prompts and completions")
        options |= {"return_dict": True} if options["tokenize"] else {}
        options |= {"tools": self._tools(row), "chat_template": (not is_own and self._chat_template) or None}
        options |= row.get("chat_template_kwargs") or {}
        try:
            return self.tokenizer.apply_chat_template([_plain(turn) for turn in messages], **options)
        except Exception as error:  # templates raise whatever they like
            raise DataError(f"the chat template of the model fails: {one_line(error)}", value=messages) from error

    def _tools(self, row: Row) -> Any:
        tools = row.get("tools")
        try:
            return json.loads(tools) if isinstance(tools, str) else tools
        except ValueError as error:
            raise DataError(f"tools is text that is not JSON ({one_line(error)})", value=tools) from error

    @cached_property
    def _chat_template(self) -> str | Literal[False] | None:
        """TRL's template with marks around answers, where the tokenizer's has none.

        False where TRL has none either: answers are then found by rendering what stands before them.
        """
        if self.train_on == "all" or not self.tokenizer.chat_template:
            return None
        from trl.chat_template_utils import get_training_chat_template, has_generation_markers

        if has_generation_markers(self.tokenizer.chat_template):
            return None
        try:
            template: str | None = get_training_chat_template(self.tokenizer)
        except ValueError:
            return False
        return template

    def _ended(self, text: str) -> str:
        eos: str = self.tokenizer.eos_token
        return text if text.endswith(eos) else text + eos


def token_ends(tokenizer: Any, text: str, ids: list[int], *, add_special_tokens: bool = False) -> NDArray[np.int64]:
    """Return the character at which each token of a text ends."""
    found = tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True, verbose=False)
    if list(found["input_ids"]) != list(ids):
        raise DataError("the tokens of a row are not those of its text, so its parts have no weights")
    return np.array([end for _, end in found["offset_mapping"]], dtype=np.int64)


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else None


def _weight_of(message: Row) -> float:
    """Return the weight of a message or of a part: the product of its switches."""
    return as_weight(message.get("weight"), "weight") * as_weight(message.get("train"), "train")


def has_weights(message: Row) -> bool:
    """Return whether a message, or a part of it, says how much it is trained."""
    return any(message.get(name) is not None for name in SWITCHES) or bool(_parts(message))


def _parts(message: Row) -> list[Row]:
    """Return the parts of a message some of which have weights; none where no part has."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    if all(_field(part, name) is None for part in parts for name in SWITCHES):
        return []
    for part in parts:
        is_text = part.get("type", "text") == "text" and isinstance(part.get("text"), str)
        if not is_text or set(part) - {"type", "text", *SWITCHES}:
            raise DataError("a part is not text and weight alone, and others beside it have weights", value=part)
    return parts


def _plain(message: Row) -> Row:
    """Return a message as templates know it."""
    plain, parts = _without(message, *SWITCHES), _parts(message)
    return {**plain, "content": "".join(part["text"] for part in parts)} if parts else plain


def _weigh(weights: Weights, text: RowText, place: int, message: Row) -> None:
    """Multiply the weights of a turn's tokens by what the message and its parts say."""
    start, end = text.turns[place].start, text.turns[place].end
    weights[text.inside(start, end)] *= _weight_of(message)
    parts = _parts(message)
    content = "".join(part["text"] for part in parts)
    begin = text.text.find(content.strip(), start, end) - (len(content) - len(content.lstrip()))
    if parts and begin < start:
        problem = f"message {place}: the chat template of the model changes its text, so its parts have no place"
        raise DataError(problem, hint="give the message one weight")
    for part in parts:
        weights[text.inside(begin, begin + len(part["text"]))] *= _weight_of(part)
        begin += len(part["text"])


def _variants(message: Row) -> dict[str, Row]:
    """Return the message with each thing changed that a template might leave out."""
    role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
    known = (*_KEYS, "name") if role == "tool" else _KEYS
    unknown = [key for key, value in message.items() if key not in known and value not in (None, "", [], {})]
    variants = {key: _without(message, key) for key in unknown}
    if calls:
        variants["tool_calls"] = {**message, "tool_calls": [_renamed(call) for call in calls]}
    if role == "tool" and isinstance(content, str):
        variants["content"] = {**message, "content": content + "."}
    if role == "assistant" and isinstance(content, str) and "</think>" in content:
        variants["<think>"] = {**message, "content": content.replace("</think>", ".</think>", 1)}
    return variants


def _without(fields: Row, *names: str) -> Row:
    return {name: value for name, value in fields.items() if name not in names}


def _renamed(call: Row) -> Row:
    """Return a tool call of a function with another name."""
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _renamed(call["function"])}
    return {**call, "name": f"{call.get('name')}_"}
