"""The form of the paper's Table 1, in 80 columns, with marks only where they are earned."""

import io
import re

from rich.console import Console

from tests.study.quickstart.made_up import TIERS, make_results
from trimsft.study.quickstart import scores as tables
from trimsft.study.quickstart.scores import Results

ALL = {
    "base": (4, 1.0),
    "sft": (4, 1.0),
    "fsft": (1, 0.9),
    "dft": (7, 1.0),
    "trim": (6, 1.0),
    "trim_e": (8, 1.0),
    "trim_h": (4, 1.0),
}


def printed(table: object, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def rows(results: Results) -> list[list[str]]:
    return [line.split() for line in printed(tables.main_table(results)) if line.strip()]


def test_methods_by_tiers_and_their_average_sampled_then_greedy() -> None:
    header, _, *body = rows(make_results(**ALL))
    assert header == [*TIERS, "average"]
    names = [row[0] for row in body]
    methods = ["Base", "SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H"]
    assert names == ["average@8", *methods, "greedy", *methods]
    assert all(len(row) == 9 for row in body if row[0] in methods)


def test_it_fits_into_80_columns() -> None:
    lines = printed(tables.main_table(make_results(**ALL)), width=200)
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_cells_hold_value_interval_and_mark() -> None:
    results = make_results(**ALL)
    (trim,) = [row for row in rows(results)[:9] if row[0] == "TrimSFT"]
    assert trim[1::2] == ["75.0↑"] * 4
    low, high = map(int, re.fullmatch(r"(\d+)-(\d+)", trim[8]).groups())  # type: ignore[union-attr]
    assert low < 75 < high
    (fsft,) = [row for row in rows(results)[:9] if row[0] == "FSFT"]
    assert fsft[1::2] == ["12.5↓"] * 4


def test_nothing_is_marked_where_nothing_differs_or_sft_is_missing() -> None:
    for results in (make_results(base=(5, 1.0), sft=(5, 1.0)), make_results(base=(5, 1.0), trim=(8, 1.0))):
        text = "\n".join(printed(tables.main_table(results)))
        assert "↑" not in text and "↓" not in text
    assert "SFT" not in tables.legend(results)


def test_two_problems_are_too_few_for_a_mark() -> None:
    assert make_results(problems=2, sft=(2, 1.0), trim=(6, 1.0)).direction("trim", "average") == 0


def test_pass_and_majority() -> None:
    lines = printed(tables.other_table(make_results(**ALL)))
    assert "pass@8" in lines[1] and "majority@8" in lines[1]
    assert len([line for line in lines if "100.0" in line]) >= 5


def test_json_has_every_interval() -> None:
    record = make_results(**ALL).as_dict()
    assert list(record) == [name.replace("_", "-") for name in ALL]
    for tiers in record.values():
        assert list(tiers) == [*TIERS, "average"]
        for scores in tiers.values():
            assert list(scores) == ["average@8", "greedy", "pass@8", "majority@8"]
            assert all(entry["low"] <= entry["value"] <= entry["high"] for entry in scores.values())
    assert record["trim"]["average"]["average@8"]["against_sft"]["significant"]
    assert "against_sft" not in record["sft"]["average"]["average@8"]
