import pytest

pytest.importorskip("triton", reason="Triton is for Linux")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows (chunked) or 8 rows (triton) at a time, instead of thousands."""
    from trimsft.head import chunked, memory

    monkeypatch.setattr(chunked, "CHUNK_BYTES", dict.fromkeys(chunked.CHUNK_BYTES, 1))
    monkeypatch.setattr(memory, "CHUNK_ROWS", 8)
    monkeypatch.setattr(memory, "CHUNK_BYTES", 1)


@pytest.fixture(autouse=True)
def skipping_always_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems skip rows, too, although sorting takes longer than it saves; whatever tests before have found."""
    from trimsft.head import triton_solver as solver

    for name in ("SORTING_SECONDS", "CHUNK_SECONDS"):
        monkeypatch.setattr(solver, name, 0.0)
    monkeypatch.setattr(solver, "MEMORY_RATE", float("inf"))
