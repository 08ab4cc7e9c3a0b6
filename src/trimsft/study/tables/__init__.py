"""What came out of cells: scores and tokens beside the paper's, its claims held against them, tables and figures.

`summaries` reads scores and brings seeds together, `variance` tells margin from bandwidth; `scores` and `tokens` set
ours beside the paper's, `claims` judges what the paper says, `notes` says what a reader must know, `figures` draws;
`writing` makes files of it all.
"""
