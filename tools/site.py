"""What mkdocs.yml asks for when it builds the site, which then asks nobody's server for anything.

Links to files outside docs/ lead to the repository, formulas become drawings, and the code host is not asked for stars.
"""

import dataclasses
import html
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

from tools.addresses import absolute

SIZE = 100  # units of a drawing to an em
_LETTERS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: Any) -> None:
    """mkdocs calls this once. pyproject.toml has the repository's address."""
    project = tomllib.loads((Path(config.config_file_path).parent / "pyproject.toml").read_text(encoding="utf-8"))
    config.repo_url = project["project"]["urls"]["Repository"]


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """mkdocs calls this with each page before it is rendered."""
    markdown = markdown.replace("<!-- options -->", options() if "<!-- options -->" in markdown else "")
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    shown = {posixpath.join("docs", file.src_uri) for file in files}
    return absolute(markdown, config.repo_url, folder=folder, is_kept=shown.__contains__)


def on_page_content(content: str, **_: Any) -> str:
    """mkdocs calls this with the HTML of each page."""
    return _FORMULA.sub(lambda found: drawn(html.unescape(found[2]), display=found[1] == "div"), content)


def on_post_page(output: str, **_: Any) -> str:
    """mkdocs calls this with each whole page. The theme's script would ask the code host for stars."""
    return output.replace('data-md-component="source"', "")


on_post_template = on_post_page  # of 404.html, which is no page


def options() -> str:
    """Return a table of options for each command, from the settings that commands are made of."""
    from typer.main import get_command

    from trimsft import cli
    from trimsft.data.load import DataConfig
    from trimsft.train.config import TrimSFTConfig

    def row(name: str, default: Any, text: str) -> str:
        shown = "" if default in (None, (), [], "") or callable(default) else f"`{default}`"
        return f"| `{name}` | {shown} | {text.replace('|', chr(92) + '|')} |"

    def of_command(command: Any) -> list[str]:
        unlisted = ("help", "help_all", "as_json")
        shown = [one for one in command.params if one.help and one.name not in unlisted]
        names = [
            "/".join(one.opts + one.secondary_opts) if one.opts[0].startswith("-") else one.metavar for one in shown
        ]
        return [row(name, one.default, one.help or "") for name, one in zip(names, shown, strict=True)]

    tables: dict[str, list[str]] = {}
    program = get_command(cli.app)
    context = program.make_context("trimsft", ["recipes"])
    for name in program.list_commands(context):  # type: ignore[attr-defined]
        command = program.get_command(context, name)  # type: ignore[attr-defined]
        for inner, part in getattr(command, "commands", {"": command}).items():
            tables[f"{name} {inner}".strip()] = of_command(part)
    settings = [
        row(f"--{one.name}", one.default, one.metadata.get("help", ""))
        for kind in (DataConfig, TrimSFTConfig)
        for one in dataclasses.fields(kind)
        if one.name in vars(kind).get("__annotations__", {})
    ]
    tables["train"] += settings
    heading = "| option | default | |\n|---|---|---|\n"
    return "\n\n".join(f"## trimsft {name}\n\n{heading}" + "\n".join(rows) for name, rows in tables.items() if rows)


def drawn(latex: str, *, display: bool) -> str:
    """Return a formula as inline SVG in the colour of the text, on its baseline; its source is read aloud."""
    source = " ".join(latex.split())
    outline = TextPath((0, 0), f"${source}$", size=SIZE)
    x0, y0, x1, y1 = outline.get_extents().extents
    parts = [
        _LETTERS[code] + " ".join(f"{x:.1f},{-y:.1f}" for x, y in points.reshape(-1, 2) if code != Outline.CLOSEPOLY)
        for points, code in outline.iter_segments(simplify=False)
    ]
    svg = (
        f'<svg role="img" aria-label="{html.escape(source)}" viewBox="{x0:.1f} {-y1:.1f} {x1 - x0:.1f} {y1 - y0:.1f}" '
        f'style="height:{(y1 - y0) / SIZE:.3f}em;vertical-align:{y0 / SIZE:.3f}em;fill:currentColor;max-width:100%">'
        f'<path d="{"".join(parts)}"/></svg>'
    )
    return f'<div class="formula">{svg}</div>' if display else svg
