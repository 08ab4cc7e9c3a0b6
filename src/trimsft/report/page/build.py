"""`write_report`: from run directories to one self-contained page.

    write_report(Path("report.html"), {"Base": Path("runs/base"), "SFT": Path("runs/sft")}, title="Lab")

page.html.j2 shows scores, details, suspects and a sweep without a script; page.js, tokens.js and answers.js show tokens
and answers from what Python gives them in the element `data`. They are ONE inline script, and its hash and that of the
style stand in the Content-Security-Policy, which allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from trimsft.data.visible import visible
from trimsft.report.page import details
from trimsft.report.page.answers import answer_parts
from trimsft.report.page.scores import score_parts
from trimsft.report.page.tokens import shortened, token_parts
from trimsft.report.runs import Run, checked_parameters, read_runs
from trimsft.runs.files import write_whole
from trimsft.tables import Table, to_csv


def write_report(
    out: Path,
    runs: Mapping[str, Path] | Sequence[Run],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    objectives: Sequence[str] = (),
    sweep: tuple[Table, Sequence[str]] | None = None,
) -> Path:
    """Write the page; return its path.

    Args:
        runs: label -> run directory, or file of a token table, the base first; or these as `read_runs` returns them.
        settings: what was run, for the reader; margin, bandwidth and gamma among them are those of the weights.
        objectives: names of those that are weighed beside those of the runs; one's own are loaded.
        sweep: the table of a sweep and the sentences on it, which are shown first.
    """
    import jinja2
    from markupsafe import Markup

    read, settings = read_runs(runs) if isinstance(runs, Mapping) else runs, settings or {}
    parameters = checked_parameters(settings)
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    courses = {run.label: run.course for run in read if run.course}
    tokens, scores, answers = token_parts(read, parameters, objectives), score_parts(read), answer_parts(read)
    audits = details.audit_parts(read)
    sweep_shown: dict[str, Any] = {}
    known = {run.label: run.table for run in read if run.table}
    tables = details.token_tables(known, tokens["model"], tokens["weighing"], band) if tokens else {}
    tables |= scores["tables"]
    if sweep:
        tables["sweep"], (headline, *reasons) = sweep
        sweep_shown = {"headline": headline, "reason": " ".join([*reasons, *tables["sweep"].notes])}
        sweep_shown |= {"tables": ["sweep"], "command": settings.get("command")}
    charts = {"gaps": details.gap_charts(known), "trainings": details.training_charts(courses)}
    content = {"suspects": audits, "sweep": sweep_shown, "tokens": True, "scores": scores["tables"]}
    content |= {"answers": answers["data"], "details": True}
    data = {
        "tokens": tokens and tokens["data"],
        "outcome": scores["rows"],
        "log": details.log_headline(courses),
        "answers": answers["data"],
        "charts": {name: drawn for name, drawn in charts.items() if drawn},
        "lines": details.line_styles(read),
        "csv": {name: to_csv(table) for name, table in tables.items()},
    }
    formulas = ["mathematics.js"] if answers["has_latex"] else []
    scopes = [_resource("page.js"), _scope("tokens.js"), _scope(*formulas, "answers.js")]
    script = "\n".join(["(() => {", '"use strict";', *scopes, "})();\n"])
    style = _resource("page.css")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shortened": shortened, "minus": minus}
    page = environment.get_template("page.html.j2").render(
        title=title,
        tabs=[name for name, shown in content.items() if shown],
        audits=audits,
        sweep=sweep_shown,
        tokens=tokens,
        scores=scores,
        answers=answers,
        data=data,
        tables=tables,
        warnings=details.warnings_of(read),
        facts=details.facts_of(settings, read),
        # our own files, and JSON that no parser of HTML can mistake for anything else
        json=Markup(json_for_script(data)),
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
    )
    return write_whole(Path(out), page.encode())


def json_for_script(data: Any) -> str:
    """Write JSON that no HTML parser can mistake for anything else."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def minus(number: str | float | None) -> str:
    """Return a number with a sign as long as a plus; a dash for None."""
    if number is None:
        return "–"  # noqa: RUF001
    return (number if isinstance(number, str) else f"{number:.1f}").replace("-", "\u2212")


def _scope(*names: str) -> str:
    return "\n".join(["(() => {", *map(_resource, names), "})();"])


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
