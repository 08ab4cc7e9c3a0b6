"""Rows that `TrimSFTTrainer` takes beside TRL's own forms: rows of `trimsft.data.formats`, as the commands read them.

    TrimSFTTrainer(model, args, train_dataset=Dataset.from_list([{"problem": "1+1?", "solution": "2"}]))

Rows that TRL takes stay TRL's, whatever other columns they have.
"""

from typing import Any

from datasets import Dataset

from trimsft.data.chat import TrlEncoder, check_chats
from trimsft.data.encode import encode
from trimsft.data.formats import KNOWN, as_known, at, find_form, has_trl_form
from trimsft.data.load import DataConfig
from trimsft.errors import DataError
from trimsft.head import IGNORED
from trimsft.train.config import require_masked_prompts


def known(rows: Any, args: Any, name: str) -> Any:
    """Return a dataset, or several by name, with alpaca and sharegpt as problem and solution or as messages."""
    if isinstance(rows, dict):
        return type(rows)({key: known(part, args, key) for key, part in rows.items()})
    if isinstance(rows, Dataset) and len(rows) == 0:
        raise DataError("has no rows", field=f"{name}_dataset")
    return as_known(rows, f"{name}_dataset") if rows is not None and not _is_for_trl(rows, args) else rows


def tokenised(rows: Any, tokenizer: Any, args: Any, name: str) -> Any:
    """Return a dataset in which problems and solutions are tokens and labels; one for TRL stays as it is."""
    if _is_left_alone(rows, args):
        return rows
    rows = rows if _is_for_trl(rows, args) else as_known(rows, f"{name}_dataset")
    columns = _columns(rows)
    if _is_for_trl(rows, args):
        return _checked(rows, TrlEncoder(tokenizer, args.assistant_only_loss, args.completion_only_loss), name)
    if find_form(columns) is None:
        problem = f"has rows with the columns {', '.join(columns)}, which are of no form that is known"
        raise DataError(problem, field=f"{name}_dataset", hint=f"known: {KNOWN}; or give a formatting_func")
    require_masked_prompts(args)
    return encode(rows, tokenizer, DataConfig(f"{name}_dataset"))


def _checked(rows: Any, encoder: TrlEncoder, name: str) -> Any:
    """Return chats as tokens and labels where TRL would train turns that are switched off, or as they are."""
    columns = _columns(rows)
    is_chat = find_form(columns) in ("messages", "prompt-completion") and not {"image", "images"} & set(columns)
    if not is_chat or not getattr(encoder.tokenizer, "chat_template", None):
        return rows

    def as_labels(row: dict[str, Any], number: int) -> dict[str, Any]:
        at(f"{name} data, row {number}", encoder.check, row)
        ids, is_trained = encoder.encode(row)
        labels = [token if is_on else IGNORED for token, is_on in zip(ids, is_trained, strict=True)]
        return {"input_ids": ids, "labels": labels}

    options: dict[str, Any] = {}
    if isinstance(rows, Dataset):  # the rows of a stream are not known before
        if not check_chats(rows.with_format(None), encoder, f"{name} data"):
            return rows
        options = {"load_from_cache_file": False, "desc": "Tokenising"}
    return rows.map(as_labels, with_indices=True, remove_columns=columns, **options)


def _is_left_alone(rows: Any, args: Any) -> bool:
    """Return whether rows are not prepared at all."""
    is_skipped = (args.dataset_kwargs or {}).get("skip_prepare_dataset") or not hasattr(rows, "column_names")
    return is_skipped or (isinstance(rows, Dataset) and rows.format["type"] == "custom")


def _is_for_trl(rows: Any, args: Any) -> bool:
    """Return whether TRL takes these rows, or leaves them to its user."""
    own = {args.dataset_text_field, "image", "images"}
    return _is_left_alone(rows, args) or has_trl_form(columns := _columns(rows)) or bool(own & set(columns))


def _columns(rows: Any) -> list[str]:
    """Return the columns of a dataset; of a stream that does not say, those of its first row."""
    return list(next(iter(rows), {})) if rows.column_names is None else list(rows.column_names)
