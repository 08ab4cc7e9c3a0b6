"""Scores, differences, flips and answers on the page: the same figures as the commands, and nothing lost silently."""

import json
from pathlib import Path

import pytest

from tests.evaluate.scripted import ScriptedEngine
from tests.report.page.pages import BETTER, make_evaluated, make_three, page_of
from trimsft.errors import RunError
from trimsft.evaluate import evaluate_model
from trimsft.evaluate import run as evaluate_run
from trimsft.evaluate.engines import Request
from trimsft.evaluate.scores import macro
from trimsft.report import CompareSettings, compare
from trimsft.report.page import answers_tab as answers_module
from trimsft.report.page import scores_tab as evaluation
from trimsft.report.page.answers_tab import answers_of, pack_answers, problem_rows
from trimsft.report.page.scores_tab import evaluation_parts
from trimsft.report.runs import Grade, Written, read_run, read_runs

METRICS = ("average", "greedy", "pass@8", "majority@8")


@pytest.fixture
def runs(tmp_path) -> dict[str, Path]:
    return make_three(tmp_path)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Two runs, really evaluated: nearly always wrong, and nearly always right; with answers that differ in form."""
    folder = tmp_path_factory.mktemp("evaluated")
    for name, start in (("sums", 1), ("more", 50)):
        rows = [{"id": f"{name}-{n}", "problem": f"Is {n} it?", "answer": str(n)} for n in range(start, start + 9)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def answer(request: Request, often: int) -> str:
        number = int((request.prompt or "").split("Is ")[1].split(" it?")[0])
        right = number % 9 == 0 if often == 1 else (number + request.seed) % often != 0
        if not right:
            return f"\\boxed{{{number + 100}}}" if request.seed % 3 else "I give up"
        return f"\\boxed{{{number}}}" if request.seed % 2 else f"\\boxed{{\\frac{{{2 * number}}}{{2}}}}"

    results = {}
    with pytest.MonkeyPatch.context() as patch:
        for label, often in (("low", 1), ("high", 7)):
            patch.setattr(evaluate_run, "make_engine", lambda _, o=often: ScriptedEngine(lambda r: answer(r, o)))
            benchmarks = [str(folder / "sums.jsonl"), str(folder / "more.jsonl")]
            results[label] = evaluate_model("model", benchmarks, template="plain", out=folder / label).scores
    return {label: folder / label for label in results}, results


def test_scores_and_differences_are_those_of_the_commands(evaluated, tmp_path) -> None:
    runs, scores = evaluated
    rows = page_of(tmp_path, runs).rows
    starts = [at for at, row in enumerate(rows) if row == ["method", "more", "sums", "average"]]
    for start, metric in zip(starts, METRICS, strict=True):
        for shown, label in zip(rows[start + 1 :], runs, strict=False):
            sums, more = (score.interval(metric) for score in scores[label])
            exact = [more, sums, macro(scores[label], metric)]
            assert shown == [label, *(f"{100 * i.value:.1f} [{100 * i.low:.1f}, {100 * i.high:.1f}]" for i in exact)]
    low, high = (float(row[-1].split()[0]) for row in rows[starts[0] + 1 : starts[0] + 3])
    assert low < 20 < 80 < high  # where a mean's interval is not the mean of intervals
    start = rows.index(["metric", "more", "sums", "average"])
    for row, metric in zip(rows[start + 1 : start + 5], METRICS, strict=True):
        result = compare(CompareSettings(runs=tuple(runs.values()), metric=metric))
        for cell, one in zip(row[1:], result.comparisons, strict=True):
            difference = [100 * getattr(one.difference, side) for side in ("value", "low", "high")]
            value, low, high = map(signed, difference)
            assert cell == f"{value}{' ↑' if one.significant else ''} [{low}, {high}]"
    assert "↑" in " ".join(rows[start + 1])


def signed(value: float) -> str:
    text = f"{value:+.1f}".replace("-", "−")  # noqa: RUF001
    return "0.0" if text[1:] == "0.0" else text


def test_votes_by_hand(three) -> None:
    answers = answers_of(read_run("Base", three["Base"]).samples("easy", ["e1"]))
    assert [sample.sample for sample in answers.samples] == [-1, 0, 1, 2, 3]
    shown = [(vote.answer, vote.size, vote.right, vote.wins) for vote in answers.votes]
    assert sorted(shown) == [("1", 1, True, False), ("7", 2, False, True)]
    number = [vote.answer for vote in answers.votes].index("7")
    assert answers.clusters == [None, 1 - number, number, number, None]


def test_an_older_record_groups_equal_texts_and_says_so(tmp_path) -> None:
    make_evaluated(tmp_path / "a", "easy", {"e1": "1 7 7' -"}, clusters=False)
    answers = answers_of(read_run("a", tmp_path / "a").samples("easy", ["e1"]))
    assert not answers.recorded and sorted(vote.answer for vote in answers.votes) == ["1", "7", "7'"]
    assert all(vote.wins for vote in answers.votes)  # a tie
    # grades that contradict themselves are not taken for votes
    for grades in ([Grade(answer=None, cluster=3)], [Grade(answer="1", cluster=0), Grade(answer="1", cluster=1)]):
        answers = answers_of([Written("p", number, "t", grade=grade) for number, grade in enumerate(grades)])
        assert not answers.recorded and set(answers.clusters) == {None if grades[0].answer is None else 0}
    assert answers_of([]).votes == []


def test_flips_without_a_script(tmp_path, three) -> None:
    page = page_of(tmp_path, three)
    start = page.rows.index(["problem", "of", "right in SFT", "in TrimSFT", "majority", "greedy"])
    assert page.rows[start + 1] == ["e1?", "easy, no. 2 e1", "1 of 4", "3 of 4", "✗ → ✓", "✗ → ✓"]
    assert page.rows[start + 4] == ["h0?", "hard, no. 1 h0", "0 of 4", "1 of 4", "✗ → tie", "✓ → ✓"]
    text = page.words
    assert "SFT → TrimSFT on 5 problems: 4 changed." in text
    assert "All answers on all 5 problems are in this file." in text
    assert "Not evaluated" not in text and "has no average" not in text and "no mean" not in text


def only_scores(folder: Path) -> None:
    """Leave nothing but scores.json."""
    for path in folder.glob("eval/*/*"):
        if path.name != "scores.json":
            path.unlink()


def test_texts_that_are_missing_and_other_graders_are_named(tmp_path, runs) -> None:
    only_scores(runs["SFT"])
    scores = runs["SFT"] / "eval" / "easy" / "scores.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"grader": {"kind": "qwen", "version": "1"}}))
    text = page_of(tmp_path, runs).words
    assert "Not all were graded alike (qwen 1, strict 1)" in text
    assert "SFT: counts of every problem, but no texts on easy, hard" in text
    assert "All other answers, on 5 problems, are in this file." in text
    for folder in runs.values():
        only_scores(folder)
    page = page_of(tmp_path, runs)
    assert "SFT → TrimSFT on 5 problems: 4 changed." in page.words
    assert ["e1", "easy, no. 2 e1", "1 of 4", "3 of 4", "✗ → ✓", "✗ → ✓"] in page.rows
    missing = "counts of every problem, but no texts on easy, hard, since samples.jsonl is missing there."
    assert f"Base, SFT, TrimSFT: {missing}" in page.words
    assert not [word for word in ("in this file", "Left out") if word in page.words]


def test_runs_without_scores_or_without_a_mean_are_named(tmp_path, three) -> None:
    (tmp_path / "fsft").mkdir()
    part = make_evaluated(tmp_path / "part", "easy", BETTER)
    page = page_of(tmp_path, {**three, "FSFT": tmp_path / "fsft", "Part": part})
    assert "Not evaluated, so not in the tables: FSFT." in page.text
    assert "Part has no average: it was not evaluated on hard." in page.text
    assert page.text.count("no mean") == 2  # in both sizes of the chart
    old = make_three(tmp_path / "old")["SFT"]
    record = json.loads((old / "eval/easy/scores.json").read_text())
    record["per_problem"] = [{name: one[name] for name in ("problem", "correct")} for one in record["per_problem"]]
    (old / "eval/easy/scores.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"scores\.json: .*it is damaged or of another version: make it again with"):
        page_of(tmp_path, {"Base": three["Base"], "Old": old})
    parts = evaluation_parts(read_runs({"SFT": three["SFT"], "Part": part}))
    assert [cell is None for cell in parts["difference_rows"][0][1]] == [False, True, True]


def test_runs_that_cannot_be_compared(tmp_path, three) -> None:
    (tmp_path / "empty").mkdir()
    text = page_of(tmp_path, {"SFT": three["SFT"], "Empty": tmp_path / "empty"}).text
    assert "Two evaluated runs can be compared; there is only one." in text
    assert evaluation_parts(read_runs({"Empty": tmp_path / "empty"}))["data"]["pair"] is None
    odd = {"SFT": three["SFT"], "Odd": make_evaluated(tmp_path / "odd", "easy", {"x0": "1 1 1 1"})}
    parts = evaluation_parts(read_runs(odd))
    assert parts["data"]["differences"] == {} and parts["difference_rows"] == [] and parts["flipped"] == 0
    assert "This page does not compare these two" in page_of(tmp_path, odd).text


def test_other_protocols_graders_and_problems_are_said_and_not_mixed(tmp_path, runs) -> None:
    settings = runs["SFT"] / "eval/easy/settings.json"
    settings.write_text(json.dumps({"sampling": {"temperature": 0.6}}))
    scores = runs["TrimSFT"] / "eval/easy/scores.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"grader": {"kind": "qwen", "version": "1"}}))
    problems = runs["TrimSFT"] / "eval/hard/problems.jsonl"
    problems.write_text(problems.read_text().replace("h0?", "another?"))
    page = page_of(tmp_path, runs)
    assert "Protocol of SFT: sampling.temperature 0.6 (Base: not set). A difference to Base may be" in page.words
    assert "TrimSFT was graded by qwen 1, Base by strict 1" in page.words
    assert "TrimSFT was asked other problems than Base under the same ids: hard." in page.words
    assert set(page.data("evaluation")["differences"]) == {"0,1"}  # none with TrimSFT
    assert [row.outcomes[2] is None for row in problem_rows(read_runs(runs), ["hard"])] == [True, False, False]


def test_what_does_not_fit_is_left_out_largest_change_first(tmp_path, three, monkeypatch) -> None:
    read = read_runs(three)
    rows = problem_rows(read, ["easy", "hard"])
    whole = pack_answers(rows, read, (1, 2), budget=100_000)
    assert [set(whole.problems[place]["runs"]) for place in range(5)] == [{"0", "1", "2"}] * 5
    some = pack_answers(rows, read, (1, 2), budget=whole.size // 3)
    assert 1 in some.problems and len(some.problems) < 5  # e1 changed most
    assert all(set(entry["runs"]) == {"1", "2"} for entry in some.problems.values())
    assert some.size <= whole.size // 3
    assert len(json.dumps(some.data())) <= whole.size // 3 + 200
    assert pack_answers(rows, read, (1, 2), budget=10).problems == {}
    monkeypatch.setattr(answers_module, "AT_ONCE", 10)  # two problems are read at once, with their four samples
    assert pack_answers(rows, read, (1, 2), budget=100_000).data() == whole.data()
    monkeypatch.setattr(evaluation, "BUDGET", 10)
    assert "all answers on 5 of 5 problems" in page_of(tmp_path, three).words
