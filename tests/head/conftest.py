import pytest


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows (chunked) or 8 rows (triton) at a time, instead of thousands."""
    from trimsft.head import chunked, triton

    monkeypatch.setattr(chunked, "CHUNK_BYTES", dict.fromkeys(chunked.CHUNK_BYTES, 1))
    monkeypatch.setattr(triton, "CHUNK_ROWS", 8)
    monkeypatch.setattr(triton, "CHUNK_BYTES", 1)
