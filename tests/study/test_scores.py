"""Rows of scores: ours beside the paper's, the pattern where it has no counterpart, pairs over seeds."""

import pytest

from tests.study.made_up_scores import SHIFTS, cell, exact, main_results, results
from trimsft.study import paper
from trimsft.study.results import labels_of, paired, summarise
from trimsft.study.scales import PAPER
from trimsft.study.score_tables import (
    STAND_IN,
    contradictions,
    numbers_of,
    our_table,
    paper_row,
    paper_table,
    pattern_table,
    ranks,
    same_order,
    score_rows,
)
from trimsft.study.studies import STUDIES
from trimsft.tables import render


def table_rows(found, study="main", resamples=20):
    summaries = summarise(found, resamples=resamples)
    return summaries, score_rows(summaries, ["average"], numbers_of(study))


def difference(summaries, a, b, **options):
    return paired(*(summaries[cell(name)] for name in (a, b)), **options)


def test_a_setting_finds_its_number_in_the_papers_tables():
    def of(study, objective, model=STAND_IN, **fields):
        return paper_row(numbers_of(study), cell(objective, model=model, **fields))

    assert of("main", "trim").average == 31.77
    assert of("main", "fsft", "Llama3.1-8B").scores["math500"] == 2.95
    assert of("main", "trim", margin=1.0) is None and of("main", "fsft", gamma=1.0) is None
    assert of("main", "sft", learning_rate=1e-4) is None, "another recipe"
    assert of("main", "trim", "lab") is None
    assert paper_row(numbers_of("main"), cell("trim"), STAND_IN).average == 31.77
    assert of("ablation", "trim", margin=4.0, bandwidth=1.0).scores["aime24"] == 5.83
    assert of("half-trims", "trim", margin=4.0, bandwidth=1.0).scores["aime24"] == 8.83, "each study shows its own"
    twice = of("ablation", "trim", margin=6.0, bandwidth=1.0)
    assert twice.scores["olympiadbench"] == 29.28, "the first of its two tables"


def test_contradictions_of_a_table_are_said_where_it_is_shown():
    told = contradictions(STUDIES["half-trims"].paper)
    assert any("at margin 2 TrimSFT-E has 7.10" in note for note in told)
    assert any("(1, 6) is 18.11 and should be 18.81" in note for note in contradictions(STUDIES["ablation"].paper))
    assert not contradictions(STUDIES["gradient-mass"].paper)
    (note,) = [note for note in told if "(4, 1)" in note]  # one sentence, though two things speak against the number
    assert "is 8.83 and should be 5.83: tab:ablation-fixed-tau" in note and "multiples of 100/240" in note
    assert note.count("should be") == 1
    told = {note for study in STUDIES.values() for note in contradictions(study.paper)}
    entries = [entry for entry in paper.disagreements() if entry.label != "abstract"]
    assert len(told) == len({(entry.label, entry.line, entry.what) for entry in entries})


def test_ranks_and_order():
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [1, 4, 1, 3]
    assert same_order([1, 2, 3], [10, 30, 20]) == (2, 3)
    assert same_order([1, 2], [5, 5]) == (0, 0)


def test_ours_the_papers_and_the_difference():
    names = PAPER.benchmarks
    shares = {"sft": 0.5, "trim": 0.75}
    found = {cell(name, model=STAND_IN): exact(share, benchmarks=names) for name, share in shares.items()}
    summaries, rows = table_rows(found)
    row = next(row for row in rows if row.setting.objective == "trim" and row.benchmark == "math500")
    assert row.paper == pytest.approx(0.6695)
    assert row.difference.value == pytest.approx(0.75 - 0.6695)
    assert (row.difference.low, row.difference.high) == pytest.approx((row.ours.low - 0.6695, row.ours.high - 0.6695))
    text = render(paper_table(summaries, rows), "markdown")
    assert "| TrimSFT | 75.0 (66.95; +8.1 \\[" in text and "75.0 (31.77; +43.2 \\[" in text
    assert "ours (the paper's; ours minus it \\[95 % interval\\])" in text
    assert pattern_table(summaries, rows) is None
    _, rows = table_rows({cell("sft", model=STAND_IN): exact(0.5, benchmarks=("math500", "amc"))})
    assert {row.benchmark: row.paper for row in rows} == {
        "math500": pytest.approx(0.4002),
        "amc": pytest.approx(0.1264),
        "average": None,
    }


