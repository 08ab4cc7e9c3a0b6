"""A server that has imported everything once and forks a `trimsft` for each request; start it as a program.

A request is a line of JSON on stdin, the reply the number of the process:

    {"words": ["tokens", ...], "environment": {"RANK": "0"}, "folder": "/...", "out": "", "err": ""}

What is forked leaves the loop and ends as `python -m trimsft` does, with everything that Python does at its end. Its
parent dies at once, so that it becomes a child of the campaign (see children.py).
"""

import atexit
import gc
import importlib
import json
import os
import sys
import threading
from typing import Any

IMPORTS = (
    "trl", "accelerate", "datasets", "peft", "matplotlib.pyplot", "trimsft.cli", "trimsft.train.run",
    "trimsft.train.dry_run", "trimsft.evaluate.run", "trimsft.evaluate.engines.transformers_engine",
    "trimsft.evaluate.engines.server_engine", "trimsft.tokens.measure", "trimsft.report.page.build",
)  # fmt: skip


def serve() -> bool:
    """Fork as often as asked; True in what was forked, False in the server once nobody asks any more."""
    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is shared stays shared, and Trainer's own collections are short
    atexit.register(gc.unfreeze)  # triton would call it a leak
    os.write(1, b"ready\n")
    for line in sys.stdin:
        if threading.active_count() > 1:
            sys.exit("a server with threads cannot fork safely")
        between = os.fork()
        if not between:
            child = os.fork()
            if child:
                os.write(1, f"{child}\n".encode())
                os._exit(0)
            _become(json.loads(line))
            return True
        os.waitpid(between, 0)
    return False


def _become(request: dict[str, Any]) -> None:
    os.setsid()
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    for number, (path, how) in enumerate(
        (("/dev/null", os.O_RDONLY), (request["out"], os.O_WRONLY), (request["err"], os.O_WRONLY))
    ):
        file = os.open(path, how)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["trimsft", *request["words"]]


if __name__ == "__main__" and serve():
    importlib.import_module("trimsft.cli").main()
