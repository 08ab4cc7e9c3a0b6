"""Engines that turn prompts into text; each file imports what it needs only when an engine is made."""

from trimsft.evaluate.engines.base import Completion, Engine, EngineError, Request, Sampling
from trimsft.evaluate.engines.scripted import ScriptedEngine

__all__ = ["Completion", "Engine", "EngineError", "Request", "Sampling", "ScriptedEngine"]
