"""Lets a torchvision built for CUDA be imported beside a torch for the CPU.

Such a torchvision cannot load its compiled operators, and then fails to import because it describes two of
them. The image processors of the tests use neither.
"""

from __future__ import annotations

from typing import Any

_OPERATORS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_library: Any = None  # torch forgets the operators when the object that declared them goes away


def declare_operators() -> None:
    """Declares the two operators where torchvision is installed but cannot be imported."""
    global _library
    import importlib.util
    import sys

    if _library is not None or importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision
    except RuntimeError:
        import torch

        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        _library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in _OPERATORS.values():
            _library.define(schema)
        import torchvision  # noqa: F401
