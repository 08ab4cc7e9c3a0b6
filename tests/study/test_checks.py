"""What would fail in every cell is refused, or mended for all of them, before anything is run."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.study.stub import finish, job_of
from trimsft.errors import UsageError
from trimsft.study import checks, run
from trimsft.study.cell import Cell
from trimsft.study.checks import check_at_hand, check_settings, with_attention
from trimsft.study.folder import StudyFolder
from trimsft.study.run import run_cells
from trimsft.study.scales import LAB, PAPER, SMALL, Scale
from trimsft.study.steps import training_settings

QWEN = "Qwen2.5-Math-1.5B"


@pytest.fixture
def without_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_flash_attention", lambda: False)


def attention(scale: Scale, out: Path) -> str | None:
    settings = training_settings(StudyFolder(out), scale, Cell(model=QWEN, objective="sft"))
    asked: str | None = settings.model.attn_implementation
    return asked


@pytest.mark.usefixtures("without_flash")
def test_without_flash_attention_all_cells_train_with_sdpa(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attention(PAPER, tmp_path) == "flash_attention_2"
    folder = StudyFolder(tmp_path)
    scale = with_attention(PAPER, folder)
    assert attention(scale, tmp_path) == "sdpa" and len(caplog.messages) == 1
    assert caplog.messages[0].startswith("attn_implementation: flash attention, which recipes ask for, is not")
    assert with_attention(SMALL, folder) == SMALL and with_attention(LAB, folder) == LAB
    folder.settle(scale)
    assert with_attention(PAPER, folder) == scale and len(caplog.messages) == 1
    monkeypatch.setattr(checks, "has_flash_attention", lambda: True)
    assert with_attention(PAPER, folder) == scale, "a study that began with sdpa goes on with it"
    assert with_attention(PAPER, StudyFolder(tmp_path / "other")) == PAPER


@pytest.mark.usefixtures("without_flash")
def test_flash_attention_that_is_asked_for_by_name_is_refused(tmp_path: Path) -> None:
    asked = {**PAPER.defaults, "attn_implementation": "flash_attention_2"}
    for device in ("cuda", "cpu"):
        with pytest.raises(UsageError, match="fields: attn_implementation=flash_attention_2 needs a GPU and the"):
            with_attention(replace(PAPER, device=device, defaults=asked), StudyFolder(tmp_path))


def test_on_a_cpu_it_is_sdpa_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scale = replace(PAPER, device="cpu")
    assert attention(with_attention(scale, StudyFolder(tmp_path)), tmp_path) == "sdpa" and not caplog.messages
    eager = replace(scale, defaults={**scale.defaults, "attn_implementation": "eager"})
    assert attention(eager, tmp_path) == "eager"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmarks": ("lab-easy", "gone.jsonl")}, "benchmarks: no such file: 'gone.jsonl'"),
        ({"benchmarks": ("gsm8k",), "benchmark_data": "."}, "benchmark_data: "),
        ({"benchmarks": ("lab-easy", "lab-easy")}, "benchmarks: two of them would be recorded as 'lab-easy'"),
        ({"samples": 1001}, "samples: must be at most 1000, got 1001"),
        ({"problems": 0}, "problems: must be at least 1, got 0"),
    ],
)
def test_what_no_evaluation_would_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(message)):
        check_settings(replace(LAB, **change), StudyFolder(tmp_path / "out"))


def test_an_absent_engine_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    scale = replace(LAB, engine="vllm")
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="engine: is not installed, got 'vllm'; see trimsft doctor, or let auto take"):
        run_cells([Cell(model="lab", objective="sft")], scale, StudyFolder(tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())
    monkeypatch.setattr(run, "make_pool", lambda *what: pytest.fail("none is needed"))
    job = job_of(tmp_path / "done", replace(LAB, engine="vllm", benchmarks=("toy",)))
    finish(job, Cell(model="lab", objective="sft"))
    outcome = run_cells([Cell(model="lab", objective="sft")], job.scale, job.folder)
    assert len(outcome.done) == 1, "what is evaluated needs no engine"


def test_a_run_asks_the_hub_and_a_dry_run_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def unreachable(*what: Any, **how: Any) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    scale = replace(LAB, benchmarks=("lab-easy", "math500"))
    check_settings(scale, StudyFolder(tmp_path))
    with pytest.raises(UsageError, match=r"'math500'") as refused:
        check_at_hand(scale)
    assert refused.value.remedy is not None and refused.value.remedy[0] == "benchmark_data"
    check_at_hand(LAB)
    broken = tmp_path / "mine.jsonl"
    broken.write_text("{}\n")
    with pytest.raises(UsageError, match=r"mine\.jsonl"):
        check_at_hand(replace(LAB, benchmarks=(str(broken),)))


def test_answers_that_no_position_is_left_for_are_refused() -> None:
    check_at_hand(replace(LAB, sampling={"max_tokens": 128}))
    with pytest.raises(UsageError, match=r"max_tokens: 256 new tokens leave no room for a prompt in .* 256 positions"):
        check_at_hand(replace(LAB, sampling={"max_tokens": 256}))


def test_absent_data_of_a_recipe_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"named by the recipe of scale 'small'.*gsm8k_train\.jsonl") as refused:
        check_settings(SMALL, StudyFolder(tmp_path))
    assert refused.value.remedy == ("data", "FILE") and "\n" not in str(refused.value)
    (tmp_path / "mine.jsonl").touch()
    check_settings(replace(SMALL, data=str(tmp_path / "mine.jsonl")), StudyFolder(tmp_path))
