"""Evaluate an expression's tree: exactly where it is rational, else to 150 digits or more, at sample points.

Two expressions are equal when they agree wherever they are sampled. Symbols take random values, the
same for the same name, so this decides identities without rewriting anything. An evaluation notes how far the
sizes of its values reach; what reaches far (`e^{100}+1`) is evaluated again with as many more bits. What lies
within rounding of an integer is that integer, so that `\\sin\\pi` is 0, and `\\tan 90^\\circ` has no value. What is
expensive (towers of powers, factorials of large numbers) raises `TooLarge` before it is computed.
"""

import functools
import hashlib
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from mpmath.ctx_mp import MPContext

from trimsft.grading.expression import Tree

Value: TypeAlias = Any  # Fraction, mpf or mpc

MP = MPContext()
PRECISION = 800  # bits
MP.prec = PRECISION
_LOCK = threading.RLock()  # mpmath changes the precision of its context while it computes
_GUARD = 128  # bits that rounding may cost, apart from what sizes cost
_MOST_PASSES = 3
MAX_BITS = 20_000
MAX_PRECISION = 12_000
MAX_FACTORIAL = 2_050
FUEL = 40_000  # operations per comparison of two answers; large rationals cost more
_FUEL_LEFT: ContextVar[list[int]] = ContextVar("left")


class TooLarge(Exception):
    """The value is past what is computed here."""


class Undefined(Exception):
    """There is no value at this point: a division by zero, a logarithm of zero."""


@contextmanager
def computing(precision: int) -> Iterator[None]:
    """Work with `precision` bits, one thread at a time."""
    with _LOCK, MP.workprec(precision):
        yield


@contextmanager
def one_comparison() -> Iterator[None]:
    """Bound all evaluations of a comparison together."""
    token = _FUEL_LEFT.set([FUEL])
    try:
        yield
    finally:
        _FUEL_LEFT.reset(token)


def evaluate(
    *trees: Tree, point: int = 0, kind: str = "positive", known: Mapping[str, Fraction] | None = None
) -> tuple[list[Value], int]:
    """Return the values at one sample point, and the bits that were enough to tell them apart."""
    precision = PRECISION
    for _ in range(_MOST_PASSES):
        at, values, undefined = _Evaluation(point, kind, precision, known or {}), [], None
        try:
            values = [at(tree) for tree in trees]
        except Undefined as error:
            undefined = error  # perhaps for want of bits
        needed = 4 * _GUARD + 4 * at.reach
        if at.is_exact or needed <= precision:
            if undefined is not None:
                raise undefined
            return values, precision
        precision = needed
        if precision > MAX_PRECISION:
            break
    raise TooLarge("more digits than are computed")


