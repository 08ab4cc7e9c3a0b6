"""`audit(settings)`: from data and a model to a ranking of what looks wrong; called again it continues.

    result = audit(AuditSettings(data="train.jsonl", model="runs/sft", out=Path("audit")))
    result.suspects[0].text, result.suspects[0].expected      # "13", "12"
    result.folder.flagged_path

The data is read and never written.
"""

import os
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trimsft.audit.folds import Progress, measure_after, measure_before, read_gaps, rendering_of
from trimsft.audit.records import AuditFolder, Suspect
from trimsft.audit.settings import HARMLESS, AuditSettings
from trimsft.audit.source import Source, as_line, read_source
from trimsft.audit.suspects import Found, find_suspects
from trimsft.data.encode import fingerprint_rows, load_tokenizer
from trimsft.data.visible import visible
from trimsft.errors import RunError, UsageError, counted
from trimsft.runs import environment, find_weights
from trimsft.runs.files import written_beside
from trimsft.tables import Cell, Table, Tabular


@dataclass(frozen=True, kw_only=True)
class AuditResult(Tabular):
    """An audit that has come to its end."""

    folder: AuditFolder
    suspects: list[Suspect]  # the worst first
    rows: int  # rows that were audited
    flagged: list[int]  # rows with a suspect, by their number in the data, from 0

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        places = {"folder": self.folder.path, "ranking": self.folder.suspects_path, "data": self.folder.flagged_path}
        return {
            **{name: str(path) for name, path in places.items()},
            "cleaned": str(self.folder.cleaned_path) if self.folder.cleaned_path.exists() else None,
            "rows": self.rows,
            "flagged": self.flagged,
            "suspects": [asdict(one) for one in self.suspects],
        }

    @property
    def tables(self) -> list[Table]:
        return [self.table()]

    def table(self, most: int = 20) -> Table:
        """Return the worst suspects, up to `most`."""

        def shown(text: str) -> str:
            return visible(text).replace("\n", "↵").replace("\t", "⇥")

        rows = []
        for one in self.suspects[:most]:
            after = Cell("" if one.gap_after is None else f"{one.gap_after:.1f}", data=one.gap_after)
            written = f"{shown(one.left)[-16:]}[{shown(one.text)[:10] or 'end'}]{shown(one.right)[:6]}"
            gaps = [Cell(f"{one.gap_before:.1f}", data=one.gap_before), after, Cell(f"{one.score:.1f}", data=one.score)]
            rows.append((Cell(str(one.row)), *gaps, Cell(shown(one.expected)[:10]), Cell(written)))
        return Table("", ("row", "before", "after", "score", "expected", "written"), tuple(rows), left=(4, 5))


def audit(settings: AuditSettings, *, on_progress: Progress = lambda name, done, rows: None) -> AuditResult:
    """Rank what looks wrong in the data, and write the ranking and a flagged copy into the folder of the audit.

    Raises:
        UsageError, DataError, RunError: before anything is measured; the data and the folder stay as they were.
    """
    source = read_source(settings)
    if settings.training:
        _require_training(settings, len(source.audited))
    tokenizer = load_tokenizer(find_weights(settings.model))
    folder = AuditFolder(settings.out)
    _refuse_own_files(folder, source)
    made = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
    with ExitStack() as held:
        held.enter_context(folder.lock())
        held.callback(_leave_no_trace, folder, made)
        _settle(folder, source, settings)
        measure_before(folder, source.audited, settings, on_progress)
        if settings.training:
            measure_after(folder, source.audited, settings, on_progress)
        gaps = read_gaps(folder, settings, len(source.audited))
        rendering = rendering_of(settings)
        found = find_suspects(source, gaps, settings.threshold, tokenizer, only=settings.only, rendering=rendering)
        flagged = _write(folder, source, found, settings)
        folder.mark_finished()
    return AuditResult(folder=folder, suspects=found.suspects, rows=len(source.audited), flagged=flagged)


def _require_training(settings: AuditSettings, rows: int) -> None:
    """Refuse what the trainings could not do, before anything is measured."""
    import torch

    if rows < settings.folds:
        problem = f"has {counted(rows, 'row')} for {settings.folds} parts"
        raise UsageError(problem, field="data", value=settings.data, remedy=("training", False))
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError("trains in one process", field="training", hint="start it without torchrun or accelerate")
    if settings.device == "auto" and torch.cuda.device_count() > 1:
        hint = "choose one by the environment variable CUDA_VISIBLE_DEVICES"
        raise UsageError(f"uses one GPU, and {torch.cuda.device_count()} are seen", field="training", hint=hint)


def _refuse_own_files(folder: AuditFolder, source: Source) -> None:
    """Data in the folder itself would be written over."""
    for file in source.files:
        if file.path.resolve().parent == folder.path.resolve():
            hint = "choose another folder for the audit"
            raise UsageError("is the folder that the data lies in", field="out", value=str(folder.path), hint=hint)


def _leave_no_trace(folder: AuditFolder, made: list[Path]) -> None:
    """Where nothing was measured, the folder is bound to nothing, and not there if it was not before."""
    if folder.tokens_path.exists():
        return
    for path in (folder.config_path, folder.manifest_path, folder.path / ".lock"):
        path.unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):  # what holds something else stays
            path.rmdir()


def _settle(folder: AuditFolder, source: Source, settings: AuditSettings) -> None:
    """Write down what is audited; another audit in the same folder is refused."""
    given = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name != "out"}
    if not settings.assistant_only_loss:  # older audits know nothing of it
        del given["assistant_only_loss"]
    folder.settle_config(given, harmless=HARMLESS)
    data = {"name": settings.data, "rows": len(source.audited), "fingerprint": fingerprint_rows(source.audited)}
    before = folder.read_manifest().get("data", data)
    if before["fingerprint"] != data["fingerprint"]:
        problem = f"{folder.path} holds an audit of other rows: {settings.data} has changed since"
        raise RunError(problem, hint="choose another folder")
    folder.write_manifest(**environment(), model={"name": settings.model}, data=data, finished=None)


def _write(folder: AuditFolder, source: Source, found: Found, settings: AuditSettings) -> list[int]:
    """Write the ranking, the flagged copy and, on request, the cleaned one; returns the rows that are flagged."""
    folder.write_suspects(found.suspects)
    spans: dict[int, list[dict[str, Any]]] = {}
    for one in found.suspects:
        spans.setdefault(one.row, []).append({"start": one.start, "end": one.end, "score": one.score})
    scores = {source.numbers[row]: score for row, score in found.row_scores.items()}
    with written_beside(folder.flagged_path) as beside, open(beside, "wb") as file:
        for number, row in enumerate(source.rows()):
            said = {"score": scores.get(number), "is_suspect": number in spans, "spans": spans.get(number, [])}
            file.write(as_line({**row, "audit": said if number in scores else None}))
    if settings.clean or folder.cleaned_path.exists():  # one of an earlier threshold would be out of date
        with written_beside(folder.cleaned_path) as beside, open(beside, "wb") as file:
            file.writelines(as_line(row) for number, row in enumerate(source.rows()) if number not in spans)
    return sorted(spans)
