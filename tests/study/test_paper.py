"""What can be computed again from the paper's tables is; where it comes out otherwise, the data say so."""

import re
from pathlib import Path

import pytest

from trimsft.study import paper

SOURCE = next(iter(sorted((Path(__file__).parents[3] / "shared" / "paper").glob("*.txt"))), None)
PRINTED = 0.0051
"""Half of the last printed digit."""


SCORE_TABLES = ("main", "half_trims", "half_trims_complete", "bandwidth_ablation", "margin_ablation")
SCORES = [row for table in SCORE_TABLES for row in paper.rows(table)]


def test_averages_are_means_of_their_rows_but_for_one() -> None:
    means = {row.line: (sum(row.scores.values()) / len(row.scores), row.average) for row in SCORES if row.average}
    wrong = {line for line, (mean, printed) in means.items() if abs(mean - printed) > PRINTED}
    assert len(means) == 64 and wrong == {543}


def test_shares_sum_to_100() -> None:
    for row in paper.rows("gradient_mass"):
        assert row.low + row.middle + row.high == pytest.approx(100, abs=0.02)
    for field in ("ratio", "sft_mass", "trim_mass"):
        assert sum(getattr(row, field) for row in paper.rows("token_categories")) == pytest.approx(100, abs=0.02)


@pytest.mark.skipif(SOURCE is None, reason="needs the paper's source")
def test_lines_are_those_of_the_source() -> None:
    assert SOURCE is not None
    lines = SOURCE.read_text(encoding="utf-8").split("\n")
    for row in SCORES:
        printed = [float(number) for number in re.findall(r"\d+\.\d\d", lines[row.line - 1])]
        assert printed == [*row.scores.values(), *([] if row.average is None else [row.average])]
    for weights in paper.rows("weight_diagnostics"):
        numbers = f"{weights.high_weight_percent:.2f} & {weights.effective_ratio:.3f} & {weights.average:.2f}"
        assert numbers in lines[weights.line - 1]
    for mass in paper.rows("gradient_mass"):
        plain = re.sub(r"\\textbf\{(.*?)\}", r"\1", lines[mass.line - 1])
        assert f"{mass.low:.2f} & {mass.middle:.2f} & {mass.high:.2f}" in plain
