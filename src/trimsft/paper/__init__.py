"""What the paper reports: every number of its tables, to stand beside ours. Data only.

    >>> scores("main")[4].method, scores("main")[4].average
    ('trim', 4.14)
    >>> weight_diagnostics()[0].effective_ratio
    0.212

`tables.json` names the LaTeX label of each table and the line of each row in the paper's source. Methods carry the
names of `trimsft.objectives` (and "base"), benchmarks those of `trimsft.evaluate`. Where the paper disagrees with
itself the printed numbers stand, and `disagreements()` lists them.
"""

from trimsft.paper.tables import (
    SCORE_TABLES,
    CategoryRow,
    Disagreement,
    MassRow,
    Score,
    Setting,
    WeightRow,
    disagreements,
    gradient_mass,
    label,
    scores,
    token_categories,
    weight_diagnostics,
)

__all__ = [
    "SCORE_TABLES",
    "CategoryRow",
    "Disagreement",
    "MassRow",
    "Score",
    "Setting",
    "WeightRow",
    "disagreements",
    "gradient_mass",
    "label",
    "scores",
    "token_categories",
    "weight_diagnostics",
]
