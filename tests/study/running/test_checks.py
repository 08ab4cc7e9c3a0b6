"""What would fail in every cell is refused, or mended for all of them, before anything is run."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.study.stub import SCALE, StubJob, cells
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running import checks, execution
from trimsft.study.running.checks import check_at_hand, check_settings, with_attention
from trimsft.study.running.execution import run_cells
from trimsft.study.running.training import training_settings
from trimsft.study.scales import LAB, PAPER, SMALL, ModelAt, Scale

QWEN = "Qwen2.5-Math-1.5B"


@pytest.fixture
def without_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_flash_attention", lambda: False)


def attention(scale: Scale, out: Path) -> str | None:
    settings = training_settings(Place(out), scale, Cell(model=QWEN, objective="sft"))
    asked: str | None = settings.model.attn_implementation
    return asked


# ---- attention


@pytest.mark.usefixtures("without_flash")
def test_without_flash_attention_all_cells_train_with_sdpa_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert attention(PAPER, tmp_path) == "flash_attention_2"
    scale = with_attention(PAPER, None)
    assert attention(scale, tmp_path) == "sdpa" and len(caplog.messages) == 1
    assert caplog.messages[0].startswith("attn_implementation: flash attention, which recipes ask for, is not")
    assert with_attention(PAPER, before=scale) == scale and len(caplog.messages) == 1
    assert with_attention(SMALL, None) == SMALL and with_attention(LAB, None) == LAB


def test_a_study_that_began_with_sdpa_goes_on_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_flash_attention", lambda: True)
    assert with_attention(PAPER, None) == PAPER == with_attention(PAPER, before=PAPER)
    began = replace(PAPER, defaults={**PAPER.defaults, "attn_implementation": "sdpa"})
    assert with_attention(PAPER, before=began) == began == with_attention(began, None)


@pytest.mark.usefixtures("without_flash")
def test_flash_attention_that_is_asked_for_by_name_is_refused() -> None:
    asked = {**PAPER.defaults, "attn_implementation": "flash_attention_2"}
    for device in ("cuda", "cpu"):
        with pytest.raises(ValueError, match="set: attn_implementation=flash_attention_2 needs a GPU and the"):
            with_attention(replace(PAPER, device=device, defaults=asked), None)


def test_on_a_cpu_it_is_sdpa_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scale = replace(PAPER, device="cpu")
    assert attention(with_attention(scale, None), tmp_path) == "sdpa" and not caplog.messages
    eager = replace(scale, defaults={**scale.defaults, "attn_implementation": "eager"})
    assert attention(eager, tmp_path) == "eager"


@pytest.mark.usefixtures("without_flash")
def test_the_folder_of_a_study_and_its_cells_record_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "CellJob", StubJob)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    scale = replace(SCALE, device="cuda", models={"good": ModelAt(path="good", recipe="qwen3-4b-base.yaml")})
    run_cells(cells("good"), scale, tmp_path)
    assert Place(tmp_path).read_scale().defaults == {"attn_implementation": "sdpa"}
    run_cells(cells("good", seeds=2), scale, tmp_path)  # the same once more is no other scale


# ---- data and benchmarks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmarks": ("lab-eazy",)}, "benchmark: unknown name 'lab-eazy'; did you mean 'lab-easy'?"),
        ({"benchmarks": ("lab-easy", "gone.jsonl")}, "benchmark: no such file: 'gone.jsonl'"),
        ({"benchmarks": ("gsm8k",), "benchmark_data": "."}, "data_dir: '.' has no gsm8k.jsonl"),
    ],
)
def test_benchmarks_that_are_not_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        check_settings(replace(LAB, **change), tmp_path / "out")


def test_a_dry_run_does_not_ask_the_hub_and_a_run_does_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def unreachable(*what: Any, **how: Any) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    scale = replace(LAB, benchmarks=("lab-easy", "math500"))
    check_settings(scale, tmp_path)
    with pytest.raises(ValueError, match=r"cannot load 'math500' from the hub.*--benchmark-data FOLDER") as told:
        check_at_hand(scale)
    assert "--data-dir" not in str(told.value)
    check_at_hand(LAB)


def test_benchmarks_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "mine.jsonl"
    broken.write_text("{}\n")
    with pytest.raises(ValueError, match=r"mine\.jsonl"):
        check_at_hand(replace(LAB, benchmarks=(str(broken),)))


def test_data_that_the_recipe_names_and_is_not_there_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'data/gsm8k_train\.jsonl', which its recipe names; --data FILE") as told:
        check_settings(SMALL, tmp_path)
    assert "\n" not in str(told.value)
    (tmp_path / "mine.jsonl").touch()
    check_settings(replace(SMALL, data=str(tmp_path / "mine.jsonl")), tmp_path)
