"""The forms that training data comes in, known by their columns; the first one that fits is taken.

    problem-solution   problem, solution      rendered by `trimsft.data.templates`; the columns may have other names
    tokenised          input_ids              taken as it is, with labels where they are there
    prompt-completion  prompt, completion     text or messages; tokenised as TRL's SFTTrainer does, as the next two
    messages           messages               [{"role": "user", "content": ...}, ...]
    text               text
    alpaca             instruction, output    with input or without; becomes problem-solution
    sharegpt           conversations          [{"from": "human", "value": ...}, ...]; becomes messages

Nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from trimsft.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

Row = dict[str, Any]
Result = TypeVar("Result")

PAIR = "problem-solution"
_TRL_FORMS = {
    "tokenised": ("input_ids",),
    "prompt-completion": ("prompt", "completion"),
    "messages": ("messages",),
    "text": ("text",),
}
_FOREIGN_FORMS = {"alpaca": ("instruction", "output"), "sharegpt": ("conversations",)}
_ALL = {PAIR: ("problem", "solution"), **_TRL_FORMS, **_FOREIGN_FORMS}
_BESIDE = {
    "tokenised": ("labels", "completion_mask", "assistant_masks"),
    "prompt-completion": ("tools", "chat_template_kwargs"),
    "messages": ("tools", "chat_template_kwargs"),
}
"""Columns that change how TRL makes tokens or labels of a row."""
_HOLDS = {
    "messages": ("messages",),
    "prompt": ("text", "messages"),
    "completion": ("text", "messages"),
    "text": ("text",),
    "input_ids": ("token ids",),
    "labels": ("token ids",),
}
"""What TRL can render in each column of its forms."""
KNOWN = ", ".join("+".join(columns) for columns in _ALL.values())
"""The forms by their columns, for hints."""


def find_form(columns: Collection[str], pair: tuple[str, str] = ("problem", "solution")) -> str | None:
    """The name of the form that these columns are; None for an unknown one. Where `pair` names other columns, only
    those will do.

    >>> find_form(["instruction", "input", "output"]), find_form(["question", "answer"])
    ('alpaca', None)
    """
    if set(pair) <= set(columns):
        return PAIR
    others = {**_TRL_FORMS, **_FOREIGN_FORMS} if pair == _ALL[PAIR] else {}
    return next((name for name, needed in others.items() if set(needed) <= set(columns)), None)


def is_trl(form: str | None) -> bool:
    """Whether TRL tokenises rows of this form, or of what it becomes."""
    return form in _TRL_FORMS or form == "sharegpt"


def has_trl_form(columns: Collection[str]) -> bool:
    """Whether TRL would take rows with these columns, whatever else they have."""
    return any(set(needed) <= set(columns) for needed in _TRL_FORMS.values())


def columns_of(form: str) -> tuple[str, ...]:
    """The columns that every row of a form must fill."""
    return _ALL[form]


# ---- forms of others become ours


def as_known(dataset: Any, where: str, pair: tuple[str, str] = ("problem", "solution")) -> Any:
    """A dataset with one form only, which is problem-solution or one of TRL's; others come back as they are."""
    form = find_form(dataset.column_names or (), pair)
    if form in CONVERTERS and not hasattr(dataset, "num_rows"):  # a stream
        return dataset.map(CONVERTERS[form], remove_columns=dataset.column_names)
    if form in CONVERTERS:
        rows = [at(f"{where}, row {number}", CONVERTERS[form], row) for number, row in enumerate(dataset)]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return type(dataset).from_dict(columns, on_mixed_types="use_json")  # else every tool gets all tools' arguments
    others = [name for name in dataset.column_names or () if name in _other_columns(form)]
    return dataset.remove_columns(others) if others else dataset


def _other_columns(form: str | None) -> set[str]:
    """Columns of TRL's other forms, by which it would take a row for what it is not."""
    if form not in ("prompt-completion", "messages"):
        return set()
    return {"prompt", "completion", "messages", "text"} - set(_TRL_FORMS[form])


