"""Flash attention that is not installed: a dry run does without."""

import pytest

from tests.train.tiny_run import make_fields
from trimsft.train import attention, make_settings
from trimsft.train.attention import has_flash_attention
from trimsft.train.dry_run import measure_step


def test_a_dry_run_measures_without_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(attention, "has_flash_attention", lambda kind: False)
    fields = make_fields(tmp_path, output_dir=tmp_path / "run")
    step = measure_step(make_settings(fields | {"attn_implementation": "flash_attention_2"}))
    assert step.steps > 0 and "with sdpa, since flash_attention_2 is not installed here" in step.lines()
    assert measure_step(make_settings(fields | {"attn_implementation": "sdpa"})).instead_of is None


@pytest.mark.parametrize("package", ["flash_attn", "kernels", None])
def test_either_package_will_do(package: str | None, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == package else None)
    monkeypatch.setattr("transformers.utils.is_kernels_available", lambda: package == "kernels")
    assert has_flash_attention() == (package is not None)
