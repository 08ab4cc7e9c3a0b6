import pytest
import torch

if not torch.cuda.is_available():
    # For every call of a device function Triton's interpreter patches its language again, on top of the last patch:
    # a third of its time. Once for each module and launch is enough.
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="Triton is for Linux")
    _patch_lang = interpreter._patch_lang
    _scopes = {}

    def _patch_once(fn):
        key = id(fn.__globals__)
        if key not in _scopes:
            is_outermost = not _scopes
            scope = _scopes[key] = _patch_lang(fn)
            if is_outermost:
                scope.restore = _restore_all
        return _scopes[key]

    def _restore_all():
        for scope in reversed(_scopes.values()):
            type(scope).restore(scope)
        _scopes.clear()

    interpreter._patch_lang = _patch_once


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows (chunked) or 8 rows (triton) at a time, instead of thousands."""
    from trimsft.head import chunked, triton

    monkeypatch.setattr(chunked, "CHUNK_BYTES", dict.fromkeys(chunked.CHUNK_BYTES, 1))
    monkeypatch.setattr(triton, "CHUNK_ROWS", 8)
    monkeypatch.setattr(triton, "CHUNK_BYTES", 1)
