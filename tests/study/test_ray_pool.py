"""Cells on a real local cluster of Ray: done, tried again, failed, and what each asks for."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from tests.study.stub import SCALE, cells, job_of, wait_until_gone
from tests.study.test_pools import wait_for
from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.ray_pool import RayPool
from trimsft.study.run import run_cells
from trimsft.study.scales import SCALES

PAPER = SCALES["paper"]

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


@pytest.mark.usefixtures("stubs")
def test_cells_of_a_cluster_are_done_or_failed(cluster: Any, tmp_path: Path) -> None:
    good, dying = asked = cells("good", "dying")
    folder = StudyFolder(tmp_path)
    outcome = run_cells(asked, SCALE, folder, executor="ray")
    assert set(outcome.done) == {good} and set(outcome.failed) == {dying}
    assert outcome.failed[dying].startswith("its process was killed (")
    assert cluster.is_initialized()  # whoever has started it ends it


def test_what_a_task_has_launched_ends_when_it_is_cancelled(cluster: Any, tmp_path: Path) -> None:
    (cell,) = cells("launching")
    job = job_of(tmp_path)
    launched = job.folder.run(cell) / "pid"
    with RayPool(job, [cell], None) as pool:
        pool.submit(cell)
        wait_for(lambda: launched.exists() and launched.read_text())
    wait_until_gone(int(launched.read_text()))


def test_what_no_machine_has_and_a_missing_package_are_refused(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper, job = Cell(model="Qwen2.5-Math-1.5B", objective="sft"), job_of(tmp_path, PAPER)
    with pytest.raises(UsageError, match="executor: a training needs a machine with 2 GPU"):
        RayPool(job, [paper], None)
    assert cluster.is_initialized()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="executor: needs the package ray"):
        RayPool(job, [], None)
