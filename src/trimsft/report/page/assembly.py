"""The page as a file: which parts it is put together from, and the policy that allows them and nothing else.

A room is a template `<room>.html.j2` with variables of its own, styles and scripts. The scripts of a room share one
function scope, in the order of the list, and find what Python tells them in the element `data-<room>`. All of them
become ONE inline script and one style, whose hashes stand in the Content-Security-Policy.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from markupsafe import Markup

from trimsft.report.page.numbers import number
from trimsft.text.visible import json_for_script, visible

STYLES = ("page.css", "tokens.css", "viewer.css", "evaluation.css", "sweep.css")
SCRIPTS = {
    "page": ("page.js",),
    "tokens": (
        "store.js",
        "weights.js",
        "colours.js",
        "cells.js",
        "corpus.js",
        "text.js",
        "find.js",
        "inspect.js",
        "share.js",
        "viewer.js",
        "controls.js",
    ),
    "evaluation": ("mathematics_symbols.js", "mathematics.js", "evaluation_problem.js", "evaluation.js"),
    "sweep": ("sweep.js",),
}
"""Room -> its files."""


def assemble(rooms: Mapping[str, Mapping[str, Any]], **variables: Any) -> str:
    """The page with these rooms in this order; `sections` and `data` of a room are for the page itself."""
    environment = _environment()
    bodies = [environment.get_template(f"{room}.html.j2").render(**parts) for room, parts in rooms.items()]
    style = "\n".join(_resource(name) for name in STYLES)
    script = "\n".join(_scope(names) for names in SCRIPTS.values())
    return str(
        environment.get_template("template.html.j2").render(
            sections=[section for parts in rooms.values() for section in parts["sections"]],
            rooms=Markup("\n".join(bodies)),
            datas={room: Markup(json_for_script(parts["data"])) for room, parts in rooms.items()},
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


def _scope(names: tuple[str, ...]) -> str:
    body = "\n".join(_resource(name) for name in names)
    return f'(() => {{\n"use strict";\n{body}}})();'


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
