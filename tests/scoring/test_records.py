"""The scores of a run directory: which are read, and what is refused."""

import re
from pathlib import Path

import pytest

from trimsft.errors import RunError
from trimsft.scoring.records import load_run, read_scores, write_scores

from .graded import score_of

STRICT = {"kind": "strict", "version": "3", "ignored_rules": []}


def test_scores_come_back_by_name_and_from_one_grader_only(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}: holds no evaluation; make one with trimsft eval")):
        load_run(tmp_path)
    scores = {name: score_of(name, [1, 8], resamples=10) for name in ("b", "a")}
    for name, score in scores.items():
        write_scores(tmp_path / "eval" / name, score, STRICT)
    assert load_run(tmp_path) == [scores["a"], scores["b"]]
    assert load_run(tmp_path, ["b"]) == [scores["b"]]
    assert read_scores(tmp_path / "eval/a") == (scores["a"], "strict 3")
    with pytest.raises(RunError, match="holds no scores of 'gsm8k'; it has a, b"):
        load_run(tmp_path, ["gsm8k"])
    write_scores(tmp_path / "eval/b", scores["b"], STRICT | {"kind": "qwen"})
    with pytest.raises(RunError, match="was graded by qwen 3 and strict 3; grade it again with one of them"):
        load_run(tmp_path)


def test_what_is_not_there_or_of_another_version_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "eval/a"
    folder.mkdir(parents=True)
    with pytest.raises(RunError, match="holds no scores; finish its evaluation with trimsft eval"):
        load_run(tmp_path)
    with pytest.raises(RunError, match="holds no scores; finish it with trimsft eval"):
        read_scores(folder)
    for content in ("{", "[]", '{"grader": {"kind": "strict", "version": "3"}, "surprise": 1}'):
        (folder / "scores.json").write_text(content)
        with pytest.raises(RunError, match=r"scores\.json: not readable as scores .*; make it again with trimsft eval"):
            load_run(tmp_path)
