r"""What counts as the same answer; each row is a gold, an answer, and whether the two are equal."""

from __future__ import annotations

import pytest

from trimsft.grading import Grader

EQUAL = {
    "fractions": [
        (r"\frac{1}{2}", r"\frac12"), (r"\frac{1}{2}", r"\dfrac{1}{2}"), (r"\frac12", "1/2"), ("1/2", "0.5"),
        ("0.5", ".5"), (r"\frac 59", "5/9"), (r"\frac9{19}", "9/19"), (r"-\frac{1}{2}", r"\frac{1}{-2}"),
        ("1/3", r"\frac{2}{6}"), (r"1\frac{4}{5}", "1.8"), (r"137 \frac{1}{2}", "137 1/2"), ("-1./3", r"-\frac13"),
        (r"0.\overline{3}", "1/3"),
    ],
    "numbers": [
        ("1,000", "1000"), ("1{,}000", "1000"), (r"10,\!080", "10080"), ("1000", "1 000"), ("073", "73"),
        ("5.", "5"), ("6", "6.0"), ("100", "1e2"), (r"6.6\times 10^{-34}", "6.6e-34"), ("2^{10}", "1024"),
        (r"1.5 \cdot 10^{3}", "1500"), ("5!", "120"), (r"\binom{5}{2}", "10"), ("2^{3^2}", "512"),
    ],
    "rounded": [(r"\frac{1}{3}", "0.3333333"), (r"\frac{\pi}{2}", "1.5707963"), ("e", "2.71828183")],
    "surds": [
        (r"\sqrt{8}", r"2\sqrt2"), (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"), (r"5\sqrt[3]{4}", r"\sqrt[3]{500}"),
        (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"), (r"\sqrt[3]{-8}", "-2"), (r"2\pi", r"\pi \cdot 2"), ("e^2", "e*e"),
        ("1+274i", "274i+1"), ("np.arcsin(10/13)", r"\arcsin(\frac{10}{13})"), (r"\log_2 8", "3"),
    ],
    "unicode": [
        ("½", "0.5"), ("-5", "−5"), (r"2\sqrt{3}", "2√3"), ("x^{2}", "x²"), (r"3\pi", "3π"), ("2×3", "6"),
        ("５", "5"), (r"x\le 3", "x ≤ 3"), (r"10^{-3}", "10⁻³"), ("5", "5\u200b"), (r"\infty", "∞"),
    ],
    "layout": [
        (r"\left(1,2\right)", "(1,2)"), (r"\{1\}", r"\left\{ 1 \right\}"), ("x+1", r"x\,+\;1"), ("5", "$5$"),
        ("5", r"\boxed{5}"), ("5", "{5}"), ("5", r"\(5\)"), (r"\frac{1}{2}", r"\displaystyle\frac{1}{2}"),
        (r"\frac{1}{2}", r"\\frac{1}{2}"),
    ],
    "percent": [
        ("0.5", r"50\%"), (r"50\%", "0.5"), (r"50\%", r"\frac12"), ("50", r"50\%"), ("62.5%", "62.5"),
        (r"\frac{1}{20}", "5 percent"),
    ],
    "units": [
        ("12", "12 cm"), (r"15\mbox{ cm}^2", "15"), (r"864 \mbox{ inches}^2", "864 square inches"), (r"\$36", "36"),
        (r"\$18.90", "18.9"), ("5 min", "5 minutes"), (r"90^\circ", "90"), (r"90^\circ", "90 degrees"),
        (r"25\text{ cm}", r"25\,\mathrm{cm}"), ("12", r"12\text{ m}"), ("9.8", r"9.8\ \mathrm{m/s}"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"), ("5", r"5\text{ apples}"),
    ],
    "names": [
        ("x=5", "5"), ("5", "x=5"), ("f(x)=2x", "2x"), ("3", "m+n=3"), (r"\angle A=60^\circ", "60"),
        (r"m_{\max }=n^{2}-n-1", "n^2-n-1"), ("x=1,y=2", "(1,2)"), ("x=1,y=2", "y=2, x=1"),
    ],
    "lists": [
        ("1,-2", "-2, 1"), ("3, 5, 7", r"7, 3 \text{ and } 5"), (r"\{1,2\}", r"\{2,1\}"), ("2, 3", r"\{3, 2\}"),
        ("(1,2),(3,4)", "(3,4),(1,2)"), ("69$,$84", "84, 69"), ("(312,123,231)", "(312, 123, 231)"),
        ("(1,7,103, 105)", "(1, 7, 103, 105)"), (r"\{1,2,2\}", r"\{1,2\}"), ("(0;1)", "(0,1)"), ("{1,2}", "2,1"),
    ],
    "plus minus": [
        (r"1\pm\sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}"), (r"x=\pm3", "3,-3"),
        (r"\{1\pm\sqrt{5},-2\}", r"\{-2, 1-\sqrt5, 1+\sqrt5\}"),
    ],
    "intervals": [
        ("[1,2)", "[1, 2.0)"), (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)"),
        (r"x\in[-2,7]", "[-2,7]"),
        (r"-2\le x\le 7", r"[-2,7]"), (r"x\ge 3", r"[3,\infty)"), ("x>3", "3<x"),
        (r"x<2 \text{ or } x>3", r"(-\infty,2)\cup(3,\infty)"),
        (r"(2,\infty)", r"(2,+\infty)"), (r"k \geqslant 2", r"k\ge2"), ("x >= 5", r"x\ge5"),
        (r"x \neq 5", "x != 5"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1 & 2\\ 3 & \frac{8}{2}\end{bmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\left[\begin{array}{cc}1 & 2 \\3 & 4\end{array}\right]"),
    ],
    "equations": [
        ("y=2x+1", "2x-y+1=0"), ("5x - 7y + 11z + 4 = 0", "-10x+14y-22z-8=0"), ("x^2+y^2=1", "y^2+x^2-1=0"),
        ("f(x)=2x", "f(x)=x+x"), ("y=x^2", "x^2=y"),
    ],
    "expressions": [
        ("(a+5)(b+2)", "ab+2a+5b+10"), (r"\cot x", r"\frac{\cos x}{\sin x}"), (r"1-2\sin^2 x", r"\cos 2x"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}"), (r"\lceil n/2\rceil", r"\lfloor \frac{n+1}{2}\rfloor"),
        (r"\ln(ab)", r"\ln a+\ln b"), ("n!", "n(n-1)!"), (r"\frac{x}{2}", "0.5x"), ("y^{\\prime}+ry=0", "y'+yr=0"),
        (r"-\log_{10} 250", r"-\log 250"), ("C_{1} e^{t}", "e^t C_1"),
    ],
    "products of roots": [
        (r"\sqrt{ab}", r"\sqrt{a}\sqrt{b}"), (r"\sqrt{\frac{a}{b}}", r"\frac{\sqrt{a}}{\sqrt{b}}"),
        (r"3\sqrt{2xy}", r"3\sqrt{2x}\sqrt{y}"), (r"\sqrt{abc}", r"\sqrt a\sqrt b\sqrt c"),
        (r"2x\sqrt{xy}+1", r"1+2x\sqrt{x}\sqrt{y}"),
    ],
    "number words": [
        ("5", "five"), ("42", r"\text{forty-two}"), ("105", "one hundred and five"), ("1200", "Twelve hundred"),
        ("2000000", "two million"), ("5000000", "5 million"), (r"1.8\cdot 10^9", r"1.8\text{ billion dollars}"),
        ("36", "3 dozen"),
    ],
    "joined bounds": [
        ("[2,5)", r"x \ge 2 and x < 5"), (r"2\le x<5", r"x \ge 2 \text{ and } x < 5"), ("(2,5)", "x>2, x<5"),
        ("x>2 and x<5", "5>x>2"),
    ],
    "more units": [
        ("12", "12 gallons"), ("65", "65 cubic units"), ("10 mph", "10 miles per hour"),
        ("10", r"10\text{ miles per hour}"), ("4 m/s", "4 meters per second"),
    ],
    "words": [
        (r"\text{even}", "even"), (r"\text{Evelyn}", "evelyn"), ("C", "(C)"), (r"\text{(C)}", "C"),
        ("B", r"\textbf{(B)}"),
        (r"\emptyset", r"\varnothing"), ("25_{8}", "25_8"), ("3:4", r"\frac34"),
    ],
}  # fmt: skip

DIFFERENT = {
    "products of roots": [
        (r"\sqrt{ab}", r"\sqrt{a}+\sqrt{b}"), ("|x|", r"\sqrt{x}\sqrt{x}"), (r"\sqrt{a+b}", r"\sqrt{a}\sqrt{b}"),
        (r"\sqrt{\frac{a}{b}}", r"\frac{\sqrt{b}}{\sqrt{a}}"), (r"\sqrt{ab}", r"-\sqrt{a}\sqrt{b}"),
        ("x", r"\sqrt{x^2}"), (r"\sqrt{ab}", r"\frac{\sqrt{a}}{\sqrt{b}}"), (r"2\sqrt{ab}", r"\sqrt{a}\sqrt{b}"),
    ],
    "number words": [
        ("5", "-five"), ("15", "twenty - five"), ("25", "twenty, five"), ("3", "one two"), ("5", "high five"),
        ("5", "five or six"), ("20", "twenty zero"), ("105", "one hundred five hundred"),
        ("1000000", "thousand thousand"), ("5", r"5\text{ million}"), ("5", "5 hundred"), ("3", r"3\text{ dozen}"),
        ("4", r"4\text{ squared}"), ("5", r"5\text{ or more}"), ("5", r"5\text{ thousand dollars}"),
    ],
    "joined bounds": [
        ("[2,5)", "x>2 and x<5"), ("(2,5)", "x<2 or x>5"), ("2<x<5", "y>2 and y<5"), ("(2,5)", "x>5, x<2"),
        (r"(-\infty,2)\cup(5,\infty)", "x>2 and x<5"),
    ],
    "more units": [("12 gallons", "12 quarts"), ("10 miles per hour", "10 km/h"), ("2", "2 abc")],
    "order": [("(1,2)", "(2,1)"), ("(2,3)", r"\{3,2\}"), ("(1,2),(3,4)", "(2,1),(3,4)"), ("x=1,y=2", "2,1")],
    "brackets": [("[1,2)", "(1,2)"), ("(-1,6)", "(-1,6]"), ("[0,1]", r"\{0,1\}"), ("[2,5)", "(2,5)")],
    "counts": [
        ("2", "2,2"), ("3", "3 or 4"), ("2,3", "2"), (r"\pm 3", "3"), ("1,2,3", "123"), ("12", "1,2"),
        ("12", "1 2"),
    ],
    "numbers": [
        ("10000", "10001"), ("6.6e-34", "1.2e-30"), ("10^{-10}", "0"), ("0", "10^{-30}"), ("6", "6.0000001"),
        ("-5", "5"),
        ("1/3", "0.333"), (r"\frac{\pi}{2}", "1.57"), ("2^{1009}", "2^{1010}"), ("2^{3^2}", "64"),
        (r"4\frac{1}{2}", "2"),
    ],
    "percent": [("0.5", "50"), ("0.5", r"0.5\%"), ("0.05", "5")],
    "units": [
        ("12 cm", "12 m"), (r"15\text{ cm}^2", r"15\text{ cm}"), ("5 hours", "5 minutes"),
        (r"60^\circ", r"\frac{\pi}{3}"),
    ],
    "bases": [("25_8", "21"), ("25_8", "25"), ("25_8", "25_9")],
    "words": [
        ("east", "seat"), (r"\text{even}", "odd"), ("C", "D"), (r"\text{(C)}", "(D)"),
        ("0", r"\text{no solution}"),
    ],
    "expressions": [
        ("x", "X"), ("2n-1", "2n+1"), ("x^2+1", "x^2+1.0001"), (r"\lfloor n/2 \rfloor", "n/2"),
        ("a^{b^c}", "(a^b)^c"),
        ("f(x)=x", "g(x)=x"), ("f(x)=2x", "f(x)=3x"), ("x=1", "y=1"), ("|x|", "x"), ("I(0)", "0"),
        (r"\infty", r"-\infty"),
    ],
    "equations": [
        ("y=2x+1", "2x-y+2=0"), ("x^2+y^2=1", "x^2+y^2=2"), ("5x - 7y + 11z + 4 = 0", "0"), ("0", "y'+ry=0"),
        ("x>3", "x<3"), (r"x\ge 3", "x>3"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
    ],
    "times": [("12:00", "1:00")],
}  # fmt: skip


def _rows(table: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [row for rows in table.values() for row in rows]


@pytest.mark.parametrize(("gold", "answer"), _rows(EQUAL))
def test_equal_whichever_is_the_gold(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status == "correct"
    assert grader.grade(rf"\boxed{{{gold}}}", answer).status == "correct"
    assert grader.equivalent(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), _rows(DIFFERENT))
def test_different_whichever_is_the_gold(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status == "wrong"
    assert grader.grade(rf"\boxed{{{gold}}}", answer).status == "wrong"
    assert not grader.equivalent(gold, answer)


def test_bounds_of_two_unknowns_are_no_interval(grader: Grader) -> None:
    assert not grader.grade(r"\boxed{x>2, y<5}", "(2,5)").correct
    assert not grader.grade(r"\boxed{x<2 \text{ or } y>3}", r"(-\infty,2)\cup(3,\infty)").correct


def test_what_the_reader_does_not_know_is_left_to_math_verify(grader: Grader) -> None:
    assert grader.grade(r"\boxed{\sum_{k=1}^{10} k}", "55").status == "correct"
    assert grader.grade(r"\boxed{\sum_{k=1}^{10} k}", "54").status == "wrong"
