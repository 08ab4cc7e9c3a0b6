"""Cells on a real local cluster of Ray: done, tried again, failed, and what each asks for."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from tests.study.stub import SCALE, StubJob, cells, is_running, job_of, wait_until_gone
from trimsft.errors import UsageError
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running import execution
from trimsft.study.running import ray as ray_executor
from trimsft.study.running.execution import Event, run_cells
from trimsft.study.running.ray import RESOURCES, RayCrew, resources_of
from trimsft.study.running.workers import Task
from trimsft.study.scales import PAPER

pytestmark = pytest.mark.filterwarnings("ignore")  # ray and its packages have many


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray
        ray.shutdown()


def test_cells_are_done_tried_again_and_failed(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "CellJob", StubJob)
    events: list[Event] = []
    flaky, dying = asked = cells("flaky", "dying")
    folder = StudyFolder(tmp_path)
    outcome = run_cells(asked, SCALE, folder, executor="ray", retries=1, on_event=events.append)
    assert set(outcome.done) == {flaky} and set(outcome.failed) == {dying}
    assert outcome.failed[dying].startswith("its process ended (")
    tries = [len(list(folder.run(cell).glob("attempt-*"))) for cell in asked]
    assert tries == [2, 2]
    retried = {event.cell: event.note for event in events if event.state == "retrying"}
    assert set(retried) == {flaky, dying} and retried[flaky] == "learning_rate: must not be below 0, got -1"
    assert "StepError" in folder.log(flaky).read_text()
    assert cluster.is_initialized()  # whoever has started it ends it


def test_a_cell_of_two_gpus_asks_for_both_on_one_machine(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(model="Qwen2.5-Math-1.5B", objective="sft")
    job = job_of(tmp_path, cell, scale=PAPER)
    monkeypatch.setenv(RESOURCES, '{"a100": 2}')
    assert resources_of(job, cell) == {"CPU": 8, "GPU": 2, "a100": 2.0}
    monkeypatch.setattr(ray_executor, "_grows", lambda: True)
    with RayCrew(job) as crew:
        crew._submit(Task(cell.name))
        (group,) = crew._groups.values()
        from ray.util.placement_group import placement_group_table

        table = placement_group_table(group)
        assert table["strategy"] == "STRICT_PACK"
        assert table["bundles"] == {0: {"CPU": 8.0, "GPU": 2.0, "a100": 2.0}}
        assert table["state"] == "PENDING"  # this cluster has no GPUs
    assert crew._groups == {} and crew._running == {}


def test_what_no_machine_has_is_refused_unless_the_cluster_grows(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray._private.state import state
    from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

    monkeypatch.setenv(RESOURCES, '{"a100": 1}')
    words = r"executor: no machine .* what good/sft/seed0 takes \(1 CPU, 1 a100\); they have 2 CPU, 0 a100"
    with pytest.raises(UsageError, match=words):
        run_cells(cells("good"), SCALE, StudyFolder(tmp_path / "out"), executor="ray")
    assert not (tmp_path / "out").exists() and cluster.is_initialized()
    told = ClusterConfig(node_group_configs=[NodeGroupConfig(resources={"GPU": 8}, max_count=4)])
    monkeypatch.setattr(state, "get_cluster_config", lambda: told)
    with RayCrew(job_of(tmp_path, *cells("good"))):
        assert caplog.messages[0].endswith("waiting for the cluster to grow")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells nobody of a dead parent")
def test_what_a_task_has_launched_ends_when_it_is_cancelled(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = cells("launching")
    job = job_of(tmp_path, cell)
    started = job.folder.run(cell) / "ranks"
    with RayCrew(job) as crew:
        for _ in crew.work([Task(cell.name)]):
            if started.exists():
                break
        launched = [int(pid) for pid in started.read_text().split()]
        assert all(map(is_running, launched))
    for pid in launched:
        wait_until_gone(pid)


def test_what_cannot_be_read_and_what_is_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RESOURCES, "two")
    with pytest.raises(UsageError, match=r"TRIMSFT_RAY_RESOURCES: must be JSON such as .* got 'two'"):
        resources_of(job_of(tmp_path), *cells("good"))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"executor: needs the package ray, got 'ray'; pip install 'ray\[default\]'"):
        RayCrew(job_of(tmp_path))
