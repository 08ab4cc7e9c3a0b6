"""What the documentation shows runs, what it points to exists, and the site builds.

A block of Python runs here, in a folder of its own. One that cannot says why in a comment above it:

    <!-- not run: it asks the hub for a model -->

Commands of shell blocks are parsed by the program's own parsers, without being run.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from trimsft import cli
from trimsft.train import parse

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "trimsft"
NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "recipes/README.md", "examples/README.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^(?P<above>[^\n]*)\n```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: .+ -->$")
PLACEHOLDERS = {"RECIPE": "smollm2-gsm8k", "DATA": "train.jsonl"}
"""What stands for a file of the reader's in a command."""


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Return the blocks of a page in these languages: the line above each, and its text."""
    found = FENCE.finditer(page.read_text())
    return [(match["above"], match["text"]) for match in found if match["language"] in languages]


def commands(page: Path) -> list[str]:
    """Return the commands of a page's shell blocks; of consoles what stands behind $."""
    shown = [block.replace("\\\n", " ") for _, block in blocks(page, "sh", "bash")]
    lines = [line for block in shown for line in block.splitlines()]
    for _, block in blocks(page, "console"):
        lines += [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.strip() and not line.startswith("#")]


PYTHON = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (above, block) in enumerate(blocks(page, "python", "py"))
    if not NOT_RUN.search(above)
]
COMMANDS = sorted({(line, page.relative_to(ROOT).as_posix()) for page in PAGES for line in commands(page)})
PARSED = [
    pytest.param(words, id=f"{place}-{' '.join(words)[:60]}")
    for line, place in COMMANDS
    for words in [shlex.split(line, comments=True)]
    if "trimsft" in words and words[0] not in ("pip", "docker", "swift")
]


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")  # TRL's default, without a GPU
@pytest.mark.parametrize("block", PYTHON)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes is no part of the project
    exec(compile(block, "documentation", "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("words", PARSED)
def test_commands_are_understood(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = [PLACEHOLDERS.get(word, word) for word in words[words.index("trimsft") + 1 :] if word != "&"]
    if words[:1] == ["train"]:
        fields = [word for word in words[1:] if word != "--dry-run"]
        for option in {"--deepspeed", "--gpus"} & set(fields):  # needs a file; the command's
            del fields[fields.index(option) : fields.index(option) + 2]
        assert parse([*fields, "--use_cpu", "true"]).args is not None
        return
    command, context = get_command(cli.app), None
    while isinstance(command, typer.core.TyperGroup):
        context = command.make_context("trimsft", list(words), parent=context)
        rest = [*context._protected_args, *context.args]
        if not rest:
            return  # --help, or none
        _, command, words = command.resolve_command(context, rest)
    command.make_context(command.name, list(words), parent=context)


def test_what_is_named_exists() -> None:
    """Commands in sentences, scripts, targets of the Makefile, rooms of the map, pages of the menu."""
    makefile = (ROOT / "Makefile").read_text()
    known = get_command(cli.app).list_commands(None)
    for page in PAGES:
        text = page.read_text()
        missing = [name for name in re.findall(r"`trimsft ([a-z]+)\b", text) if name not in known]
        scripts = re.findall(r" ((?:examples|benchmarks|tools|recipes)/[\w/.-]+)", "\n".join(commands(page)))
        missing += [name for name in scripts if not (ROOT / name).exists()]
        links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", text)
        missing += [name for name in links if not (page.parent / name).exists()]
        shown = "\n".join([*commands(page), *re.findall(r"`([^`\n]+)`", text)])
        targets = re.findall(r"`?\bmake ([a-z-]+)", shown)
        missing += [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)]
        assert missing == [], page
    rooms = re.findall(r"\b([a-z]+)/(?=[ ,.`)])", (ROOT / "docs" / "architecture.md").read_text())
    rooms = set(rooms) - {"model", "src", "tests", "trimsft"}
    assert len(rooms) > 10 and [name for name in sorted(rooms) if not (PACKAGE / name).is_dir()] == []
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}
    assert set(re.findall(r"[\w/]+\.md", str(menu))) == pages - {"LOG.md"}


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs mkdocs: pip install '.[docs]'")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """--strict: a link, an anchor or an entry of the reference that leads nowhere is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    options = (tmp_path / "site" / "options" / "index.html").read_text()
    shown = set(re.findall(r"--[a-z][a-z-]+", CliRunner().invoke(cli.app, ["eval", "--help"]).output))
    missing = {flag for flag in shown if flag not in options}
    assert len(shown) > 20 and missing <= {"--help", "--json"} and "--bandwidth" in options
    pages = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    fetched = re.compile(r'<(?:script|img|iframe|source)[^>]*src="?https?:|<link rel="?stylesheet"?[^>]*https?:')
    assert not any(fetched.search(page) or 'data-md-component="source"' in page for page in pages)


def test_messages_of_troubleshooting_are_in_the_code() -> None:
    code = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # a text on two lines
    rows = re.findall(r"^\| (.*?\*.+?\*.*?) \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    parts = [part.strip(" ;'[]") for row in rows for text in re.findall(r"\*(.+?)\*", row)
             for part in re.split(r"\.\.\.|\bN\b(?: %)?|'", text)]  # fmt: skip
    assert len(rows) > 12
    assert [part for part in parts if len(part) > 6 and part not in code] == []
