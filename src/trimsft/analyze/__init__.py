"""Which tokens a model learns from: the token table, its statistics, and the page that shows them.

write_token_table("runs/trim/model", rows, Path("runs/trim/tokens.parquet"))     # one pass of the model
write_report(Path("report.html"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")}, title="...", settings={})
"""

from trimsft.analyze.page.build import write_report
from trimsft.analyze.table import TokenTable, read_token_table
from trimsft.analyze.tokens import write_token_table

__all__ = ["TokenTable", "read_token_table", "write_report", "write_token_table"]
