"""The command line; each command imports what is heavy when it is called."""

import os
import signal
import sys
from typing import Any

from trimsft.errors import REFUSED, end_at_once, handle_signals


def main() -> None:
    """Run the program `trimsft`."""
    handle_signals(end_at_once)  # before anything is imported that takes time
    os.environ["PYTHONSAFEPATH"] = "1"  # its processes import nothing from this folder
    if sys.stderr is None or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries fill a log file
    try:
        from trimsft.cli.program import app

        app(prog_name="trimsft")
    except ModuleNotFoundError as error:
        if (error.name or __name__).startswith("trimsft"):
            raise
        install = "pip install 'trimsft[all]'"
        print(f"trimsft: the package {error.name} is not installed; {install}", file=sys.stderr)  # noqa: T201
        sys.exit(REFUSED)
    finally:
        handle_signals(signal.SIG_DFL)  # nothing is left to do that an exception could end well


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    from trimsft.cli.program import app

    return app
