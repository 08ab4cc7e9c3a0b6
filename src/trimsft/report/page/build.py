"""`write_report`: from run directories to one self-contained page.

    write_report(Path("report.html"), {"Base": Path("runs/base"), "SFT": Path("runs/sft")}, title="Lab")

page.html.j2 shows scores, details, suspects and a sweep without a script; page.js, tokens.js and answers.js show tokens
and answers from what Python gives them in the element `data`. They are ONE inline script, and its hash and that of the
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
from trimsft.report.page import details
from trimsft.report.page.answers import answer_parts
from trimsft.report.page.scores import score_parts
from trimsft.report.page.tokens import token_parts
from trimsft.report.runs import checked_parameters, read_runs
from trimsft.runs.files import write_whole
from trimsft.tokens.statistics import confidence


def write_report(
    out: Path,
    runs: Mapping[str, Path],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    objectives: Sequence[str] = (),
    sweep: Path | None = None,
) -> Path:
    """Write the page; return its path.

    Args:
        runs: label -> run directory, the base first. What a directory lacks (eval, tokens.parquet) is left out. The
            file of a token table, wherever it is, does as well.
        settings: what was run, for the reader. margin, bandwidth and gamma, where they are among them, are the
            parameters that weights are computed with; else the paper's. `command` is shown as the command.
        objectives: names of those that are weighed beside those of the runs; one's own are loaded.
        sweep: a sweep.json, or the folder of one, whose settings are shown as a heatmap.
    """
    import jinja2
    from markupsafe import Markup

    read, settings = read_runs(runs), settings or {}
    parameters = checked_parameters(settings)
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    courses = {run.label: run.course for run in read if run.course}
    log = details.log_headline(courses)
    tokens, scores, answers = token_parts(read, parameters, objectives), score_parts(read), answer_parts(read)
    parts = {"audits": details.audit_parts(read), "sweep": details.sweep_parts(sweep)}
    charts = {
        "temperatures": details.temperature_charts(scores["rows"]),
        "gaps": details.gap_charts(read),
        "trainings": details.training_charts(courses),
    }
    charts = {name: drawn for name, drawn in charts.items() if drawn}
    tabs = {
        "suspects": parts["audits"],
        "sweep": parts["sweep"],
        "tokens": True,
        "scores": scores["tables"],
        "answers": answers["data"],
        "details": True,
    }
    data = {
        "tokens": tokens and tokens["data"],
        "outcome": {"rows": scores["rows"]},
        "log": log,
        "answers": answers["data"],
        "charts": charts,
        "lines": details.line_styles(read),
    }
    formulas = ["mathematics.js"] if answers["has_latex"] else []
    scopes = [_resource("page.js"), _scope("tokens.js"), _scope(*formulas, "answers.js")]
    script = "\n".join(["(() => {", '"use strict";', *scopes, "})();\n"])
    style = _resource("page.css")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "number": number}
    page = environment.get_template("page.html.j2").render(
        **parts,
        title=title,
        tabs=[name for name, content in tabs.items() if content],
        tokens=tokens,
        scores=scores,
        answers=answers,
        charts=charts,
        log=log,
        confidences=[(visible(run.label), confidence(run.table, **band)) for run in read if run.table],
        warnings=details.warnings_of(read),
        parameters=parameters,
        facts=details.facts_of(settings, read),
        # our own files, and JSON that no parser of HTML can mistake for anything else
        data=Markup(json_for_script(data)),
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
    )
    return write_whole(Path(out), page.encode())


def number(value: float | None, digits: int = 1, sign: str = "") -> str:
    """Return a figure with so many digits; a dash where there is none, never a negative zero."""
    if value is None or not math.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{round(value, digits) or 0.0:{sign}.{digits}f}".replace("-", "\u2212")


def _scope(*names: str) -> str:
    return "\n".join(["(() => {", *map(_resource, names), "})();"])


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
