"""The folder of a study: files that somebody has damaged, secrets that nobody may find in it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import RunError, UsageError
from trimsft.runs import RunDirectory
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.run import read_status
from trimsft.study.scales import LAB, ModelAt, ScaleOptions
from trimsft.study.steps import model_path, token_rows

CELL = Cell(model="lab", objective="sft")
SCALE = replace(LAB, rows=4, table_rows=2)
DEEP = "[" * 100_000


def asked(**cell: Any) -> str:
    """A file of asked/ with one cell."""
    return json.dumps({"needs": ["scores"], "cells": [CELL.as_dict() | cell]})


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    folder = StudyFolder(tmp_path / "study")
    folder.settle(SCALE)
    folder.remember([CELL], {"scores"})
    folder.note_failure(CELL, "cannot reach https://me:hunter2@host/x")
    return folder


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.yaml", ""),
        ("config.yaml", "3"),
        ("config.yaml", "a: &a [*a]"),
        ("config.yaml", DEEP),
        ("config.yaml", {"models": ["lab"]}),
        ("config.yaml", {"models": {"lab": {"path": 3}}}),
        ("config.yaml", {"samples": "many"}),
        ("config.yaml", {"benchmarks": []}),
        ("config.yaml", {"colour": "blue"}),
        ("asked/*.json", DEEP),
        ("asked/*.json", '{"needs": ["scores"]}'),
        ("asked/*.json", '{"needs": 3, "cells": []}'),
        ("asked/*.json", asked(model="../x")),
        ("asked/*.json", asked(objective="trimm")),
        ("asked/*.json", asked(objective="trim", fields={"margin": []})),
    ],
)
def test_a_damaged_file_is_named_in_one_line(folder: StudyFolder, file: str, content: Any) -> None:
    (path,) = folder.out.glob(file)
    path.write_text(content if isinstance(content, str) else json.dumps(SCALE.as_dict() | content))
    with pytest.raises(RunError) as refusal:
        read_status(folder.out)
    assert str(path) in str(refusal.value) and len(str(refusal.value)) < 400


def test_a_failure_is_kept_without_secrets(folder: StudyFolder) -> None:
    assert folder.read_failure(CELL) == "cannot reach https://***@host/x"


def test_damaged_rows_and_recipes_are_named(folder: StudyFolder, tmp_path: Path) -> None:
    folder.token_rows.parent.mkdir(parents=True, exist_ok=True)
    folder.token_rows.write_text('{"problem": "a", "solution": "b"}\n{"prob')
    with pytest.raises(UsageError, match=r"token-rows\.jsonl, line 2: not JSON"):
        token_rows(folder, SCALE, CELL)
    recipe = tmp_path / "recipe.yaml"
    for content, problem in (("x: [", "not readable as YAML"), ("[]", "valid dictionary"), ("x: 1", "names no model")):
        recipe.write_text(content)
        with pytest.raises((UsageError, RunError), match=problem):
            model_path(ModelAt(recipe=str(recipe)))


def test_secrets_are_no_fields_of_a_study() -> None:
    with pytest.raises(UsageError, match="'hub_token' is a secret, which a study writes down; set HF_TOKEN"):
        ScaleOptions(fields=("hub_token=hf_x",)).to_scale()
    with pytest.raises(UsageError, match="'hub_token' is a secret"):
        Cell(model="lab", objective="sft", fields=(("hub_token", "hf_x"),))


def test_all_parts_of_a_study_are_in_the_home_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = StudyFolder(Path("~/study"))
    folder.settle(SCALE)
    folder.remember([CELL], {"scores"})
    assert folder == StudyFolder(tmp_path / "study") and folder.run(CELL).is_relative_to(tmp_path)
    assert [state.cell for state in read_status(Path("~/study"))] == [CELL]
    with pytest.raises(UsageError, match="out: cannot be a path"):
        StudyFolder(Path("~nobody-of-this-name/study"))


def test_a_folder_of_another_kind_is_called_so(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.settle_config({f"field{n}": n for n in range(20)})
    with pytest.raises(RunError, match=r"config\.yaml: is of no study, but of a training or a quickstart"):
        read_status(tmp_path)
    with pytest.raises(RunError, match=r"field5: was 5, now not set; and 15 more\. Give it") as refused:
        run.settle_config({"seed": 0})
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("place", ["asked", "runs/lab", "runs/lab/sft/seed0/log.txt", ".settling"])
def test_a_study_with_a_link_in_it_is_not_written(tmp_path: Path, place: str) -> None:
    link, target = tmp_path / "study" / place, tmp_path / "target"
    link.parent.mkdir(parents=True)
    target.write_text("kept")
    link.symlink_to(target)
    with pytest.raises(RunError, match="is a link, which is not written through") as refused:
        StudyFolder(tmp_path / "study").settle(SCALE)
    assert str(refused.value).startswith(f"{link}: ") and target.read_text() == "kept"
