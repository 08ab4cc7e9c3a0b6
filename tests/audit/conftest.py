"""Shared by the tests of the audit: one thread, a tiny model, rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from datasets import disable_progress_bars

from tests.data.toys import write
from tests.tokens.tiny import ROWS, make_folder

disable_progress_bars()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data file with a field of its own, and the current directory beside it."""
    monkeypatch.chdir(tmp_path)
    return Path(write(tmp_path / "rows.jsonl", [{**row, "id": number} for number, row in enumerate(ROWS)]))
