"""The page of `trimsft watch`: one file without a link to anything; its script asks its own server for numbers.

page_of(None)                     # of a server: asks /state.json every second
page_of(snapshot)                 # of one moment: the numbers are in it, and it asks nobody
"""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from trimsft.data.visible import json_for_script, visible
from trimsft.errors import RunError
from trimsft.report.colours import lines_of
from trimsft.report.course import Logged
from trimsft.report.watch.follow import Snapshot, Training
from trimsft.runs.files import write_whole

FIELDS = (
    *("loss", "nll", "gate", "effective_ratio", "counts_from"),
    *("gap_p05", "gap_p25", "gap_p50", "gap_p75", "gap_p95"),
)
"""Fields of `Logged` that the page draws."""


def state_of(snapshot: Snapshot) -> dict[str, Any]:
    """What the page is told: numbers, labels and states, and how each run is drawn."""
    lines = lines_of([run.label for run in snapshot.runs], {run.label: run.objective for run in snapshot.runs})
    runs = []
    for run in snapshot.runs:
        line = lines[run.label]
        look = {"colour": line.colour, "dark": line.dark, "dashes": list(line.dashes)}
        runs.append({**_numbers(run), "label": visible(run.label), "said": visible(run.said), **look})
    return {"version": snapshot.version, "leftOut": snapshot.left_out, "runs": runs}


def _numbers(run: Training) -> dict[str, Any]:
    columns = {field: [_rounded(line, field) for line in run.course] for field in FIELDS}
    known = {field: values for field, values in columns.items() if any(value is not None for value in values)}
    return {
        "state": run.state,
        "step": [line.step for line in run.course],
        "fields": known,
        "evaluations": [pair for pair in run.evaluations if math.isfinite(pair[1])],
        "band": run.band,
    }


def _rounded(line: Logged, field: str) -> float | None:
    value: float | None = getattr(line, field)
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None


def page_of(snapshot: Snapshot | None, *, title: str, every: float = 1.0) -> tuple[str, str]:
    """The page, and its Content-Security-Policy; without a snapshot it asks its server, every so many seconds."""
    parts = {name: _part(f"watch.{name}") for name in ("css", "js")}
    asks = "'self'" if snapshot is None else "'none'"
    policy = (
        f"default-src 'none'; script-src {_hash(parts['js'])}; style-src {_hash(parts['css'])}; connect-src {asks}; "
        "base-uri 'none'; form-action 'none'"
    )
    told = {"every": every, "state": None if snapshot is None else state_of(snapshot)}
    html = _template().render(
        title=visible(title),
        policy=policy,
        style=Markup(parts["css"]),
        script=Markup(parts["js"]),
        told=Markup(json_for_script(told)),
    )
    return html, policy


def write_once(snapshot: Snapshot, out: Path, *, title: str) -> list[Path]:
    """The curves of one moment: a page, or a picture with its numbers beside it."""
    begun = {run.label: [vars(line) for line in run.course] for run in snapshot.runs if run.course}
    if not begun:
        raise RunError("; ".join(run.said for run in snapshot.runs), hint="nothing is drawn before something is logged")
    if out.suffix == ".html":
        return [write_whole(out, page_of(snapshot, title=title)[0].encode())]
    from trimsft.report.figures import training_curves

    return training_curves(begun, {run.label: run.objective for run in snapshot.runs}).save(out, [out.suffix])


def _template() -> Any:
    import jinja2

    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_part("watch.html.j2"))


@cache
def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
