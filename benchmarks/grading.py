"""What docs/grading.md claims about the grader, measured; writes JSON.

    python benchmarks/grading.py --data ../shared/data/benchmarks --out results/grading.json \
        --source rho=rho ... --math-verify-tests Math-Verify/tests

golds     every gold against itself, the next one and respellings of itself
hostile   the answers of tests/grading/test_hostile.py, both graders: slowest, and any that was accepted
synthetic 8 answers for each problem of five benchmarks, made from the golds: seconds, beside plain math-verify
real      the responses of the dumps of benchmarks/published.py: seconds, beside plain math-verify
cases     the cases of math-verify's own tests

Sections whose input is not given are left out. Needs math-verify==0.9.0, to compare with.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from math_verify import parse, verify
from published import DUMPS, boxed_text, sources

from trimsft.evaluate.benchmarks import load_benchmark
from trimsft.evaluate.problems import Problem
from trimsft.grading import GRADER_VERSION, Grader, Rules
from trimsft.grading.answers import extract_answer
from trimsft.grading.grader import Item

ROOT = Path(__file__).resolve().parents[1]
PAPER = ("math500", "olympiadbench", "minerva", "amc", "aime24")
CASES = ("test_all", "test_boxed", "test_numina_cases", "test_open_thoughts", "test_yujianll", "test_strict")
SHOWN = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with math500.jsonl, gsm8k.jsonl, ...")
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER", help="as published.py")
    parser.add_argument("--math-verify-tests", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": _machine(), "grader_version": GRADER_VERSION}
    clones = sources(options.source)
    sections = {
        "hostile": lambda: hostile(),
        "golds": lambda: golds(options.data) if options.data else None,
        "synthetic": lambda: speed(list(synthetic(options.data))) if options.data else None,
        "real": lambda: speed(list(real(clones))) if clones else None,
        "cases": lambda: cases(options.math_verify_tests) if options.math_verify_tests else None,
    }
    for name, section in sections.items():
        if found := section():
            report[name] = found
            print(name, {key: value for key, value in found.items() if key != "such_as"}, flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _machine() -> dict[str, Any]:
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {"cpu": model[1] if model else "?", "cores": os.cpu_count(), "python": platform.python_version()}


def golds(data: Path) -> dict[str, Any]:
    """Golds that are not graded as they should be: none, but for neighbours that are the same value."""
    counts: Counter[str] = Counter()
    accepted = []
    grader = Grader()
    for file in sorted(data.glob("*.jsonl")):
        for what, pairs in variants(load_benchmark(file)).items():
            items = [_item(problem, answer) for problem, answer in pairs]
            right = [found.correct for found in grader.grade_many(items)]
            counts[what] += len(right)
            counts[f"{what} accepted"] += sum(right)
            same = [answer == problem.answer for problem, answer in pairs]
            if what == "next":
                counts["next, the same text"] += sum(same)
                found = [pair for pair, ok, equal in zip(pairs, right, same, strict=True) if ok and not equal]
                accepted += [[problem.answer, answer] for problem, answer in found]
    return {**counts, "accepted neighbours": accepted}


def variants(problems: list[Problem]) -> dict[str, list[tuple[Problem, str]]]:
    """Each gold with itself, with the next, and with respellings of itself."""
    spelled = [(one, text) for one in problems for text in respellings(one.answer) if text != one.answer]
    following = [problem.answer for problem in problems[1:] + problems[:1]]
    return {
        "self": [(problem, problem.answer) for problem in problems],
        "next": list(zip(problems, following, strict=True)),
        "respelled": spelled,
    }


def respellings(answer: str) -> list[str]:
    spaced = answer if "\\" not in answer else re.sub(r"([+=-])", r" \1 ", answer)
    return [
        answer.replace(r"\frac", r"\dfrac").replace(", ", ",  "),
        "$" + answer.replace("(", r"\left(").replace(")", r"\right)") + "$",
        spaced,
        answer.replace(r"\sqrt{", r"\sqrt {").replace(r"\pi", "π"),
    ]


def hostile() -> dict[str, Any]:
    """The slowest grade and what was accepted, over every answer of the tests against every gold there."""
    sys.path.insert(0, str(ROOT))
    from tests.grading.test_hostile import GOLDS, STATIC

    found: dict[str, Any] = {"answers": len(STATIC), "golds": len(GOLDS)}
    for kind in ("strict", "qwen"):
        slowest, accepted = (0.0, ""), []
        grader = Grader(kind=kind)
        for name, answer in STATIC.items():
            for gold in GOLDS:
                started = time.perf_counter()
                grade = grader.grade(rf"\boxed{{{answer}}}", gold)
                slowest = max(slowest, (time.perf_counter() - started, f"{name} against {gold}"))
                accepted += [f"{name} against {gold}"] if grade.correct else []
        found[kind] = {"slowest_seconds": round(slowest[0], 2), "slowest": slowest[1], "accepted": accepted}
    return found


def synthetic(data: Path) -> Iterator[Item]:
    """About a third respelled golds, a quarter with one digit changed, then other golds, integers, and no box."""
    draw = random.Random(0)
    prose = r"Let us consider the problem step by step. We have $x^2+1=\frac{3}{4}$ and so $\{a,b\}$ ... " * 20
    for benchmark in PAPER:
        problems = load_benchmark(benchmark, data)
        for problem in problems:
            for _ in range(8):
                answer = made_up(problem.answer, problems, draw)
                box = "" if answer is None else rf"\boxed{{{answer}}}."
                yield prose + box, problem.answer, problem.rules, answer is None


def made_up(gold: str, problems: list[Problem], draw: random.Random) -> str | None:
    kind = draw.random()
    if kind < 0.35:
        return draw.choice([gold, *respellings(gold)])
    if kind < 0.6:
        digits = list(re.finditer(r"\d", gold))
        at = draw.choice(digits).start() if digits else None
        return gold + "+1" if at is None else f"{gold[:at]}{(int(gold[at]) + draw.randint(1, 8)) % 10}{gold[at + 1 :]}"
    if kind < 0.8:
        return draw.choice(problems).answer
    return str(draw.randint(-20, 2000)) if kind < 0.9 else None


def real(clones: dict[str, Path]) -> Iterator[Item]:
    """The published responses, with their stated answers in a box."""
    for dump in DUMPS:
        for row in dump.read(clones[dump.source]) if dump.source in clones else ():
            yield from ((boxed_text(text, dump.stated), row.gold, Rules(), False) for text in row.texts)


def speed(items: list[Item]) -> dict[str, Any]:
    """Seconds for all items; then for a sample, beside math-verify."""
    found: dict[str, Any] = {"responses": len(items)}
    for kind in ("strict", "qwen"):
        started = time.perf_counter()
        grader = Grader(kind=kind)
        statuses = Counter(grade.status for grade in grader.grade_many(items))
        found[f"{kind}_seconds"] = round(time.perf_counter() - started, 2)
        found[f"{kind}_statuses"] = dict(statuses)
    sample = random.Random(1).sample(items, min(2000, len(items)))
    grader = Grader()
    started = time.perf_counter()
    ours = [grader.grade(text, gold, rules) for text, gold, rules, _ in sample]
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    theirs = [bool(verify(parse(f"${gold}$"), parse(text))) for text, gold, _, _ in sample]
    plain = time.perf_counter() - started
    differing = [
        [item[1][:80], (grade.answer or "")[:80], grade.status]
        for item, grade, said in zip(sample, ours, theirs, strict=True)
        if grade.correct != said
    ]
    return found | {
        "sample": len(sample),
        "one_at_a_time_per_second": round(len(sample) / seconds),
        "math_verify_per_second": round(len(sample) / plain),
        "math_verify_differs": len(differing),
        "such_as": differing,
    }


def cases(folder: Path) -> dict[str, Any]:
    """math-verify's own cases: as they stand in a box, and with prose first reduced to what math-verify extracts."""
    agree: Counter[str] = Counter()
    differences = []
    grader = Grader()
    for gold, answer, expected in test_cases(folder):
        agree["cases"] += 1
        plain_gold = extract_answer(gold, several=True) or _without_dollars(gold)
        as_is = answer if "\\boxed" in answer else rf"\boxed{{{_without_dollars(answer)}}}"
        agree["as_is"] += grader.grade(as_is, plain_gold).correct == expected
        grade = grader.grade(rf"\boxed{{{_reduced(answer)}}}", _reduced(gold))
        agree["reduced"] += grade.correct == expected
        if grade.correct != expected:
            differences.append([gold[:80], answer[-80:], expected, grade.status])
    return {**agree, "such_as": differences[:SHOWN]}


