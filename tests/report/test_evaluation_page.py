"""Scores, differences, flips and answers on the page: the same figures as the commands, and nothing lost silently."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.report.evaluated import make_evaluated
from tests.report.test_report import HOSTILE, Page
from trimsft.cli import app
from trimsft.evaluate import run
from trimsft.evaluate.engines import Request, ScriptedEngine
from trimsft.report import write_report
from trimsft.report.page import evaluation, evaluation_answers, evaluation_pairs
from trimsft.report.page.evaluation import evaluation_parts
from trimsft.report.page.evaluation_answers import answers_of, pack_answers
from trimsft.report.page.problems import default_pair, flips, problem_rows
from trimsft.report.page.sources import read_run

EASY = {"e0": "1 1 1 1", "e1": "1 7 7' -", "e2": "3 4 5 1"}
BETTER = {"e0": "1 1 1 7", "e1": "1 1 1 7", "e2": "1 1 5 1"}
HARD = {"h0": "2 2 2 2", "h1": "2 2 1 1"}


@pytest.fixture
def runs(tmp_path) -> dict[str, Path]:
    """Base, SFT and TrimSFT on two benchmarks, 4 samples and a greedy answer to each problem."""
    folders = {label: tmp_path / label.lower() for label in ("Base", "SFT", "TrimSFT")}
    for label, folder in folders.items():
        make_evaluated(folder, "hard", HARD if label != "TrimSFT" else HARD | {"h0": "1 2 3 -"})
        make_evaluated(folder, "easy", EASY if label != "TrimSFT" else BETTER, greedy="2" if label == "SFT" else "1")
    return folders


def page_of(folder: Path, runs: dict[str, Path]) -> Page:
    return Page(write_report(folder / "report.html", runs, title="A title").read_text(encoding="utf-8"))


def rows_of(page: Page) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in row] for row in page.rows]


# ---- the same figures as the commands


@pytest.fixture
def evaluated(tmp_path, monkeypatch) -> tuple[dict[str, Path], dict[str, str]]:
    """Two runs through `trimsft eval`: nearly always wrong, and nearly always right; what it printed."""
    for name, start in (("sums", 1), ("more", 50)):
        rows = [{"id": f"{name}-{n}", "problem": f"Is {n} it?", "answer": str(n)} for n in range(start, start + 9)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def answer(request: Request, often: int) -> str:
        number = int((request.prompt or "").split("Is ")[1].split(" it?")[0])
        right = number % 9 == 0 if often == 1 else (number + request.seed) % often != 0
        return f"\\boxed{{{number if right else number + 100}}}"

    said = {}
    for label, often in (("low", 1), ("high", 7)):
        monkeypatch.setattr(run, "make_engine", lambda _, o=often: ScriptedEngine(lambda r: answer(r, o)))
        options = [f"-b{tmp_path}/sums.jsonl", f"-b{tmp_path}/more.jsonl", "--template", "plain"]
        done = CliRunner().invoke(app, ["eval", "model", *options, "--out", str(tmp_path / label)])
        assert done.exit_code == 0, done.output
        said[label] = done.stdout
    return {label: tmp_path / label for label in said}, said


def test_scores_and_differences_are_those_of_the_commands(evaluated, tmp_path) -> None:
    runs, said = evaluated
    rows = rows_of(page_of(tmp_path, runs))
    tables = {}  # metric -> run -> cells, in the order of the page: more, sums, average
    for place, metric in enumerate(("average", "greedy", "pass@8", "majority@8")):
        start = [at for at, row in enumerate(rows) if row == ["method", "more", "sums", "average"]][place]
        tables[metric] = {row[0]: row[1:] for row in rows[start + 1 : start + 3]}
    for label, text in said.items():
        for metric, shown in tables.items():
            line = next(line for line in text.splitlines() if re.match(rf"\W+{metric} ", line))
            sums, more, mean = re.findall(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", line)
            assert shown[label] == [more, sums, mean]
    low, high = (float(tables["average"][label][-1].split()[0]) for label in ("low", "high"))
    assert low < 20 < 80 < high  # where a mean's interval is not the mean of intervals
    start = rows.index(["metric", "more", "sums", "average"])
    for row, metric in zip(rows[start + 1 : start + 5], tables, strict=True):
        told = CliRunner().invoke(app, ["compare", *map(str, runs.values()), "--metric", metric, "--format", "json"])
        for cell, found in zip(row[1:], json.loads(told.stdout), strict=True):
            value, low, high = (100 * found["difference"][side] for side in ("value", "low", "high"))
            mark = " ↑" if found["significant"] else ""
            assert cell == f"{signed(value)}{mark} [{signed(low)}, {signed(high)}]"
    assert "↑" in " ".join(rows[start + 1])


def signed(value: float) -> str:
    text = f"{value:+.1f}".replace("-", "−")  # noqa: RUF001
    return "0.0" if text[1:] == "0.0" else text


def test_a_record_says_who_voted_together(tmp_path, monkeypatch) -> None:
    (tmp_path / "half.jsonl").write_text(json.dumps({"id": "a", "problem": "Half?", "answer": "0.5"}) + "\n")
    words = ["\\boxed{\\frac{1}{2}}", "\\boxed{0.5}", "none", "\\boxed{3}"]
    monkeypatch.setattr(run, "make_engine", lambda _: ScriptedEngine(lambda request: words[request.seed % 4]))
    options = ["-b", str(tmp_path / "half.jsonl"), "--template", "plain", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["eval", "model", *options])
    assert done.exit_code == 0, done.output
    found = answers_of(read_run("x", tmp_path / "run").samples("half"))
    joined = {}
    for sample, number in zip(found.samples[1:], found.clusters[1:], strict=True):
        joined.setdefault(sample["answer"], set()).add(number)
    assert found.recorded and found.clusters[0] is None
    assert all(len(numbers) == 1 for numbers in joined.values())
    assert joined["\\frac{1}{2}"] == joined["0.5"] != joined["3"] and joined.get(None, {None}) == {None}
    half = next(vote for vote in found.votes if vote.right)
    assert half.size == sum(sample["answer"] in ("\\frac{1}{2}", "0.5") for sample in found.samples[1:])


# ---- votes


def test_votes_by_hand(runs) -> None:
    samples = read_run("Base", runs["Base"]).samples("easy")
    found = answers_of([sample for sample in samples if sample["problem"] == "e1"])
    assert [sample["sample"] for sample in found.samples] == [-1, 0, 1, 2, 3]
    shown = [(vote.answer, vote.size, vote.right, vote.wins) for vote in found.votes]
    assert sorted(shown) == [("1", 1, True, False), ("7", 2, False, True)]
    number = [vote.answer for vote in found.votes].index("7")
    assert found.clusters == [None, 1 - number, number, number, None]


def test_an_older_record_groups_equal_texts_and_says_so(tmp_path) -> None:
    make_evaluated(tmp_path / "a", "easy", {"e1": "1 7 7' -"}, clusters=False)
    found = answers_of(read_run("a", tmp_path / "a").samples("easy"))
    assert not found.recorded and sorted(vote.answer for vote in found.votes) == ["1", "7", "7'"]
    assert all(vote.wins for vote in found.votes)  # a tie


def test_grades_that_contradict_themselves_are_not_taken_for_votes() -> None:
    sample = {"problem": "p", "text": "t", "status": "wrong"}
    found = answers_of([{**sample, "sample": 0, "answer": None, "cluster": 3}])
    assert not found.recorded and found.votes == [] and found.clusters == [None]
    assert answers_of([]).votes == []


# ---- flips


def test_flips_by_hand(runs) -> None:
    read = [read_run(label, folder) for label, folder in runs.items()]
    assert default_pair(read) == (1, 2)
    rows = problem_rows(read, ["easy", "hard"])
    assert [(row.benchmark, row.name, row.number) for row in rows[:4:3]] == [
        ("easy", "e0", 1),
        ("hard", "h0", 1),
    ]
    e1 = rows[1].outcomes
    assert [(found.right, found.vote, found.greedy) for found in e1] == [
        (1, 0, True),
        (1, 0, False),
        (3, 1, True),
    ]
    found = flips(rows, 1, 2)
    # two samples more, two more, one fewer, one more; h1 is as it was
    assert [row.name for row in found] == ["e1", "e2", "e0", "h0"]
    assert [round(4 * row.change(1, 2)) for row in found] == [2, 2, -1, 1]
    assert rows[3].outcomes[2].vote == pytest.approx(1 / 3)  # three answers, a vote each


def test_flips_without_a_script(tmp_path, runs) -> None:
    page = page_of(tmp_path, runs)
    rows = rows_of(page)
    start = rows.index(["problem", "of", "right in SFT", "in TrimSFT", "majority", "greedy"])
    assert rows[start + 1] == ["e1", "easy, no. 2", "1 of 4", "3 of 4", "✗ → ✓", "✗ → ✓"]
    assert rows[start + 4] == ["h0", "hard, no. 1", "0 of 4", "1 of 4", "✗ → tie", "✓ → ✓"]
    text = " ".join(page.text.split())
    assert "SFT → TrimSFT on 5 problems: 4 changed." in text
    assert "✗ 2 for 7 (most votes)" in text and "sample 4: no answer" in text
    assert "All answers on all 5 problems are in this file." in text


def only_scores(folder: Path) -> Path:
    """Leave nothing but scores.json."""
    for path in folder.glob("eval/*/*"):
        if path.name != "scores.json":
            path.unlink()
    return folder


def test_scores_alone_give_flips_and_say_that_texts_are_missing(tmp_path, runs) -> None:
    for folder in runs.values():
        only_scores(folder)
    page = page_of(tmp_path, runs)
    text, rows = " ".join(page.text.split()), rows_of(page)
    assert "SFT → TrimSFT on 5 problems: 4 changed." in text
    assert ["e1", "easy, no. 2", "1 of 4", "3 of 4", "✗ → ✓", "✗ → ✓"] in rows
    missing = "counts of every problem, but no texts on easy, hard, since samples.jsonl is missing there."
    assert f"Base, SFT, TrimSFT: {missing}" in text
    assert "in this file" not in text and "Left out" not in text and "no samples recorded" not in text


def test_samples_of_some_runs_are_told_apart(tmp_path, runs) -> None:
    only_scores(runs["SFT"])
    text = " ".join(page_of(tmp_path, runs).text.split())
    assert "SFT: counts of every problem, but no texts on easy, hard" in text
    assert "All other answers, on 5 problems, are in this file." in text
    assert "no samples recorded" in text  # of SFT, beside those of TrimSFT


def test_runs_without_scores_or_without_a_mean_are_named(tmp_path, runs) -> None:
    (tmp_path / "fsft").mkdir()
    part = make_evaluated(tmp_path / "part", "easy", BETTER)
    page = page_of(tmp_path, {**runs, "FSFT": tmp_path / "fsft", "Part": part})
    assert "Not evaluated, so not in the tables: FSFT." in page.text
    assert "Part has no average: it was not evaluated on hard." in page.text
    assert page.text.count("no mean") == 2  # in both sizes of the chart
    text = page_of(tmp_path, runs).text
    assert "Not evaluated" not in text and "has no average" not in text and "no mean" not in text


def test_one_evaluated_run_has_nothing_to_compare_with(tmp_path, runs) -> None:
    (tmp_path / "empty").mkdir()
    text = page_of(tmp_path, {"SFT": runs["SFT"], "Empty": tmp_path / "empty"}).text
    assert "Two evaluated runs can be compared; there is only one." in text
    assert evaluation_parts([read_run("Empty", tmp_path / "empty")])["data"]["pair"] is None


def test_runs_with_other_problems_are_not_compared(tmp_path, runs) -> None:
    odd = make_evaluated(tmp_path / "odd", "easy", {"x0": "1 1 1 1"})
    parts = evaluation_parts([read_run("SFT", runs["SFT"]), read_run("Odd", odd)])
    assert parts["data"]["differences"] == {} and parts["difference_rows"] == [] and parts["flipped"] == 0
    assert "This page does not compare these two" in page_of(tmp_path, {"SFT": runs["SFT"], "Odd": odd}).text


def test_a_missing_benchmark_leaves_the_shared_ones_without_a_mean(tmp_path, runs) -> None:
    part = make_evaluated(tmp_path / "part", "easy", BETTER)
    parts = evaluation_parts([read_run("SFT", runs["SFT"]), read_run("Part", part)])
    cells = parts["difference_rows"][0][1]
    assert [cell is None for cell in cells] == [False, True, True]


def test_many_runs_are_compared_with_the_first_pair_only(runs, monkeypatch) -> None:
    monkeypatch.setattr(evaluation_pairs, "FEW", 2)
    read = [read_run(label, folder) for label, folder in [*runs.items(), ("Again", runs["Base"])]]
    compared = set(evaluation_parts(read)["data"]["differences"])
    assert compared == {"0,1", "0,2", "1,2", "1,3", "2,3"}  # not 0,3


def test_different_graders_are_told(tmp_path, runs) -> None:
    path = runs["SFT"] / "eval" / "easy" / "scores.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "grader": {"kind": "qwen", "version": "1"}}))
    assert "Not all were graded alike (qwen 1, strict 1)" in " ".join(page_of(tmp_path, runs).text.split())


# ---- what is left out


def test_what_does_not_fit_is_left_out_largest_change_first(runs) -> None:
    read = [read_run(label, folder) for label, folder in runs.items()]
    rows = problem_rows(read, ["easy", "hard"])
    whole = pack_answers(rows, read, (1, 2), budget=100_000)
    assert {place: set(entry["runs"]) for place, entry in whole.problems.items()} == {
        place: {"0", "1", "2"} for place in range(5)
    }
    some = pack_answers(rows, read, (1, 2), budget=whole.size // 3)
    assert 1 in some.problems and len(some.problems) < 5  # e1 changed most
    assert all(set(entry["runs"]) == {"1", "2"} for entry in some.problems.values())
    assert some.size <= whole.size // 3
    assert len(json.dumps(some.data())) <= whole.size // 3 + 200
    assert pack_answers(rows, read, (1, 2), budget=10).problems == {}


def test_each_text_is_held_once_and_long_ones_are_cut(tmp_path) -> None:
    for label in ("a", "b"):
        make_evaluated(tmp_path / label, "easy", EASY, text="word " * 2000)
    read = [read_run(label, tmp_path / label) for label in ("a", "b")]
    parts = evaluation_parts(read)
    answers = parts["data"]["answers"]
    long = [text for text in answers["strings"] if text.startswith("word")]
    assert [len(text) for text in long] == [evaluation_answers.LONGEST]
    assert answers["problems"][0]["runs"]["0"]["samples"][1][5] == 10_000 - evaluation_answers.LONGEST
    assert parts["left_out"] == {"problems": 3, "none": 0, "partly": 0, "cut": 2 * 3 * 5}


def test_the_page_says_what_it_left_out(tmp_path, runs, monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "BUDGET", 10)
    text = " ".join(page_of(tmp_path, runs).text.split())
    assert "all answers on 5 of 5 problems" in text


def test_hostile_texts_stay_texts(tmp_path) -> None:
    hostile = "".join(HOSTILE).replace("%", "").replace("\ud800", "")
    odd = {"a": tmp_path / "a", "b": tmp_path / "b"}
    for folder, words in zip(odd.values(), (EASY, BETTER), strict=True):
        names = {f"{hostile}{place}": text for place, text in enumerate(words.values())}
        make_evaluated(folder, "easy", names, text=hostile, problem=hostile + "%s")
    text = write_report(tmp_path / "report.html", odd, title="t").read_text(encoding="utf-8")
    page = Page(text)
    plain = Page(write_report(tmp_path / "plain.html", {"a": make_evaluated(tmp_path / "c", "easy", EASY),
                 "b": make_evaluated(tmp_path / "d", "easy", BETTER)}, title="t").read_text())  # fmt: skip
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert not set(text) & set("\u202e\u2066\u200b\x00\x1b") and "⟨U+202E⟩" in page.text
