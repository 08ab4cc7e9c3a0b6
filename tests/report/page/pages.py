"""Pages for tests: runs to make them from, their text as a parser sees it, their data, and hands for the viewer."""

import base64
import json
import re
import zlib
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.evaluate.graded import same, samples_of, score
from tests.report.page.browser import Browser, wait
from trimsft.evaluate.metrics import cluster
from trimsft.report.page.build import write_report

HOSTILE = [
    "</script><script>window.attacked = 1</script>",
    "<img/src=x/onerror=window.attacked=2>",
    '"><svg/onload=window.attacked=3>',
    "</title></style></script x><!--<script>",
    "{{ 7 * 7 }} ${7*7} \\u003cscript\\u003e",
    "\u202eright\u2066to\u200bleft\x00\x1b[31m\ud800",
]
HOSTILE_TEXTS = [text.replace("\ud800", "") for text in HOSTILE]
"""Without what no parquet file can hold."""
ATTACK = "".join(HOSTILE_TEXTS).replace("%", "")
HIDDEN = set("\u202e\u2066\u200b\x00\x1b")
WORDS = ["So", " the", " sum", " is", " 4", "2", ".\n", "<0xE2>", " thus", " x", " =", " 7"]

# answers of four samples to each problem of a benchmark; the gold is 1
EASY = {"e0": "1 1 1 1", "e1": "1 7 7' -", "e2": "3 4 5 1"}
BETTER = {"e0": "1 1 1 7", "e1": "1 1 1 7", "e2": "1 1 5 1"}
HARD = {"h0": "2 2 2 2", "h1": "2 2 1 1"}


def make_evaluated(
    folder: Path,
    benchmark: str,
    answers: dict[str, str],
    *,
    greedy: str = "1",
    text: str = "I say \\boxed{%s}.",
    problem: str = "%s?",
) -> Path:
    """An evaluated run, scored by the real code.

    Args:
        answers: one word a sample ("-" abstains); the gold is 1; 7 and 7' say the same.
    """
    where = folder / "eval" / benchmark
    where.mkdir(parents=True)
    graded = {name: samples_of(name, words, greedy=greedy) for name, words in answers.items()}
    results = [result for of_problem in graded.values() for result in of_problem]
    content = {**asdict(score(benchmark, results, same)), "grader": "strict 1"}
    (where / "scores.json").write_text(json.dumps(content))
    (where / "settings.json").write_text(json.dumps({"details": {"versions": {"transformers": "5"}}}))
    samples, grades = [], []
    for name, results in graded.items():
        drawn = [result for result in results if result.votes]
        votes = cluster([result.answer for result in drawn], same)
        for result, vote in zip(results, [*votes, None], strict=True):
            key = {"problem": name, "sample": result.sample}
            written = text % result.answer if "%s" in text else text
            made = {"seed": 0, "tokens": result.tokens, "finish": "stop", "prompt_sha": ""}
            samples.append({**key, **made, "text": written})
            grades.append({**key, "status": result.status, "answer": result.answer, "cluster": vote})
    _lines(where / "samples.jsonl", samples[::-1])
    _lines(where / "grades.jsonl", grades)
    _lines(where / "problems.jsonl", [{"id": name, "problem": problem % name, "answer": "1"} for name in answers])
    return folder


def make_eval(folder: Path, benchmark: str, correct: list[int], **more: str) -> None:
    """An evaluated benchmark of 8 samples of each problem, of which so many are right."""
    answers = {f"{benchmark}-{n}": "1 " * count + "3 " * (8 - count) for n, count in enumerate(correct)}
    make_evaluated(folder, benchmark, answers, **more)


def make_three(folder: Path, **more: str) -> dict[str, Path]:
    """Base, SFT and TrimSFT on two benchmarks, 4 samples and a greedy answer to each problem."""
    runs = {label: folder / label.lower() for label in ("Base", "SFT", "TrimSFT")}
    for label, run in runs.items():
        better = label == "TrimSFT"
        make_evaluated(run, "hard", HARD | {"h0": "1 2 3 -"} if better else HARD, **more)
        make_evaluated(run, "easy", BETTER if better else EASY, greedy="2" if label == "SFT" else "1", **more)
    return runs


def make_telemetry(folder: Path, objective: str, **fields: list[float]) -> Path:
    """A run whose training logged these fields, a value a step, beside what every training logs."""
    (folder / "train").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"objective: {objective}\n")
    steps = len(next(iter(fields.values())))
    logged = [
        {"step": n + 1, "loss": 0.5, "nll": 1.0 - n / steps, "effective_ratio": 0.5, "gap_p50": float(n)}
        | {name: values[n] for name, values in fields.items()}
        for n in range(steps)
    ]
    ends = [
        {"step": steps, "eval_loss": 0.4, "eval_nll": 0.4},
        {"step": steps, "train_runtime": 3.0, "train_loss": 0.5},
    ]
    _lines(folder / "train" / "telemetry.jsonl", [*logged, *ends])
    return folder


def _lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


class Page(HTMLParser):
    """Elements, attributes and text, as a browser would see them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(self.html)
        self.rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    @property
    def facts(self) -> dict[str, str]:
        """What the tables of two columns say."""
        return {row[0]: row[1] for row in self.rows if len(row) == 2}

    @property
    def data(self) -> Any:
        return json.loads(re.search(r'id="data">(.*?)</script>', self.html, re.DOTALL)[1])

    @property
    def answers(self) -> Any:
        """The problems, and what models wrote to them."""
        return json.loads(zlib.decompress(base64.b64decode(self.data["answers"]["packed"])))

    @property
    def tabs(self) -> list[str]:
        return [attributes["href"] for tag, attributes in self.elements if tag == "a"]

    def handle_starttag(self, tag, attributes) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data) -> None:
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data


def report_of(folder: Path, runs: dict[str, Path], title: str = "A title", **more: Any) -> Path:
    return write_report(folder / "report.html", runs, title=title, **more)


def page_of(folder: Path, runs: dict[str, Path], **more: Any) -> Page:
    return Page(report_of(folder, runs, **more))


def view(browser: Browser, page: Path, fragment: str = "") -> Browser:
    """Open a page and wait for its tokens."""
    browser.open(page, "#" + fragment if fragment else "")
    wait(lambda: browser.run("return document.documentElement.dataset.tokens === 'ready'"))
    return browser


def texts(browser: Browser, selector: str) -> list[str]:
    """The texts of all such elements, with single spaces."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.replace(/\\s+/g, ' ').trim())"
    return browser.run(script, selector)
