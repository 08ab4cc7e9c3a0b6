r"""What counts as the same answer. Each row of a table is a gold and an answer; each goes through `grade` end to end,
and both ways round.
"""

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
        ("1,000", "1000"), ("1{,}000", "1000"), (r"10,\!080", "10080"), ("1000", "1 000"), ("073", "73"), ("5.", "5"),
        ("6", "6.0"), ("100", "1e2"), (r"6.6\times 10^{-34}", "6.6e-34"), ("2^{10}", "1024"),
        (r"1.5 \cdot 10^{3}", "1500"), ("5!", "120"), (r"\binom{5}{2}", "10"), ("2^{3^2}", "512"),
    ],
    "rounded": [(r"\frac{1}{3}", "0.3333333"), (r"\frac{\pi}{2}", "1.5707963"), ("e", "2.71828183")],
    "surds": [
        (r"\sqrt{8}", r"2\sqrt2"), (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"), (r"5\sqrt[3]{4}", r"\sqrt[3]{500}"),
        (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"), (r"\sqrt[3]{-8}", "-2"), (r"2\pi", r"\pi \cdot 2"), ("e^2", "e*e"),
        ("1+274i", "274i+1"), ("np.arcsin(10/13)", r"\arcsin(\frac{10}{13})"), (r"\log_2 8", "3"),
    ],
    "unicode": [
        ("½", "0.5"), ("-5", "−5"), (r"2\sqrt{3}", "2√3"), ("x^{2}", "x²"), (r"3\pi", "3π"), ("2×3", "6"), ("５", "5"),
        (r"x\le 3", "x ≤ 3"), (r"10^{-3}", "10⁻³"), ("5", "5\u200b"), (r"\infty", "∞"),
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
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"), ("5", r"5\text{ apples}"), ("12", "12 gallons"),
        ("65", "65 cubic units"), ("10 mph", "10 miles per hour"), ("10", r"10\text{ miles per hour}"),
        ("4 m/s", "4 meters per second"),
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
        ("[1,2)", "[1, 2.0)"), (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)"), (r"x\in[-2,7]", "[-2,7]"),
        (r"-2\le x\le 7", r"[-2,7]"), (r"x\ge 3", r"[3,\infty)"), ("x>3", "3<x"),
        (r"x<2 \text{ or } x>3", r"(-\infty,2)\cup(3,\infty)"), (r"(2,\infty)", r"(2,+\infty)"),
        (r"k \geqslant 2", r"k\ge2"), ("x >= 5", r"x\ge5"), (r"x \neq 5", "x != 5"),
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
        ("5", "five"), ("42", r"\text{forty-two}"), ("1200", "Twelve hundred"),
        ("2000000", "two million"), ("5000000", "5 million"), (r"1.8\cdot 10^9", r"1.8\text{ billion dollars}"),
        ("36", "3 dozen"),
    ],
    "joined bounds": [
        ("[2,5)", r"x \ge 2 and x < 5"), (r"2\le x<5", r"x \ge 2 \text{ and } x < 5"), ("(2,5)", "x>2, x<5"),
        ("x>2 and x<5", "5>x>2"),
    ],
    "words": [
        (r"\text{even}", "even"), (r"\text{Evelyn}", "evelyn"), ("C", "(C)"), (r"\text{(C)}", "C"),
        ("B", r"\textbf{(B)}"), (r"\emptyset", r"\varnothing"), ("25_{8}", "25_8"), ("3:4", r"\frac34"),
    ],
}  # fmt: skip

DISGUISED = {
    "choices and what they stand for": [
        ("C", r"\textbf{(C)}~-1"), ("-1", r"\text{(C)}\ -1"), ("-5", r"\text{C: }-5"),
        ("C", r"5 \implies \textbf{(C)}"),
        ("C", r"\textbf{(C)} = 5"), ("C", r"\text{(C)}\ |AB|=3"), (r"\infty", r"(D) \infty"),
        (r"\pi", r"\pi\text{ (B)}"),
    ],
    "scales": [
        ("500000", "5 hundred thousand"), ("300000000", r"3\text{ hundred million}"),
        ("10^{12}", r"1\text{ million million}"), ("5000000", r"\$5\text{ million}"), ("5000000", "(2+3) million"),
        ("5000000", r"5,000\text{ thousand}"), ("1500000", r"1\frac{1}{2}\text{ million}"), ("500000", "1/2 million"),
        ("-5000000", "-5 million"), ("200", "2 hundred people"), ("70000", r"70\text{ thousand dollars}"),
        (r"5\text{ million dollars}", r"5000\text{ thousand dollars}"),
    ],
    "units": [
        ("5", r"5\text{ red apples}"), ("5", r"5\text{ (cm)}"), ("5", r"5\text{ light-years}"),
        ("5", r"5\text{ dollars/hour}"), ("5", r"5\text{ times}"), ("3", r"3\text{ real roots}"),
        ("5", r"5\text{ more apples}"), ("5", r"5\text{ o'clock}"), (r"5\text{ a.m.}", r"5\text{ AM}"),
        (r"5\text{ apples}", r"5 \text{ Apple}"), ("12", r"12\text{th}"), ("5500", r"5500\mathrm{~K}"),
        ("5500", r"5500\text{ K}"), ("5", r"5\,\mathrm{J}"), ("5", r"5\text{ eV}"), ("9.8", r"9.8\text{ m/s}^2"),
        (r"5\text{ nm}", r"5\text{ nanometers}"), (r"5\text{ square units}", r"5\text{ cm}^2"), (r"5\text{ m}", "5m"),
        (r"2\mathrm{V}+1", "1+2V"), (r"5\%", r"5\text{ percentage points}"), (r"\sum_{k=1}^{3} k", r"6\text{ apples}"),
    ],
    "dollars": [
        (r"\$5.40", r"5.4\text{ dollars}"), (r"\$5.40", "$5.4"), (r"\$1,000", "1000"), ("5.4", r"\$5.4"),
        (r"5.4 \text{ cents}", "5.4"),
    ],
    "fonts": [
        ("6+9i", r"6+9\mathrm{i}"), ("3+4i", r"3+4\mathrm{\,i}"), ("6-5i", r"6-5\text{i}"), ("2e", r"2\mathrm{e}"),
        (r"3\pi", r"3\mathrm{\pi}"), (r"\frac{\pi}{4}", r"\frac{\boldsymbol{\pi}}{4}"), ("2x", r"2\mathrm{x}"),
        ("2v", r"2\mathbf{v}"), ("2V", r"2\mathrm{V}"), ("-1", r"\mathrm{i}^2"), ("n^2+n", r"\boldsymbol{n^{2}+n}"),
        ("f(n)=n", r"\mathbf{f(n)=n}"), ("E_1,E_2", r"\bm{E_{1}, E_{2}}"),
        ("N=n", r"\mathbf{N=n}"), (".25", r"\text{.25}"),
    ],
    "names": [
        ("5", "x_1=5"), ("5", "m+n=5"), ("5", "x/y=5"), ("5", r"\frac{NO}{BO}=5"), ("5", "|AB|=5"),
        ("5", r"\gcd(a,b)=5"), ("5", r"\text{number of ways}=5"), ("x=5", "-x=-5"), ("5", "x=2+3=5"),
        (r"\frac{dy}{dx}=2x", "dy/dx = 2x"), (r"\frac{d M}{d t}=k M", "dM/dt=kM"),
        ("5", r"x=\frac{10}{2}=5"), ("0.33", r"x=\frac{1}{3}=0.33"), ("7", "3+4=7=7"), ("x=3", "x=2+1=3"),
        ("5", r"2x=10 \implies x=5"), ("x=11", "x=5+5+1=7=11"), (r"2\sqrt3", r"x=\sqrt{12}=2\sqrt3"),
        ("5", r"\sqrt{9+16}=\sqrt{25}=5"), ("5", r"x=5\text{ cm}=5\text{ cm}"),
    ],
    "decimals": [
        (r"\frac{1}{3}", "0.3333333"), (r"2\sqrt3", "3.4641016"), (r"\frac{x}{3}", "0.3333333x"),
        ("x^2+1", "x^{2.0}+1"), (r"3^{-1}x", "0.3333333x"), ("2^{21}", "2097152.0"),
    ],
    "shapes": [
        ("10,080", "10080"), (r"\emptyset", r"\{ \}"), (r"\{\emptyset\}", r"\{ \varnothing \}"), ("1", r"\text{One.}"),
        (r"\lfloor n/2\rfloor", r"\lceil (n-1)/2\rceil"), (r"\lfloor x+1\rfloor", r"\lfloor x\rfloor+1"),
    ],
}  # fmt: skip
"""Answers that are the gold and do not look like it."""

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
    "units": [
        ("12 gallons", "12 quarts"), ("10 miles per hour", "10 km/h"), ("2", "2 abc"), ("12 cm", "12 m"),
        (r"15\text{ cm}^2", r"15\text{ cm}"), ("5 hours", "5 minutes"), (r"60^\circ", r"\frac{\pi}{3}"),
    ],
    "order": [("(1,2)", "(2,1)"), ("(2,3)", r"\{3,2\}"), ("(1,2),(3,4)", "(2,1),(3,4)"), ("x=1,y=2", "2,1")],
    "brackets": [("[1,2)", "(1,2)"), ("(-1,6)", "(-1,6]"), ("[0,1]", r"\{0,1\}"), ("[2,5)", "(2,5)")],
    "counts": [
        ("2", "2,2"), ("3", "3 or 4"), ("2,3", "2"), (r"\pm 3", "3"), ("1,2,3", "123"), ("12", "1,2"), ("12", "1 2"),
    ],
    "numbers": [
        ("10000", "10001"), ("6.6e-34", "1.2e-30"), ("10^{-10}", "0"), ("0", "10^{-30}"), ("6", "6.0000001"),
        ("-5", "5"), ("1/3", "0.333"), (r"\frac{\pi}{2}", "1.57"), ("2^{1009}", "2^{1010}"), ("2^{3^2}", "64"),
        (r"4\frac{1}{2}", "2"),
    ],
    "percent": [("0.5", "50"), ("0.5", r"0.5\%"), ("0.05", "5")],
    "bases": [("25_8", "21"), ("25_8", "25"), ("25_8", "25_9")],
    "words": [
        ("east", "seat"), (r"\text{even}", "odd"), ("C", "D"), (r"\text{(C)}", "(D)"), ("0", r"\text{no solution}"),
    ],
    "expressions": [
        ("x", "X"), ("2n-1", "2n+1"), ("x^2+1", "x^2+1.0001"), (r"\lfloor n/2 \rfloor", "n/2"), ("a^{b^c}", "(a^b)^c"),
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

DECEPTIVE = {
    "computing with the letter of a choice": [
        ("(C)", r"\text{(C)}+1"), ("(C)", r"-\text{(C)}"), ("C", r"\text{(C)}-1"), ("C", r"\text{(C)}^2"),
        ("C", r"\text{(C)} \cdot 2"), ("C", r"\text{(C)}!"), ("C", r"5-\text{(C)}"), ("C", r"5\times\text{(C)}"),
        ("C", r"\text{(C) or D}"), ("C", r"\text{(C)}\text{ or D}"), ("C", r"\text{not }\text{(C)}"),
        ("C", r"\neg\text{(C)}"), ("C", r"\text{(C)}, 3"), ("C", r"3, \text{(C)}"), (r"\text{(C)} 1", r"\text{(C)}+1"),
    ],
    "units to no power": [
        (r"5\text{ cm}^2", r"5\text{ cm}^0"), ("5 cm^2", "5 cm^0"), (r"5\text{ cm}", r"5\text{ cm/cm}"),
    ],
    "scales": [
        ("500", "5 hundred thousand"), ("300", r"3\text{ hundred million}"), ("10^6", r"1\text{ million million}"),
        ("5000", r"5\text{ thousand five}"), ("5000000", "5 million squared"), ("15000000", "10 + 5 million"),
        ("200", "2 hundred hundredths"), ("5000", "5 thousand thousand"), ("6000000", r"2 \cdot 3 million - 0"),
    ],
    "parts and numbers in words": [
        ("3", r"3\text{ eighths}"), ("5", r"5\text{ hundredths}"), ("5", r"5\text{ sixths}"),
        ("4", r"4\text{ sevenths}"), ("4", r"4\text{ ninths}"), ("4", r"4\text{ twelfths}"), ("4", r"4\text{ halfs}"),
        ("5", r"5\text{ twentieths}"), ("5", r"5\text{ thousandths}"), ("5", r"5\text{ trillions}"),
        ("5", r"5\text{ sets of three}"), ("5", r"5\text{ and a half}"),
    ],
    "operations in words": [
        ("5", r"5\text{ pi}"), ("2", r"2\text{ sqrt(3)}"), ("5", r"5\text{ root two}"), ("5", r"5\text{ doubled}"),
        ("5", r"5\text{.5}"), ("5", r"5\text{+1}"), ("5", r"5\text{^2}"), ("5", r"5\text{ 1/2}"), ("5", r"5\text{ !}"),
        ("5", r"5\text{ * 2}"), ("5", r"5\text{ x 10}"), ("5", r"5\text{ to the 3rd power}"), ("3", r"3\text{ to 5}"),
        ("3", r"3\text{ - 5}"), ("18", r"18\text{ remainder 3}"), ("5", r"5\text{ feet 6 inches}"),
        ("5", r"5\text{ choose 2}"), ("5", r"5\text{ inverse}"), ("5", r"5\text{ squares of}"),
        ("2", r"2\text{ rounded from 2.4}"), ("70", r"70\text{K}"), ("70", r"\$70\text{K}"), ("5", r"5\text{M}"),
        ("5", r"5\text{M.}"), ("5", r"5\text{k}"), ("2", r"2\text{xy}"), ("5", r"5 \mod 7"),
    ],
    "denials": [
        ("5", r"5\text{ is impossible}"), ("5", r"5\text{ cannot be}"), ("5", r"5\text{ below zero}"),
        ("5", r"5\text{ at most}"), ("2", r"2\text{ (approximately 2.3)}"), ("5", r"5\text{ at least}"),
        ("5", r"5\text{ not}"), (r"[2,5]", r"\not\in [2,5]"), ("[2,5]", r"x \not\in [2,5]"), ("5", r"x \not= 5"),
    ],
    "two units": [
        (r"5\text{ AM}", r"5\text{ PM}"), (r"5\text{ east}", r"5\text{ west}"), (r"5\text{ nm}", r"5\text{ km}"),
        (r"5\text{ apples}", r"5\text{ pears}"), (r"5\text{ apples}", "5 cm"), (r"5\%", r"5\text{ apples}"),
        (r"5.4 \text{ cents}", r"\$5.4"), (r"5.4\text{ cents}", "$5.4"), (r"\$5", r"5\text{ cents}"),
    ],
    "fonts": [
        ("3", r"3\mathrm{i}"), ("2", r"2\mathrm{e}"), ("2", r"2\mathrm{x}"), ("2", r"2\text{x}"), ("2", r"2\mathbf{v}"),
        ("2", r"2\boldsymbol{\pi}"), ("2", r"2\mathrm{d}"), ("2", r"2\mathbf{V}"),
    ],
    "names": [
        ("5", "-x=5"), ("5", "|x|=5"), ("5", r"\sqrt{x}=5"), ("5", r"\ln x=5"), ("5", r"\log_2 x=5"),
        ("5", r"\cos\theta=5"), ("5", r"\arctan x=5"), ("5", r"\text{not }=5"), ("5", r"x \text{ not}=5"),
        ("5", "-x=5=5"), ("x=3", "y=2+1=3"),
    ],
    "integers are exact": [
        ("2^{21}", "2097153.0"), ("10!", "3628801.0"), (r"\binom{30}{15}", "155117521.0"), (r"\sqrt{9}", "3.000001"),
        (r"\log_2 8", "3.0000001"), (r"\frac{3000001}{1}", "3000000.5"), ("n^2", "n^{2.0000001}"),
        ("x^2+1", "x^2+1.0000001"),
    ],
    "shapes": [
        ("10,080", "10,80"), ("1,000", "1,0"), ("(1,000)", "(1,0)"), (r"\emptyset", r"\{\emptyset\}"),
        (r"\lfloor x\rfloor", "x"), (r"\lfloor x\rfloor", r"\lceil x\rceil-1"),
    ],
    "beside a sum": [
        (r"\sum_{k=1}^{3} k", r"6\text{ hundredths}"), (r"\sum_{k=1}^{3} k", r"6\text{ is wrong}"),
        (r"\sum_{k=1}^{3} k", r"6\text{ feet 2}"), (r"\sum_{k=1}^{3} k", r"6 \mod 10"),
        (r"\sum_{k=1}^{3} k", "6 squared"),
    ],
}  # fmt: skip
"""Answers that look like the gold and are not."""


def _rows(*tables: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(row for table in tables for rows in table.values() for row in rows))


@pytest.mark.parametrize(("gold", "answer"), _rows(EQUAL, DISGUISED))
def test_equal_whichever_is_the_gold(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status == "correct"
    assert grader.grade(rf"\boxed{{{gold}}}", answer).status == "correct"
    assert grader.equivalent(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), _rows(DIFFERENT))
def test_different_whichever_is_the_gold(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status != "correct"
    assert grader.grade(rf"\boxed{{{gold}}}", answer).status != "correct"
    assert not grader.equivalent(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), _rows(DECEPTIVE))
def test_what_looks_like_the_gold_and_is_not_is_refused(gold: str, answer: str, grader: Grader) -> None:
    for said, wanted in ((answer, gold), (gold, answer)):
        assert grader.grade(rf"\boxed{{{said}}}", wanted).status in ("wrong", "unparsable")
    assert not grader.equivalent(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "1=2=5"), ("5", "x=-5=5"), ("5", "x=3=5"), ("x=3", "x=5=3"), ("1001", "x=1000=1001"),
        ("5", r"1=2 \implies 5"), ("x=5", "-x=5=5"), ("x=5", "|x|=5=5"),
        ("5", r"x=3\text{ cm}=5\text{ cm}"), ("5", r"x=\sqrt{12}=5"),
    ],
)  # fmt: skip
def test_an_answer_that_states_two_values_is_refused(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status == "wrong"
    assert not grader.equivalent(gold, answer)


def test_bounds_of_two_unknowns_are_no_interval(grader: Grader) -> None:
    assert not grader.grade(r"\boxed{x>2, y<5}", "(2,5)").correct
    assert not grader.grade(r"\boxed{x<2 \text{ or } y>3}", r"(-\infty,2)\cup(3,\infty)").correct


@pytest.mark.parametrize("answer", [r"\int_0^4 2x dx", r"\lim_{x\to 0} (16+x)", r"\sum_{k=1}^{\infty}\frac{16}{2^k}"])
def test_what_nobody_computes_is_no_answer(answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", "16").status == "unparsable"