def test_ranks_stand_beside_those_of_another_model():
    summaries, rows = table_rows(main_results(1))
    assert paper_table(summaries, rows) is None
    table = pattern_table(summaries, rows)
    assert table.header == ("", "ours, average", "rank", f"paper ({STAND_IN})", "rank there")
    ranked = {row[0].text: (row[2].text, row[3].text, row[4].text) for row in table.rows}
    assert ranked["TrimSFT"] == ("1", "31.77", "1") and ranked["FSFT"] == ("5", "3.27", "5")
    assert "lab: 10 of 10 pairs are in the paper's order." in table.notes
    assert "not for the size of the numbers" in table.notes[0]


def test_half_trims_are_compared_on_shared_benchmarks():
    _, rows = table_rows(results({cell("sft"): 0.0, cell("trim-h", margin=1.0, bandwidth=1.0): -1.0}), "half-trims")
    stand_in = {row.setting.objective: row.stand_in for row in rows if row.benchmark == "average"}
    assert stand_in["sft"] == pytest.approx((40.02 + 12.64 + 2.50) / 300)
    assert stand_in["trim-h"] == pytest.approx((28.75 + 8.84 + 0.41) / 300)


def test_arrows_need_a_paired_interval_without_zero():
    table = our_table("t", *table_rows(main_results(1, {**SHIFTS, "dft": 0.0}), resamples=200), ())
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["TrimSFT"][-1].marker == "↑" and by_name["FSFT"][-1].marker == "↓"
    assert by_name["SFT"][-1].marker == "" and by_name["DFT"][-1].marker == ""
    assert [name for name, row in by_name.items() if row[-1].bold] == ["TrimSFT"]
    assert "1 training each" in table.notes[0] and "seeds and" not in table.notes[0]
    table = our_table("t", *table_rows({cell(name): exact(0.5) for name in ("sft", "trim")}), ())
    assert not any(entry.bold for row in table.rows for entry in row)


def test_names_are_as_short_as_they_can_be():
    settings = [cell("sft"), cell("trim"), cell("trim", margin=4.0)]
    assert list(labels_of(settings[:2]).values()) == ["SFT", "TrimSFT"]
    assert list(labels_of(settings).values())[1:] == [
        "TrimSFT (margin 1.5, bandwidth 0.8)",
        "TrimSFT (margin 4, bandwidth 0.8)",
    ]
    assert labels_of([settings[0], cell("sft", model="other")])[settings[0]] == "lab, SFT"


def test_pairs_by_problem_and_seed_tell_runs_apart():
    """Every seed is moved as a whole, far more than the two methods differ: only the pairs show it."""
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
        interval = difference(summarise(results({cell("base"): 0.0, **trained}), resamples=200), "sft", "base")
        widths.append(interval.high - interval.low)
    assert widths[1] > 2 * widths[0]


def test_a_score_is_over_the_seeds_that_have_it():
    found = {cell("sft", seed): exact(0.25 * (1 + seed)) for seed in range(3)}
    found[cell("sft", 2)] = exact(0.75, benchmarks=("easy",))
    found[cell("trim")] = exact(0.5, benchmarks=("easy",))
    summaries, rows = table_rows(found)
    told = {(row.setting.objective, row.benchmark): (row.seeds, row.ours.value) for row in rows}
    assert told == {
        ("sft", "easy"): ((0, 1, 2), pytest.approx(0.5)),
        ("sft", "hard"): ((0, 1), pytest.approx(0.375)),
        ("sft", "average"): ((0, 1), pytest.approx(0.375)),
        ("trim", "easy"): ((0,), pytest.approx(0.5)),
    }
    text = render(our_table("t", summaries, rows, ()), "markdown")
    assert next(line for line in text.splitlines() if line.startswith("| TrimSFT")).endswith("| - | - |")


def test_an_interval_for_several_tests_is_wider():
    def growth(seeds):
        summaries = summarise(main_results(seeds), resamples=200)
        once, often = (difference(summaries, "trim", "dft", tests=tests) for tests in (1, 4))
        assert often.value == once.value
        return (often.high - often.low) / (once.high - once.low)

    assert growth(1) == pytest.approx(2.4977 / 1.9600, rel=1e-3), "the normal quantiles"
    assert growth(3) == pytest.approx(8.8602 / 4.3027, rel=1e-3), "Student's t of 2 degrees"
