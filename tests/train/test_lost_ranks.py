"""A collective that fails is told by the rank that is missing, not by the address of a connection."""

import threading

import pytest
from torch import distributed

from trimsft.errors import TrimSFTError
from trimsft.train import lost_ranks as module
from trimsft.train.lost_ranks import lost_ranks, naming_lost_ranks

GLOO = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:537] Connection reset by peer")


class Gone:
    """A store whose keeper is gone."""

    def set(self, key: str, value: str) -> None:
        raise distributed.DistNetworkError("connection reset")


class Stopped:
    """A store whose keeper has stopped."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def set(self, key: str, value: str) -> None:
        self.goes_on.wait()
        raise distributed.DistNetworkError("connection reset")


@pytest.fixture
def store(monkeypatch) -> distributed.HashStore:
    store = distributed.HashStore()
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    return store


def test_who_has_noticed_the_failure_is_not_lost(store) -> None:
    store.set("trimsft/noticed/1", "")
    with (
        pytest.raises(TrimSFTError, match=r"^rank 2 of 3 no longer answers; its own output says more"),
        naming_lost_ranks(),
    ):
        raise GLOO
    with pytest.raises(TrimSFTError, match=r"^rank 2 of 3"), naming_lost_ranks():  # refused by someone in between
        raise ValueError("bad setting") from GLOO
    assert store.check(["trimsft/noticed/0"])


def test_other_errors_pass(store) -> None:
    for number in (1, 2):
        store.set(f"trimsft/noticed/{number}", "")
    for error in (GLOO, RuntimeError("shapes differ"), TrimSFTError("gloo is a word here")):
        with pytest.raises(type(error)) as raised, naming_lost_ranks():
            raise error
        assert raised.value is error


def test_who_keeps_the_store_may_be_lost_itself() -> None:
    assert lost_ranks(Gone(), 1, 3, 0.0) == [0]
    assert lost_ranks(Gone(), 0, 2, 0.0) == [1]


def test_who_keeps_the_store_may_have_stopped(monkeypatch) -> None:
    monkeypatch.setattr(module, "ANSWER", 0.0)
    store = Stopped()
    assert lost_ranks(store, 1, 3, 0.0) == [0]
    store.goes_on.set()