def test_cases(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Gold, prediction and expected verdict of every parametrised case that has the three."""
    for name in CASES:
        spec = importlib.util.spec_from_file_location(f"tests.{name}", folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"tests.{name}"] = module  # the later files import the first
        spec.loader.exec_module(module)
        tests = [test for key, test in vars(module).items() if key.startswith("test_")]
        for mark in (mark for test in tests for mark in getattr(test, "pytestmark", ())):
            if mark.name == "parametrize" and "gold" in mark.args[0]:
                columns = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
                for values in mark.args[1]:
                    row = dict(zip((column.strip() for column in columns), values, strict=True))
                    yield row["gold"], row["pred"], bool(row.get("expected", row.get("result")))


def _without_dollars(text: str) -> str:
    found = re.fullmatch(r"\$\$?(.*?)\$\$?", text.strip(), re.DOTALL)
    return found[1] if found else text.strip()


def _reduced(text: str) -> str:
    if "\\boxed" in text:
        return extract_answer(text, several=True) or text
    plain = _without_dollars(text)
    found = [piece for piece in parse(text) if isinstance(piece, str)]
    prose = len(plain) >= 40 or re.search(r"[A-Za-z]{4} .*\$", plain)
    return found[-1] if prose and found else plain


def _item(problem: Problem, answer: str) -> Item:
    return rf"Therefore $\boxed{{{answer}}}$.", problem.answer, problem.rules, False


if __name__ == "__main__":
    main()
