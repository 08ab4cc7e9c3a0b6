"""The settings of `trimsft audit`; imports nothing heavy."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from trimsft.data.templates import check_template_name
from trimsft.errors import UsageError
from trimsft.options import check_options, option
from trimsft.tokens.categories import CATEGORIES


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """Which rows are audited by which model, and how."""

    data: str = option(
        argument="DATA",
        flags=("--data",),
        help="Dataset of the hub, or local files (.jsonl .json .csv .parquet, .gz), as for train.",
    )
    model: str = option(help="Run directory, model folder or name of a model on the hub.")
    out: Path = option(Path("audit"), help="The folder of the audit, in which a second call resumes.")
    training: bool = option(
        True,
        flags=("--training/--no-training",),
        help="Measure gaps after a short training, too; without: in one pass.",
    )
    threshold: float = option(4.0, help="Score from which a span is a suspect and its row is flagged.")
    only: str | None = option(
        None, help="Judge only tokens of this category, such as the digits of numbers.", choices=CATEGORIES
    )
    clean: bool = option(False, flags=("--clean",), help="Write cleaned.jsonl, too: the data without flagged rows.")
    limit: int | None = option(None, help="Audit only this many rows, the first ones.", least=1)
    folds: int = option(2, help="Parts of the data; each is judged by a training on the others.", least=2)
    updates: int = option(200, help="Most updates of each training; it never sees a row twice.", least=1)
    batch_rows: int = option(4, help="Rows of one update.", least=1)
    learning_rate: float = option(5e-5, help="Learning rate of the training.", above=0)
    seed: int = option(0, help="Seed of the parts and of the training.", least=0)
    template: str = option(
        "auto", help="How a problem becomes a prompt; auto takes the template that the run was trained with."
    )
    system_prompt: str | None = option(
        None, help="System prompt ('' for none); by default the one that the run was trained with."
    )
    max_length: int | None = option(
        None, help="Cut rows to this many tokens (0: never); by default as the run was trained.", least=0
    )
    problem_column: str = option("problem", metavar="NAME", help="The column of problems.")
    solution_column: str = option("solution", metavar="NAME", help="The column of solutions.")
    drop_incomplete: bool = option(
        False,
        flags=("--drop-incomplete",),
        help="Pass over rows without problem or solution, instead of refusing the data.",
    )
    assistant_only_loss: bool = option(
        False,
        flags=("--assistant-only-loss",),
        help="In messages, judge the assistant's turns only (default: as the run was trained, else all).",
    )
    device: str = option(
        "auto", help="Where the model runs: auto takes the GPUs if there are any.", choices=("auto", "cpu")
    )
    batch_tokens: int | None = option(None, help="Most tokens in a batch of measuring, padding included.", least=1)

    def __post_init__(self) -> None:
        check_options(self)
        check_template_name(self.template)
        for name in ("data", "model"):
            if not getattr(self, name).strip():
                raise UsageError("is empty", field=name, hint="name a local one, or one of the hub")
        if not self.training:
            self._refuse_training_options()

    def _refuse_training_options(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in OF_TRAINING and value != field.default:
                problem = "has no effect without training"
                raise UsageError(problem, field=field.name, value=value, hint="leave it out")


OF_TRAINING = ("folds", "updates", "batch_rows", "learning_rate", "seed")
"""What is of no use with `training=False`."""
HARMLESS = ("threshold", "only", "clean", "batch_tokens")
"""Settings that may change when an audit is done again in the same folder: gaps stay what they are."""
