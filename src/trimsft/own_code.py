"""Code of the user's own, named `my_package.my_module:attribute`: an objective, a scorer.

Loading runs code. A name is loaded where the user gives it: on a command line, in its recipe, in Python.
Whoever reads a file that may come from elsewhere (a run directory, a benchmark) does not call this.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import operator
import os
import sys
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError, one_line


def require_reference(reference: str, *, field: str, example: str) -> None:
    """Refuse what has not the form module:Attribute."""
    if ":" not in reference or not all(part.isidentifier() for part in reference.replace(":", ".", 1).split(".")):
        raise UsageError(f"must be module:Attribute, such as {example}", field=field, value=reference)


def load_attribute(reference: str, *, field: str) -> Any:
    """Return what `module:Attribute` stands for; an error is about `field`."""
    module, attribute = reference.split(":")
    here = os.getcwd()
    # the last place to import from, so that nothing in it takes the place of an installed package
    added = [] if here in sys.path or "" in sys.path else [here]
    sys.path += added
    importlib.invalidate_caches()
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the code of others does
        problem = f"{module!r} cannot be imported ({type(error).__name__}: {one_line(error)})"
        raise UsageError(problem, field=field) from error
    finally:
        for place in added:
            sys.path.remove(place)
    try:
        return operator.attrgetter(attribute)(imported)
    except AttributeError:
        raise UsageError(f"module {module!r} has no {attribute!r}", field=field) from None


def fingerprints(reference: str, loaded: Any) -> list[str]:
    """Return the SHA-256 of the files of the module that is named, and of its class or function."""
    kind = loaded if inspect.isclass(loaded) or inspect.isroutine(loaded) else type(loaded)
    modules = (reference.partition(":")[0], kind.__module__)
    files = [getattr(sys.modules.get(name), "__file__", None) for name in modules]
    paths = dict.fromkeys(Path(file).resolve() for file in files if file)  # none of C or of a notebook
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]
