"""The offline default: a procedural arithmetic task, and a small base model shipped with the package.

lab.base_model_path()                                     # a model folder like any other
lab.write_training(Path("train.jsonl"), FineTuning(slip_rate=0.08))
"""

from pathlib import Path

from trimsft.lab.task import TIERS, FineTuning, benchmark, training_rows, write_training

__all__ = ["TIERS", "FineTuning", "base_model_path", "benchmark", "training_rows", "write_training"]


def base_model_path() -> Path:
    """Return the folder of the shipped base model; `tools.lab_base.pretrain` makes it again."""
    return Path(__file__).parent / "base"
