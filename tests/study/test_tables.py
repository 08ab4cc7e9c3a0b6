"""Tables of studies: ours beside the paper's, the pattern where it has no counterpart, claims, every format."""

import csv
import io
import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.analyze.tiny import make_table
from tests.scoring.graded import score_of
from tests.study.made_up_scores import counts, exact, folder_of, results, write_run
from trimsft import paper
from trimsft.evaluate.formats import render
from trimsft.files import RunError
from trimsft.study.beside_the_paper import STAND_IN, contradictions, numbers_of, ranks, same_order
from trimsft.study.cells import Cell
from trimsft.study.claims_of_the_paper import sensitivity_of
from trimsft.study.places import Place
from trimsft.study.scales import SCALES
from trimsft.study.score_rows import our_table, paper_table, pattern_table, score_rows
from trimsft.study.studies import STUDIES
from trimsft.study.summaries import Setting, labels_of, paired, setting_of, summarise
from trimsft.study.tables import claims, fitting_latex, write_study

LAB = replace(SCALES["lab"], benchmarks=("easy", "hard"))
SHIFTS = {"base": -0.5, "sft": 0.0, "fsft": -2.0, "dft": 1.0, "trim": 1.8}


def cell(objective, seed=0, model="lab", **fields):
    return Cell(model=model, objective=objective, seed=seed, fields=tuple(fields.items()))


def main_results(seeds=3, shifts=SHIFTS, model="lab"):
    return results(
        {
            cell(name, seed, model): shift
            for name, shift in shifts.items()
            for seed in (range(seeds) if name != "base" else (0,))
        }
    )


def on_the_papers_benchmarks(share, names=("math500", "olympiadbench", "minerva", "amc", "aime24")):
    return exact(share, benchmarks=names)


# ---- the paper's numbers


def test_a_setting_finds_its_number_in_the_papers_tables():
    numbers = numbers_of("main")
    qwen = "Qwen2.5-Math-1.5B"
    assert numbers.of(setting_of(cell("trim", model=qwen))).average == 31.77
    assert numbers.of(setting_of(cell("fsft", model="Llama3.1-8B"))).scores["math500"] == 2.95
    assert numbers.of(setting_of(cell("trim", model=qwen, margin=1.0))) is None
    assert numbers.of(setting_of(cell("fsft", model=qwen, gamma=1.0))) is None
    assert numbers.of(setting_of(cell("sft", model=qwen, learning_rate=1e-4))) is None, "another recipe"
    assert numbers.of(setting_of(cell("trim"))) is None
    assert numbers.stand_in(setting_of(cell("trim"))).average == 31.77


def test_where_two_tables_disagree_each_study_shows_its_own():
    disputed = setting_of(cell("trim", model=STAND_IN, margin=4.0, bandwidth=1.0))
    assert numbers_of("ablation").of(disputed).scores["aime24"] == 5.83
    assert numbers_of("half-trims").of(disputed).scores["aime24"] == 8.83
    twice = setting_of(cell("trim", model=STAND_IN, margin=6.0, bandwidth=1.0))
    assert numbers_of("ablation").of(twice).scores["olympiadbench"] == 29.28, "the first of its two tables"


def test_contradictions_of_a_table_are_said_where_it_is_shown():
    told = contradictions(STUDIES["half-trims"].paper)
    assert any("trim at (4, 1) on aime24 is 8.83 and should be 5.83" in note for note in told)
    assert any("at margin 2 TrimSFT-E has 7.10" in note for note in told)
    assert any(
        "(1, 6) is 18.11 and should be 18.81" in note for note in contradictions(STUDIES["ablation"].paper)
    )
    assert not contradictions(STUDIES["gradient-mass"].paper)


def test_every_contradiction_of_a_table_with_a_study_is_told_by_some_study():
    told = {note for study in STUDIES.values() for note in contradictions(study.paper)}
    assert len(told) == len([entry for entry in paper.disagreements() if entry.label != "abstract"])


