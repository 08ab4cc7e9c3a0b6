"""Code of the user's own, named `my_package.my_module:attribute`: an objective, a scorer.

    >>> load_attribute("trimsft.errors:UsageError", field="objective")
    <class 'trimsft.errors.UsageError'>
    >>> load_attribute("trimsft.errors:UsageErr", field="objective")
    Traceback (most recent call last):
    trimsft.errors.UsageError: objective: module 'trimsft.errors' has no 'UsageErr'; did you mean 'UsageError'?

Loading runs code. A name is loaded where the user gives it: on a command line, in a recipe that it names, in Python.
Whoever reads a file that may come from elsewhere (a run directory, a benchmark) does not call this.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from trimsft.errors import UsageError, one_line


def require_reference(reference: str, *, field: str, example: str) -> None:
    """Refuse what has not the form module:Attribute."""
    if ":" not in reference or not all(part.isidentifier() for part in reference.replace(":", ".", 1).split(".")):
        raise UsageError(f"must be module:Attribute, such as {example}", field=field, value=reference)


def load_attribute(reference: str, *, field: str, name: str | None = None) -> Any:
    """Return what `module:Attribute` stands for; raises `UsageError` about `field`, in which it is called `name`."""
    module, attribute = reference.split(":")
    imported = _import(name or reference, module, field)
    try:
        return functools.reduce(getattr, attribute.split("."), imported)
    except AttributeError:
        near = difflib.get_close_matches(attribute, vars(imported), n=1)
        where = getattr(imported, "__file__", None) or "a folder without __init__.py"
        hint = f"did you mean {near[0]!r}?" if near else f"it is {where}"
        raise UsageError(f"module {module!r} has no {attribute!r}", field=field, hint=hint) from None


def source_files(reference: str, loaded: Any) -> list[Path]:
    """Return the files of what was loaded: that of the module it is named by, and that of its class or function."""
    module, _ = reference.split(":")
    files = [getattr(sys.modules[module], "__file__", None)]
    with contextlib.suppress(TypeError, OSError):  # one without a file, such as of C or of a notebook
        is_made = inspect.isclass(loaded) or inspect.isroutine(loaded)
        files.append(inspect.getsourcefile(loaded if is_made else type(loaded)))
    paths = [Path(file).resolve() for file in files if file]
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def fingerprints(files: list[Path]) -> list[str]:
    """Return the SHA-256 of each file."""
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def _import(name: str, module: str, field: str) -> ModuleType:
    with _current_folder():
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise _failed(module, error, field) from error
            hint = f"install it, or start where {module.split('.')[0]} is in the current folder"
            raise UsageError(f"{name!r}: no module {error.name!r}", field=field, hint=hint) from error
        except (Exception, SystemExit) as error:  # whatever the code of others does
            raise _failed(module, error, field) from error


@contextlib.contextmanager
def _current_folder() -> Iterator[None]:
    """Make the current folder the last place to import from: nothing in it takes the place of an installed package."""
    here = os.getcwd()
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _failed(module: str, error: BaseException, field: str) -> UsageError:
    return UsageError(f"{module!r} cannot be imported ({type(error).__name__}: {one_line(error)})", field=field)
