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

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trimsft.data.files import is_text
from trimsft.errors import DataError, and_more

if TYPE_CHECKING:
    from datasets import Dataset

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
_OF_CHATS = ("tools", "chat_template_kwargs", "image", "images")
_BESIDE = {
    "tokenised": ("labels", "completion_mask", "assistant_masks", "token_weights", "token_roles"),
    "prompt-completion": _OF_CHATS,
    "messages": _OF_CHATS,
}
WEIGHT = "weight"


def columns_of_form(form: str) -> tuple[str, ...]:
    """Return the columns that say which tokens a row becomes, and how much they are trained."""
    return (*FORMS[form], *_BESIDE.get(form, ()), WEIGHT)


def find_form(columns: Collection[str], pair: tuple[str, str] = ("problem", "solution")) -> str | None:
    """Return the form with these columns; if `pair` names other ones, only those will do.

    >>> find_form(["instruction", "input", "output"]), find_form(["question", "answer"])
    ('alpaca', None)
    """
    if set(pair) <= set(columns):
        return PAIR
    if pair != FORMS[PAIR]:
        return None
    return next((form for form, needed in FORMS.items() if set(needed) <= set(columns)), None)


def is_filled(form: str, row: Mapping[str, Any]) -> bool:
    """Return whether a row has what its form needs."""
    values = [row.get(name) for name in FORMS[form]]
    if form == PAIR:
        return all(map(is_text, values))
    return not any(value is None or (isinstance(value, str | list) and not value) for value in values)


# ---- conversion


def known_row(row: Mapping[str, Any], form: str, pair: tuple[str, str] = ("problem", "solution")) -> Row:
    """Return a row in the columns of its form alone: problem and solution, or one of TRL's."""
    if form == PAIR:
        row = {**row, **{new: row.get(old) for old, new in zip(pair, FORMS[PAIR], strict=True)}}
    elif form in CONVERTERS:
        for name in _LOST[form]:
            if row.get(name):
                raise DataError(f"{name!r} is not read in this form", hint="write such rows as messages, or remove it")
        row, form = CONVERTERS[form](row), BECOMES[form]
    return {name: row[name] for name in columns_of_form(form) if row.get(name) is not None}


def known_rows(
    placed: Sequence[tuple[str, Row]], form: str, pair: tuple[str, str] = ("problem", "solution")
) -> list[Row]:
    """Return rows likewise, each given with its place; refuse those that do not fill their form."""
    rows = [at(place, known_row, row, form, pair) for place, row in placed]
    fits = [is_filled(BECOMES.get(form, form), row) for row in rows]
    refuse_blank([place for (place, _), fit in zip(placed, fits, strict=True) if not fit], form, pair)
    return rows


def refuse_blank(places: Sequence[str], form: str, pair: tuple[str, str]) -> None:
    """Name the first of some rows that do not fill their form, and how many more."""
    if places:
        needed = " or ".join(map(repr, pair if form == PAIR else FORMS[form]))
        raise DataError(f"{places[0]}: {needed} is missing or blank{and_more(len(places), 'rows')}")


def converted(dataset: Any, where: str) -> Any:
    """Return a dataset or stream of alpaca or sharegpt in the columns of what it becomes, any other as it is."""
    columns = columns_of(dataset)
    form = find_form(columns) or ""
    if form not in CONVERTERS:
        return dataset
    if not hasattr(dataset, "num_rows"):  # a stream
        return dataset.map(lambda row: known_row(row, form), remove_columns=columns)
    return make_dataset([at(f"{where}, row {number}", known_row, row, form) for number, row in enumerate(dataset)])


def make_dataset(rows: Sequence[Row]) -> Dataset:
    """Return rows as a dataset that pads no tools and arguments with names of other rows."""
    from datasets import Dataset

    names = dict.fromkeys(name for row in rows for name in row)
    return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names}, on_mixed_types="use_json")


def columns_of(rows: Any) -> list[str]:
    """Return the columns of a dataset; of a stream that does not say, those of its first row."""
    return list(next(iter(rows), {})) if rows.column_names is None else list(rows.column_names)


def at(place: str, function: Callable[..., Result], *given: Any) -> Result:
    """Return the result of a function of a row; its error names the place."""
    try:
        return function(*given)
    except DataError as error:
        error.problem = f"{place}: {error.problem}"
        raise


def _from_alpaca(row: Mapping[str, Any]) -> Row:
    """Join instruction and input, a blank line between them, to the problem."""
    parts = [part for part in (row.get("instruction"), row.get("input")) if part]
    problem = "\n\n".join(parts) if all(isinstance(part, str) for part in parts) else None
    return {**row, "problem": problem, "solution": row.get("output")}


_ROLES = {"human": "user", "gpt": "assistant"} | {role: role for role in ("system", "user", "assistant", "tool")}


def _from_sharegpt(row: Mapping[str, Any]) -> Row:
    """Make messages of turns with `from` and `value`; a column `system` is the first."""
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
    return {**row, "messages": messages, "tools": row.get("tools") or None}


CONVERTERS: dict[str, Callable[[Mapping[str, Any]], Row]] = {"alpaca": _from_alpaca, "sharegpt": _from_sharegpt}
BECOMES = {"alpaca": PAIR, "sharegpt": "messages"}
# columns that the conversion would lose
_LOST = {"alpaca": ("history", "system", "image", "images"), "sharegpt": ("image", "images")}
