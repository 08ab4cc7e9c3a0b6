import inspect

import pytest
import torch


def _patch_language_once() -> None:
    """For every call of a device function Triton's interpreter patches its language again, on top of the last patch:
    a third of its time. Once for each module and launch is enough. A Triton without these parts is left as it is."""
    pytest.importorskip("triton", reason="Triton is for Linux")
    try:
        from triton.runtime import interpreter

        patch, scope_kind = interpreter._patch_lang, interpreter._LangPatchScope
    except (ImportError, AttributeError):
        return
    if not hasattr(scope_kind, "restore") or list(inspect.signature(patch).parameters) != ["fn"]:
        return
    scopes = {}

    def patch_once(fn):
        key = id(fn.__globals__)
        if key not in scopes:
            is_outermost = not scopes
            scope = scopes[key] = patch(fn)
            if is_outermost:
                scope.restore = restore_all
        return scopes[key]

    def restore_all():
        for scope in reversed(scopes.values()):
            type(scope).restore(scope)
        scopes.clear()

    interpreter._patch_lang = patch_once


if not torch.cuda.is_available():
    _patch_language_once()


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
