"""Without a GPU the Triton kernels run in the interpreter, which must be chosen before triton is first imported."""

import gc
import os
import signal
from collections.abc import Iterator

# workers share the cores, as do the processes that they start: torch's threads would wait
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))

# under nohup SIGHUP is ignored, also by processes started here; a handler of Python's is not inherited
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may wait for a hub, nor pass only where there is one

import pytest
from hypothesis import settings

settings.register_profile("trimsft", deadline=None, database=None, derandomize=True, max_examples=60)
settings.load_profile("trimsft")


# once in a dozen runs torch's first exponential of a process came out with half of its digits
for _ in range(3):
    torch.randn(64, 300, requires_grad=True).log_softmax(dim=-1).exp().sum().backward()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """So small a model only loses time to more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    # the interpreter computes with numpy, which warns of NaN and inf; the kernels also load the padding of a row,
    # which may hold anything and is never used
    ignored = pytest.mark.filterwarnings(
        "ignore:(invalid value|overflow|divide by zero|All-NaN slice) encountered:RuntimeWarning"
    )
    for item in items:
        if "tests/head" in item.path.as_posix() or "triton" in item.nodeid:
            item.add_marker(ignored)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Trainer collects garbage after each training, a second long while imports are looked at."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.unfreeze()  # triton would call it a leak
