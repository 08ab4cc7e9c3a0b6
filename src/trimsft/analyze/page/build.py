"""`write_report`: from run directories to one self-contained page.

    write_report(Path("report.html"), {"Base": Path("runs/base"), "SFT": Path("runs/sft")}, title="Lab", settings={})

Readable without its script; the script (page.js) recolours tokens and shows the numbers behind one.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from trimsft.analyze.density import density, range_of
from trimsft.analyze.page.charts import SERIES, density_chart, legend_mark, score_chart
from trimsft.analyze.page.examples import GAP_EDGES, token_examples
from trimsft.analyze.page.problems import shown_problems, side_by_side
from trimsft.analyze.page.sources import Interval, Run, read_run
from trimsft.analyze.page.visible import json_for_script, visible
from trimsft.analyze.statistics import PARAMETERS, confidence, diagnose, objective_of
from trimsft.files import write_whole
from trimsft.objectives import OBJECTIVES, PAPER_NAMES, TokenStats

_ORDER = ("math500", "olympiadbench", "minerva", "amc", "aime24", "lab-easy", "lab-medium", "lab-hard")
"""Benchmarks whose columns have a usual order; others follow by name."""


def write_report(
    out: Path, runs: Mapping[str, Path], *, title: str, settings: Mapping[str, Any] | None = None
) -> Path:
    """Write the page; returns its path.

    Args:
        runs: label -> run directory, the base first. What a directory lacks (eval, tokens.parquet) is left out.
        settings: what was run, for the reader. margin, bandwidth and gamma, where they are among them, are the
            parameters that weights are computed with; else the paper's. `command` is shown as the command.
    """
    if not runs:
        raise ValueError("runs: there are none; give at least one label and its run directory")
    read = [read_run(label, Path(folder)) for label, folder in runs.items()]
    settings = settings or {}
    parameters = {name: settings.get(name, default) for name, default in PARAMETERS.items()}
    for name in OBJECTIVES:
        objective_of(name, parameters)  # refuses what is no margin, bandwidth or gamma
    benchmarks = _benchmarks(read)
    page = _template().render(
        title=title,
        runs=read,
        facts=_facts(settings, read),
        parameters=parameters,
        benchmarks=benchmarks,
        **_score_parts(read, benchmarks),
        **_token_parts(read, parameters),
        problems=shown_problems(side_by_side(read), benchmarks),
        **_resources(),
    )
    return write_whole(Path(out), page.encode())


def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"visible": visible, "number": _number}
    return environment.from_string(_resource("template.html.j2"))


def _resources() -> dict[str, Any]:
    """Style and script, and the hashes by which the page allows these two and nothing else."""
    style, script = _resource("page.css"), _resource("page.js")
    return {
        "style": Markup(style),
        "script": Markup(script),
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
    }


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- what was run


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
    return {visible(name): visible(value) for name, value in facts.items()}


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = (
                ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            )
    return flat


# ---- scores


def _benchmarks(runs: Sequence[Run]) -> list[str]:
    found = sorted({name for run in runs for name in run.scores})
    return sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def _score_parts(runs: Sequence[Run], benchmarks: Sequence[str]) -> dict[str, Any]:
    scored = [run for run in runs if run.scores]
    if not scored:
        return {"score_tables": [], "score_chart": None}
    drawn = min(int(score["samples"]) for run in scored for score in run.scores.values())
    sampled = [f"average@{drawn}", f"pass@{drawn}", f"majority@{drawn}"] if drawn else []
    metrics = [*sampled[:1], "greedy", *sampled[1:]]
    rows = {
        run.label: (
            run.mean_interval(benchmarks, "average") if drawn else None,
            run.mean_interval(benchmarks, "greedy"),
        )
        for run in scored
    }
    return {
        "score_tables": [_score_table(scored, benchmarks, metric) for metric in metrics],
        "score_chart": score_chart(rows, (sampled[0] if sampled else "sampled", "greedy")),
    }


def _score_table(runs: Sequence[Run], benchmarks: Sequence[str], metric: str) -> dict[str, Any]:
    name = "average" if metric.startswith("average@") else metric
    rows = []
    for run in runs:
        cells = [run.interval(benchmark, name) for benchmark in benchmarks]
        if len(benchmarks) > 1:
            cells.append(run.mean_interval(benchmarks, name))
        rows.append((run.label, cells))
    best = [_highest([cells[column] for _, cells in rows]) for column in range(len(rows[0][1]))]
    return {"metric": metric, "rows": rows, "best": best}


def _highest(cells: Sequence[Interval | None]) -> str | None:
    """The highest figure as it is shown, where there is more than one to choose from."""
    values = [cell.value for cell in cells if cell is not None]
    return _number(max(values)) if len(values) > 1 else None


# ---- tokens


def _token_parts(runs: Sequence[Run], parameters: Mapping[str, float]) -> dict[str, Any]:
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    with_tokens = [(number, run) for number, run in enumerate(runs) if run.table is not None]
    examples = token_examples(runs)
    data = {
        "runs": [visible(run.label) for run in runs],
        "objectives": PAPER_NAMES,
        "parameters": dict(parameters),
        "edges": GAP_EDGES,
        "examples": [{key: example[key] for key in ("tokens", "ids", "runs")} for example in examples],
    }
    return {
        "gap_chart": _gap_chart(with_tokens, parameters) if with_tokens else None,
        "first": with_tokens[0][1] if with_tokens else None,
        "legend": [(legend_mark(number), run.label) for number, run in with_tokens],
        "confidences": [(run.label, confidence(run.table, **band)) for _, run in with_tokens if run.table],
        "diagnostics": _diagnostics([run for _, run in with_tokens], parameters),
        "examples": examples,
        "edges": GAP_EDGES,
        "series": SERIES,
        "data": Markup(json_for_script(data)),
    }


def _gap_chart(runs: Sequence[tuple[int, Run]], parameters: Mapping[str, float]) -> Markup:
    gaps = {run.label: run.table["gap"].astype(np.float64) for _, run in runs if run.table is not None}
    grid = np.linspace(*range_of(list(gaps.values())), 301)
    weights = objective_of("trim", parameters).weights(_tokens_with(grid)).numpy()
    densities = {label: density(values, grid) for label, values in gaps.items()}
    return density_chart(grid, densities, weights, "TrimSFT", [number for number, _ in runs])


def _tokens_with(gaps: Any) -> TokenStats:
    import torch

    gap = torch.from_numpy(gaps)
    return TokenStats(nll=gap, gap=gap, gold_logit=gap, competitor=torch.zeros(len(gap), dtype=torch.int64))


def _diagnostics(runs: Sequence[Run], parameters: Mapping[str, float]) -> list[dict[str, Any]]:
    """For each objective: what it makes of the first run's tokens, and of those of the run trained with it."""
    if not runs or runs[0].table is None:
        return []
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    rows = []
    for name in OBJECTIVES:
        objective = objective_of(name, parameters)
        trained = next((run for run in runs[1:] if run.objective == name), None)
        after = diagnose(trained.table, objective, **band) if trained and trained.table else None
        rows.append(
            {"name": PAPER_NAMES[name], "before": diagnose(runs[0].table, objective, **band), "after": after}
        )
    return rows


def _number(value: float | None, digits: int = 1) -> str:
    """A figure as it is shown; nothing where there is none, never a negative zero."""
    if value is None or not math.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{round(value, digits) or 0.0:.{digits}f}"
