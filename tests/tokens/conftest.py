"""What all tests of tokens share: one thread, a tiny model, its table."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.tokens.tiny import make_folder


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("models") / "llama")