def test_ranks_and_order():
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [1, 4, 1, 3]
    assert same_order([1, 2, 3], [10, 30, 20]) == (2, 3)
    assert same_order([1, 2], [5, 5]) == (0, 0)


# ---- tables


def test_ours_the_papers_and_the_difference_with_the_interval():
    qwen = "Qwen2.5-Math-1.5B"
    found = {
        cell("sft", model=qwen): on_the_papers_benchmarks(0.5),
        cell("trim", model=qwen): on_the_papers_benchmarks(0.75),
    }
    summaries = summarise(found, resamples=50)
    rows = score_rows(summaries, ["average"], numbers_of("main"))
    row = next(row for row in rows if row.setting.objective == "trim" and row.benchmark == "math500")
    assert row.paper == pytest.approx(0.6695)
    assert row.difference.value == pytest.approx(0.75 - 0.6695)
    assert (row.difference.low, row.difference.high) == pytest.approx(
        (row.ours.low - 0.6695, row.ours.high - 0.6695)
    )
    text = render(paper_table(summaries, rows), "markdown")
    assert f"| TrimSFT | 66.95 {100 * row.difference.value:+.1f} " in text and "31.77 +43.2 " in text
    assert pattern_table(summaries, rows) is None


def test_an_average_over_other_benchmarks_has_no_counterpart():
    found = {cell("sft", model=STAND_IN): on_the_papers_benchmarks(0.5, ("math500", "amc"))}
    rows = score_rows(summarise(found, resamples=20), ["average"], numbers_of("main"))
    assert {row.benchmark: row.paper for row in rows} == {
        "math500": pytest.approx(0.4002),
        "amc": pytest.approx(0.1264),
        "average": None,
    }


def test_where_the_paper_has_no_such_model_its_ranks_stand_beside_ours():
    summaries = summarise(main_results(1), resamples=50)
    rows = score_rows(summaries, ["average"], numbers_of("main"))
    assert paper_table(summaries, rows) is None
    table = pattern_table(summaries, rows)
    assert table.header == ("", "ours, average", "rank", f"paper ({STAND_IN})", "rank there")
    ranked = {row[0].text: (row[2].text, row[3].text, row[4].text) for row in table.rows}
    assert ranked["TrimSFT"] == ("1", "31.77", "1") and ranked["FSFT"] == ("5", "3.27", "5")
    assert "lab: 10 of 10 pairs are in the paper's order." in table.notes
    assert "not for the size of the numbers" in table.notes[0]


def test_half_trims_are_compared_on_the_benchmarks_that_all_rows_have():
    found = results({cell("sft"): 0.0, cell("trim-h", margin=1.0, bandwidth=1.0): -1.0})
    summaries = summarise(found, resamples=20)
    rows = score_rows(summaries, ["average"], numbers_of("half-trims"))
    stand_in = {row.setting.objective: row.stand_in for row in rows if row.benchmark == "average"}
    assert stand_in["sft"] == pytest.approx((40.02 + 12.64 + 2.50) / 300)
    assert stand_in["trim-h"] == pytest.approx((28.75 + 8.84 + 0.41) / 300)


def test_arrows_need_a_paired_interval_without_zero_and_bold_is_the_highest_shown():
    shifts = {**SHIFTS, "dft": 0.0}
    summaries = summarise(main_results(1, shifts), resamples=200)
    table = our_table("t", summaries, score_rows(summaries, ["average"], numbers_of("main")), ())
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["TrimSFT"][-1].marker == "↑" and by_name["FSFT"][-1].marker == "↓"
    assert by_name["SFT"][-1].marker == "" and by_name["DFT"][-1].marker == ""
    assert [name for name, row in by_name.items() if row[-1].bold] == ["TrimSFT"]
    assert "1 training each" in table.notes[0] and "seeds and" not in table.notes[0]


