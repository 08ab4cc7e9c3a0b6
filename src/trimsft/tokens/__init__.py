"""Which tokens a model learns from: the token table and its statistics.

    tables = measure_tokens(TokenSettings(models=("runs/trim",), data="train.jsonl", sample=2000))
    write_token_table("runs/trim/model", rows, Path("runs/trim/tokens.parquet"))     # of rows in memory

`settings` and `measure` are the command; `write` makes one table, in a `passes` over windows of rows by the model's
head (`heads`), stored in `parts`, shared by processes (`shards`); `table` reads it, `statistics` say what is in it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimsft.tokens.settings import TokenSettings

if TYPE_CHECKING:
    from trimsft.tokens.measure import TokenTables, measure_tokens
    from trimsft.tokens.table import TokenTable, read_token_table, same_tokens
    from trimsft.tokens.write import write_token_table, write_token_tables

__all__ = [
    "TokenSettings",
    "TokenTable",
    "TokenTables",
    "measure_tokens",
    "read_token_table",
    "same_tokens",
    "write_token_table",
    "write_token_tables",
]

_HOMES = {
    **dict.fromkeys(("TokenTables", "measure_tokens"), "measure"),
    **dict.fromkeys(("TokenTable", "read_token_table", "same_tokens"), "table"),
    **dict.fromkeys(("write_token_table", "write_token_tables"), "write"),
}


def __getattr__(name: str) -> Any:
    """What loads torch is imported when it is used: the command line only wants the settings."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
