"""verl's SFT trainer with an objective of trimsft: what its own module takes, and `trimsft=NAME`.

    torchrun --nproc_per_node 2 -m trimsft.integrations.verl trimsft=dft data.train_files=train.parquet ...

verl hands a loss the log-probability of each token and nothing of its competitor. So objectives of the probability
alone work (dft, fsft, auto-trim, saft, talr, p-alpha, ...), and those that look at the gap or the entropy are refused.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from trimsft.errors import UsageError
from trimsft.integrations import EXAMPLE, read_objective
from trimsft.objectives import Objective, TokenStats


def weigh(objective: Objective, log_prob: Tensor) -> Tensor:
    """Return the weight of each token by its log-probability; raise where an objective asks for more.

    >>> weigh(read_objective("dft")[0], torch.tensor([0.5]).log())
    tensor([0.5000])
    >>> weigh(read_objective("trim")[0], torch.tensor([-1.0]))
    Traceback (most recent call last):
    trimsft.errors.UsageError: TrimSFT(margin=1.5, bandwidth=0.8) looks at more than the probability; verl has no gap
    """
    unknown = torch.full_like(log_prob, torch.nan, dtype=torch.float32)
    nothing = torch.zeros_like(log_prob, dtype=torch.int64)
    tokens = TokenStats(nll=-log_prob.detach().float(), gap=unknown, gold_logit=unknown, competitor=nothing)
    weights = objective(tokens) if callable(objective) else objective.weights(tokens)
    if getattr(objective, "needs", ()) or not weights.float().isfinite().all():
        raise UsageError(f"{objective} looks at more than the probability; verl has no gap")
    return weights.detach()


def weighted(plain: Any, objective: Objective) -> Any:
    """Return verl's `sft_loss`, which is linear in the log-probabilities, with each of them weighted."""

    @functools.wraps(plain)
    def sft_loss(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        given = model_output["log_probs"]
        if given.is_nested:
            flat = given.values()
            log_probs = torch.nested.nested_tensor_from_jagged(weigh(objective, flat) * flat, given.offsets())
        else:
            log_probs = weigh(objective, given) * given
        return plain(config, {**model_output, "log_probs": log_probs}, data, dp_group)

    return sft_loss


def main() -> None:
    import yaml
    from verl.trainer import sft_trainer
    from verl.workers.utils import losses

    words = [word for word in sys.argv[1:] if word.startswith("trimsft=")]
    if not words:
        raise UsageError("trimsft=NAME is missing", hint=EXAMPLE)
    objective, _ = read_objective(yaml.safe_load(words[-1].partition("=")[2]))
    weigh(objective, torch.tensor([-1.0]))
    losses.sft_loss = weighted(losses.sft_loss, objective)  # the trainer imports it when it builds its engine
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in words]
    sft_trainer.main()


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"trimsft: {error}")