def test_names_are_as_short_as_they_can_be():
    settings = [setting_of(cell("sft")), setting_of(cell("trim")), setting_of(cell("trim", margin=4.0))]
    assert list(labels_of(settings[:2]).values()) == ["SFT", "TrimSFT"]
    assert list(labels_of(settings).values())[1:] == [
        "TrimSFT (margin 1.5, bandwidth 0.8)",
        "TrimSFT (margin 4, bandwidth 0.8)",
    ]
    assert labels_of([settings[0], Setting("other", "sft")])[settings[0]] == "lab, SFT"


def test_pairs_by_problem_and_seed_are_told_apart_where_two_runs_alone_are_not():
    """Every seed is moved as a whole, far more than the two methods differ: only the pairs show it."""
    shifts = {
        cell(name, seed): 0.7 * seed - 0.7 + extra
        for name, extra in (("sft", 0.0), ("trim", 0.8))
        for seed in range(3)
    }
    summaries = summarise(results(shifts), resamples=200)
    sft, trim = (summaries[setting_of(cell(name))] for name in ("sft", "trim"))
    assert paired(trim, sft).low > 0
    assert trim.interval("average").low < sft.interval("average").value


def test_a_base_is_held_against_every_seed_of_the_other():
    """One run of the base; seeds of SFT that differ widely must widen the difference to it."""
    calm = summarise(
        results({cell("base"): 0.0, **{cell("sft", seed): 1.0 for seed in range(3)}}), resamples=200
    )
    wild = summarise(
        results({cell("base"): 0.0, **{cell("sft", seed): 2.0 * seed - 1 for seed in range(3)}}),
        resamples=200,
    )
    widths = []
    for summaries in (calm, wild):
        difference = paired(summaries[setting_of(cell("sft"))], summaries[setting_of(cell("base"))])
        widths.append(difference.high - difference.low)
    assert widths[1] > 2 * widths[0]


# ---- claims


def verdicts(found, **options):
    return {claim.name: claim.verdict for claim in claims(found, resamples=200, **options)}


def test_results_like_the_papers_bear_its_claims_out():
    told = verdicts(main_results())
    assert told["trim-above-sft"] == told["trim-best"] == told["fsft-below-sft"] == "holds"
    assert "tau-over-m" not in told and "easy-half" not in told, "what was not run is not judged"


def test_results_against_the_paper_say_so():
    told = verdicts(main_results(shifts={**SHIFTS, "trim": -1.0, "fsft": 2.0}))
    assert told["trim-above-sft"] == told["trim-best"] == told["fsft-below-sft"] == "does not hold"


def test_results_too_close_to_call_are_not_called():
    told = verdicts({cell(name): exact(0.5) for name in SHIFTS})
    assert told["trim-above-sft"] == told["fsft-below-sft"] == told["trim-best"] == "cannot be told"


def test_a_claim_about_all_models_fails_with_one_of_them_and_best_on_most_does_not():
    found = (
        main_results(model="a")
        | main_results(model="b")
        | main_results(model="c", shifts={**SHIFTS, "trim": -1.0})
    )
    told = verdicts(found)
    assert told["trim-above-sft"] == "does not hold"
    assert told["trim-best"] == "holds"
    sentence = next(
        claim.sentence for claim in claims(found, resamples=100) if claim.name == "trim-above-sft"
    )
    assert "a: TrimSFT " in sentence and "c: TrimSFT " in sentence


def test_the_ablation_is_judged_by_the_shares_of_margin_and_bandwidth():
    def plane(effect):
        shifts = {
            cell("trim", seed, margin=m, bandwidth=tau): effect(m, tau)
            for seed in range(2)
            for m in (0.0, 1.0, 2.0)
            for tau in (1.0, 2.0, 3.0)
        }
        return verdicts(results({**shifts, **{cell("sft", seed): -2.5 for seed in range(2)}}))

    by_tau = plane(lambda m, tau: 1.5 - 0.9 * tau)
    assert by_tau["tau-over-m"] == "holds"
    assert by_tau["narrow-above-sft"] == "holds"
    assert plane(lambda m, tau: 1.5 - 0.9 * m)["tau-over-m"] == "does not hold"


