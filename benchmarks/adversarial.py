"""What answers that are made to be slow cost: 47 kinds, each different every time, graded and put to a vote.

    python benchmarks/adversarial.py --each 10

Prints the slowest kinds in milliseconds an answer, answers a second over all kinds, how many were accepted, and the
seconds of a vote among nine answers that cannot be decided. `PYTHONPATH=older/src` measures another
version of the package.
"""

import argparse
import time
from collections.abc import Callable

from trimsft.evaluate.metrics import cluster
from trimsft.grading import GRADER_VERSION, Grader, Rules

GOLDS = ("5", "x^2+1", r"\frac{\pi}{2}", "(1,2)", "n!")
SHOWN = 12


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
    parser.add_argument("--each", type=int, default=10, help="answers of each kind")
    options = parser.parse_args()
    seconds: dict[str, float] = {}
    accepted = 0
    grader = Grader()
    for kind, make in KINDS.items():
        numbers = range(1, options.each + 1)
        items = [(rf"\boxed{{{make(n)}}}", GOLDS[n % len(GOLDS)], Rules(), False) for n in numbers]
        started = time.perf_counter()
        accepted += sum(grade.correct for grade in grader.grade_many(items))
        seconds[kind] = time.perf_counter() - started
    voters = [KINDS["integral"](n + options.each) for n in range(1, 10)]
    grader.grade_many([(rf"\boxed{{{answer}}}", "5", Rules(), False) for answer in voters])
    started = time.perf_counter()
    cluster(voters, grader.equivalent)
    vote = time.perf_counter() - started
    for kind in sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]:
        print(f"{1000 * seconds[kind] / options.each:8.1f} ms  {kind}")
    answers, total = len(KINDS) * options.each, sum(seconds.values())
    print(f"version {GRADER_VERSION}: {answers} answers in {total:.1f} s, {answers / total:.0f} a second")
    print(f"accepted: {accepted}")
    print(f"a vote among nine undecidable ones: {vote:.1f} s")


if __name__ == "__main__":
    main()