@dataclass
class _Evaluation:
    """Evaluate trees at one sample point."""

    point: int
    kind: str
    precision: int
    known: Mapping[str, Fraction]  # values of letters
    is_exact: bool = True
    reach: int = 0  # largest binary exponent seen, of either sign
    fuel: list[int] = field(default_factory=lambda: _FUEL_LEFT.get([FUEL]))

    def __call__(self, tree: Tree) -> Value:
        try:
            with computing(self.precision):
                return self._value(tree)
        except RecursionError as error:
            raise TooLarge("nested too deeply") from error
        except (ZeroDivisionError, ValueError, ArithmeticError, TypeError) as error:
            # TypeError: complex numbers have no order
            raise Undefined(str(error)) from error

    def _value(self, tree: Tree) -> Value:
        kind = tree[0]
        if kind == "num":
            return tree[1]
        if kind == "sym":
            return self._symbol(tree[1])
        name = tree[1] if kind in ("call", "fn") else kind
        if name in _REWRITTEN:
            return self._value(_REWRITTEN[name](*tree[2:]))
        arguments = [self._value(child) for child in tree[1:] if isinstance(child, tuple)]
        is_transcendental = kind == "call" or (kind == "pow" and not _is_integer(arguments[1]))
        bits = sum(v.numerator.bit_length() + v.denominator.bit_length() for v in arguments if _exact(v))
        self.fuel[0] -= 1 + bits // 500 + (12 * self.precision**2 // PRECISION**2 if is_transcendental else 0)
        if self.fuel[0] < 0:
            raise TooLarge("too many operations")
        self._note(*arguments)
        if kind == "fn":
            digits = self.precision // 7  # half of them
            return self._random(name + "".join(MP.nstr(MP.mpmathify(inexact(v)), digits) for v in arguments))
        is_exact = all(map(_exact, arguments))
        is_whole = is_exact or name in ("pow", "root")  # a power knows how exact its exponent is
        value = _OPERATIONS[name](*(arguments if is_whole else map(inexact, arguments)))
        if not _exact(value) and not MP.isfinite(value):
            raise Undefined("not finite")
        if value and _size(value) > MAX_BITS:
            raise TooLarge("more digits than are kept")
        self.is_exact &= _exact(value) and is_exact
        if kind in ("mul", "div", "pow"):
            self._note(value)  # no zero is left over here: what is small is meant
        value = _without_residue(value)
        self._note(value)
        return value

    def _note(self, *values: Value) -> None:
        """Note how far from 1 the sizes of values are."""
        self.reach = max(self.reach, *map(_size, filter(None, values)), 0)

    def _symbol(self, name: str) -> Value:
        if name in self.known:
            return self.known[name]
        if name in _CONSTANTS:
            return +_CONSTANTS[name]
        if self.kind == "integer":  # each of 2 to 41 once, in an order that depends on the name
            return Fraction(2 + (self.point + hashlib.sha256(name.encode()).digest()[0]) * 7 % 40)
        value = self._random(name)
        negative = self.kind == "mixed" and self._random(name + "-") > 1
        return -value if negative else value

    def _random(self, name: str) -> Value:
        """Return a number in [0.3, 2.3) that depends on the name and the point alone."""
        digest = hashlib.sha256(f"{self.point}:{name}".encode()).digest()[:16]
        return MP.mpf(3) / 10 + 2 * MP.ldexp(int.from_bytes(digest, "big"), -128)


_CONSTANTS = {"\\pi": MP.pi, "e": MP.e, "i": MP.mpc(0, 1), "\\texte": MP.e, "\\texti": MP.mpc(0, 1)}


def _exact(value: Value) -> bool:
    return isinstance(value, Fraction)


def _is_integer(value: Value) -> bool:
    return _exact(value) and value.denominator == 1


def _size(value: Value) -> int:
    """Return how many bits a number has, or how far its exponent is from 0."""
    parts = (value.numerator, value.denominator) if _exact(value) else ()
    return max(part.bit_length() for part in parts) if parts else abs(int(MP.mag(value)))


def inexact(value: Value) -> Value:
    """Return the value as a float of mpmath, to the precision of the moment."""
    return MP.mpf(value.numerator) / value.denominator if _exact(value) else value


def _without_residue(value: Value) -> Value:
    """Return the integer that a value is but for rounding: 0 for sin(pi), 3 for log_2 8."""
    if _exact(value):
        return value
    if (imaginary := MP.im(value)) != 0:
        parts = _without_residue(MP.re(value)), _without_residue(imaginary)
        return MP.mpc(*map(inexact, parts)) if parts[1] else parts[0]
    value = MP.re(value)
    if value and MP.mag(value) > MP.prec // 4:
        return value
    nearest = MP.nint(value)
    return Fraction(int(nearest)) if abs(value - nearest) <= _rounding() else value


