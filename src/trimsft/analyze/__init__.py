"""Which tokens a model learns from: the token table, its statistics, tables and figures, and the page that shows them.

write_token_table("runs/trim/model", rows, Path("runs/trim/tokens.parquet"))     # one pass of the model
write_report(Path("report.html"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")}, title="...", settings={})
write_analysis(Path("analysis"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})
"""

from trimsft.analyze.page.build import write_report
from trimsft.analyze.results import write_analysis
from trimsft.analyze.table import TokenTable, read_token_table, same_tokens
from trimsft.analyze.tokens import write_token_table, write_token_tables

__all__ = [
    "TokenTable",
    "read_token_table",
    "same_tokens",
    "write_analysis",
    "write_report",
    "write_token_table",
    "write_token_tables",
]
