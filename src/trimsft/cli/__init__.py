"""The command line; each command imports what is heavy when it is called."""

import os
import signal
import sys
from typing import Any

from trimsft.errors import REFUSED, end_at_once, handle_signals

EXTRAS = {
    "train": "train", "watch": "train", "tokens": "models", "export": "models", "eval": "eval",
    "compare": "report", "report": "report", "recipes": "cli", "doctor": "models",
}  # fmt: skip
"""The extra of pyproject.toml with what a command needs; of all others `study`."""


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
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        install = f"pip install 'trimsft[{EXTRAS.get(command, 'study')}]'"
        print(f"trimsft: the package {error.name} is not installed; {install}", file=sys.stderr)  # noqa: T201
        sys.exit(REFUSED)
    finally:
        handle_signals(signal.SIG_DFL)  # nothing is left to do that an exception could end well


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    from trimsft.cli.program import app

    return app


__all__ = ["app", "main"]