def test_a_setting_that_shares_neither_margin_nor_bandwidth_is_left_out_of_the_shares():
    shifts = {cell("trim", margin=m, bandwidth=tau): -0.5 * tau for m in (0.0, 1.0) for tau in (1.0, 2.0)}
    summaries = summarise(results({**shifts, cell("trim"): 5.0}), resamples=20)
    found = sensitivity_of(list(summaries.values()), resamples=50)
    assert found.settings == 4
    assert sensitivity_of(list(summaries.values())[2:], resamples=50) is None


def easy_half(on_easy, on_hard):
    """TrimSFT-E moved against TrimSFT on each benchmark, at two margins."""
    found = {}
    for margin in (1.0, 3.0):
        for name, moved in (("trim", (0, 0)), ("trim-e", (on_easy, on_hard))):
            shares = (6 + moved[0], 3 + moved[1])
            found[cell(name, margin=margin, bandwidth=1.0)] = [
                score_of(bench, [count] * 20, resamples=20)
                for bench, count in zip(("easy", "hard"), shares, strict=True)
            ]
    return verdicts(found)["easy-half"]


def test_the_easy_half_must_keep_up_on_easy_problems_and_fall_behind_on_hard_ones():
    assert easy_half(0, -2) == "holds"
    assert easy_half(1, -2) == "holds"
    assert easy_half(-2, -2) == "does not hold"
    assert easy_half(0, 2) == "does not hold"
    assert easy_half(0, 0) == "cannot be told"


def test_the_hard_half_is_held_against_sft():
    halves = {cell("trim-h", seed, margin=m, bandwidth=1.0): -1.5 for seed in range(2) for m in (1.0, 3.0)}
    sft = {cell("sft", seed): 0.5 for seed in range(2)}
    assert verdicts(results(halves | sft))["hard-half-below-sft"] == "holds"
    better = dict.fromkeys(halves, 3.0)
    assert verdicts(results(better | sft))["hard-half-below-sft"] == "does not hold"


# ---- files


def study_folder(tmp_path, name, found, tokens=()):
    place = Place(tmp_path / "study")
    place.settle(LAB)
    for each, of_cell in found.items():
        write_run(place, each, of_cell)
        place.remember([each], {"scores"})
    for number, each in enumerate(tokens):
        place.run(each).mkdir(parents=True, exist_ok=True)
        texts = [["1", "2", " =", " so", " x"] * 4] * 6
        make_table(place.tokens(each), texts, shift=0.5 * number)
        place.remember([each], {"tokens"})
    return place.out


def test_a_study_of_scores_leaves_every_format_behind(tmp_path):
    found = main_results(2)
    out = study_folder(tmp_path, "main", found)
    files = write_study(STUDIES["main"], LAB, list(found), out, resamples=100)
    names = folder_of(out / "tables")
    assert names == [
        "claims.json",
        "claims.md",
        *(f"main/main.{kind}" for kind in ("csv", "json", "md", "tex")),
        "main/report.html",
    ]
    assert sorted(str(path.relative_to(out / "tables")) for path in files) == names
    text = (out / "tables/main/main.md").read_text()
    assert (
        "**holds**: TrimSFT is above SFT" in text
        and "The paper against itself" in text
        and "**greedy**" in text
    )
    rows = list(csv.DictReader(io.StringIO((out / "tables/main/main.csv").read_text())))
    assert len(rows) == 5 * 3 * 2, "settings, benchmarks and their average, average and greedy"
    content = json.loads((out / "tables/main/main.json").read_text())
    trim = next(
        row for row in content["rows"] if row["objective"] == "trim" and row["benchmark"] == "average"
    )
    assert trim["seeds"] == [0, 1] and len(trim["by_seed"]) == 2
    assert trim["value"] == pytest.approx(sum(trim["by_seed"]) / 2)


