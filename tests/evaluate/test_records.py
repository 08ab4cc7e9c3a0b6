"""The scores of a run directory: which are read, and what is refused."""

import json
import re
from pathlib import Path

import pytest

from trimsft.errors import RunError
from trimsft.evaluate.records import load_run, read_scores, write_scores
from trimsft.evaluate.scores import score

from .graded import same, samples_of, score_of

STRICT = {"kind": "strict", "version": "3", "ignored_rules": []}


def test_scores_come_back_by_name_and_from_one_grader_only(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}: holds no evaluation; make one with trimsft eval")):
        load_run(tmp_path)
    scores = {name: score_of(name, [1, 8], resamples=10) for name in ("b", "a")}
    for name, one in scores.items():
        write_scores(tmp_path / "eval" / name, one, STRICT)
    assert load_run(tmp_path) == [scores["a"], scores["b"]]
    assert load_run(tmp_path, ["b"]) == [scores["b"]]
    assert str(read_scores(tmp_path / "eval/a").grader) == "strict 3"
    with pytest.raises(RunError, match="holds no scores of 'gsm8k'; it has a, b"):
        load_run(tmp_path, ["gsm8k"])
    write_scores(tmp_path / "eval/b", scores["b"], STRICT | {"kind": "qwen"})
    with pytest.raises(RunError, match="was graded by qwen 3 and strict 3; grade it again with one of them"):
        load_run(tmp_path)


def test_scores_without_samples_and_with_groups_come_back(tmp_path: Path) -> None:
    samples = [*samples_of("a", "", greedy="1"), *samples_of("b", "", greedy="2")]
    greedy = score("toy", samples, same, groups={"level": {"a": "1", "b": "2"}}, resamples=50)
    write_scores(tmp_path / "toy", greedy, STRICT)
    assert read_scores(tmp_path / "toy").scores == greedy and greedy.groups["level"]["2"].greedy.value == 0


def test_intervals_of_the_first_format_are_made_anew(tmp_path: Path) -> None:
    write_scores(tmp_path / "a", score_of("a", [1, 8, 3], resamples=10_000), STRICT)
    new = read_scores(tmp_path / "a").scores
    path = tmp_path / "a/scores.json"
    old = json.loads(path.read_text())
    del old["format"], old["groups"]
    old["average"] |= {"low": 0.49, "high": 0.51}
    path.write_text(json.dumps(old))
    assert read_scores(tmp_path / "a").scores == new


def test_what_is_not_there_or_of_another_version_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "eval/a"
    folder.mkdir(parents=True)
    with pytest.raises(RunError, match="holds no scores; finish its evaluation with trimsft eval"):
        load_run(tmp_path)
    with pytest.raises(RunError, match="holds no scores; finish it with trimsft eval"):
        read_scores(folder)
    write_scores(folder, score_of("a", [1, 8], resamples=10), STRICT)
    whole = json.loads((folder / "scores.json").read_text())
    damages: list[tuple[object, str]] = [
        ("{", "invalid JSON"),
        ([], "should be an object"),
        ({"statuses": None}, "statuses: input should be an object"),
        ({"problems": "2"}, "problems: input should be a valid integer"),
        ({"problems": 3}, "problems is 3, but it counts 2"),
        ({"samples": 4}, "do not fit 4 samples"),
        ({"benchmark": "b"}, "these are scores of 'b'"),
        ({"pass_at": {}}, "its metrics do not fit its samples"),
        ({"average": {"value": 0.5, "low": float("nan"), "high": 1.0}}, "an interval does not hold its value"),
        ({"per_problem": [whole["per_problem"][0] | {"correct": 9}] * 2}, "problems is 2, but it counts 1"),
        ({"format": 3}, "by a newer version of trimsft"),
    ]
    for damage, message in damages:
        damaged = whole | damage if isinstance(damage, dict) else damage
        (folder / "scores.json").write_text("{" if damage == "{" else json.dumps(damaged))
        with pytest.raises(RunError, match=message):
            load_run(tmp_path)
