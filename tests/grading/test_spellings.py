r"""Spellings of one answer that models write, and beside each what looks like it and is another.

Each row is a gold and an answer, and is tried both ways round.
"""

import pytest

from trimsft.grading import Grader

SAME = {
    "subscripts": [
        (r"\frac{v_0}{r_0}", "v_0/r_0"), (r"\frac{E_1+2E_2}{3}", "(E_1+2E_2)/3"), (r"2\sqrt{a_1}", r"\sqrt{4a_1}"),
        (r"\frac{v_{0}}{r_{0}} t", r"\frac{v_0 t}{r_0}"), (r"\frac{a_{10}}{b_{2}}", "a_{10}/b_2"),
        ("x^{a_1}y", "y x^{a_{1}}"), (r"\frac{A_2}{2}", "0.5A_2"), (r"\sqrt{F_{16}}", "F_{16}^{1/2}"), ("a_1", "a_{1}"),
        ("A_1", "A_{1}"), ("2a_1", "a_1+a_1"), ("2B_{16}", "2b_{16}"), ("(1A)_{16}", "1A_{16}"), ("3_{10}", "3"),
        ("-25_8", "-25_{8}"), ("E_2-E_1", "-E_{1}+E_{2}"), ("c_2+d_1", "d_1+c_2"), ("CD_2", "D_2C"),
    ],
    "letters that are no words": [
        ("p - q", "-q+p"), ("p - q", "-(q-p)"), ("n-k", "-k+n"), ("n - k", "n+(-k)"), ("a-b", "-(b-a)"), ("ab", "ba"),
        ("x y", "yx"), ("n - k - 1", "n-1-k"), ("p-q-r", "-(q+r)+p"), ("m-n", r"\frac{m^2-n^2}{m+n}"), ("xyz", "zyx"),
        ("a b c", "c b a"),
    ],
    "forms that models write": [
        ("f(x)=2 x", r"f(x)=2x \text{ for all } x \in \mathbb{R}"), ("f(x)=2 x", r"f(x)=2x, x\in\mathbb{R}"),
        ("f(x)=2 x", r"f(x)=2x \text{ for all real } x"), ("f(x)=2 x", r"f(x)=x+x\ \forall x \in \mathbb{R}"),
        ("f(n)=n+1", r"f(n)=1+n \text{ for all } n \in \mathbb{N}"),
        ("f(n)=n+1", r"f(n)=1+n \text{ for all positive integers } n"),
        ("f(x)=2 x", r"f(x)=2x, \quad x \in \mathbb{R}"), ("f(x)=2 x", r"f(x)=2x \text{ for every real number } x"),
        (r"\frac12", r"1\over 2"), (r"\frac12", r"{1\over 2}"), (r"\frac{x+1}{x-1}", r"{x+1 \over x-1}"),
        (r"3\frac{a}{b}", r"3{a\over b}"), (r"\sqrt{\frac12}", r"\sqrt{1\over2}"), ("(1+x)/2", r"{1+x}\over{2}"),
        (r"(\frac12,3)", r"({1\over2},3)"), (r"\binom{2n}{n}", r"{2n \choose n}"), ("10", r"{5\choose2}"),
        ("20", r"2{5 \choose 2}"), ("10", r"5\choose 3"), ("3, 5", "3 或 5"), ("1,-2", r"x=1 \text{ 或 } x=-2"),
        ("1,-2", "x=1或x=-2"), ("3,5", "3 和 5"), ("3,5", r"3 \text{和} 5"), (r"\text{June 20}", r"\text{June } 20"),
        (r"\text{June 20}", "June 20"), (r"\text{March 3}", r"\text{march }3"), (r"\text{October 30}", "October 30"),
        (r"\text{Friday 13}", r"\text{Friday}\ 13"), ("540", "540cm"), ("20", "20 years old"),
        ("20", r"20 \text{ years old}"), ("3", "3 meters tall"), ("3", r"3\text{ m high}"),
        (r"\$18.90", r"\$18.90 \text{ per pound}"), ("18.90", r"\$18.90 \text{ per pound}"),
        (r"\$5", r"\$5 \text{ per hour}"), (r"\$18.90", r"\$18.90/\text{pound}"), (r"\$2", r"\$2 \text{ each}"),
        (r"m_{\max} = x", "m = x"), (r"m_{\max }=n^{2}", "m=n^2"), (r"x_{\min}=3", "x=3"),
        (r"A_{\text{max}}=2k", "A=2k"), ("(8,-2)", r"\begin{aligned} x&=8\\ y&=-2\end{aligned}"),
        ("(8,-2)", r"\begin{aligned} x &= 8, \\ y &= -2 \end{aligned}"),
        ("(1,2,3)", r"\begin{cases} x=1\\ y=2\\ z=3\end{cases}"),
        ("(8,-2)", r"\begin{align*} x&=8\\ y&=-2\end{align*}"), ("x=8,y=-2", r"\begin{array}{l} x=8\\ y=-2\end{array}"),
        ("(8,-2)", r"\begin{cases} x=8\\ y=-2\end{cases}"), (r"3\log_2 5", r"\log_2 125"),
        (r"3\log_2 5", r"\log_2(125)"), (r"3\log_2 5", r"\log_{2}{125}"), (r"2\log_3 7", r"\log_3 49"),
        (r"\log_{10} 8", r"3\log_{10}2"), (r"3\ln 5", r"\ln 125"), (r"3\log_2 5", r"\log_2 5^3"),
        (r"\log_2 5+1", r"\log_2 10"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1} = \begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"M^{-1}=\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^T=\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\mathbf{v}=\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\mathbf{A}^{-1}=\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"AB=\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    ],
    "cases": [
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x & \text{if } x>0\\ -x & \text{if } x\le 0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}-x, & x\le 0\\ x, & x>0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}x & 0<x\\ -x & 0\ge x\end{cases}"),
        (r"f(x)=\begin{cases}2x & x>0\\ 0 & x\le 0\end{cases}",
         r"\begin{cases}x+x & \text{for } x>0\\ 0 & \text{for } x\le 0\end{cases}"),
        (r"\begin{cases}1 & \text{if } n \text{ is even}\\ 0 & \text{if } n \text{ is odd}\end{cases}",
         r"\begin{cases}1, & n \text{ even},\\ 0, & n \text{ odd}.\end{cases}"),
        (r"\begin{cases}1 & x=0\\ 2 & \text{otherwise}\end{cases}",
         r"\begin{cases}\frac22 & \text{if } x=0\\ 2 & \text{otherwise.}\end{cases}"),
        (r"\begin{cases}1 & x=0\\ 2 & \text{otherwise}\end{cases}",
         r"\begin{cases} 1 & x=0 \\ 2 & \text{otherwise} \\ \end{cases}"),
        (r"\begin{cases}n^2 & \text{if } n>3\\ 1 & \text{else}\end{cases}",
         r"\left\{\begin{array}{ll} n\cdot n & \text{when } n>3\\ 1 & \text{otherwise}\end{array}\right."),
    ],
    "more": [
        (r"\frac{v_0}{r_0}", r"\frac{v_{0}}{r_{0}}"),
        (r"\frac{v_{0}}{r_{0}}\left(1-\frac{1}{2}\right)", r"\frac{v_0}{2r_0}"),
        (r"\frac{a_1+a_2}{b_1}", "(a_1+a_2)/b_1"), (r"\frac{x_1}{x_2}", "x_1/x_2"),
        (r"e^{-t/\tau_1}", r"e^{-t/\tau_{1}}"), (r"\sqrt{2gh_1}", r"\sqrt{2 g h_{1}}"), ("A_1B_2", "B_2A_1"),
        ("-2c_1", "-c_1-c_1"), ("3a_2", "2a_2+a_2"), ("2^{n_1}", "2^{n_{1}}"), (r"\frac{5E_1}{2}", "2.5E_1"),
        ("11011_2", "11011_{2}"), (r"\text{2B}_{16}", "2b_{16}"), ("(2B)_{16}", "2B_{16}"),
        ("25_8", r"25_{\text{eight}}"), ("25_8", r"25\text{ base }8"), ("25_8", "25 base 8"), ("BA_{16}", "BA_{16}"),
        ("b - a", "-a+b"), ("r-s-t", "r-(s+t)"), ("n - 1 - k", "n-k-1"), ("a - b - c", "-c-b+a"), ("st", "ts"),
        ("p q", "qp"), ("k - n", "-(n - k)"), ("x - y", "-y+x"), ("u-v", "-v+u"), ("mn", "nm"), ("rst", "tsr"),
        ("f(x)=2x", r"f(x)=2x \text{ for all real numbers } x"),
        ("f(x)=2x", r"f(x) = 2x\text{ for any }x\in\mathbb{R}"), ("f(x)=2x", r"f(x) = 2x \quad \forall x\in\mathbb{R}"),
        ("f(x)=2x", r"f(x)=2x \text{ for each } x \in \mathbb R"), ("f(x)=2x", r"f(x)=2x \; (x \in \mathbb{R})"),
        ("f(x)=2x", r"f(x)=2x, \forall x \in \mathbb{R}"), ("2x", r"f(x)=2x \text{ for all } x"),
        ("f(x)=2x", r"f(x)=2x\ \text{for all}\ x\in\mathbb{R}"),
        ("f(x)=2 x", r"f(x)=2x \text{ for all } x \in \mathbb{R}."),
        ("f(x)=2x,f(x)=0", r"f(x)=2x \text{ or } f(x)=0 \text{ for all } x \in \mathbb{R}"),
        (r"\frac{\sqrt3}{2}", r"{\sqrt 3\over 2}"), (r"-\frac{1}{2}", r"-{1 \over 2}"),
        (r"\frac{a}{b}+1", r"{a\over b}+1"), (r"\frac{\pi}{4}", r"\pi \over 4"), (r"x=\frac12", r"x={1\over 2}"),
        (r"\frac{\frac12}{3}", r"{{1\over2}\over3}"), (r"\left(\frac12\right)^n", r"\left({1 \over 2}\right)^n"),
        (r"\binom{n}{2}", r"n \choose 2"), (r"\binom{n}{2}", r"{n\choose 2}"),
        (r"\binom{n+1}{2}+1", r"{n+1 \choose 2}+1"), (r"\frac{n(n-1)}{2}", r"{n \choose 2}"),
        ("252", r"{10 \choose 5}"), ("3,5", r"3\text{ 或 }5"), ("3, 5", "3或5"), ("2,-2", "x = 2 或 x = -2"),
        ("1,-2", "x_1=1, x_2=-2"), ("3,5", "3、5"), ("3,5", r"3 \text{或者} 5"), ("3,5", "3 与 5"),
        (r"\text{June 20}", r"\text{June }20"), (r"\text{June 20}", r"\mathrm{June}\ 20"),
        (r"\text{June 20}", r"\textbf{June 20}"), (r"\text{June 20}", "June~20"),
        (r"\text{June 20}", r"\text{June}~20"), (r"\text{June 20}", r"\text{June 20th}"),
        ("20", r"20\text{ years old}"), ("6", r"6\text{ feet tall}"), ("6", "6 feet tall"), ("20", r"20 \text{ years}"),
        ("12", "12 inches long"), (r"\$18.90", r"\$18.90 \text{ per lb}"),
        (r"\$18.90", r"18.90 \text{ dollars per pound}"), ("18.90", r"\$18.90 per pound"),
        (r"\$18.90", "$18.90 per pound"), (r"\$3", r"\$3 \text{/hour}"), (r"\$3", r"\$3.00 \text{ each}"),
        (r"\$18.90", r"\$18.90\text{ per pound}."), ("1.25", r"\$1.25\text{ a pound}"), (r"m_{\max}=x", "m_{max}=x"),
        (r"m_{\max}=x", r"m_{\text{max}}=x"), (r"m_{\max}=n^2-n-1", "m = n^2-n-1"), (r"P_{\min}=2\sqrt2", r"P=\sqrt8"),
        (r"S_{\max}=3", "3"), (r"m_{\max}=x", r"m_{\mathrm{max}}=x"), (r"m_{\max }=n^{2}-n-1", "m=n(n-1)-1"),
        ("(8,-2)", r"\begin{aligned} x&=8\\[2pt] y&=-2\end{aligned}"),
        ("(8,-2)", r"\left\{\begin{aligned} x&=8\\ y&=-2\end{aligned}\right."),
        ("(8,-2)", r"\begin{cases} x=8,\\ y=-2.\end{cases}"),
        ("(8,-2)", r"\left\{\begin{array}{l} x=8\\ y=-2\end{array}\right."),
        ("(8,-2)", r"\begin{aligned} x=8\\ y=-2\end{aligned}"), ("5", r"\begin{aligned} x&=2+3\\ &=5\end{aligned}"),
        ("x=8,y=-2", r"\begin{aligned}x&=8\\y&=-2\end{aligned}"),
        ("(8,-2)", r"\begin{gathered}x=8\\y=-2\end{gathered}"), ("(8,-2)", r"\begin{matrix}x=8\\y=-2\end{matrix}"),
        (r"3\log_2 5", r"\log_2 {125}"), (r"\frac{\log 5}{\log 2}", r"\log_2 5"),
        (r"3\log_2 5", r"\log_2 \left(125\right)"), (r"3\log_{2} 10", r"\log_2 1000"), (r"\log_3 100", r"2\log_3 10"),
        (r"6\log_2 10", r"\log_2 1000000"), (r"\sin^2 100", r"1-\cos^2 100"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\mathbf{M}^{-1} = \begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1} = \left[\begin{array}{cc}1&2\\3&4\end{array}\right]"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{\top}=\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"A^{-1}=\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&\frac42\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\vec{v}=\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"A^{-1}=\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1}=\begin{pmatrix}1&\frac42\\3&4\end{pmatrix}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x, & \text{if }x>0, \\ -x, & \text{if }x\leq 0.\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"f(x)=\begin{cases}x & \text{ if $x>0$}\\ -x & \text{ if $x\le 0$}\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}x & (x>0)\\ -x & (x\le 0)\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x \text{ if } x>0\\ -x \text{ if } x\le 0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x & \mathrm{if}\ x>0\\ -x & \mathrm{if}\ x\le 0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{dcases}x & x>0\\ -x & x\le 0\end{dcases}"),
        (r"\begin{cases}x & 0<x<1\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x,&\text{if }0<x<1\\ -x,&\text{if }x\le 0\end{cases}"),
    ],
}  # fmt: skip
"""Two spellings of one answer."""

