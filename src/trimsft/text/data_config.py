"""`DataConfig`: which rows are trained on and how they become prompts, as options of `trimsft train`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trimsft.errors import DataError
from trimsft.text.readers import SUFFIXES
from trimsft.text.templates import TEMPLATE_NAMES, check_template_name

NUMINA = "AI-MO/NuminaMath-CoT"
NUMINA_SAMPLE = 20_000


@dataclass
class DataConfig:
    """Which rows are trained on, and how they are rendered."""

    dataset_name: str = field(
        default=NUMINA,
        metadata={
            "help": "Dataset of the hub, or local files or folders (.jsonl .json .csv .parquet), joined by commas."
        },
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Hub only: the configuration."})
    dataset_revision: str | None = field(default=None, metadata={"help": "Hub only: branch, tag or commit."})
    dataset_train_split: str = field(default="train", metadata={"help": "Hub only: the split to train on."})
    dataset_test_split: str = field(default="test", metadata={"help": "Hub only: the split to evaluate on."})
    dataset_test_file: str | None = field(
        default=None, metadata={"help": "Local files to evaluate on, where eval_strategy is set."}
    )
    problem_column: str = field(default="problem", metadata={"help": "The column of problems."})
    solution_column: str = field(default="solution", metadata={"help": "The column of solutions."})
    sample: int | None = field(
        default=None, metadata={"help": f"Rows chosen at random; by default {NUMINA_SAMPLE:,} of {NUMINA}, else all."}
    )
    sample_seed: int = field(default=0, metadata={"help": "Seed of the random choice of rows."})
    template: str = field(
        default="auto",
        metadata={
            "help": "How a problem becomes a prompt; auto: the model's chat template, or plain if it has none.",
            "choices": list(TEMPLATE_NAMES),
        },
    )
    system_prompt: str | None = field(
        default=None,
        metadata={"help": "System message of chat, first line of plain; by default the recipe's, '' for none."},
    )
    benchmarks_dir: str | None = field(
        default=None,
        metadata={"help": "Folder of benchmarks (*.jsonl with a field problem): count training rows equal to one."},
    )
    drop_overlap: bool = field(default=False, metadata={"help": "Drop the training rows that are benchmark problems."})
    drop_incomplete: bool = field(
        default=False,
        metadata={"help": "Drop and count rows without problem or solution, instead of refusing the data."},
    )

    def __post_init__(self) -> None:
        check_template_name(self.template)
        if self.sample is not None and self.sample < 1:
            raise DataError(
                "must be at least 1", field="sample", value=self.sample, hint="leave it out to use all rows"
            )
        if self.drop_overlap and self.benchmarks_dir is None:
            raise DataError(
                "has no effect without benchmarks_dir", field="drop_overlap", hint="name the folder of benchmarks"
            )
        if self.problem_column == self.solution_column:
            raise DataError(
                "is the problem_column too",
                field="solution_column",
                value=self.solution_column,
                hint="name the other one",
            )
        if not self.dataset_name.strip():
            raise DataError("is empty", field="dataset_name", hint="name a dataset of the hub or a local file")

    @property
    def is_local(self) -> bool:
        """Whether `dataset_name` means files here; a typing error in a path must not become a question to the hub."""
        name = self.dataset_name
        looks_local = name.startswith(("/", ".", "~")) or "," in name or "\\" in name or name.count("/") > 1
        return looks_local or name.lower().endswith(SUFFIXES) or Path(name).exists()
