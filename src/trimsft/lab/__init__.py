"""The offline default: a procedural arithmetic task, and a small base model shipped with the package.

lab.base_model_path()                                     # a model folder like any other
lab.write_benchmark(Path("lab-easy.jsonl"), "lab-easy")   # problems and answers
lab.write_training(Path("train.jsonl"), FineTuning(slip_rate=0.08))
"""

from pathlib import Path

from trimsft.lab.arithmetic import TIERS, LabError, LabProblem, draw_problems
from trimsft.lab.data import FineTuning, benchmark, training_rows, write_benchmark, write_training
from trimsft.lab.styles import STYLES, TARGET, UNFAMILIAR, write_solution

__all__ = [
    "STYLES",
    "TARGET",
    "TIERS",
    "UNFAMILIAR",
    "FineTuning",
    "LabError",
    "LabProblem",
    "base_model_path",
    "benchmark",
    "draw_problems",
    "training_rows",
    "write_benchmark",
    "write_solution",
    "write_training",
]


def base_model_path() -> Path:
    """The folder of the shipped base model."""
    folder = Path(__file__).parent / "base"
    if not (folder / "model.safetensors").is_file():
        raise LabError(
            f"base model: {folder} holds no model.safetensors; build it with "
            f"python -m trimsft.lab.pretrain --out {folder}"
        )
    return folder
