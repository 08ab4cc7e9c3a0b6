"""Objectives of one's own: `my_package.my_module:MyObjective`, or the name of an entry point in `trimsft.objectives`.

    >>> load_objective("trimsft.objectives:DFT")
    <class 'trimsft.objectives.paper.DFT'>
    >>> load_objective("trimsft.objectives:TrimSft")
    Traceback (most recent call last):
    trimsft.errors.UsageError: objective: module 'trimsft.objectives' has no 'TrimSft'; did you mean 'TrimSFT'?

Loading runs code. A name is loaded where the user gives it: on a command line, in a recipe that it names, in Python.
Whoever reads a run directory, which may come from elsewhere, does not call this.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from trimsft.errors import UsageError, one_line
from trimsft.objectives.base import WeighsTokens

GROUP = "trimsft.objectives"
KINDS = "a class whose objects have weights(tokens), such an object, or a function from TokenStats to weights"


def require_reference(name: str) -> None:
    """Refuse what has not the form module:Attribute."""
    if ":" not in name or not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
        example = "my_package.my_module:MyObjective"
        raise UsageError(f"must be module:Attribute, such as {example}", field="objective", value=name)


def installed_objectives() -> dict[str, list[str]]:
    """What installed packages offer, by name: module:Attribute of each; none of them is imported."""
    offered: dict[str, list[str]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        values = offered.setdefault(point.name, [])
        values += [point.value] if point.value not in values else []
    return offered


def load_objective(name: str) -> Any:
    """The class, object or function of that name; raises `UsageError` where there is none."""
    module, attribute = _reference(name).split(":")
    imported = _import(name, module)
    try:
        found = functools.reduce(getattr, attribute.split("."), imported)
    except AttributeError:
        near = difflib.get_close_matches(attribute, vars(imported), n=1)
        where = getattr(imported, "__file__", None) or "a folder without __init__.py"
        hint = f"did you mean {near[0]!r}?" if near else f"it is {where}"
        raise _refused(f"module {module!r} has no {attribute!r}", hint=hint) from None
    if not _weighs(found):
        raise _refused(f"{name!r} weighs no tokens", hint=f"name {KINDS}")
    return found


def source_files(name: str) -> list[Path]:
    """The files of a loaded objective: that of the module it is named by, and that of its class or function."""
    module, _ = _reference(name).split(":")
    found = load_objective(name)
    files = [getattr(sys.modules[module], "__file__", None)]
    with contextlib.suppress(TypeError, OSError):  # one without a file, such as of C or of a notebook
        is_made = inspect.isclass(found) or inspect.isroutine(found)
        files.append(inspect.getsourcefile(found if is_made else type(found)))
    paths = [Path(file).resolve() for file in files if file]
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def _reference(name: str) -> str:
    """module:Attribute, of an entry point what it stands for."""
    values = [name] if ":" in name else installed_objectives().get(name, [name])
    if len(values) > 1:
        both = " and ".join(sorted(values))
        raise _refused(f"{name!r} is defined by two packages, {both}", hint="name the one you mean by module:Attribute")
    require_reference(values[0])
    return values[0]


def _import(name: str, module: str) -> ModuleType:
    with _current_folder():
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise _failed(module, error) from error
            hint = f"install it, or start where {module.split('.')[0]} is in the current folder"
            raise _refused(f"{name!r}: no module {error.name!r}", hint=hint) from error
        except (Exception, SystemExit) as error:  # whatever the code of others does
            raise _failed(module, error) from error


@contextlib.contextmanager
def _current_folder() -> Iterator[None]:
    """The current folder as the last place to import from: nothing in it takes the place of an installed package."""
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


def _weighs(found: Any) -> bool:
    if inspect.isclass(found):
        return callable(getattr(found, "weights", None))
    if isinstance(found, WeighsTokens):
        return callable(found.weights)
    try:
        inspect.signature(found).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _failed(module: str, error: BaseException) -> UsageError:
    return _refused(f"{module!r} cannot be imported ({type(error).__name__}: {one_line(error)})")


def _refused(problem: str, hint: str | None = None) -> UsageError:
    return UsageError(problem, field="objective", hint=hint)
