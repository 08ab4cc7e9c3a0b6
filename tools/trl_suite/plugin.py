"""pytest plugin for TRL's SFT tests: local datasets, the trainer under test, and a report of every outcome.

Reads three variables: TRL_SUITE_TRAINER (trl or trimsft), TRL_SUITE_DATASETS (folder of the stand-ins) and
TRL_SUITE_REPORT (where to write {test: {"outcome", "seconds", "message", "losses"}}; the last are the mean losses
of each training the test ran). Nothing of the suite is changed on disk: names are replaced in its module once it
has been imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

NEEDS_ACCELERATOR = "test requires accelerator"
RUNS_ANYWHERE = "test_sft_trainer_transformers_mp["  # asks for an accelerator, but for no feature of one
REMOVED = ("_chunked_cross_entropy_loss", "_patch_chunked_ce_lm_head", "dft_loss")
"""Functions that the suite imports and TRL 1.16 no longer has: their tests are skipped."""

_outcomes: dict[str, dict[str, Any]] = {}
_losses: list[float] = []


def pytest_configure(config: pytest.Config) -> None:
    """Prepare TRL before the suite is imported."""
    from trl import import_utils
    from trl.trainer import sft_trainer

    for marker in ("slow", "low_priority"):
        config.addinivalue_line("markers", f"{marker}: used by the suite")
    import_utils.__getattr__ = package_check
    for name in REMOVED:
        if not hasattr(sft_trainer, name):
            setattr(sft_trainer, name, lambda *_, **__: pytest.skip("no longer part of TRL"))
    record_losses()


def package_check(name: str) -> Any:
    """Answer `is_joblib_available` and the like: whether the package can be imported."""
    if not (name.startswith("is_") and name.endswith("_available")):
        raise AttributeError(name)
    return lambda: importlib.util.find_spec(name[3:-10]) is not None


def record_losses() -> None:
    """Note the mean loss of every training: equal outcomes may hide unequal losses."""
    from transformers import Trainer

    train = Trainer.train

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = train(self, *args, **kwargs)
        _losses.append(output.training_loss)
        return output

    Trainer.train = noted


def trainer_under_test() -> dict[str, Any]:
    """Names of the suite's module that are replaced to test our trainer."""
    if os.environ["TRL_SUITE_TRAINER"] == "trl":
        return {}
    from trimsft.train import TrimSFTConfig, TrimSFTTrainer

    global UniformConfig  # a name of this module, as checkpoints pickle their arguments
    UniformConfig = make_dataclass("UniformConfig", [("objective", str, "sft")], bases=(TrimSFTConfig,))
    UniformConfig.__module__ = __name__
    return {"SFTTrainer": TrimSFTTrainer, "SFTConfig": UniformConfig}


def load_dataset(name: str, *args: Any, **kwargs: Any) -> Any:
    """`datasets.load_dataset` on the folder that stands in for a repository of that name."""
    import datasets

    return datasets.load_dataset(str(Path(os.environ["TRL_SUITE_DATASETS"]) / name), *args, **kwargs)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = trainer_under_test() | {"load_dataset": load_dataset}
    for item in items:
        for name, value in names.items():
            if hasattr(item.module, name):
                setattr(item.module, name, value)
        if RUNS_ANYWHERE in item.nodeid:
            for node in item.listchain():
                node.own_markers = [mark for mark in node.own_markers if not asks_for_accelerator(mark)]


def asks_for_accelerator(mark: pytest.Mark) -> bool:
    return mark.name == "skipif" and mark.kwargs.get("reason") == NEEDS_ACCELERATOR


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The worst of the three phases of a test is its outcome."""
    fresh: dict[str, Any] = {"outcome": "passed", "seconds": 0.0, "message": "", "losses": []}
    entry = _outcomes.setdefault(report.nodeid, fresh)
    entry["losses"] += _losses
    _losses.clear()
    entry["seconds"] = round(entry["seconds"] + report.duration, 2)
    if report.outcome == "passed" or entry["outcome"] == "failed":
        return
    entry["outcome"] = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    if isinstance(report.longrepr, tuple):  # (file, line, reason) of a skipped test
        entry["message"] = report.longrepr[2]
    else:
        crash = getattr(report.longrepr, "reprcrash", None)
        entry["message"] = crash.message if crash else str(report.longrepr)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _outcomes[report.nodeid] = {"outcome": "failed", "seconds": 0.0, "message": str(report.longrepr), "losses": []}


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """After every test: a run that is stopped leaves what it had."""
    write_report()


def pytest_sessionfinish() -> None:
    write_report()


def write_report() -> None:
    Path(os.environ["TRL_SUITE_REPORT"]).write_text(json.dumps(_outcomes, indent=2))
