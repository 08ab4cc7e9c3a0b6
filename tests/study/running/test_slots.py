"""Room on one machine: cores, GPUs that may be shared, and groups of GPUs that are not."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import SCALE, cells, job_of
from trimsft.errors import UsageError
from trimsft.study.cells import Cell
from trimsft.study.running import slots as slotting
from trimsft.study.running.slots import SHARE, CoreSlots, GpuSlots, cells_in_memory, fitting, make_slots, visible_gpus
from trimsft.study.scales import ModelAt


def test_cores_are_counted_and_see_no_gpu() -> None:
    slots = CoreSlots(2)
    first, second = slots.take("a"), slots.take("b")
    assert first == second == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    assert slots.take("c") is None
    slots.give_back(first)
    assert slots.take("c") == first


def test_gpus_are_shared_by_small_cells_and_grouped_for_large_ones() -> None:
    slots = GpuSlots(["4", "5"], need=lambda name: 2 if name == "large" else 1, together=2)
    taken = [slots.take("small") for _ in range(3)]
    assert [slot and slot["CUDA_VISIBLE_DEVICES"] for slot in taken] == ["4", "5", "4"]
    assert {slot and slot[SHARE] for slot in taken} == {"0.5"}
    assert slots.take("large") is None
    for slot in taken:
        assert slot is not None
        slots.give_back(slot)
    both = slots.take("large")
    assert both == {"CUDA_VISIBLE_DEVICES": "4,5"} and slots.take("small") is None
    slots.give_back(both)
    assert slots.take("small") is not None


def test_the_visible_gpus_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert visible_gpus() == ["3", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
    with pytest.raises(UsageError, match="device: needs a GPU, and there is none, got 'cuda'; set device='cpu'"):
        GpuSlots([], need=lambda name: 1)


def test_workers_say_how_many_where_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotting, "visible_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(slotting, "cells_per_gpu", lambda job: 1)
    scale = replace(SCALE, models={"good": ModelAt(path="x")}, rows=None, device="cuda")
    job = job_of(tmp_path, *cells("good", seeds=6), scale=scale)

    def room(workers: int | None) -> int:
        slots = make_slots(job, workers, 6)
        return next(taken for taken in range(10) if slots.take(f"good/sft/seed{taken}") is None)

    assert [room(None), room(1), room(4)] == [2, 1, 4]
    large = replace(scale, models={"good": ModelAt(path="x", gpus=4)})
    with pytest.raises(UsageError, match="gpus: good/sft/seed0 needs 4 GPUs and there are 2; set gpus=2"):
        make_slots(replace(job, scale=large), None, 6)
    base = Cell(model="good", objective="base")
    assert isinstance(make_slots(job_of(tmp_path, base, scale=large), None, 1), GpuSlots)
    on_cpu = replace(job, scale=replace(scale, device="cpu"))
    monkeypatch.setattr(slotting, "training_bytes", lambda job, name: 2**60)  # an exbibyte
    assert cells_in_memory(on_cpu) == 1
    monkeypatch.setattr(slotting, "training_bytes", lambda job, name: 2**20)
    assert cells_in_memory(on_cpu) > 100
    assert isinstance(make_slots(on_cpu, None, 6), CoreSlots)
    assert [fitting(80, needed) for needed in (100, 18, 0.1)] == [1, 2, 4], "one is tried, at least"
