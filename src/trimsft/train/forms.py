"""Rows that `TrimSFTTrainer` takes beside TRL's own forms: rows of `trimsft.data.formats`, as the commands read them.

    TrimSFTTrainer(model, args, train_dataset=Dataset.from_list([{"problem": "1+1?", "solution": "2"}]))

Rows that TRL takes stay TRL's, whatever other columns they have.
"""

from typing import Any

from datasets import Dataset

from trimsft.data.chat import check_chats, has_weights
from trimsft.data.encode import TOKEN_WEIGHTS, Encoder, encode, require_masked_prompts, tokenise
from trimsft.data.formats import KNOWN, WEIGHT, columns_of, find_form, has_trl_form, known_dataset
from trimsft.data.load import DataConfig
from trimsft.data.templates import TrainOn
from trimsft.errors import DataError


def known(rows: Any, args: Any, name: str) -> Any:
    """Return a dataset, or several by name, with alpaca and sharegpt as problem and solution or as messages."""
    if isinstance(rows, dict):
        return type(rows)({key: known(part, args, key) for key, part in rows.items()})
    if isinstance(rows, Dataset) and len(rows) == 0:
        raise DataError("has no rows", field=f"{name}_dataset")
    if hasattr(rows, "column_names") and {"image", "images"} & set(columns_of(rows)):
        _refuse_weights_of_images(rows, name)
    return known_dataset(rows, f"{name}_dataset") if rows is not None and not _is_for_trl(rows, args) else rows


def _refuse_weights_of_images(rows: Any, name: str) -> None:
    """Refuse weights that nobody would see: TRL makes the tokens of such rows batch by batch."""
    chats = [column for column in columns_of(rows) if column in ("messages", "prompt", "completion")]
    some = rows.select_columns(chats) if isinstance(rows, Dataset) else rows.take(1)
    turns = (turn for row in some for column in chats if isinstance(row[column], list) for turn in row[column])
    if {WEIGHT, TOKEN_WEIGHTS} & set(columns_of(rows)) or any(map(has_weights, turns)):
        raise DataError("weights of rows with images are not read", field=f"{name}_dataset", hint="remove them")


def tokenised(rows: Any, tokenizer: Any, args: Any, name: str, *, with_roles: bool = False) -> Any:
    """Return a dataset in which problems and solutions are tokens and labels; one for TRL stays as it is."""
    if _is_left_alone(rows, args):
        return rows
    if _is_for_trl(rows, args):
        train_on: TrainOn = "assistant" if args.assistant_only_loss else "all"
        return _checked(rows, Encoder(tokenizer, train_on, args.completion_only_loss, with_roles=with_roles), name)
    rows = known_dataset(rows, f"{name}_dataset")
    if find_form(columns_of(rows)) is None:
        problem = f"has rows with the columns {', '.join(columns_of(rows))}, which are of no form that is known"
        raise DataError(problem, field=f"{name}_dataset", hint=f"known: {KNOWN}; or give a formatting_func")
    require_masked_prompts(args.completion_only_loss)
    return encode(rows, tokenizer, DataConfig(f"{name}_dataset"), with_roles=with_roles)


def _checked(rows: Any, encoder: Encoder, name: str) -> Any:
    """Return rows as tokens, labels and weights where they have weights of their own, or as they are."""
    columns, where = columns_of(rows), f"{name} data"
    is_weighed = bool({WEIGHT, TOKEN_WEIGHTS} & set(columns)) or encoder.with_roles
    is_chat = find_form(columns) in ("messages", "prompt-completion") and bool(encoder.tokenizer.chat_template)
    if not isinstance(rows, Dataset):  # the rows of a stream are not known before
        return tokenise(rows, encoder, where) if is_chat or is_weighed or rows.column_names is None else rows
    if is_weighed or (is_chat and check_chats(rows.with_format(None), encoder, where)):
        return tokenise(rows, encoder, where)
    return rows


def _is_left_alone(rows: Any, args: Any) -> bool:
    """Return whether rows are not prepared at all."""
    is_skipped = (args.dataset_kwargs or {}).get("skip_prepare_dataset") or not hasattr(rows, "column_names")
    return is_skipped or (isinstance(rows, Dataset) and rows.format["type"] == "custom")


def _is_for_trl(rows: Any, args: Any) -> bool:
    """Return whether TRL takes these rows, or leaves them to its user."""
    own = {args.dataset_text_field, "image", "images"}
    return _is_left_alone(rows, args) or has_trl_form(columns := columns_of(rows)) or bool(own & set(columns))
