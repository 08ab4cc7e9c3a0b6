"""ms-swift's fine-tuning with an objective of trimsft: what `swift sft` takes, and the option or key `trimsft`.

python -m trimsft.integrations.swift settings.yaml
python -m trimsft.integrations.swift --trimsft dft --model MODEL --dataset train.jsonl
torchrun --nproc_per_node 2 -m trimsft.integrations.swift settings.yaml
"""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

from trimsft.errors import UsageError
from trimsft.integrations import EXAMPLE, make_callback

NAME = "trimsft"


def prepare(words: list[str]) -> list[str]:
    """Return the words for `swift sft`, and add the callback that they ask for to the ones ms-swift knows."""
    from swift.callbacks import callbacks_map
    from swift.cli.main import parse_yaml_args

    words = list(words)
    parse_yaml_args(words)  # a settings file becomes words
    if f"--{NAME}" not in words[:-1]:
        raise UsageError(f"--{NAME} is missing", hint=EXAMPLE)
    place = words.index(f"--{NAME}")
    section: Any = words[place + 1]
    callback = make_callback(json.loads(section) if section.startswith("{") else section)
    callbacks_map[NAME] = lambda args, trainer: callback
    del words[place : place + 2]
    if "--callbacks" in words:
        words.insert(words.index("--callbacks") + 1, NAME)
    else:
        words += ["--callbacks", NAME]
    # a patched model makes no logits in training, so there are none to leave out
    return [*words, "--use_logits_to_keep", "false"]


if __name__ == "__main__":
    try:
        sys.argv[1:] = prepare(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"trimsft: {error}")
    runpy.run_module("swift.cli.sft", run_name="__main__")
