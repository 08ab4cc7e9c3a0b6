"""`write_report`: from run directories to one self-contained page.

    write_report(Path("report.html"), {"Base": Path("runs/base"), "SFT": Path("runs/sft")}, title="Lab", settings={})

Readable without its script; the script recolours tokens, finds them, and shows the numbers behind one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimsft.objectives import OBJECTIVES, PARAMETERS
from trimsft.report.page.assembly import assemble
from trimsft.report.page.evaluation import evaluation_parts
from trimsft.report.page.provenance import lead, table_facts
from trimsft.report.page.sources import Run, read_run
from trimsft.report.page.sweep import sweep_parts
from trimsft.report.page.tokens import token_parts
from trimsft.runs.files import write_whole
from trimsft.text.visible import json_for_script, visible
from trimsft.tokens.statistics.weighting import objective_of

SIZE = 9_000_000
"""Characters of data in the file, which leaves tables, style and script a million below 10 MB."""
LEAST = 3_000_000
"""Of these, what tokens have in any case."""


def write_report(
    out: Path,
    runs: Mapping[str, Path],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    sweep: Path | None = None,
) -> Path:
    """Write the page; returns its path.

    Args:
        runs: label -> run directory, the base first. What a directory lacks (eval, tokens.parquet) is left out. The
            file of a token table, wherever it is, does as well.
        settings: what was run, for the reader. margin, bandwidth and gamma, where they are among them, are the
            parameters that weights are computed with; else the paper's. `command` is shown as the command.
        sweep: a sweep.json, or the folder of one, whose settings are shown as a heatmap.
    """
    if not runs:
        raise ValueError("runs: there are none; give at least one label and its run directory")
    read = [read_run(label, Path(where)) for label, where in runs.items()]
    settings = settings or {}
    parameters = {name: settings.get(name, default) for name, default in PARAMETERS.items()}
    for name in OBJECTIVES:
        objective_of(name, parameters)  # refuses what is no margin, bandwidth or gamma
    evaluation = evaluation_parts(read)
    left = max(LEAST, SIZE - len(json_for_script(evaluation["data"])))
    tokens = token_parts(read, parameters, left)
    rooms = {"evaluation": evaluation, "sweep": sweep_parts(sweep), "tokens": tokens}
    if not any(run.scores for run in read):
        rooms = {"tokens": tokens, **rooms}  # what there is comes first
    page = assemble(rooms, title=title, lead=lead(read), facts=_facts(settings, read))
    return write_whole(Path(out), page.encode())


def _facts(settings: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, str]:
    facts = _flat(settings)
    versions: dict[str, Any] = {}
    for run in runs:
        recorded = [run.manifest.get("versions"), run.settings.get("details", {}).get("versions")]
        recorded.append(run.table.metadata.get("versions") if run.table is not None else None)
        for found in recorded:
            versions |= {name: value for name, value in (found or {}).items() if value}
    if versions:
        facts.setdefault("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))
    for run in runs:
        if command := run.manifest.get("command"):
            facts[f"command of {run.label}"] = str(command)
    for run in runs:
        made = [str(run.folder), *([table_facts(run.table.metadata)] if run.table is not None else [])]
        facts[_unused(run.label, facts)] = "; ".join(made)
    return {visible(name): visible(value) for name, value in facts.items()}


def _unused(label: str, facts: Mapping[str, str]) -> str:
    """The label, or one that does not take the place of a setting of that name."""
    return label if label not in facts else _unused(f"run {label}", facts)


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return flat
