"""What mkdocs.yml asks for when it builds the site: links to files outside docs/ lead to the repository."""

import posixpath
import tomllib
from pathlib import Path
from typing import Any

from tools.addresses import absolute


def on_config(config: Any) -> None:
    """mkdocs calls this once. pyproject.toml has the repository's address."""
    project = tomllib.loads((Path(config.config_file_path).parent / "pyproject.toml").read_text(encoding="utf-8"))
    config.repo_url = project["project"]["urls"]["Repository"]


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """mkdocs calls this with each page before it is rendered."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    shown = {posixpath.join("docs", file.src_uri) for file in files}
    return absolute(markdown, config.repo_url, folder=folder, is_kept=shown.__contains__)