OTHERS = {
    "subscripts": [
        ("2a_1", "2A_1"), ("a_1", "A_1"), ("a_1", "a_2"), (r"\frac{v_0}{r_0}", "r_0/v_0"),
        (r"2\sqrt{a_1}", r"\sqrt{4a_2}"), (r"\frac{E_1+2E_2}{3}", "(2E_1+E_2)/3"), ("b_{16}", "B_{16}"),
        ("2B_{16}", "2B_{8}"), ("a_{10}", "a"), ("2a_{10}", "2a"), (r"\sqrt{4a_1}", r"\sqrt{4A_1}"), ("25_8", "21"),
        ("A_{10}", "10"),
    ],
    "letters that are no words": [
        ("p - q", "q - p"), ("p - q", "p q"), ("n-k", "k-n"), ("n-k", "nk"), ("p - q", "P - Q"),
        ("n-k", r"\text{n-k}-1"), ("ab", "aB"), ("xy", "x-y"), ("a-b", "a+b"), (r"\frac34", r"\frac34 = 0.8"),
        (r"\frac34", r"0.8=\frac34"), (r"\frac34", r"\frac34=\frac45"), ("0.8", r"\frac34 = 0.8"), ("5", "5=6"),
        ("x=0.75", r"x=\frac34=0.8"), (r"\sqrt2", r"\sqrt2=1.5"),
    ],
    "forms that models write": [
        ("f(x)=2 x", r"f(x)=3x \text{ for all } x \in \mathbb{R}"), ("f(x)=2 x", r"f(x)=2x \text{ for no } x"),
        ("f(x)=2 x", r"g(x)=2x \text{ for all } x \in \mathbb{R}"), (r"\frac12", r"2\over 1"),
        (r"\frac{x+1}{x-1}", r"{x-1 \over x+1}"), (r"\sqrt{\frac12}", r"\sqrt{2\over1}"),
        (r"\binom{2n}{n}", r"\binom{n}{2n}"), (r"\binom{2n}{n}", r"{n \choose 2n}"), ("10", r"{5\choose 1}"),
        ("3, 5", "3 或 -5"), ("1,-2", r"x=1 \text{ 或 } x=2"), ("3,5", "3 不 5"), ("35", "3 或 5"),
        (r"\text{June 20}", r"\text{June } 21"), (r"\text{June 20}", r"\text{July } 20"), (r"\text{June 20}", "20"),
        ("20", r"\text{June } 20"), ("540", "541m"), ("540", "540k"), ("540", "540x"), ("540", "-540m"),
        ("540", "5.4m"), ("540 m", "540 s"), ("540m", "540n"), ("20", "21 years old"), ("20", "20 years younger"),
        ("20", r"20 \text{ years ago, 5}"), ("20 years old", "20 months old"),
        (r"\$18.90", r"\$18.09 \text{ per pound}"), (r"\$18.90", r"18.90 \text{ pounds per}"),
        (r"\$5", r"\$5 \text{ per cent}"), (r"\$5 \text{ per hour}", r"\$5 \text{ per day}"),
        (r"m_{\max} = x", "n = x"), (r"m_{\max} = x", "m = 2x"), (r"m_{\max} = x", r"m_{\min} = x"),
        ("m_1 = x", "m_2 = x"), ("(8,-2)", r"\begin{aligned} x&=-2\\ y&=8\end{aligned}"),
        ("(8,-2)", r"\begin{aligned} x&=8\\ y&=2\end{aligned}"), ("(8,-2)", r"\begin{cases} x=8\\ x=-2\end{cases}"),
        (r"3\log_2 5", r"(\log_2 5)^3"), (r"3\log_2 5", r"\log_2 15"), (r"3\log_2 5", r"\log_3 125"),
        (r"3\log_2 5", r"\log 125"), (r"3\log_2 5", r"\log_{2.0001} 125"), (r"\log_2 125", r"\log_{21}25"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1} = \begin{pmatrix}1&2\\3&5\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1} = \begin{pmatrix}1&3\\2&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"-A = \begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"2A = \begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    ],
    "cases": [
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}-x & x>0\\ x & x\le 0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x & \text{if } x\le 0\\ -x & \text{if } x>0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}x & x\ge 0\\ -x & x<0\end{cases}"),
        (r"\begin{cases}1 & \text{if } n \text{ is even}\\ 0 & \text{if } n \text{ is odd}\end{cases}",
         r"\begin{cases}0, & n \text{ even},\\ 1, & n \text{ odd}.\end{cases}"),
        (r"\begin{cases}1 & \text{if } n \text{ is even}\\ 0 & \text{if } n \text{ is odd}\end{cases}",
         r"\begin{cases}1, & n \text{ not even},\\ 0, & n \text{ not odd}.\end{cases}"),
        (r"\begin{cases}1 & x=0\\ 2 & \text{otherwise}\end{cases}",
         r"\begin{cases}1 & x\ne 0\\ 2 & \text{otherwise}\end{cases}"),
        (r"\begin{cases}1 & x=0\\ 2 & \text{otherwise}\end{cases}",
         r"\begin{cases}2 & x=0\\ 1 & \text{otherwise}\end{cases}"),
        (r"\begin{cases}1 & x=0\\ 2 & \text{otherwise}\end{cases}", "1, 2"),
        (r"\begin{cases}1 & x=0\\ 2 & \text{otherwise}\end{cases}", r"\begin{cases}1 & x=0\end{cases}"),
        (r"\begin{cases}1 & x=0\\ 2 & x=1\end{cases}", "(1,2)"),
        (r"\begin{cases}1 & x=0\\ 2 & x=1\end{cases}", r"\begin{pmatrix}1&0\\2&1\end{pmatrix}"),
    ],
    "more": [
        (r"\frac{v_0}{r_0}", r"\frac{v_0}{r_1}"), ("3a_2", "3A_2"), ("5b_{12}", "5"), ("a-b", "b-a"), ("p - q", "p+q"),
        ("p q", "p-q"), (r"\frac34=0.8", "0.75"), (r"\frac34", r"\frac{3}{4} \approx 0.8"), ("0.75", r"\frac34=0.7"),
        (r"\frac13", r"\frac13=0.3"), (r"\frac23", r"\frac23=\frac34"), ("5", "2+2=5"), (r"\pi", r"\pi=3"),
        (r"\pi", r"\pi=\frac{22}{7}"), ("f(x)=2x", r"f(x)=2x \text{ for some } x"),
        ("f(x)=2x", r"f(x)=2x \text{ unless } x=1"), ("f(x)=2x", r"f(x)=2x \text{ for all } x \ne 0 , f(0)=1"),
        ("2x", r"f(x)=x \text{ for all } x\in\mathbb{R}"), (r"\frac{a}{b}+1", r"{a\over b+1}"),
        (r"\binom{n}{2}", r"{2\choose n}"), (r"\frac{1}{2}x", r"1\over 2x"), ("3,5", "3 或 5 或 7"), ("3", "3或5"),
        ("35", "3或5"), ("5", "5或以上"), ("8", "3和5"), (r"\text{June 20}", r"\text{June 2}"),
        (r"\text{June 20}", r"\text{Jun 20}x"), ("June 20", "20 June 1"), ("540", "540mm^2 x"), ("540", "54m"),
        ("540", "540m^2+1"), ("5", "5s+1"), ("s", "1"), (r"540\text{ cm}", "540m"), ("20 years old", "20 weeks old"),
        ("20", "20 years older than 5"), ("20", r"20 \text{ years old, 5 months}"),
        (r"\$18.90", r"\$18.90 \text{ per pound minus 1}"), (r"\$18.90", r"\$18.90 \text{ thousand}"),
        (r"\$5\text{ per hour}", r"\$5\text{ per minute}"), ("5 m", "5 m/s"), ("5 km", "5 km per hour"),
        (r"m_{\max}=x", "M=x"), (r"m_{\max}=3", r"m_{\min}=3"), ("x_0=3", "x=4"),
        ("(8,-2)", r"\begin{aligned} x&=8\\ y&=-2\\ z&=1\end{aligned}"),
        ("(8,-2)", r"\begin{aligned} x&=8\end{aligned}"), ("8", r"\begin{aligned} x&=8\\ y&=-2\end{aligned}"),
        ("(8,-2)", r"\begin{aligned} y&=8\\ x&=-2\end{aligned}"), (r"3\log_2 5", r"\log_{21} 25"),
        (r"3\log_2 5", r"\log_2 1255"), (r"3\log_2 5", r"3+\log_2 5"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1} = 2\begin{pmatrix}1&2\\3&4\end{pmatrix}"), ("5", "x^{-1}=5"),
        ("5", "A^{-1}=5"), (r"A=\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"A^{-1}=\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("x^2=4", "4"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}x & x>0\\ -x & x<0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}",
         r"\begin{cases}x & x>0\\ -x & x\le 0 \\ 1 & x=0\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}x>0 & x\\ x\le 0 & -x\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", r"\begin{cases}x & y>0\\ -x & y\le 0\end{cases}"),
        (r"\begin{cases}1 & \text{if } n \text{ is even}\\ 0 & \text{if } n \text{ is odd}\end{cases}",
         r"\begin{cases}1 & \text{if } n \text{ is not even}\\ 0 & \text{if } n \text{ is not odd}\end{cases}"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", "x"),
        (r"\begin{cases}x & x>0\\ -x & x\le 0\end{cases}", "x,-x"),
    ],
}  # fmt: skip
"""Answers that differ."""

NUMBERS_WITH_A_LETTER = [("540", "540m"), ("540", "540 m"), ("3.5", "3.5m"), ("540", "540g"), ("12", "12 s")]


def _rows(table: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [row for rows in table.values() for row in rows]


@pytest.mark.parametrize(("gold", "answer"), _rows(SAME))
def test_two_spellings_are_one_answer(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).correct
    assert grader.grade(rf"\boxed{{{gold}}}", answer).correct


@pytest.mark.parametrize(("gold", "answer"), _rows(OTHERS))
def test_another_answer_is_refused(gold: str, answer: str, grader: Grader) -> None:
    assert not grader.grade(rf"\boxed{{{answer}}}", gold).correct
    assert not grader.grade(rf"\boxed{{{gold}}}", answer).correct


@pytest.mark.parametrize(("gold", "answer"), NUMBERS_WITH_A_LETTER)
def test_a_letter_is_a_unit_beside_a_number(gold: str, answer: str, grader: Grader) -> None:
    """Only in an answer: the gold `2m` is a product."""
    assert grader.grade(rf"\boxed{{{answer}}}", gold).correct
    assert not grader.grade(rf"\boxed{{{gold}}}", answer).correct
