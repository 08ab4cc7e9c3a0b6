"""Which tokens a model learns from: the token table and its statistics.

write_token_table("runs/trim/model", rows, Path("runs/trim/tokens.parquet"))     # one pass of the model
"""

from trimsft.tokens.measure import write_token_table, write_token_tables
from trimsft.tokens.table import TokenTable, read_token_table, same_tokens

__all__ = ["TokenTable", "read_token_table", "same_tokens", "write_token_table", "write_token_tables"]
