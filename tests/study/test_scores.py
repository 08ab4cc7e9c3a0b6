"""Rows of scores: ours beside the paper's, another model's for the pattern, pairs over seeds."""

import pytest

from tests.study.made_up_scores import SHIFTS, cell, exact, main_results, results
from trimsft.study.paper_tables import STAND_IN, our_table, score_rows
from trimsft.study.results import paired, summarise
from trimsft.study.scales import SCALES

PAPER = SCALES["paper"]


def table_rows(found, study="main", resamples=20):
    summaries = summarise(found, resamples=resamples)
    return score_rows(study, summaries, ["average"])


def difference(summaries, a, b, **options):
    return paired(*(summaries[cell(name)] for name in (a, b)), **options)


def test_a_setting_finds_its_number_in_the_papers_tables():
    def of(study, objective, model=STAND_IN, benchmarks=PAPER.benchmarks, **fields):
        one = cell(objective, model=model, **fields)
        rows = table_rows({one: exact(0.5, benchmarks=benchmarks)}, study)
        return {row.benchmark: row.paper and round(100 * row.paper, 4) for row in rows}

    assert of("main", "trim")["average"] == 31.77 and of("main", "fsft", "Llama3.1-8B")["math500"] == 2.95
    assert of("main", "trim", margin=1.0)["math500"] is None and of("main", "fsft", gamma=1.0)["math500"] is None
    assert of("main", "sft", learning_rate=1e-4)["math500"] is None, "another recipe"
    assert of("ablation", "trim", margin=4.0, bandwidth=1.0)["aime24"] == 5.83
    assert of("half-trims", "trim", benchmarks=("aime24",), margin=4.0, bandwidth=1.0)["aime24"] == 8.83
    assert of("ablation", "trim", margin=6.0, bandwidth=1.0)["olympiadbench"] == 29.28, "the first of its two tables"
    both = of("main", "sft", benchmarks=("math500", "amc"))
    assert both == {"math500": 40.02, "amc": 12.64, "average": pytest.approx((40.02 + 12.64) / 2)}
    # of another model: its benchmark, or the average where none is the paper's
    assert of("main", "sft", "coder", ("math500",)) == {"math500": 40.02}
    assert of("main", "sft", "lab", ("easy", "hard")) == {"easy": None, "hard": None, "average": 15.47}
    assert of("main", "sft", "lab", ("math500", "hard")) == {"math500": 40.02, "hard": None, "average": None}
    assert of("half-trims", "sft", "lab", ("easy", "hard"))["average"] == pytest.approx(18.3867, abs=1e-4)


def test_arrows_need_a_paired_interval_without_zero():
    table = our_table("t", table_rows(main_results(1, {**SHIFTS, "dft": 0.0}), resamples=200))
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["TrimSFT"][-2].marker == "↑" and by_name["FSFT"][-2].marker == "↓"
    assert by_name["SFT"][-2].marker == "" and by_name["DFT"][-2].marker == ""
    assert [name for name, row in by_name.items() if row[-2].bold] == ["TrimSFT"]
    assert "trainings of each: 1." in table.notes[0] and "seeds and" not in table.notes[0]
    table = our_table("t", table_rows({cell(name): exact(0.5) for name in ("sft", "trim")}))
    assert not any(entry.bold for row in table.rows for entry in row)


def test_pairs_by_problem_and_seed_tell_runs_apart():
    """Every seed is moved as a whole, far more than the two methods differ."""
    shifts = {
        cell(name, seed): 0.7 * seed - 0.7 + extra for name, extra in (("sft", 0.0), ("trim", 0.8)) for seed in range(3)
    }
    summaries = summarise(results(shifts), resamples=200)
    sft, trim = (summaries[cell(name)].interval("average") for name in ("sft", "trim"))
    assert difference(summaries, "trim", "sft").low > 0 and trim.low < sft.value


def test_a_base_is_held_against_every_seed_of_the_other():
    """One run of the base; seeds of SFT that differ widely must widen the difference to it."""
    widths = []
    for shifts in ((1.0, 1.0, 1.0), (-1.0, 1.0, 3.0)):
        trained = {cell("sft", seed): shift for seed, shift in enumerate(shifts)}
        summaries = summarise(results({cell("base"): 0.0, **trained}), resamples=200)
        one, other = difference(summaries, "sft", "base"), difference(summaries, "base", "sft")
        assert (one.value, one.low) == pytest.approx((-other.value, -other.high), abs=0.01)
        widths.append(one.high - one.low)
    assert widths[1] > 2 * widths[0]
