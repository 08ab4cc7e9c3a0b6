"""The examples for other frameworks hand them one callback; the frameworks themselves are stand-ins here.

What was seen with the real ones is in docs/guides/frameworks.md.
"""

import importlib.util
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

import trimsft

FOLDER = Path(__file__).parents[1] / "examples" / "frameworks"


def install(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> types.ModuleType:
    """A module of that name with this content, and the packages around it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
    vars(sys.modules[name]).update(content)
    return sys.modules[name]


def load(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_axolotl_gets_it_from_a_plugin_that_its_config_names(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "axolotl.integrations.base", BasePlugin=object)
    (name,) = yaml.safe_load((FOLDER / "axolotl.yaml").read_text())["plugins"]
    module, kind = name.split(".")
    (callback,) = getattr(load(module), kind)().add_callbacks_post_trainer(None, None)
    assert isinstance(callback, trimsft.TrimCallback)


def test_ms_swift_finds_it_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    known = install(monkeypatch, "swift.callbacks", callbacks_map={})
    load("swift_plugin")
    assert isinstance(known.callbacks_map["trimsft"](None, None), trimsft.TrimCallback)


def test_llama_factory_is_called_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}
    install(monkeypatch, "llamafactory.train.tuner", run_exp=called.update)
    monkeypatch.setattr(sys, "argv", ["llamafactory_train.py", "settings.yaml"])
    runpy.run_path(str(FOLDER / "llamafactory_train.py"), run_name="__main__")
    (callback,) = called["callbacks"]
    assert isinstance(callback, trimsft.TrimCallback)
