"""Which tokens a model learns from: the token table and its statistics.

    tables = measure_tokens(TokenSettings(models=("runs/trim",), data="train.jsonl", sample=2000))
    write_token_table("runs/trim/model", rows, Path("runs/trim/tokens.parquet"))     # of rows in memory

`settings` and `measure` are the command; `write` makes one table, in a `passes` over windows of rows by the model's
head (`heads`), stored in `parts`, shared by processes (`shards`); `table` reads it, `statistics` say what is in it.
"""

from trimsft.tokens.settings import TokenSettings

__all__ = ["TokenSettings"]
