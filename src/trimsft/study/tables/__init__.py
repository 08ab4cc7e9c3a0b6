"""What came out of cells: scores and tokens beside the paper's, its claims held against them, tables and figures.

`results` reads scores, `summaries` brings seeds together, `variance` tells margin from bandwidth; `beside_the_paper`
finds the paper's number for each, `protocol` what was not done as the paper did it, `score_rows` and `token_tables`
make tables of both, `claims_of_the_paper` and `token_claims` judge, `figures` draws; `writing` makes files of it all.
"""
