"""Recipes, examples and constraints are found from a wheel, and copied without loss."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimsft import cli
from trimsft.runs import files
from trimsft.runs.files import PLACES, find_recipe, list_shipped
from trimsft.train import parse

ROOT = Path(__file__).parents[1]


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """A package as an installed wheel has it, and no repository."""
    package = tmp_path / "site-packages" / "trimsft"
    text = (ROOT / "pyproject.toml").read_text()
    rest = text.partition("[tool.hatch.build.targets.wheel.force-include]\n")[2]
    for source, target in re.findall(r'^"(.+)" = "(.+)"$', rest.partition("\n[")[0], re.MULTILINE):
        place = package.parent / target
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    monkeypatch.setattr(files, "PACKAGE", package)
    monkeypatch.chdir(tmp_path)
    return package


def test_train_takes_a_recipe_by_its_name_and_a_file_here_goes_before(wheel: Path) -> None:
    assert {name.partition("/")[0] for name in list_shipped()} == set(PLACES)
    for name in ("smollm2-gsm8k", "smollm2-gsm8k.yaml", "recipes/smollm2-gsm8k.yaml"):
        settings = parse(["--config", name, "--dataset_name", "train.jsonl"])
        assert settings.model.model_name_or_path == "HuggingFaceTB/SmolLM2-135M"
        assert find_recipe(name) == wheel / "recipes" / "smollm2-gsm8k.yaml"
    Path("smollm2-gsm8k.yaml").write_text("model: mine\ndata: d\n")
    assert parse(["--config", "smollm2-gsm8k.yaml"]).model.model_name_or_path == "mine"


def test_copies_stand_where_the_documentation_has_them_and_replace_nothing(wheel: Path) -> None:
    copied = CliRunner().invoke(cli.app, ["recipes", "--out", "here", "--json"])
    assert json.loads(copied.stdout) == [f"here/{name}" for name in list_shipped()]
    assert all(Path("here", name).read_bytes() == path.read_bytes() for name, path in list_shipped().items())
    mine = Path("here/recipes/smollm2-gsm8k.yaml")
    mine.write_text("objective: dft\n")
    Path("here/constraints.txt").unlink()
    again = CliRunner().invoke(cli.app, ["recipes", "--out", "here"])
    assert again.exit_code == 2 and again.stderr.startswith("trimsft: --out: 'here/recipes/")
    assert mine.read_text() == "objective: dft\n" and not Path("here/constraints.txt").exists()
