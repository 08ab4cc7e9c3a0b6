"""The package page: README.md with absolute links, as a package is read without its repository. hatchling calls it."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeHook(MetadataHookInterface):
    """Fills in `readme` of the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        # by path: the folder of the project is no place that a build imports from
        absolute = runpy.run_path(str(Path(self.root) / "tools" / "addresses.py"))["absolute"]
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        content = absolute(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": content}
