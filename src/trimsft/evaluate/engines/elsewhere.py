"""What engines have in common whose model is loaded by another process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from trimsft.data.encode import load_tokenizer
from trimsft.evaluate.engines.base import Engine
from trimsft.evaluate.engines.local import LocalModel


def facts_of(engine: Engine) -> dict[str, Any]:
    """What the process says of its engine when it has loaded the model."""
    return {"name": engine.name, "identity": dict(engine.identity), "details": dict(engine.details)}


class Elsewhere(ABC):
    """Loading begins at once and is waited for when something is asked; the tokenizer is here, too."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model

    @abstractmethod
    def _ask_facts(self) -> Mapping[str, Any]:
        """`facts_of` the engine; raises what the process could not do."""

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        return self._ask_facts()

    @property
    def name(self) -> str:
        return str(self._facts["name"])

    @property
    def identity(self) -> Mapping[str, Any]:
        return dict(self._facts["identity"])

    @property
    def details(self) -> Mapping[str, Any]:
        return dict(self._facts["details"])

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self._model.model, revision=self._model.revision)
