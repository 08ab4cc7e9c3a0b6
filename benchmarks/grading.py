"""What docs/grading.md claims about the grader, measured; writes JSON.

    python benchmarks/grading.py --data ../shared/data/benchmarks --out results/grading.json

golds      every gold against itself, the next one and respellings of itself
synthetic  8 answers for each problem of five benchmarks, made from the golds: seconds, both graders
hostile    47 kinds of answers that are made to be slow, each different every time, and a vote among nine of them

Without --data the last alone. `PYTHONPATH=older/src` measures another version of the package.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trimsft.evaluate.benchmarks import Problem, load_benchmark
from trimsft.evaluate.metrics import cluster
from trimsft.grading import GRADER_VERSION, Grader, Rules
from trimsft.grading.grader import Item

PAPER = ("math500", "olympiadbench", "minerva", "amc", "aime24")
GOLDS = ("5", "x^2+1", r"\frac{\pi}{2}", "(1,2)", "n!")


def _nested(opening: str, inside: str, closing: str, depth: int) -> str:
    return opening * depth + inside + closing * depth


def _row(form: str, length: int, joint: str, start: int) -> str:
    return joint.join(form % number for number in range(start, start + length))


KINDS: dict[str, Callable[[int], str]] = {
    "brackets past the limit": lambda n: _nested("(", "1", ")", 200 + n),
    "brackets": lambda n: _nested("(", f"x+{n}", ")", 38),
    "fractions in fractions": lambda n: _nested(r"\frac{1}{1+", f"x+{n}", "}", 18),
    "roots in roots": lambda n: _nested(r"\sqrt{2+", str(n), "}", 36),
    "sines of sines": lambda n: _nested(r"\sin(", str(n), ")", 36),
    "bars": lambda n: _nested("|", f"x-{n}", "|", 60),
    "braces": lambda n: "{" * 900 + str(n),
    "exponentials": lambda n: rf"\exp(\exp(\exp({n % 9})))",
    "tower": lambda n: f"9^{{9^{{9^{{9^{{{n}}}}}}}}}",
    "tower of letters": lambda n: f"x^{{y^{{z^{{t^{{{n}}}}}}}}}",
    "huge exponent": lambda n: f"7^{{{10**9 + n}}}",
    "large exponent": lambda n: f"7^{{{7000 + n}}}",
    "power of e": lambda n: f"e^{{{1500 + n}}}+1",
    "power of pi": lambda n: rf"\pi^{{{900 + n}}}+\pi",
    "power of a sum": lambda n: f"(x+y+{n})^{{{900 + n}}}",
    "huge factorial": lambda n: f"{10**8 + n}!",
    "factorial of factorials": lambda n: f"(({4 + n % 5}!)!)!",
    "factorials": lambda n: rf"\frac{{{1400 + n}!}}{{{1300 + n}!}}",
    "factorials of letters": lambda n: rf"\frac{{(n+{n})!}}{{n!}}",
    "binomial": lambda n: rf"\binom{{10^9}}{{{10**6 + n}}}",
    "digits": lambda n: "7" * 1500 + str(n),
    "digits past the limit": lambda n: "7" * 100_000 + str(n),
    "decimal places": lambda n: "0." + "3" * 1500 + str(n),
    "terms": lambda n: _row("%d", 250, "+", n),
    "roots": lambda n: _row(r"\sqrt{%d}", 120, "+", n),
    "sines": lambda n: _row(r"\sin(%dx)", 40, "+", n),
    "letters": lambda n: " ".join("abcdxyz"[(n + k) % 7] for k in range(280)),
    "list": lambda n: _row("%d", 400, ",", n),
    "list of letters": lambda n: ",".join("abcxyz"[(n * k) % 6] for k in range(60)),
    "set": lambda n: r"\{" + _row(r"\frac{%d}{7}", 60, ",", n) + r"\}",
    "chain": lambda n: _row("x+%d", 60, "=", n),
    "union": lambda n: r"\cup".join(f"({2 * k + n},{2 * k + 1 + n})" for k in range(40)),
    "inequalities": lambda n: _row(r"x\ne %d", 60, ",", n),
    "matrix": lambda n: r"\begin{pmatrix}" + r"\\".join(_row("%d", 7, "&", n + k) for k in range(7)) + r"\end{pmatrix}",
    "power of a matrix": lambda n: rf"\begin{{pmatrix}}1&{n}\\3&4\end{{pmatrix}}^{{{50 + n}}}",
    "sum": lambda n: rf"\sum_{{k=1}}^{{{9000 + n}}} \frac{{1}}{{k^{{k}}}}",
    "sum to a letter": lambda n: rf"\sum_{{k=1}}^{{n}} k^{{{5 + n}}}",
    "integral": lambda n: rf"\int_0^{{{1 + n}}} \frac{{\sin(x^x)}}{{e^{{x}}+\ln x}} dx",
    "limit": lambda n: rf"\lim_{{n\to\infty}} (1+\frac{{{n}}}{{n}})^{{n^2}}",
    "floors": lambda n: rf"\lfloor\sqrt{{n+{n}}}\rfloor+\lfloor\sqrt{{m+{n}}}\rfloor",
    "prose": lambda n: "the answer is " + _row("value %d", 150, " and ", n),
    "texts": lambda n: r"\text{a}" * 250 + str(n),
    "units": lambda n: str(n) + r"\text{ kg m s A K mol}" * 60,
    "spaces": lambda n: "5" + " " * 1800 + str(n),
    "numbers and spaces": lambda n: _row("%d", 300, " ", n),
    "ligatures": lambda n: "\ufdfa" * 1500 + str(n),
    "accents": lambda n: "1" + "\u0301" * 1500 + str(n),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with math500.jsonl, gsm8k.jsonl, ...")
    parser.add_argument("--each", type=int, default=10, help="answers of each hostile kind")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    machine = {"cpu": model[1] if model else "?", "cores": os.cpu_count(), "python": platform.python_version()}
    report: dict[str, Any] = {"machine": machine, "grader_version": GRADER_VERSION, "hostile": hostile(options.each)}
    if options.data:
        report |= {"golds": golds(options.data), "synthetic": speed(list(synthetic(options.data)))}
    print(json.dumps(report, indent=1, ensure_ascii=False))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")


def golds(data: Path) -> dict[str, Any]:
    """Return golds that are not graded as they should be: none, but for neighbours of the same value."""
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
    """Pair each gold with itself, with the next, and with respellings of itself."""
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


def hostile(each: int) -> dict[str, Any]:
    """Return the milliseconds of an answer of each kind, and the seconds of a vote."""
    grader, accepted, milliseconds = Grader(), 0, {}
    for kind, make in KINDS.items():
        items = [(rf"\boxed{{{make(n)}}}", GOLDS[n % len(GOLDS)], Rules(), False) for n in range(1, each + 1)]
        started = time.perf_counter()
        accepted += sum(grade.correct for grade in grader.grade_many(items))
        milliseconds[kind] = round(1000 * (time.perf_counter() - started) / each, 1)
    voters = [KINDS["integral"](n + each) for n in range(1, 10)]
    started = time.perf_counter()
    cluster(voters, grader.equivalent)
    slowest = dict(sorted(milliseconds.items(), key=lambda one: -one[1])[:12])
    per_second = round(1000 * len(KINDS) / sum(milliseconds.values()))
    vote = round(time.perf_counter() - started, 2)
    return {"accepted": accepted, "per_second": per_second, "slowest_milliseconds": slowest, "vote_seconds": vote}


def synthetic(data: Path) -> Iterator[Item]:
    """Yield about a third respelled golds, a quarter with one digit changed, other golds, integers, and no box."""
    draw = random.Random(0)
    prose = r"Let us consider the problem step by step. We have $x^2+1=\frac{3}{4}$ and so $\{a,b\}$ ... " * 20
    for benchmark in PAPER:
        problems = load_benchmark(data / f"{benchmark}.jsonl")
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


def speed(items: list[Item]) -> dict[str, Any]:
    """Return the seconds for all items and what came of them, by both graders."""
    result: dict[str, Any] = {"responses": len(items)}
    for kind in ("strict", "qwen"):
        started = time.perf_counter()
        statuses = Counter(grade.status for grade in Grader(kind=kind).grade_many(items))
        result[kind] = {"seconds": round(time.perf_counter() - started, 2), "statuses": dict(statuses)}
    return result


def _item(problem: Problem, answer: str) -> Item:
    return rf"Therefore $\boxed{{{answer}}}$.", problem.answer, problem.rules, False


if __name__ == "__main__":
    main()
