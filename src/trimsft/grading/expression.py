r"""Read one LaTeX or code-like expression: text to tokens to a tree of plain tuples.

    >>> read(r"3\sqrt{x}")
    ('mul', ('num', Fraction(3, 1)), ('call', 'sqrt', ('sym', 'x')))
    >>> read("0.25")  # a decimal carries the worth of its last digit
    ('num', Fraction(1, 4), Fraction(1, 100))

Nothing is computed here. `Unreadable` is raised for notation that is not understood.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

Tree: TypeAlias = tuple[Any, ...]

MAX_TOKENS = 600
MAX_DIGITS = 400
MAX_EXPONENT = 4_000
MAX_TREE_DEPTH = 150


class Unreadable(Exception):
    """The notation is unknown here, or the text is past the limits."""


_TOKEN = re.compile(
    r"\s+|(?:np|math)\.(?=[a-z])|\\[A-Za-z]+|\\."
    r"|(?:\d+(?:\.\d+|\.(?=[/)}*]))?|\.\d+)(?:[eE][+-]?\d{1,6}(?![\d.]))?|[A-Za-z]+|.",
    re.DOTALL,
)
_NAMES = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp ln log sqrt gcd lcm max min abs floor"
_FUNCTIONS = {name: name for name in _NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log10",
}  # fmt: skip
_WORDS = {"infinity": "\\infty", "inf": "\\infty", "oo": "\\infty", "pi": "\\pi"}
_CLOSERS = {
    "(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "|": "|",
}  # fmt: skip
_ROUNDED = {"\\lfloor": "floor", "\\lceil": "ceil", "|": "abs"}
GREEK = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega
Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
"""
_OTHER_SYMBOLS = "hbar ell infty emptyset odot mho angle triangle"
_SYMBOLS = {"\\" + name for name in (GREEK + _OTHER_SYMBOLS).split()}
_DECORATIONS = "text dot ddot hat bar vec tilde overline underline mathbb mathcal"
_ACCENTS = {"\\" + name for name in _DECORATIONS.split()}
_OPAQUE = set("fghFGH")
"""Letters that a bracket after them makes the names of unknown functions."""
_PLAIN_FRACTION = re.compile(r"\\frac(?:\{\d+\}|\d)(?:\{\d+\}|\d)")
_DEGREE: Tree = ("div", ("sym", "\\pi"), ("num", Fraction(180)))
_STOPS = r"+ - * / ^ _ ! ' | = < > : ; , % & ) ] } \} \rfloor \rceil \cdot \times \over \choose"
_NO_FACTOR = {"", *_STOPS.split()}
"""Tokens that cannot begin a factor without a sign; the empty one is the end."""


def read(text: str) -> Tree:
    """Return the tree of a whole expression."""
    reader = _Reader(text)
    tree = reader.fraction()
    if reader.peek():
        raise Unreadable(f"unexpected {reader.peek()}")
    level = [tree]
    for _ in range(MAX_TREE_DEPTH):
        level = [child for node in level for child in node if isinstance(child, tuple)]
    if level:
        raise Unreadable("nested too deeply")
    return tree


