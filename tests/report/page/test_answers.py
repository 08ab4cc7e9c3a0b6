"""Scores and answers on the page: the same figures as the commands, the list of problems, and nothing lost silently."""

import json
from pathlib import Path

import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.pages import BETTER, make_evaluated, make_three, page_of, texts
from trimsft.evaluate.scores import load_run, macro
from trimsft.report import CompareSettings, compare


@pytest.fixture
def runs(tmp_path) -> dict[str, Path]:
    return make_three(tmp_path)


# ---- scores


def test_scores_are_those_of_the_commands(tmp_path) -> None:
    runs = {}
    for label, words in (("Base", "2 2"), ("SFT", "2 1"), ("TrimSFT", "1 1")):
        for name in ("easy", "hard"):
            make_evaluated(tmp_path / label, name, {f"{name}{n}": words for n in range(12)}, greedy="1")
        runs[label] = tmp_path / label
    read = page_of(tmp_path, runs)
    rows = [row for row in read.rows if row[0] == "TrimSFT" and len(row) == 4]
    for row, metric in zip(rows, ("average", "greedy", "pass@2", "majority@2"), strict=True):
        scores = load_run(runs["TrimSFT"])
        exact = [*(one.interval(metric) for one in scores), macro(scores, metric)]
        compared = compare(CompareSettings(runs=(runs["SFT"], runs["TrimSFT"]), metric=metric)).comparisons
        for cell, interval, one in zip(row[1:], exact, compared, strict=True):
            mark = " ↑" if one.significant else ""
            assert cell == f"{100 * interval.value:.1f}{mark} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    assert "↑" in rows[0][3] and "↑" not in rows[1][3]
    assert list(read.data["outcome"][2]["arrows"].values()) == ["↑", "", "", "↑"]


def test_many_runs_have_one_reference(tmp_path) -> None:
    objectives = ["base", "sft", "dft", "trim", "fsft", "sft", "trim-e", "trim-h", "trim", "base"]
    runs = {f"{place}-{name}": tmp_path / f"{place}" for place, name in enumerate(objectives)}
    for run, name in zip(runs.values(), objectives, strict=True):
        right = "3 3" if name in ("base", "sft") else "1 1"
        make_evaluated(run, "easy", {f"e{n}": right for n in range(12)}, greedy="1")
        (run / "config.yaml").write_text("seed: 0" if name == "base" else f"objective: {name}")
    read = page_of(tmp_path, runs)
    assert "significantly above or below 1-sft on the same problems" in read.words
    arrows = [row["arrows"]["average"] for row in read.data["outcome"]]
    assert [arrow == "↑" for arrow in arrows] == [name not in ("base", "sft") for name in objectives]


def test_answers_over_the_temperature(browser, tmp_path, runs) -> None:
    for run, share in ((runs["Base"], 0.2), (runs["SFT"], 0.9), (runs["TrimSFT"], 0.6)):
        for path in run.glob("eval/*/scores.json"):
            content = json.loads(path.read_text())
            for problem in content["per_problem"]:
                problem |= {"correct_at": {"0.3": round(4 * share)}, "samples_at": 4}
            content["metrics"]["T=0.3"] = {"value": round(4 * share) / 4, "low": 0.1, "high": 1.0}
            path.write_text(json.dumps(content | {"temperature_samples": 4, "temperature": 1.0}))
    read = page_of(tmp_path, runs)
    curve = read.data["outcome"][1]["curve"]
    assert [one[:2] for one in curve] == [[0, 50.0], [0.3, 100.0], [1.0, 37.5]]
    assert any(row[0] == "SFT" and row[-1].startswith("100.0 ") for row in read.rows)
    browser.open(tmp_path / "report.html")
    assert "SFT at its best temperature, 0.3, has 100 %." in browser.text("headline")
    assert sorted(texts(browser, "#scored g")) == ["Base38", "SFT38", "TrimSFT56"]
    assert len(texts(browser, "#scored g circle")) == 6 and len(texts(browser, "#scored .diamond")) == 3


