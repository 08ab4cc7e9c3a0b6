"""What can be computed again from the paper's tables comes out so, but for one number."""

from trimsft.study import paper

PRINTED = 0.0051
"""Half of the last printed digit."""
TABLES = ("main", "half_trims", "half_trims_complete", "bandwidth_ablation", "margin_ablation")


def test_averages_are_means_of_their_rows_but_for_one() -> None:
    rows = [row for table in TABLES for row in paper.rows(table) if row.average]
    wrong = {row.line for row in rows if abs(sum(row.scores.values()) / len(row.scores) - row.average) > PRINTED}
    assert len({row.line for row in rows}) == 64 and wrong == {543}
