"""Flash attention that is not installed is refused before anything is read or written; a dry run does without."""

import pytest
from typer.testing import CliRunner

from tests.train.tiny_run import make_fields
from trimsft import cli
from trimsft.errors import UsageError
from trimsft.train import attention, make_settings, parse
from trimsft.train.attention import check_attention, has_flash_attention
from trimsft.train.dry_run import measure_step
from trimsft.train.run import train

SAYS = (
    "attn_implementation: flash_attention_2 needs the package flash-attn or the package kernels, and neither is "
    "installed; pip install kernels, which needs no compiler; set attn_implementation='sdpa'"
)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attention, "has_flash_attention", lambda kind: False)
    words = "--model_name_or_path ./nowhere --dataset_name nowhere.jsonl --output_dir run --bf16 false"
    return parse([*words.split(), "--attn_implementation", "flash_attention_2"])


def test_it_is_refused_before_anything_is_read(settings, tmp_path) -> None:
    with pytest.raises(UsageError) as refused:
        train(settings)
    assert str(refused.value) == SAYS and not list(tmp_path.iterdir())


def test_what_the_model_is_given_counts_and_what_is_installed_passes(settings, monkeypatch) -> None:
    settings.args.model_init_kwargs = {"attn_implementation": "flash_attention_3"}
    with pytest.raises(UsageError, match="flash_attention_3 needs the package flash-attn-3 or the package kernels"):
        check_attention(settings)
    for other in ("sdpa", {"": "sdpa"}):  # transformers takes one for each part of a model, too
        settings.args.model_init_kwargs = {"attn_implementation": other}
        check_attention(settings)
    monkeypatch.setattr(attention, "has_flash_attention", lambda kind: kind == "flash_attention_2")
    settings.args.model_init_kwargs = None
    check_attention(settings)


def test_a_dry_run_measures_without_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(attention, "has_flash_attention", lambda kind: False)
    fields = make_fields(tmp_path, output_dir=tmp_path / "run")
    step = measure_step(make_settings(fields | {"attn_implementation": "flash_attention_2"}))
    assert step.steps > 0 and "with sdpa, since flash_attention_2 is not installed here" in step.lines()
    assert measure_step(make_settings(fields | {"attn_implementation": "sdpa"})).instead_of is None


@pytest.mark.usefixtures("settings")
def test_the_command_says_what_to_type() -> None:
    words = "train --model m --data d.jsonl --bf16 false --attn_implementation flash_attention_2"
    result = CliRunner().invoke(cli.app, words.split(), catch_exceptions=False)
    assert result.exit_code == 2 and result.stderr.endswith("; set --attn_implementation sdpa\n")


@pytest.mark.parametrize("package", ["flash_attn", "kernels", None])
def test_either_package_will_do(package: str | None, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == package else None)
    monkeypatch.setattr("transformers.utils.is_kernels_available", lambda: package == "kernels")
    assert has_flash_attention() == (package is not None)
