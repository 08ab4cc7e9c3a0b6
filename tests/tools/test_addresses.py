"""Links that leave a page lead to the repository; the package page has no other."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import yaml

from tools import site
from tools.addresses import absolute

ROOT = Path(__file__).parents[2]
HERE = "https://host/owner/name"


def test_relative_links_become_addresses() -> None:
    assert absolute("[a](docs/a.md#b)", HERE) == f"[a]({HERE}/blob/main/docs/a.md#b)"
    assert absolute("![a](../figures/a.png)", HERE, folder="docs/guides") == f"![a]({HERE}/raw/main/docs/figures/a.png)"
    for kept in ("[a](https://x/y)", "[a](#b)", "[a](mailto:x)"):
        assert absolute(kept, HERE) == kept
    assert absolute("[a](b.md)", HERE, folder="docs", is_kept=lambda path: path == "docs/b.md") == "[a](b.md)"


def test_the_repository_has_one_address() -> None:
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] in (ROOT / "src" / "trimsft" / "__init__.py").read_text()
    folders = ("src", "docs", "tools", "recipes", "examples", "benchmarks", ".github")
    texts = {".md", ".py", ".yml", ".yaml", ".toml", ".cff", ".ipynb", ".html", ".j2", ".sh"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in texts]
    files += [path for path in ROOT.iterdir() if path.suffix in texts or path.name in ("Makefile", "Dockerfile")]
    holders = {path.relative_to(ROOT).as_posix() for path in files if address in path.read_text(encoding="utf-8")}
    assert holders == {"pyproject.toml"}
    config = SimpleNamespace(config_file_path=str(ROOT / "mkdocs.yml"), repo_url=None)
    site.on_config(config)
    assert config.repo_url == address
    assert "repo_url" not in yaml.safe_load((ROOT / "mkdocs.yml").read_text())
