"""`write_report`: from run directories to one self-contained page.

    write_report(Path("report.html"), {"Base": Path("runs/base"), "SFT": Path("runs/sft")}, title="Lab")

page.html.j2 shows scores, details, suspects and a sweep without a script; page.js, tokens.js and answers.js show tokens
and answers from what Python tells them in the element `data`. They are ONE inline script, and its hash and that of the
style stand in the Content-Security-Policy, which allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from trimsft.data.visible import json_for_script, visible
from trimsft.report.page.answers import answer_parts
from trimsft.report.page.details import (
    audit_parts,
    confidences,
    facts_of,
    gap_charts,
    line_styles,
    log_headline,
    read_course,
    sweep_parts,
    training_charts,
    warnings_of,
)
from trimsft.report.page.scores import score_parts
from trimsft.report.page.tokens import token_parts
from trimsft.report.runs import checked_parameters, read_runs
from trimsft.runs.files import write_whole


def write_report(
    out: Path,
    runs: Mapping[str, Path],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    objectives: Sequence[str] = (),
    sweep: Path | None = None,
) -> Path:
    """Write the page; returns its path.

    Args:
        runs: label -> run directory, the base first. What a directory lacks (eval, tokens.parquet) is left out. The
            file of a token table, wherever it is, does as well.
        settings: what was run, for the reader. margin, bandwidth and gamma, where they are among them, are the
            parameters that weights are computed with; else the paper's. `command` is shown as the command.
        objectives: names of those that are weighed beside those of the runs; one's own are loaded.
        sweep: a sweep.json, or the folder of one, whose settings are shown as a heatmap.
    """
    read, settings = read_runs(runs), settings or {}
    parameters = checked_parameters(settings)
    tokens = token_parts(read, parameters, objectives)
    scores, answers, audits, map_of_sweep = score_parts(read), answer_parts(read), audit_parts(read), sweep_parts(sweep)
    courses = {run.label: course for run in read if (course := read_course(run))}
    charts = {"temperatures": scores["temperatures"], "gaps": gap_charts(read), "trainings": training_charts(courses)}
    charts = {name: drawn for name, drawn in charts.items() if drawn}
    parts = {
        "suspects": "Suspects" if audits else "",
        "sweep": "Sweep" if map_of_sweep else "",
        "tokens": "Tokens",
        "scores": "Scores" if scores["tables"] else "",
        "answers": "Answers" if answers["data"] else "",
        "details": "Details",
    }
    data = {
        "tokens": tokens and tokens["data"],
        "outcome": {"rows": scores["rows"]},
        "answers": answers["data"],
        "charts": charts,
        "lines": line_styles(read),
    }
    formulas = ["mathematics.js"] if answers.get("has_latex") else []
    scopes = [_scope("tokens.js"), _scope(*formulas, "answers.js")]
    script = "(() => {\n" + "\n".join(['"use strict";', _resource("page.js"), *scopes]) + "})();\n"
    style = _resource("page.css")
    page = _environment().get_template("page.html.j2").render(
        title=title,
        parts={name: text for name, text in parts.items() if text},
        tokens=tokens,
        scores=scores,
        answers=answers,
        audits=audits,
        sweep=map_of_sweep,
        charts=charts,
        log=log_headline(courses),
        confidences=confidences(read, parameters),
        warnings=warnings_of(read),
        parameters=parameters,
        facts=facts_of(settings, read),
        data=_safe(json_for_script(data)),
        style=_safe(style),
        script=_safe(script),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
    )  # fmt: skip
    return write_whole(Path(out), page.encode())


def number(value: float | None, digits: int = 1, sign: str = "") -> str:
    """Return a figure with so many digits; a dash where there is none, never a negative zero."""
    if value is None or not math.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{round(value, digits) or 0.0:{sign}.{digits}f}".replace("-", "\u2212")


def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "number": number}
    return environment


def _safe(text: str) -> Any:
    """Return a text that the template writes as it is."""
    from markupsafe import Markup

    return Markup(text)  # our own files, and JSON that no parser of HTML can mistake for anything else


def _scope(*names: str) -> str:
    return "(() => {\n" + "\n".join(map(_resource, names)) + "})();\n"


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
