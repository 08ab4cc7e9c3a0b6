"""The offline default: a procedural arithmetic task, and a small base model shipped with the package.

lab.base_model_path()                                     # a model folder like any other
lab.write_benchmark(Path("lab-easy.jsonl"), "lab-easy")   # problems and answers
lab.write_training(Path("train.jsonl"), FineTuning(slip_rate=0.08))
"""

from pathlib import Path

from trimsft.errors import UsageError
from trimsft.lab.arithmetic import TIERS
from trimsft.lab.data import FineTuning, benchmark, training_rows, write_benchmark, write_training

__all__ = ["TIERS", "FineTuning", "base_model_path", "benchmark", "training_rows", "write_benchmark", "write_training"]


def base_model_path() -> Path:
    """Return the folder of the shipped base model."""
    folder = Path(__file__).parent / "base"
    if not (folder / "model.safetensors").is_file():
        raise UsageError(
            f"{folder} holds no model.safetensors",
            field="base model",
            hint="in a clone of the project, python -m tools.lab_base.pretrain --out DIR makes it",
        )
    return folder
