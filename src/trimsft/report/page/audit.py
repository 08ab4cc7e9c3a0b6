"""Rows that look wrong: variables of audit.html.j2, from the suspects.jsonl that `trimsft audit` leaves in a folder."""

from collections.abc import Sequence
from typing import Any

from trimsft.audit.run import AuditFolder, Suspect
from trimsft.data.visible import shortened, visible
from trimsft.report.runs import Run

MOST = 200  # suspects of a folder that are shown


def audit_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Nothing is shown where no folder holds an audit."""
    folders = {run.label: AuditFolder(run.folder) for run in runs if run.folder.is_dir()}
    audits = [_shown(label, folder) for label, folder in folders.items() if folder.suspects_path.is_file()]
    return {"sections": [("audit", "Rows that look wrong")] if audits else [], "audits": audits}


def _shown(label: str, folder: AuditFolder) -> dict[str, Any]:
    suspects = folder.read_suspects()
    return {
        "label": visible(label),
        "suspects": [_texts(one) for one in suspects[:MOST]],
        "left_out": max(0, len(suspects) - MOST),
        "rows": len({one.row for one in suspects}),
    }


def _texts(one: Suspect) -> dict[str, Any]:
    return {
        "row": one.row,
        "place": visible(one.place),
        "span": f"{one.start} to {one.end}",
        "left": visible(one.left),
        "text": shortened(one.text) or "(end)",
        "right": visible(one.right),
        "expected": shortened(one.expected),
        "gap_before": one.gap_before,
        "gap_after": one.gap_after,
        "score": one.score,
    }
