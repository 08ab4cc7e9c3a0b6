"""The commands as functions of Python: each takes the options of its command as keywords and returns an object.

    result = trimsft.train_model(config="recipes/smollm2-gsm8k.yaml", output_dir="runs/trim")
    scores = trimsft.evaluate_model("runs/trim", ["gsm8k"], samples=4).scores
    tables = trimsft.measure_tokens("runs/trim", "train.jsonl", sample=500)
    suspects = trimsft.audit_data("train.jsonl", "runs/trim", out="audit").suspects
    print(trimsft.compare_runs(["runs/sft", "runs/trim"]).render("markdown"))
    page = trimsft.write_report(["SFT=runs/sft", "TrimSFT=runs/trim"], out="report").page

`train_model` stands in `trimsft.train`, `evaluate_model` in `trimsft.evaluate`. Errors are
`trimsft.errors.TrimSFTError`: their `field`, `value` and `hint` say what to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import WrongArgument

if TYPE_CHECKING:
    from trimsft.audit.run import AuditResult
    from trimsft.report.comparison import Compared
    from trimsft.report.report import ReportFiles
    from trimsft.tokens.measure import TokenTables

Names = str | Path | Sequence[str | Path]


def measure_tokens(models: Names, data: str | Path, **options: Any) -> TokenTables:
    """Write the token table of each model over the same rows; a table that is there already is left as it is.

    Args:
        models: run directories, model folders or names of the hub; one or several.
        data: a local file or a dataset of the hub, as for training.
        options: fields of `trimsft.tokens.TokenSettings`, such as sample=500, top=5.
    """
    from trimsft.tokens import TokenSettings, measure

    return measure.measure_tokens(TokenSettings(models=_texts("models", models), data=_text(data), **options))


def audit_data(data: str | Path, model: str | Path, **options: Any) -> AuditResult:
    """Rank the rows and spans of training data that look wrong; the data itself is never changed.

    Args:
        data: a local file or a dataset of the hub, as for training.
        model: a run directory, a model folder or a name of the hub.
        options: fields of `trimsft.audit.AuditSettings`, such as out="audit", training=False.
    """
    from trimsft.audit import AuditSettings
    from trimsft.audit.run import audit

    return audit(AuditSettings(data=_text(data), model=_text(model), **options))


def compare_runs(runs: Names, **options: Any) -> Compared:
    """Compare evaluated runs problem by problem; the first is the baseline.

    Args:
        runs: run directories, two or more.
        options: fields of `trimsft.report.CompareSettings`, such as metric="greedy".
    """
    from trimsft.report import CompareSettings, compare

    return compare(CompareSettings(runs=_texts("runs", runs), **options))


def write_report(runs: Names, **options: Any) -> ReportFiles:
    """Write one page, tables and figures about the tokens and scores of runs.

    Args:
        runs: run directories or token tables, each with or without a label ("SFT=runs/sft"); the first is the base.
        options: fields of `trimsft.report.ReportSettings`, such as out="report", margin=1.0.
    """
    from trimsft.report import ReportSettings, make_report
    from trimsft.study.paper_tables import write_paper_tables

    return make_report(ReportSettings(runs=_texts("runs", runs), **options), write_more=write_paper_tables)


def _texts(field: str, names: Names) -> tuple[Any, ...]:
    """The names as settings take them, which refuse what is no text."""
    if isinstance(names, bytes) or not isinstance(names, str | Path | Iterable):
        raise WrongArgument("must be a text or a path, or a list of them", field=field, value=names)
    return (_text(names),) if isinstance(names, str | Path) else tuple(map(_text, names))


def _text(name: Any) -> Any:
    return str(name) if isinstance(name, Path) else name
