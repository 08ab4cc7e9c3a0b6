"""`write_report`: from run directories to one self-contained page, readable without its script.

    write_report(Path("report.html"), {"Base": Path("runs/base"), "SFT": Path("runs/sft")}, title="Lab")

A room of the page (story, tokens, sweep, evaluation, audit, gaps, training) is a template `<room>.html.j2` with its
variables, and maybe scripts. The scripts of a room share one function scope and read what Python tells them from the
element `data-<room>`; around them all is the scope of page.js. They become ONE inline script, and its hash and that of
the style stand in the Content-Security-Policy, which allows nothing else.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from trimsft.data.visible import json_for_script, visible
from trimsft.report.course import moments_shown, read_course
from trimsft.report.page.charts import line_styles, number
from trimsft.report.page.details_tab import audit_parts, facts_of, lead, sweep_parts, training_parts
from trimsft.report.page.first_screen import story_parts
from trimsft.report.page.scores_tab import evaluation_parts
from trimsft.report.page.tokens_tab import BUDGET, token_parts
from trimsft.report.runs import checked_parameters, read_runs
from trimsft.report.story import tell_story
from trimsft.runs.files import write_whole

LEAST_FOR_TOKENS = 3_000_000  # what the data of tokens may take however much there is of the other rooms
SCRIPTS = {
    "tokens": "weights.js histogram.js image.js tokens.js",
    "story": "story.js",
    "evaluation": "mathematics.js evaluation.js",
    "sweep": "sweep.js",
}
"""Room -> its scripts, in their order."""


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
        objectives: names of those that are weighed beside the paper's; one's own are loaded.
        sweep: a sweep.json, or the folder of one, whose settings are shown as a heatmap.
    """
    read, settings = read_runs(runs), settings or {}
    parameters = checked_parameters(settings)
    evaluation = evaluation_parts(read)
    budget = max(LEAST_FOR_TOKENS, BUDGET - len(json_for_script(evaluation["data"])))
    courses = {run.label: read_course(run) for run in read}
    moments = moments_shown(courses.values())
    tokens = token_parts(read, parameters, budget, objectives, moments)
    viewer, *tables = tokens["sections"] or [None]
    rooms = {
        "tokens": tokens | {"sections": [viewer] if viewer else []},
        "sweep": sweep_parts(sweep),
        "evaluation": evaluation,
        "audit": audit_parts(read),
        "gaps": {**tokens, "sections": tables, "data": None},
        "training": training_parts(read, courses),
    }
    story = story_parts(read, tell_story(read, parameters, moments), evaluation, courses)
    in_order = sorted(rooms.items(), key=lambda room: not room[1]["sections"])  # what there is before what is missing
    rooms = {"story": story, **dict(in_order)}
    page = assemble(rooms, title=title, lead=lead(read), facts=facts_of(settings, read))
    return write_whole(Path(out), page.encode())


def assemble(rooms: Mapping[str, Mapping[str, Any]], **variables: Any) -> str:
    """The page with these rooms in this order; `sections` and `data`, if any, are for the page itself."""
    environment = _environment()
    bodies = [environment.get_template(f"{room}.html.j2").render(**parts) for room, parts in rooms.items()]
    style = _resource("page.css") + line_styles()
    scripts = [_resource("page.js"), *(_scope(*map(_resource, names.split())) for names in SCRIPTS.values())]
    script = _scope('"use strict";', *scripts)
    return str(
        environment.get_template("template.html.j2").render(
            sections=[section for parts in rooms.values() for section in parts["sections"]],
            rooms=Markup("\n".join(bodies)),
            datas={room: Markup(json_for_script(parts["data"])) for room, parts in rooms.items() if parts.get("data")},
            style=Markup(style),
            script=Markup(script),
            policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'",
            **variables,
        )
    )


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


def _scope(*scripts: str) -> str:
    return "(() => {\n" + "\n".join(scripts) + "})();\n"


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
