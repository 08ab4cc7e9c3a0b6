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


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")  # TRL's default, without a GPU
@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("README.md" in shown.id for shown in BLOCKS)
    monkeypatch.chdir(tmp_path)  # what an example writes is no part of the project
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
        text = page.read_text()
        fenced = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        commands = "\n".join([*fenced, *re.findall(r"`([^`\n]+)`", text)])
        for target in re.findall(r"`?make ([a-z-]+)", commands):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


def test_files_named_by_the_map_exist() -> None:
    """Backticked paths of docs/architecture.md, relative to the package, the repository, or the room of their row."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    roots = [ROOT, PACKAGE, PACKAGE / "report" / "page", PACKAGE / "evaluate" / "engines"]
    paths = re.findall(r"`([\w/]+(?:\.py|\.js|/))`", text)
    assert len(paths) > 50
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []
