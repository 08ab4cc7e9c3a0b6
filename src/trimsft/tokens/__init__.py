"""The token table, one line for each token that a model learns from, and its statistics.

tables = measure_tokens(TokenSettings(models=("runs/trim",), data="train.jsonl", sample=2000))
write_token_table("runs/trim/model", rows, Path("runs/trim/tokens.parquet"))     # of rows in memory
"""

from trimsft.tokens.measure import TokenSettings

__all__ = ["TokenSettings"]
