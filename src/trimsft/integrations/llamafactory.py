"""LLaMA-Factory's training with an objective of trimsft: what `llamafactory-cli train` takes, and the key `trimsft`.

    python -m trimsft.integrations.llamafactory settings.yaml
    python -m trimsft.integrations.llamafactory settings.yaml trimsft=dft
    torchrun --nproc_per_node 2 -m trimsft.integrations.llamafactory settings.yaml

Its own DFT, ASFT and EAFT are refused beside it: they compute a loss from logits, which a patched model does not make.
"""

from __future__ import annotations

import sys
from typing import Any

from trimsft.errors import UsageError
from trimsft.integrations import EXAMPLE, make_callback


def train(arguments: dict[str, Any]) -> None:
    """Train as LLaMA-Factory does with these arguments; `trimsft` among them names the objective."""
    from llamafactory.train.tuner import run_exp

    rest = dict(arguments)
    callback = make_callback(rest.pop("trimsft", None))
    for name in ("use_dft_loss", "use_asft_loss", "use_eaft_loss"):
        if rest.get(name):
            raise UsageError("is another objective beside the one of `trimsft`; remove it", field=name, value=True)
    run_exp(rest, callbacks=[callback])


def main() -> None:
    from llamafactory.hparams import read_args

    arguments = read_args()
    if not isinstance(arguments, dict):
        raise UsageError("needs a settings file, .yaml or .json, with the key `trimsft`", hint=EXAMPLE)
    train(arguments)


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"trimsft: {error}")