def test_unfinished_cells_are_named_and_a_study_without_any_is_refused(tmp_path):
    found = main_results(1)
    out = study_folder(
        tmp_path, "main", {key: value for key, value in found.items() if key.objective != "dft"}
    )
    write_study(STUDIES["main"], LAB, list(found), out, resamples=20)
    assert "Not finished, and so left out\\: lab/dft/seed0." in (out / "tables/main/main.md").read_text()
    with pytest.raises(
        RunError, match="no cell of 'gaps' is finished; run it with trimsft study run gaps --out"
    ):
        write_study(STUDIES["gaps"], LAB, list(found), out)


def test_the_ablation_draws_the_papers_figure_and_the_plane(tmp_path):
    settings = [(1.0, 0.5), (1.0, 1.0), (1.0, 6.0), (6.0, 1.0), (6.0, 6.0)]
    shifts = {cell("trim", margin=m, bandwidth=tau): 1.0 - 0.3 * tau for m, tau in settings}
    found = results({cell("base"): 0.0, cell("sft"): -1.0, **shifts})
    out = study_folder(tmp_path, "ablation", found)
    write_study(STUDIES["ablation"], LAB, list(found), out, resamples=50)
    drawn = {name for name in folder_of(out / "tables/ablation/figures") if name.endswith(".png")}
    assert drawn == {"ablation.png", "plane.png", "ablation_of_the_paper.png"}
    theirs = list(
        csv.DictReader(io.StringIO((out / "tables/ablation/figures/ablation_of_the_paper.csv").read_text()))
    )
    assert len(theirs) == 28 + 1
    assert "tau explains" in (out / "tables/ablation/ablation.md").read_text()


def test_passes_show_both_metrics_and_the_bars(tmp_path):
    found = main_results(1)
    out = study_folder(tmp_path, "passes", found)
    write_study(STUDIES["passes"], LAB, list(found), out, resamples=20)
    text = (out / "tables/passes/passes.md").read_text()
    assert "**pass\\@8**" in text and "**best-of-8 by majority vote**" in text
    assert "figures/sampling.png" in folder_of(out / "tables/passes")


@pytest.mark.parametrize("name", ["gaps", "weights", "gradient-mass", "categories"])
def test_studies_of_tokens_are_made_from_token_tables(tmp_path, name):
    cells = STUDIES[name].cells(LAB, 1)
    out = study_folder(tmp_path, name, {}, tokens=cells)
    write_study(STUDIES[name], LAB, cells, out)
    names = folder_of(out / "tables" / name)
    assert {f"{name}.{kind}" for kind in ("csv", "json", "md", "tex")} | {"report.html"} <= set(names)
    content = json.loads((out / f"tables/{name}/{name}.json").read_text())
    assert content["rows"] and content["claims"]
    text = (out / f"tables/{name}/{name}.md").read_text()
    assert ("In brackets\\: the paper's, and ours minus it." in text) == (name != "gaps")
    assert str(tmp_path) not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_the_latex_compiles_and_fits_the_page(tmp_path):
    summaries = summarise(main_results(1), resamples=20)
    rows = score_rows(summaries, ["average"], numbers_of("main"))
    tables = [our_table("average@8 & more", summaries, rows, ["100 %"]), pattern_table(summaries, rows)]
    body = "\n".join(map(fitting_latex, tables))
    packages = r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx,textcomp}"
    text = rf"{packages}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "t.tex").write_text(text)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull \\hbox" not in done.stdout


def test_counts_are_those_of_the_shift():
    """The scores that the tests above are made of do move with their shift."""
    assert sum(counts(-2.0, 0)) < sum(counts(0.0, 0)) < sum(counts(2.0, 0))