def as_known_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[str, list[Row]]:
    """The form of rows in memory, by the first of them, and the rows, those in the form of others converted."""
    given = list(rows)
    form = (find_form(list(given[0])) if given else None) or PAIR
    if form in CONVERTERS:
        converted = [at(f"row {number}", CONVERTERS[form], row) for number, row in enumerate(given)]
        return as_known_rows(converted)
    kept = (*_ALL[form], *_BESIDE.get(form, ()))
    return form, [{name: row[name] for name in kept if row.get(name) is not None} for row in given]


def at(place: str, convert: Callable[[Mapping[str, Any]], Result], row: Mapping[str, Any]) -> Result:
    """Return what a function makes of a row; its error names the place."""
    try:
        return convert(row)
    except DataError as error:
        error.problem = f"{place}: {error.problem}"
        raise


def _from_alpaca(row: Mapping[str, Any]) -> Row:
    """Instruction and input, a blank line between them, are the problem."""
    _refuse_more(row, "history", "system", "image", "images")
    parts = [part for part in (row.get("instruction"), row.get("input")) if part]
    asked = "\n\n".join(parts) if all(isinstance(part, str) for part in parts) else None
    solution = row.get("output")
    return {"problem": asked, "solution": solution if isinstance(solution, str) else None}


def _refuse_more(row: Mapping[str, Any], *names: str) -> None:
    """What would be lost in another form."""
    for name in names:
        if row.get(name):
            problem = f"{name!r} is not read in this form"
            raise DataError(problem, hint="write such rows as messages, or remove the column")


_SPEAKERS = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "tool": "tool",
}  # fmt: skip


def _from_sharegpt(row: Mapping[str, Any]) -> Row:
    """Turns with `from` and `value`, or `role` and `content`, are messages; a column `system` is the first of them."""
    _refuse_more(row, "image", "images")
    system = row.get("system")
    messages = [{"role": "system", "content": system}] if system else []
    turns = row.get("conversations")
    for turn in turns if isinstance(turns, list) else []:
        fields = turn if isinstance(turn, Mapping) else {}
        speaker = fields.get("from") or fields.get("role")
        said = fields.get("content") if fields.get("value") is None else fields.get("value")
        if speaker not in _SPEAKERS or not (isinstance(said, str) or (said is None and fields.get("tool_calls"))):
            problem = f"a turn of conversations must have 'from' ({', '.join(_SPEAKERS)}) and 'value', a text"
            raise DataError(problem, value=turn, hint="write such rows as messages")
        others = {name: value for name, value in fields.items() if name not in ("from", "value")}
        messages.append({**others, "role": _SPEAKERS[speaker], "content": said})
    return {"messages": messages, **({"tools": row["tools"] or None} if "tools" in row else {})}


CONVERTERS: dict[str, Callable[[Mapping[str, Any]], Row]] = {"alpaca": _from_alpaca, "sharegpt": _from_sharegpt}


# ---- what the columns must hold


def require_types(rows: Dataset, where: str) -> None:
    """Refuse columns of another type than TRL renders: they would break somewhere inside it."""
    form = find_form(rows.column_names) or ""
    columns = _TRL_FORMS[form] + (("labels",) if form == "tokenised" and "labels" in rows.column_names else ())
    held = {name: _held(rows.features[name]) for name in columns}
    for name, kind in held.items():
        if kind not in _HOLDS[name]:
            raise DataError(f"{where}: {name!r} must hold {' or '.join(_HOLDS[name])}, and holds {rows.features[name]}")
    if form == "prompt-completion" and len(set(held.values())) > 1:
        raise DataError(f"{where}: prompt and completion must both hold text or both messages")


def _held(feature: Any) -> str:
    """What a column holds, by its type."""
    from datasets import Json

    inner = getattr(feature, "feature", None)
    if getattr(feature, "dtype", None) in ("string", "large_string"):
        return "text"
    if isinstance(inner, Json) or (isinstance(inner, Mapping) and "role" in inner):
        return "messages"
    return "token ids" if str(getattr(inner, "dtype", "")).startswith(("int", "uint")) else ""


def is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str | list) and len(value) == 0)
