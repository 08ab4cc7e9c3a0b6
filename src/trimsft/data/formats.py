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
from typing import Any, TypeVar

from trimsft.errors import DataError

Row = dict[str, Any]
Result = TypeVar("Result")

PAIR = "problem-solution"
TRL_FORMS = ("tokenised", "prompt-completion", "messages", "text")
FORMS = {
    PAIR: ("problem", "solution"),
    "tokenised": ("input_ids",),
    "prompt-completion": ("prompt", "completion"),
    "messages": ("messages",),
    "text": ("text",),
    "alpaca": ("instruction", "output"),
    "sharegpt": ("conversations",),
}
"""The columns that every row of a form must fill."""
KNOWN = ", ".join("+".join(columns) for columns in FORMS.values())
"""The forms by their columns, for hints."""
_BESIDE = {
    "tokenised": ("labels", "completion_mask", "assistant_masks", "token_weights", "token_roles"),
    "prompt-completion": ("tools", "chat_template_kwargs"),
    "messages": ("tools", "chat_template_kwargs"),
}
"""Columns that change which tokens a row becomes, or how much they are trained; every form may have `weight`, too."""
WEIGHT = "weight"


def find_form(columns: Collection[str], pair: tuple[str, str] = ("problem", "solution")) -> str | None:
    """Return the form with these columns; None for an unknown one. If `pair` names other columns, only those will do.

    >>> find_form(["instruction", "input", "output"]), find_form(["question", "answer"])
    ('alpaca', None)
    """
    if set(pair) <= set(columns):
        return PAIR
    if pair != FORMS[PAIR]:
        return None
    return next((form for form, needed in FORMS.items() if set(needed) <= set(columns)), None)


def has_trl_form(columns: Collection[str]) -> bool:
    """Return whether TRL would take rows with these columns, whatever other columns they have."""
    return any(set(FORMS[form]) <= set(columns) for form in TRL_FORMS)


def is_nothing(value: Any) -> bool:
    """Return whether a column is not filled."""
    return value is None or (isinstance(value, str | list) and len(value) == 0)


# ---- conversion


def columns_of(rows: Any) -> list[str]:
    """Return the columns of a dataset; of a stream that does not say, those of its first row."""
    return list(next(iter(rows), {})) if rows.column_names is None else list(rows.column_names)


def as_known(dataset: Any, where: str) -> Any:
    """Return a dataset or stream in one form only, which is problem-solution or one of TRL's."""
    columns = columns_of(dataset)
    form = find_form(columns) or ""
    convert = CONVERTERS.get(form)
    if convert and not hasattr(dataset, "num_rows"):  # a stream
        return dataset.map(convert, remove_columns=columns)
    if convert:
        rows = [at(f"{where}, row {number}", convert, row) for number, row in enumerate(dataset)]
        made = {name: [row[name] for row in rows] for name in rows[0]}
        return type(dataset).from_dict(made, on_mixed_types="use_json")  # else every tool gets all tools' arguments
    if form not in ("prompt-completion", "messages"):
        return dataset
    # by columns of its other forms, TRL would take a row for what it is not
    others = {"prompt", "completion", "messages", "text"} - set(FORMS[form])
    return dataset.remove_columns(sorted(others & set(columns)))


def as_known_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[str, list[Row]]:
    """Return the form of rows in memory, judged by the first, and the rows in its columns."""
    given = list(rows)
    form = (find_form(list(given[0])) if given else None) or PAIR
    if form in CONVERTERS:
        return as_known_rows(at(f"row {number}", CONVERTERS[form], row) for number, row in enumerate(given))
    kept = (*FORMS[form], *_BESIDE.get(form, ()), WEIGHT)
    return form, [{name: row[name] for name in kept if row.get(name) is not None} for row in given]


def at(place: str, function: Callable[..., Result], *given: Any) -> Result:
    """Return the result of a function of a row; its error names the place."""
    try:
        return function(*given)
    except DataError as error:
        error.problem = f"{place}: {error.problem}"
        raise


def _from_alpaca(row: Mapping[str, Any]) -> Row:
    """Join instruction and input, a blank line between them, to the problem."""
    _refuse_more(row, "history", "system", "image", "images")
    parts = [part for part in (row.get("instruction"), row.get("input")) if part]
    problem = "\n\n".join(parts) if all(isinstance(part, str) for part in parts) else None
    return {"problem": problem, "solution": row.get("output"), **({WEIGHT: row[WEIGHT]} if WEIGHT in row else {})}


_ROLES = {"human": "user", "gpt": "assistant"} | {role: role for role in ("system", "user", "assistant", "tool")}


def _from_sharegpt(row: Mapping[str, Any]) -> Row:
    """Make messages of turns with `from` and `value`, or `role` and `content`; a column `system` is the first."""
    _refuse_more(row, "image", "images")
    system, turns = row.get("system"), row.get("conversations")
    messages = [{"role": "system", "content": system}] if system else []
    for turn in turns if isinstance(turns, list) else []:
        fields = turn if isinstance(turn, Mapping) else {}
        speaker = fields.get("from") or fields.get("role")
        text = fields.get("content") if fields.get("value") is None else fields.get("value")
        if speaker not in _ROLES or not (isinstance(text, str) or (text is None and fields.get("tool_calls"))):
            problem = f"a turn of conversations must have 'from' ({', '.join(_ROLES)}) and 'value', a text"
            raise DataError(problem, value=turn, hint="write such rows as messages")
        others = {name: value for name, value in fields.items() if name not in ("from", "value")}
        messages.append({**others, "role": _ROLES[speaker], "content": text})
    others = {name: row[name] or None if name == "tools" else row[name] for name in ("tools", WEIGHT) if name in row}
    return {"messages": messages, **others}


def _refuse_more(row: Mapping[str, Any], *names: str) -> None:
    """Refuse columns that the conversion would lose."""
    for name in names:
        if row.get(name):
            hint = "write such rows as messages, or remove the column"
            raise DataError(f"{name!r} is not read in this form", hint=hint)


CONVERTERS: dict[str, Callable[[Mapping[str, Any]], Row]] = {"alpaca": _from_alpaca, "sharegpt": _from_sharegpt}
