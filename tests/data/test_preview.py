"""The preview: what is masked, trained, weighed and cut is shown as such, and hostile text stays text."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.data.toys import CHAT, make_tokenizer, write
from tests.tokens.tiny import ROWS, make_folder
from trimsft import cli
from trimsft.data.encode import Encoder
from trimsft.data.preview import Preview, preview, show
from trimsft.data.templates import choose_template
from trimsft.data.weights import parse_weights

TOKENIZER = make_tokenizer(chat=CHAT)
ROW = {"problem": "What is 1+1?", "solution": "It is \\boxed{2}."}


def seen(row: Any = ROW, weights: str | None = None, **truncation: Any) -> Preview:
    template = choose_template("auto", TOKENIZER, "")
    return preview([row], Encoder(TOKENIZER, rules=parse_weights(weights), template=template, **truncation), 1)


def shown(one: Preview, *, colour: bool = False) -> str:
    stream = io.StringIO()
    show(one, Console(file=stream, force_terminal=colour, color_system="standard" if colour else None, width=60))
    return stream.getvalue()


def test_masked_trained_and_weighed_parts() -> None:
    head, masked, prompt, trained, answer, _, lengths = shown(seen()).rstrip().split("\n")
    assert re.fullmatch(r"row 0: \d+ tokens, \d+ masked, \d+ trained; eos is trained", head)
    assert (masked.split(",")[0], trained.split(",")[0]) == ("masked", "trained")
    assert prompt == "<bos>[user]What·is·1+1?<end>[assistant]"
    assert answer == "It·is·\\boxed{2}.<eos>"
    assert lengths.startswith("all rows: 1 row, ")
    text = shown(seen(weights="boxed=3, prompt=0.5"))
    assert re.search(r"trained with weight 0\.5, \d+ tokens\n\[user\]What", text)
    assert re.search(r"trained, \d+ tokens\nIt·is·?\ntrained with weight 3, \d+ tokens\n·?\\boxed\{2", text)


HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]x[/bold red][/]\r\x00\x9b1m\u202e\u200b\u2028\ue000 \t:smile:"


def test_hostile_text_stays_text() -> None:
    one = seen({"problem": HOSTILE, "solution": HOSTILE})
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown(one, colour=True))
    assert all(character.isprintable() or character == "\n" for character in plain)
    assert plain.count("[bold·red]x[/bold·red][/]⟨U+000D⟩⟨U+0000⟩") == 2
    assert plain.count("⟨U+001B⟩[2J⟨U+001B⟩]0;owned⟨U+0007⟩") == 2
    assert "<script>" not in seen({"problem": "<script>", "solution": "x"}).as_html()


def test_the_command_shows_rows_and_runs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, data = make_folder(tmp_path / "model"), write(tmp_path / "a.jsonl", ROWS)
    (folder / "model.safetensors").write_bytes(b"not read")

    def run(*words: str) -> Any:
        return CliRunner().invoke(cli.app, ["tokens", str(folder), "--data", data, *words], catch_exceptions=False)

    result = run("--show", "2", "--weights", "boxed=2", "--out", "rows.html")
    assert result.exit_code == 0 and "row 1: " in result.stdout and "trained with weight 2" in result.stdout
    assert "all rows: 12 rows" in result.stdout and "trained with weight 2" in (tmp_path / "rows.html").read_text()
    rows = json.loads(run("--show", "1", "--json").stdout)
    assert rows[0]["tokens"][-1] == {**rows[0]["tokens"][-1], "fate": "trained", "weight": 1.0}
    assert run("--show", "1", "--out", "rows").exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "model", "rows.html"]