def test_evaluations_that_differ_are_not_mixed(tmp_path, runs) -> None:
    settings = runs["SFT"] / "eval/easy/settings.json"
    settings.write_text(json.dumps({"sampling": {"temperature": 0.6}}))
    scores = runs["TrimSFT"] / "eval/easy/scores.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"grader": "qwen 1"}))
    problems = runs["TrimSFT"] / "eval/hard/problems.jsonl"
    problems.write_text(problems.read_text().replace("h0?", "another?"))
    (tmp_path / "none").mkdir()
    part = make_evaluated(tmp_path / "part", "easy", BETTER)
    read = page_of(tmp_path, {**runs, "None": tmp_path / "none", "Part": part})
    for note in (
        "Protocol of SFT: sampling.temperature 0.6 (Base: not set). A difference to Base may be due to that.",
        "TrimSFT was graded by qwen 1, Base by strict 1",
        "TrimSFT was asked other problems than Base under the same ids: hard.",
        "Not evaluated: None.",
        "Part has no average: it was not evaluated on hard.",
    ):
        assert note in read.words
    arrows = {row["label"]: row["arrows"]["average"] for row in read.data["outcome"]}
    assert arrows == {"Base": "", "SFT": None, "TrimSFT": None, "Part": None}
    h0 = next(row for row in read.answers["problems"] if row[2] == "h0" and row[3])
    assert h0[5] is None  # TrimSFT was asked another h0


# ---- votes and texts


# ---- in a browser


@pytest.fixture
def opened(browser, page) -> Browser:
    return answers(browser, page)


def answers(browser: Browser, page: Path, fragment: str = "tab=answers") -> Browser:
    browser.open(page, "#" + fragment)
    wait(lambda: browser.run("return document.documentElement.dataset.answers === 'ready'"))
    return browser


def choose(browser: Browser, place: int, value: object) -> None:
    browser.run(
        "const s = document.querySelectorAll('#pair select')[arguments[0]]; s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))",
        place,
        str(value),
    )


def test_changed_problems_in_a_line_each(opened) -> None:
    counts = "4 of 5 problems changed: 3 got more samples right, 1 fewer; the greedy result of 3 changed."
    assert opened.text("counts") == counts
    lines = texts(opened, ".problem")
    right, wrong = "Since $x^2=1$ it is \\boxed{1}, for \\$5.", "✗ \\boxed{2}, for \\$5."
    assert lines[0] == f"1 → 3 of 4{right} {wrong}e1?"
    assert [line.split(" of")[0] for line in lines] == ["1 → 3", "1 → 3", "4 → 3", "0 → 1"]
    for only, names in {"gained": ["e1", "e2", "h0"], "lost": ["e0"], "all": ["e1", "e2", "e0", "h0", "h1"]}.items():
        choose(opened, 2, only)
        assert [line.split("?")[0][-2:] for line in texts(opened, ".problem")] == names
    choose(opened, 0, 0)
    choose(opened, 1, 0)
    choose(opened, 2, "changed")
    assert texts(opened, ".problem") == [] and opened.text("opened") == "None."


def test_samples_of_a_problem_by_vote(opened) -> None:
    before, after = opened.run(
        "return [...document.querySelectorAll('.side')]"
        ".map(s => [...s.querySelectorAll('h2, .note, .votes > p, .grade')].map(e => e.textContent))"
    )
    assert "|".join(before) == (
        "SFT|1 of 4 right|✗ greedy: wrong, 10 tokens|✗ 2 votes for 7 (wins)|✗ sample 2: wrong, 10 tokens|"
        "✗ sample 3: wrong, 10 tokens|✓ 1 vote for 1|✓ sample 1: correct, 10 tokens|1 sample without an answer|"
        "✗ sample 4: no answer, 100 tokens"
    )
    assert after[3:5] == ["✓ 3 votes for 1 (wins)", "✓ samples 1, 2, 3, word for word the same: correct, 10 tokens"]
    assert opened.run("return document.querySelectorAll('.side math').length") > 4
    assert texts(opened, ".side .written")[0] == "Since x2=1 it is 2, for $5."