class _Reader:
    """Read by recursive descent; `MAX_DEPTH` of `clean` keeps the recursion shallow."""

    def __init__(self, text: str) -> None:
        self.at = 0
        self.tokens: list[str] = []  # without spacing; other letters than of functions stand alone
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token[0].isdecimal() and sum(c.isdecimal() for c in token) > MAX_DIGITS:
                raise Unreadable("too many digits")
            if token in _FUNCTIONS:
                self.tokens.append("\\" + token)
            elif token in _WORDS:
                self.tokens.append(_WORDS[token])
            elif token.isalpha():
                self.tokens.extend(token)
            elif not token.isspace() and not token.startswith(("np.", "math.")):
                self.tokens.append(token)
            if len(self.tokens) > MAX_TOKENS:
                raise Unreadable("too many tokens")

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise Unreadable(f"expected {expected or 'more'}, got {token or 'the end'}")
        self.at += 1
        return token

    def fraction(self) -> Tree:
        r"""Read a sum, or two of them with `\over` or `\choose` in between."""
        above = self.sum()
        if self.peek() not in ("\\over", "\\choose"):
            return above
        is_fraction = self.take() == "\\over"
        return ("div", above, self.sum()) if is_fraction else ("call", "binom", above, self.sum())

    def sum(self) -> Tree:
        terms = [self.signed(self.product)]
        while self.peek() in ("+", "-"):
            terms.append(self.signed(self.product))
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def signed(self, read_unsigned: Callable[[], Tree]) -> Tree:
        is_negative = False
        while self.peek() in ("+", "-"):
            is_negative ^= self.take() == "-"
        tree = read_unsigned()
        return ("neg", tree) if is_negative else tree

    def product(self) -> Tree:
        whole = self.peek()
        if whole.isdecimal() and _PLAIN_FRACTION.match("".join(self.tokens[self.at + 1 : self.at + 8])):
            self.take()  # a mixed number, 1\frac{2}{3}
            tree: Tree = ("add", ("num", Fraction(int(whole))), self.power())
        else:
            tree = self.power()
        while True:
            token = self.peek()
            if token in ("\\cdot", "\\times", "*", "/"):
                self.take()
                tree = ("div" if token == "/" else "mul", tree, self.signed(self.power))
            elif token in _NO_FACTOR:
                return tree
            elif token[-1].isdecimal() and self.tokens[self.at - 1][-1].isdecimal():
                raise Unreadable("two numbers side by side are no product")
            else:
                tree = ("mul", tree, self.power())

    def power(self) -> Tree:
        tree = self.postfix(self.atom())
        while self.peek() == "^":
            self.take()
            if self.tokens[self.at : self.at + 3] == ["{", "\\circ", "}"] or self.peek() == "\\circ":
                self.at += 3 if self.peek() == "{" else 1
                tree = ("mul", tree, _DEGREE)
            else:
                tree = self.postfix(("pow", tree, self.argument()))
        return tree

    def postfix(self, tree: Tree) -> Tree:
        while self.peek() == "!":
            self.take()
            tree = ("call", "factorial", tree)
        if self.peek() == "%":
            self.take()
            tree = ("div", tree, ("num", Fraction(100)))
        return tree

    def argument(self) -> Tree:
        """Read what a root or `^` takes without braces: 2^10 is meant as 2^{10}."""
        return self.signed(self.atom) if self.peek() == "-" else self.atom()  # x^-2, as code writes it

    def digit(self) -> Tree:
        r"""Read what \frac takes without braces: one digit, one letter, one command."""
        token = self.peek()
        if token.isdecimal() and len(token) > 1:
            self.tokens[self.at] = token[1:]
            return ("num", Fraction(int(token[0])))
        return self.argument()

    def group(self) -> Tree:
        opener = self.take()
        tree = self.fraction() if opener == "{" else self.sum()
        self.take(_CLOSERS[opener])
        return tree

    def atom(self) -> Tree:
        token = self.peek()
        if token in ("(", "[", "{", "\\{"):
            return self.group()
        if token in _ROUNDED:
            return ("call", _ROUNDED[token], self.group())
        if token[:1].isdecimal() or (token[:1] == "." and len(token) > 1):
            return self.number()
        if token in ("\\frac", "\\binom"):
            self.take()
            parts = self.digit(), self.digit()
            return ("div", *parts) if token == "\\frac" else ("call", "binom", *parts)
        if token.startswith("\\") and token[1:] in _FUNCTIONS:
            return self.function()
        return self.symbol()

    def number(self) -> Tree:
        token = self.take()
        digits, _, exponent = token.lower().partition("e")
        if abs(int(exponent or 0)) > MAX_EXPONENT:
            raise Unreadable("exponent of a decimal")
        value, places = Fraction(token), len(digits.partition(".")[2])
        if self.peek(self.peek() == ".") == "\\overline":  # 0.1\overline{6}
            self.at += 1 + (self.peek() == ".")
            period = self.raw()
            if not period.isdecimal():
                raise Unreadable("overline over no digits")
            return ("num", value + Fraction(int(period), (10 ** len(period) - 1) * 10**places))
        if self.peek() == "_":
            self.take()
            return ("sym", f"{token}_{self.raw()}")  # a numeral in another base is compared as written
        last_digit = Fraction(10) ** (int(exponent or 0) - places)
        return ("num", value) if token.isdecimal() else ("num", value, last_digit)

    def function(self) -> Tree:
        name = _FUNCTIONS[self.take()[1:]]
        if name == "sqrt":
            if self.peek() != "[":
                return ("call", "sqrt", self.argument())
            degree = self.group()
            return ("call", "root", self.argument(), degree)
        marks: dict[str, Tree] = {}
        for sign in ("_", "^"):
            if self.peek() == sign:
                self.take()
                marks[sign] = self.argument()
        arguments = self.arguments() if self.peek() in ("(", "{", "[", "\\{") else [self.factors()]
        tree: Tree = ("call", "logbase", marks["_"], *arguments) if "_" in marks else ("call", name, *arguments)
        if marks.get("^") == ("neg", ("num", Fraction(1))) and name in ("sin", "cos", "tan"):
            return ("call", "arc" + name, *arguments)
        return ("pow", tree, marks["^"]) if "^" in marks else tree

    def factors(self) -> Tree:
        r"""Read what a function without brackets applies to: all of \sin 2x."""
        tree = self.power()
        while self.peek() not in _NO_FACTOR and self.peek()[1:] not in _FUNCTIONS:
            tree = ("mul", tree, self.power())
        return tree

    def arguments(self) -> list[Tree]:
        closer = _CLOSERS[self.take()]
        arguments = [self.sum()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum())
        self.take(closer)
        return arguments

    def symbol(self) -> Tree:
        name = self.take()
        if name in _ACCENTS:
            name += self.raw()
        elif name not in _SYMBOLS and not (len(name) == 1 and name.isalpha()):
            raise Unreadable(f"unknown {name}")
        if self.peek() == "_":
            self.take()
            name += "_" + self.raw()
        while self.peek() == "'" or self.tokens[self.at : self.at + 4] == ["^", "{", "'", "}"]:
            self.at += 1 if self.peek() == "'" else 4
            name += "'"
        at_number = self.peek(1).isdecimal() and self.peek(2) == ")"
        if self.peek() == "(" and not name[1:2].isalpha() and (name[0] in _OPAQUE or at_number):
            return ("fn", name, *self.arguments())
        return ("sym", name)

    def raw(self) -> str:
        """Read a braced group or one token as a name."""
        if self.peek() != "{":
            return self.take()  # 52_16 is meant as base 16, whatever TeX would set
        parts: list[str] = []
        depth = 0
        while True:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return "".join(parts)
            if token not in ("{", "}", "\\text"):
                parts.append(token)