def _rounding() -> Value:
    """Return how far apart rounding may set numbers of size 1: half of the bits."""
    return MP.ldexp(1, -MP.prec // 2 - _GUARD)


def close(first: Value, second: Value, precision: int, relative: float = 0.0, absolute: float = 0.0) -> bool:
    """Return whether two values are equal, relative to their size or within `absolute`."""
    if _exact(first) and _exact(second):
        allowed = max(Fraction(repr(relative)) * max(abs(first), abs(second)), Fraction(repr(absolute)))
        return bool(abs(first - second) <= allowed)
    with computing(precision):
        first, second = inexact(first), inexact(second)
        size = max(abs(first), abs(second))
        return bool(abs(first - second) <= max(MP.mpf(relative) * size, absolute, _rounding() * size))


# ---- operations and functions


def _power(base: Value, exponent: Value) -> Value:
    if _is_integer(exponent) and _exact(base):
        if base not in (0, 1, -1) and _size(base) * (abs(exponent) - 1) > MAX_BITS:
            raise TooLarge("power")
        return base ** int(exponent % 2 if base in (1, -1) else exponent)
    base, power = inexact(base), inexact(exponent)
    if base == 0:
        return Fraction(0) if MP.re(power) > 0 else 1 / base
    if abs(power) * (abs(MP.log(abs(base))) + 7) > MAX_BITS:
        raise TooLarge("power")
    if _exact(exponent) and exponent.denominator % 2 and exponent.denominator > 1 and MP.im(base) == 0 and base < 0:
        return (-1) ** exponent.numerator * MP.power(-base, power)  # x^{2/3} is real, as a root is
    return MP.power(base, power)


def _log(value: Value, base: Value | None = None) -> Value:
    value = inexact(value)
    if MP.im(value) == 0 and MP.re(value) <= 0:
        raise Undefined("logarithm of a negative number, or zero")  # so that ln(ab) = ln(a) + ln(b)
    return MP.log(value) if base is None else MP.log(value) / MP.log(inexact(base))


def _floor(value: Value) -> Value:
    return Fraction(math.floor(value) if _exact(value) else int(MP.floor(value)))


def _integers(function: Callable[..., int], most: float = math.inf) -> Callable[..., Value]:
    """Apply a function to integers alone: gamma functions take minutes to many digits."""

    def apply(*values: Value) -> Value:
        if not all(map(_is_integer, values)) or max(values) > most:
            raise TooLarge("no small integers")
        return Fraction(function(*map(int, values)))

    return apply


_REAL = {"sin": MP.sin, "cos": MP.cos, "arcsin": MP.asin, "arccos": MP.acos, "arctan": MP.atan}
_REAL |= {"sinh": MP.sinh, "cosh": MP.cosh}
_OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": lambda *values: functools.reduce(operator.add, values),
    "neg": operator.neg, "mul": operator.mul, "div": operator.truediv, "pow": _power,
    **{name: lambda v, function=function: function(inexact(v)) for name, function in _REAL.items()},
    "ln": _log, "log": _log, "log10": lambda v: _log(v, Fraction(10)), "logbase": lambda base, v: _log(v, base),
    "sqrt": lambda v: _power(v, Fraction(1, 2)), "root": lambda v, degree: _power(v, 1 / degree),
    "abs": abs, "floor": _floor,
    "factorial": _integers(math.factorial, MAX_FACTORIAL), "binom": _integers(math.comb, MAX_FACTORIAL),
    "gcd": _integers(math.gcd), "lcm": _integers(math.lcm),
    "max": lambda *values: max(values), "min": lambda *values: min(values),
}  # fmt: skip


_REWRITTEN: dict[str, Callable[[Tree], Tree]] = {
    "tan": lambda x: ("div", ("call", "sin", x), ("call", "cos", x)),
    "cot": lambda x: ("div", ("call", "cos", x), ("call", "sin", x)),
    "sec": lambda x: ("pow", ("call", "cos", x), ("num", Fraction(-1))),
    "csc": lambda x: ("pow", ("call", "sin", x), ("num", Fraction(-1))),
    "exp": lambda x: ("pow", ("sym", "e"), x),
    "tanh": lambda x: ("div", ("call", "sinh", x), ("call", "cosh", x)),
    "ceil": lambda x: ("neg", ("call", "floor", ("neg", x))),
}


class Names(NamedTuple):
    """Names that stand in trees."""

    symbols: set[str]  # without constants
    calls: set[str]
    has_unknowns: bool  # symbols, or functions as in f(x)


def names_in(*trees: Tree) -> Names:
    """Return the names of symbols and calls in these trees."""
    nodes = list(trees)
    for node in nodes:
        nodes.extend(child for child in node[1:] if isinstance(child, tuple))
    symbols, calls, unknown = ({node[1] for node in nodes if node[0] == kind} for kind in ("sym", "call", "fn"))
    symbols -= _CONSTANTS.keys()
    return Names(symbols, calls, bool(symbols or unknown))
