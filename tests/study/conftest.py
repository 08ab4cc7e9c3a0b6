"""Stubs for tests that look at how cells are run, not at what they do."""

from pathlib import Path

import pytest

from tests.study.stub import InlinePool, StubJob
from trimsft.study import folder, run


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Job", StubJob)
    monkeypatch.setattr(run, "POLL", 0.05)


@pytest.fixture
def inline(stubs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in this process, whose output stays where it is."""

    def prepare(log: Path) -> None:
        assert log.name.endswith((".txt", ".log"))

    monkeypatch.setattr(run, "LocalPool", InlinePool)
    monkeypatch.setattr(folder, "redirect_output", prepare)
