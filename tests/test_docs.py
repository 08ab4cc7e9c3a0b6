"""What the documentation shows runs, and what it points to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "trimsft"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


def test_readme_has_an_example() -> None:
    assert any("README.md" in block.id for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str) -> None:
    exec(compile(block, "documentation", "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    files = [target for target in targets if not target.startswith(("http:", "https:", "mailto:"))]
    missing = [target for target in files if not (page.parent / target).exists()]
    assert missing == []


def test_commands_of_the_makefile_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`?make ([a-z-]+)", "\n".join(_commands(page))):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


def _commands(page: Path) -> list[str]:
    """Lines of fenced blocks, and inline code."""
    text = page.read_text()
    fenced = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line for block in fenced for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)


def test_files_named_by_the_map_exist() -> None:
    """Backticked paths of docs/architecture.md, relative to the package, the repository, or the room of their row."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    roots = [ROOT, PACKAGE, PACKAGE / "report" / "page", PACKAGE / "evaluate" / "engines"]
    paths = re.findall(r"`([\w/]+(?:\.py|\.js|/))`", text)
    assert len(paths) > 50
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []
