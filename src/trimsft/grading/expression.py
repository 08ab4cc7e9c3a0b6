r"""Reading one LaTeX or code-like expression: text to tokens to a tree of plain tuples.

    >>> read(r"3\sqrt{x}")
    ('mul', ('num', Fraction(3, 1)), ('call', 'sqrt', ('sym', 'x')))
    >>> read("0.25")  # a decimal carries the worth of its last digit
    ('num', Fraction(1, 4), Fraction(1, 100))

Nothing is computed here. What is not understood raises `Unreadable` and is left to math-verify.
"""

import re
from fractions import Fraction
from typing import Any, TypeAlias

Tree: TypeAlias = tuple[Any, ...]

MAX_TOKENS = 600
MAX_DIGITS = 400
MAX_EXPONENT = 4_000
MAX_TREE_DEPTH = 150


class Unreadable(Exception):
    """This reader does not know the notation, or the text is past its limits."""


_TOKEN = re.compile(
    r"\s+|\\[A-Za-z]+|\\.|\d+(?:\.\d+)?(?:[eE][+-]?\d{1,6}(?![\d.]))?|\.\d+(?:[eE][+-]?\d{1,6})?|[A-Za-z]+|.", re.DOTALL
)
_NAMES = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp ln log sqrt gcd lcm max min"
_FUNCTIONS = {name: name for name in _NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log10", "abs": "abs", "floor": "floor",
}  # fmt: skip
_CLOSERS = {
    "(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "|": "|",
}  # fmt: skip
_SYMBOLS = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega
Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega hbar ell infty emptyset odot mho angle triangle
"""
_GREEK = frozenset(_SYMBOLS.split())
_DECORATIONS = "dot ddot hat bar vec tilde overline underline mathbb mathcal"
_ACCENTS = {"\\" + name for name in _DECORATIONS.split()}
_OPAQUE = set("fghFGH")
_PLAIN_FRACTION = re.compile(r"\\frac(?:\{\d+\}|\d)(?:\{\d+\}|\d)")
_DEGREE: Tree = ("div", ("sym", "\\pi"), ("num", Fraction(180)))
_STOPS = {
    "\\over",
    "\\choose",
    "+",
    "-",
    ")",
    "]",
    "}",
    "\\}",
    "\\rfloor",
    "\\rceil",
    ",",
    "/",
    "\\cdot",
    "\\times",
    "*",
}


def read(text: str) -> Tree:
    """The tree of a whole expression."""
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


def _last_digit(decimal: str) -> Fraction:
    """What one more in the last digit of a decimal is worth."""
    digits, _, exponent = decimal.lower().partition("e")
    return Fraction(10) ** (int(exponent or 0) - len(digits.partition(".")[2]))


def _tokens_of(text: str) -> list[str]:
    """Tokens without spacing; runs of letters are cut into function names and single letters."""
    tokens: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token.isspace():
            continue
        if token[0].isdecimal() and sum(c.isdecimal() for c in token) > MAX_DIGITS:
            raise Unreadable("too many digits")
        tokens.extend(_letters(token) if token[0].isalpha() else [token])
        if len(tokens) > MAX_TOKENS:
            raise Unreadable("too many tokens")
    return tokens


def _letters(run: str) -> list[str]:
    if run in _FUNCTIONS or run == "pi":
        return ["\\" + run]
    if run == "np" or run == "math":
        return ["np"]
    if run in ("infinity", "inf", "oo"):
        return ["\\infty"]
    return list(run)


class _Reader:
    """Recursive descent; `MAX_DEPTH` of `normalize` keeps the recursion shallow."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens_of(text)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise Unreadable(f"expected {expected or 'more'}, found {token or 'the end'}")
        self.at += 1
        return token

    def sum(self) -> Tree:
        terms = [self.signed()]
        while self.peek() in ("+", "-"):
            terms.append(self.signed())
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def fraction(self) -> Tree:
        r"""All of a group: a sum, or two of them with `\over` or `\choose` in between."""
        above = self.sum()
        if self.peek() not in ("\\over", "\\choose"):
            return above
        is_fraction = self.take() == "\\over"
        return ("div", above, self.sum()) if is_fraction else ("call", "binom", above, self.sum())

    def signed(self) -> Tree:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take() == "-"
        term = self.product()
        return ("neg", term) if negative else term

    def product(self) -> Tree:
        tree = self.mixed() or self.power()
        while True:
            token = self.peek()
            if token in ("\\cdot", "\\times", "*"):
                self.take()
                tree = ("mul", tree, self.operand())
            elif token == "/":
                self.take()
                tree = ("div", tree, self.operand())
            elif token and self.starts_factor(token):
                if token[-1].isdecimal() and self.tokens[self.at - 1][-1].isdecimal():
                    raise Unreadable("two numbers side by side are no product")
                tree = ("mul", tree, self.power())
            else:
                return tree

    def operand(self) -> Tree:
        if self.peek() in ("+", "-"):
            sign = self.take()
            return ("neg", self.operand()) if sign == "-" else self.operand()
        return self.power()

    def starts_factor(self, token: str) -> bool:
        return token not in _STOPS and token not in ("^", "_", "!", "'", "|", "=", "<", ">", ":", ";", "%", "&")

    def mixed(self) -> Tree | None:
        r"""`1\frac{2}{3}` and nothing else."""
        whole, rest = self.peek(), self.tokens[self.at + 1 : self.at + 8]
        if not whole.isdecimal() or not _PLAIN_FRACTION.match("".join(rest)):
            return None
        self.take()
        return ("add", ("num", Fraction(int(whole))), self.power())

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
        """What a root or `^` takes without braces: one number, one letter, one command. Nobody means 2 0 by 2^10."""
        token = self.peek()
        if token == "{":
            return self.group()
        if token == "-":  # x^-2, as code writes it
            self.take()
            return ("neg", self.argument())
        return self.atom()

    def digit(self) -> Tree:
        r"""What \frac takes without braces: one digit, one letter, one command."""
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
        if token in ("\\lfloor", "\\lceil", "|"):
            return ("call", {"\\lfloor": "floor", "\\lceil": "ceil", "|": "abs"}[token], self.group())
        if token[:1].isdecimal() or (token[:1] == "." and len(token) > 1):
            return self.number()
        if token == "\\frac":
            self.take()
            return ("div", self.digit(), self.digit())
        if token == "\\binom":
            self.take()
            return ("call", "binom", self.digit(), self.digit())
        if token in ("\\sum", "\\prod"):
            return self.series()
        if token == "np" and self.peek(1) == ".":
            self.at += 2
            return self.atom()
        if token.startswith("\\") and token[1:] in _FUNCTIONS:
            return self.function()
        return self.symbol()

    def series(self) -> Tree:
        r"""`\sum_{k=1}^{n} k^2`: the bound letter, both bounds, and one term."""
        kind = self.take()[1:]
        self.take("_")
        self.take("{")
        name = self.name()
        self.take("=")
        low = self.sum()
        self.take("}")
        self.take("^")
        high = self.argument()
        if high == ("sym", "\\infty"):
            raise Unreadable("a series without end")
        return (kind, name, low, high, self.product())

    def number(self) -> Tree:
        token = self.take()
        if abs(int(re.split("[eE]", token)[-1] if "e" in token.lower() else 0)) > MAX_EXPONENT:
            raise Unreadable("exponent of a decimal")
        value = Fraction(token)
        if self.peek() == "." and self.peek(1) in ("", "/", ")", "}", "*"):
            self.take()  # -1./3, as code writes it
        if self.peek() == "\\overline" or (self.peek() == "." and self.peek(1) == "\\overline"):
            self.at += self.peek() == "."
            return self.repeating(token, value)
        if self.peek() == "_":
            return ("sym", f"{token}_{self.subscript()}")  # a numeral in another base is compared as written
        return ("num", value) if token.isdecimal() else ("num", value, _last_digit(token))

    def repeating(self, token: str, value: Fraction) -> Tree:
        self.take("\\overline")
        self.take("{")
        digits = self.take()
        self.take("}")
        if not digits.isdecimal():
            raise Unreadable("overline over no digits")
        places = len(token.partition(".")[2])
        return ("num", value + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places))

    def function(self) -> Tree:
        name = _FUNCTIONS[self.take()[1:]]
        if name == "sqrt":
            return self.root()
        base, exponent = self.mark("_"), self.mark("^")
        arguments = self.arguments()
        tree: Tree = ("call", name, *arguments) if base is None else ("call", "logbase", base, *arguments)
        if exponent == ("neg", ("num", Fraction(1))) and name in ("sin", "cos", "tan"):
            return ("call", "arc" + name, *arguments)
        return tree if exponent is None else ("pow", tree, exponent)

    def mark(self, sign: str) -> Tree | None:
        """The base or the exponent of a function, where it has one."""
        if self.peek() != sign:
            return None
        self.take()
        return self.argument()

    def root(self) -> Tree:
        if self.peek() != "[":
            return ("call", "sqrt", self.argument())
        self.take()
        degree = self.sum()
        self.take("]")
        return ("call", "root", self.argument(), degree)

    def arguments(self) -> list[Tree]:
        if self.peek() in ("(", "{", "[", "\\{"):
            return self.listed()
        factors = self.power()
        while (token := self.peek()) and self.starts_factor(token) and token[1:] not in _FUNCTIONS:
            factors = ("mul", factors, self.power())
        return [factors]

    def listed(self) -> list[Tree]:
        closer = _CLOSERS[self.take()]
        arguments = [self.sum()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum())
        self.take(closer)
        return arguments

    def symbol(self) -> Tree:
        name = self.name()
        if self.peek() == "_":
            name += "_" + self.subscript()
        while self.peek() == "'" or self.tokens[self.at : self.at + 4] == ["^", "{", "'", "}"]:
            self.at += 1 if self.peek() == "'" else 4
            name += "'"
        at_number = self.peek(1).isdecimal() and self.peek(2) == ")"
        if self.peek() == "(" and not name[1:2].isalpha() and (name[0] in _OPAQUE or at_number):
            return ("fn", name, *self.listed())
        return ("sym", name)

    def name(self) -> str:
        token = self.take()
        if token.isalpha() and len(token) == 1:
            return token
        if token == "\\text" or token in _ACCENTS:
            return token + self.raw()
        if token == "\\pi" or token[1:] in _GREEK:
            return token
        raise Unreadable(f"unknown {token}")

    def subscript(self) -> str:
        self.take("_")
        return self.raw()

    def raw(self) -> str:
        """The text of a braced group or of one token, as a name."""
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
