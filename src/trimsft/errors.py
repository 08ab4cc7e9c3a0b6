r"""What goes wrong, as data: the field, its value and what would be right; and how a command ends.

    >>> error = UsageError("must be at least 1", field="sample", value=0, hint="leave it out to use all rows")
    >>> print(error)
    sample: must be at least 1, got 0; leave it out to use all rows
    >>> print(error.told_with({"sample": "--sample"}))
    --sample: must be at least 1, got 0; leave it out to use all rows
    >>> print(UsageError("3 rows lack a solution", field="data", remedy=("drop_incomplete", True)))
    data: 3 rows lack a solution; set drop_incomplete=True

Nobody reads the text of a message: whoever has to decide asks for the class or its fields.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

DONE, FAILED, REFUSED = 0, 1, 2
"""Exit codes: all is done, something failed on the way, the request cannot be carried out as it stands."""
LONGEST = 2000
"""Characters of a message."""
_UNSET: Any = object()
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 200
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = 6


class TrimSFTError(Exception):
    """A failure that the user can act on, said in one line.

    Args:
        problem: what is wrong; a whole message where no field is to blame.
        field: the setting or argument, by its name in Python.
        value: what it was given.
        hint: what would be right.
        remedy: a setting that would help, as (name, value).
    """

    exit_code = FAILED
    is_told = False
    """Whether another process of the same job has said it already."""

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        value: Any = _UNSET,
        hint: str | None = None,
        remedy: tuple[str, Any] | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.field, self.hint, self.remedy = problem, field, hint, remedy
        self.has_value, self.value = value is not _UNSET, None if value is _UNSET else value

    def __str__(self) -> str:
        return self.told_with({})

    def told_with(self, names: Mapping[str, str]) -> str:
        """Return the message with fields called as `names` says, such as `--data` for `dataset_name`."""
        text = f"{names.get(self.field, self.field)}: {self.problem}" if self.field else self.problem
        if self.has_value:
            text += f", got {_short.repr(self.value)}"
        if self.hint:
            text += f"; {self.hint}"
        if self.remedy:
            text += f"; {_setting(*self.remedy, names)}"
        return _printable(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _setting(name: str, value: Any, names: Mapping[str, str]) -> str:
    if name not in names:
        return f"set {name}={value!r}"
    if isinstance(value, bool):
        return f"set {names[name] if value else names[name].replace('--', '--no-', 1)}"
    return f"set {names[name]} {value}"


def _restored(kind: type[TrimSFTError], arguments: tuple[Any, ...], state: dict[str, Any]) -> TrimSFTError:
    """Return an error that has crossed a process border, with its fields."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class UsageError(TrimSFTError, ValueError):
    """A request that cannot be carried out as it stands: a setting, an argument, an input."""

    exit_code = REFUSED


class WrongArgument(UsageError, TypeError):
    """An argument of another kind than is asked for, or given in another way."""


class UnsuitedHead(UsageError, NotImplementedError):
    """A model whose output embedding or logits are not what the fused head takes them for."""


class DataError(UsageError):
    """Data that cannot be used: a file, a row, a column."""


class RunError(TrimSFTError, RuntimeError):
    """A run directory that cannot be used as asked."""

    exit_code = REFUSED


class RunInUse(RunError):
    """Another process works in the run directory; `holder` says which, where it is known."""

    holder: Any = None


class WriteError(RunError):
    """A file that could not be written, such as on a full disk; nothing that was there before is lost."""

    exit_code = FAILED


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. Python may end a program by the signal itself where a plain KeyboardInterrupt has passed an import."""


class Stopped(KeyboardInterrupt):
    """SIGTERM, raised where Ctrl-C would be."""


class HungUp(KeyboardInterrupt):
    """SIGHUP: the terminal is gone."""


def exit_code(error: BaseException) -> int:
    """Return what a command that ends with this error returns to its shell."""
    if isinstance(error, TrimSFTError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 143 if isinstance(error, Stopped) else 129 if isinstance(error, HungUp) else 130
    return FAILED


def one_line(error: BaseException) -> str:
    r"""Return the message on one line; the name of the class where there is none.

    >>> one_line(ValueError("no such file:\n  rows.jsonl")), one_line(KeyboardInterrupt())
    ('no such file: rows.jsonl', 'KeyboardInterrupt')
    """
    return _printable(str(error)) or type(error).__name__


def _printable(text: str) -> str:
    """Return the text on one line that a person can read; what would act on a terminal is spelled out."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts.

    >>> counted(1, "row"), counted(1200, "token")
    ('1 row', '1,200 tokens')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def and_more(number: int, noun: str) -> str:
    """Return how many there are beyond the one that was named."""
    return f" (and {number - 1:,} more {noun})" if number > 1 else ""
