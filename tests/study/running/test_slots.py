"""Room on one machine: cores, GPUs that may be shared, and groups of GPUs that are not."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import SCALE, StubJob, cells
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running import local
from trimsft.study.running.local import cells_in_memory, fitting, make_slots
from trimsft.study.running.slots import SHARE, CoreSlots, GpuSlots, how_many, visible_gpus
from trimsft.study.scales import ModelAt, Scale

GB = 2**30


def test_cores_are_counted_and_see_no_gpu() -> None:
    slots = CoreSlots(2)
    first, second = slots.take("a"), slots.take("b")
    assert first == second == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    assert slots.take("c") is None
    slots.give_back(first)
    assert slots.take("c") == first
    assert CoreSlots(1, sees_gpus=True).take("a") == {"OMP_NUM_THREADS": "1"}
    assert how_many(1) == 1 and 1 <= how_many(100) <= 6


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


def test_gpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="device: 'cuda' needs a GPU, and there is none; --device cpu"):
        GpuSlots([], need=lambda name: 1)


def test_the_visible_gpus_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert visible_gpus() == ["3", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


def test_as_many_fit_as_their_memory_allows() -> None:
    assert fitting(80 * GB, 100 * GB) == 1  # it is tried, at least
    assert fitting(80 * GB, 18 * GB) == 2
    assert fitting(80 * GB, 0.1 * GB) == 4


def test_workers_say_how_many_where_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "visible_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(local, "cells_per_gpu", lambda job: 1)
    scale = Scale(name="gpu", models={"good": ModelAt(path="x")}, benchmarks=("toy",))
    asked = {cell.name: cell for cell in cells("good", seeds=6)}
    job = StubJob(Place(tmp_path), scale, frozenset({"scores"}), asked)

    def room(workers: int | None) -> int:
        slots = make_slots(job, workers, len(asked))
        return next(taken for taken in range(10) if slots.take(f"good/sft/seed{taken}") is None)

    assert [room(None), room(1), room(4)] == [2, 1, 4]
    large = replace(scale, models={"good": ModelAt(path="x", gpus=4)})
    with pytest.raises(ValueError, match="gpus: good/sft/seed0 needs 4 GPUs and there are 2; --gpus 2 takes fewer"):
        make_slots(replace(job, scale=large), None, 6)
    base = Cell(model="good", objective="base")
    assert isinstance(make_slots(replace(job, scale=large, cells={base.name: base}), None, 1), GpuSlots)
    monkeypatch.setattr(local, "training_bytes", lambda job, name: 2**60)  # an exbibyte
    assert cells_in_memory(replace(job, scale=replace(scale, device="cpu"))) == 1
    monkeypatch.setattr(local, "training_bytes", lambda job, name: 2**20)
    assert cells_in_memory(replace(job, scale=replace(scale, device="cpu"))) > 100
    on_cpu = StubJob(Place(tmp_path), SCALE, frozenset({"scores"}), asked)
    assert isinstance(make_slots(on_cpu, None, 6), CoreSlots)
