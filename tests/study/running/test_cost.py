"""What a study would take: counted where data is at hand, said to be assumed where not; nothing is written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.study.stub import SCORES, finish, job_of
from trimsft.cli.studies import cost_table, show_cost
from trimsft.lab import base_model_path, training_rows
from trimsft.study.cells import Cell
from trimsft.study.command import StudySettings, study_cost
from trimsft.study.folder import StudyFolder
from trimsft.study.running import cost as costs
from trimsft.study.running import job as jobs
from trimsft.study.running.cost import CellCost, Cost
from trimsft.study.running.training import training_settings
from trimsft.study.scales import LAB, PAPER, ModelAt, Scale
from trimsft.train.settings import Settings


def estimate_cost(cells: list[Cell], scale: Scale, out: Path, needs: frozenset[str]) -> Cost:
    return costs.estimate_cost(cells, scale, StudyFolder(out), needs)


def test_lab_tokens_are_those_that_training_sees(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from trimsft.data.encoding import encode_completions, encode_prompts
    from trimsft.data.templates import choose_template
    from trimsft.study.running.training import task

    scale = LAB.tiny()
    out = tmp_path / "out"
    base, sft = Cell(model="lab", objective="base"), Cell(model="lab", objective="sft")
    twice = Cell(model="lab", objective="sft", fields=(("num_train_epochs", 2),))
    found = estimate_cost([base, sft, twice], scale, out, SCORES)
    tokenizer = AutoTokenizer.from_pretrained(base_model_path())
    rows = list(training_rows(task(scale, 0)))
    template = choose_template("auto", tokenizer, None)
    prompts = encode_prompts([row["problem"] for row in rows], tokenizer, template)
    solutions = encode_completions([row["solution"] for row in rows], tokenizer)
    expected = sum(len(ids) for ids in (*prompts, *solutions))
    assert [cell.trained_tokens for cell in found.cells] == pytest.approx([0, expected, 2 * expected])
    assert [cell.generated_tokens for cell in found.cells] == [3 * 2 * 3 * 12] * 3  # tiers, problems, answers, tokens
    assert found.cells[1].disk_bytes > 4 * 2.4e6 and found.cells[0].disk_bytes < 1e5
    assert found.cells[1].cpu_hours > found.cells[0].cpu_hours > 0 and found.total.gpu_hours == 0
    assert not out.exists()
    toy = replace(LAB, benchmarks=("toy",))
    finish(job_of(tmp_path, scale=toy), sft)
    found = estimate_cost([sft], toy, tmp_path, SCORES)
    assert found.already_done == 1 and found.cells == [] and found.total.trained_tokens == 0, "what is done is free"


@pytest.mark.parametrize(
    ("fields", "epochs"),
    [
        ({"max_steps": 1}, 0.5),  # 24 rows, 12 of them in an update
        ({"max_steps": 7, "num_train_epochs": 2}, 3.5),
        ({"max_steps": 6, "per_device_train_batch_size": 5}, 6 / 5),  # the last update of an epoch has 4 rows
        ({"max_steps": 1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 1 / 3),
        ({"max_steps": 1, "global_batch": 6}, 1 / 4),
        ({"max_steps": 3, "per_device_train_batch_size": 100}, 3.0),
        ({"num_train_epochs": 2}, 2.0),
    ],
)
def test_steps_go_before_epochs(tmp_path: Path, fields: dict[str, int], epochs: float) -> None:
    once = Cell(model="lab", objective="sft")
    some = Cell(model="lab", objective="sft", fields=tuple(fields.items()))
    first, second = estimate_cost([once, some], LAB.tiny(), tmp_path / "out", SCORES).cells
    assert second.trained_tokens == pytest.approx(epochs * first.trained_tokens)


def test_settings_are_read_once_for_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Cell] = []

    def counted(folder: StudyFolder, scale: Scale, cell: Cell) -> Settings:
        read.append(cell)
        return training_settings(folder, scale, cell)

    monkeypatch.setattr(costs, "training_settings", counted)
    sft = Cell(model="lab", objective="sft")
    cells = [replace(sft, seed=seed) for seed in range(5)]
    first, *others = estimate_cost(cells, LAB.tiny(), tmp_path / "out", SCORES).cells
    assert read == [sft] and all(replace(cost, name=first.name) == first for cost in others)


def test_the_papers_models_cost_by_a_formula_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_peak", lambda: (312e12, "an A100, assumed"))
    cells = [Cell(model="Qwen2.5-Math-1.5B", objective=name) for name in ("base", "sft")]
    base, sft = estimate_cost(cells, PAPER, tmp_path / "out", SCORES).cells
    problems = 500 + 675 + 272 + 83 + 30
    assert base.generated_tokens == sft.generated_tokens == problems * 9 * 700
    assert base.trained_tokens == 0 and sft.trained_tokens == 20_000 * 526
    training = 8 * 1.54e9 * 20_000 * 526 / (312e12 * 0.4) / 3600
    # while one GPU of the training's two generates, the other waits
    assert sft.gpu_hours - 2 * base.gpu_hours == pytest.approx(training)
    assert sft.disk_bytes == base.disk_bytes  # its weights do not stay
    # a second checkpoint is whole before the first one goes; weights and two moments each
    assert sft.peak_bytes == pytest.approx(2 * 3 * 4 * 1.54e9)
    kept = estimate_cost(cells, replace(PAPER, keep_weights=True), tmp_path / "out", SCORES).cells[1]
    assert kept.disk_bytes - sft.disk_bytes == pytest.approx(4 * 1.54e9)


@pytest.mark.parametrize(
    ("fields", "checkpoints"),
    [({"save_strategy": "no"}, 0), ({"save_total_limit": 3}, 4), ({"save_only_model": True}, 2 / 3)],
)
def test_disk_goes_by_the_checkpoints_that_are_kept(
    tmp_path: Path, fields: dict[str, object], checkpoints: float
) -> None:
    scale = replace(PAPER, defaults={**PAPER.defaults, **fields})
    (cost,) = estimate_cost([Cell(model="Qwen3-4B-Base", objective="sft")], scale, tmp_path, SCORES).cells
    assert cost.peak_bytes == pytest.approx(max(1, 3 * checkpoints) * 4 * 4.02e9)


def test_generation_is_costed_for_the_engine_that_would_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = [Cell(model="Qwen3-4B-Base", objective="base")]

    def cost(engine: str) -> tuple[float, str]:
        found = estimate_cost(base, replace(PAPER, engine=engine), tmp_path, SCORES)
        (said,) = (text for text in found.assumptions if text.startswith("generation: "))
        return found.total.gpu_hours, said

    fast, slow = cost("vllm"), cost("transformers")
    assert slow[0] == pytest.approx(4 * fast[0])
    assert fast[1] == "generation: 2,857 tokens a second for 7 billion parameters (vLLM, assumed)"
    assert "714 tokens a second" in slow[1] and "a quarter of what is assumed for vLLM" in slow[1]
    monkeypatch.setattr(jobs.importlib.util, "find_spec", lambda name: None)
    assert cost("auto")[0] == slow[0] and "not installed here" in cost("auto")[1]


def test_local_rows_are_counted_in_the_models_own_tokens(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"problem": "Start with 7.", "solution": "7"}) + "\n" for _ in range(7)))
    scale = replace(LAB, rows=None, data=str(data), models={"mine": ModelAt(path=str(base_model_path()))})
    (found,) = estimate_cost([Cell(model="mine", objective="sft")], scale, tmp_path / "out", SCORES).cells
    assert found.trained_tokens % 7 == 0 and 7 * 5 < found.trained_tokens < 7 * 60


def test_the_table_says_what_is_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = StudySettings(names=("main",), scale="paper", models=("Qwen3-4B-Base",), out=tmp_path / "out")
    cost = study_cost(settings)
    show_cost(cost, settings, Console(width=100))
    said = capsys.readouterr().out
    assert "5 cells, and 0 done" in said and "Qwen3-4B-Base/trim-margin1.5-bandwidth0.8/seed0" in said
    parts = ("526 for each row assumed", "700 for each answer (assumed)", "Weights are deleted", "GPU hours: 8")
    assert all(part in said for part in parts)
    assert cost.as_dict()["total"]["gpu_hours"] > 0 and not (tmp_path / "out").exists()
    names = [f"Qwen2.5-Math-1.5B/trim-margin{margin}-bandwidth0.8/seed0" for margin in (1, 15)]
    Console(width=80).print(cost_table(Cost([CellCost(name) for name in names], 0), PAPER))
    said = capsys.readouterr().out
    column = "".join(line[:36].strip() for line in said.splitlines())
    assert "…" not in said and all(name in column for name in names), "names stay apart on a narrow terminal"


def test_studies_that_share_cells_are_counted_once(tmp_path: Path) -> None:
    def cost(*names: str) -> Cost:
        return study_cost(StudySettings(names=names, out=tmp_path / "out"))

    alone = cost("main")
    assert cost("main", "passes", "gaps").total == alone.total == cost("gaps", "passes").total
    both = cost("main", "ablation")
    assert len(both.cells) == len({cell.name for cell in both.cells}) == 5 + 28
    assert len(both.assumptions) == len(set(both.assumptions))
