"""The settings of the data: checked at once, and options of a command beside those of TRL."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from transformers import HfArgumentParser

from trimsft.errors import DataError
from trimsft.text.training_data import DataConfig, load_rows

from .toys import local


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sample": 0}, "sample: must be at least 1, got 0"),
        ({"template": "chatt"}, "template: unknown name 'chatt'; did you mean 'chat'"),
        ({"drop_overlap": True}, "drop_overlap: has no effect without benchmarks_dir"),
        ({"problem_column": "solution"}, "solution_column: is the problem_column too"),
        ({"dataset_name": " "}, "dataset_name: is empty"),
    ],
)
def test_settings_are_checked_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        DataConfig(**options)


@pytest.mark.parametrize("setting", [{"dataset_config": "a"}, {"dataset_revision": "b"}, {"dataset_train_split": "c"}])
def test_settings_of_the_hub_on_local_data(tmp_path: Path, setting: dict[str, str]) -> None:
    with pytest.raises(DataError, match=f"{next(iter(setting))}: .* has no effect on local data"):
        load_rows(local(tmp_path, **setting))


def test_an_unknown_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="split: must be 'train' or 'test', got 'valid'"):
        load_rows(local(tmp_path), split="valid")


def test_settings_are_options_of_a_command() -> None:
    words = [
        "--sample",
        "5",
        "--drop_overlap",
        "--benchmarks_dir",
        "b",
        "--system_prompt",
        "",
        "--template",
        "plain",
    ]
    (config,) = HfArgumentParser(DataConfig).parse_args_into_dataclasses(words)
    assert config == DataConfig(sample=5, drop_overlap=True, benchmarks_dir="b", system_prompt="", template="plain")


def test_settings_stand_beside_those_of_trl() -> None:
    from trl import ModelConfig, SFTConfig

    names = [{field.name for field in dataclasses.fields(kind)} for kind in (SFTConfig, ModelConfig)]
    assert {field.name for field in dataclasses.fields(DataConfig)}.isdisjoint(set.union(*names))
