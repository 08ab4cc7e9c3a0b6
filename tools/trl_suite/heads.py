"""Functions that TRL's published tests call and TRL 1.16 no longer has, most of them of its fused head.

For `--trainer trl` the head tests run on what replaced them (`add_fused_lm_head`), and those of bare functions
skip, as nothing replaced them. For `--trainer trimsft` all of them run on our head, through the signatures the
tests know.
"""

from __future__ import annotations

import importlib.util
from types import MethodType, SimpleNamespace
from typing import Any

REMOVED = ("_chunked_cross_entropy_loss", "_patch_chunked_ce_lm_head", "dft_loss")
IGNORE = -100


def provide_removed_names(trainer: str) -> None:
    """Puts a stand-in for every name the suite imports and this TRL does not have into TRL's module."""
    from trl import import_utils
    from trl.trainer import sft_trainer

    import_utils.__getattr__ = package_check
    stand_ins = {"trl": trl_stand_ins, "trimsft": trimsft_stand_ins}[trainer]()
    for name in REMOVED:
        if not hasattr(sft_trainer, name):
            setattr(sft_trainer, name, stand_ins[name])


def package_check(name: str) -> Any:
    """`is_joblib_available` and the like: whether the package can be imported."""
    if not (name.startswith("is_") and name.endswith("_available")):
        raise AttributeError(name)
    return lambda: importlib.util.find_spec(name[3:-10]) is not None


def trl_stand_ins() -> dict[str, Any]:
    return {name: gone(name) for name in REMOVED} | {"_patch_chunked_ce_lm_head": patch_with_trl}


def trimsft_stand_ins() -> dict[str, Any]:
    return {
        "_chunked_cross_entropy_loss": chunked_loss,
        "_patch_chunked_ce_lm_head": patch_with_trimsft,
        "dft_loss": dft_loss,
    }


def gone(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> None:
        import pytest
        import trl

        pytest.skip(f"{name} is no longer part of TRL ({trl.__version__})")

    return function


def patch_with_trl(model: Any, chunk_size: int, is_vlm: bool = False) -> None:
    """TRL's present head, asked for whenever there are labels, with the sums the tests read."""
    from trl.trainer.utils import add_fused_lm_head

    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    fused = model.forward

    def forward(self: Any, *args: Any, labels: Any = None, **kwargs: Any) -> Any:
        if labels is None:
            return fused(*args, **kwargs)
        out = fused(*args, labels=labels, fused_lm_head=True, **kwargs)
        sums = {"num_correct_tokens": out.is_top1.sum(), "entropy_sum": out.entropy.sum()}
        return SimpleNamespace(
            loss=out.loss, aux_loss=out.aux_loss, logits=None, num_valid_tokens=out.label_mask.sum(), **sums
        )

    model.forward = MethodType(forward, model)


def patch_with_trimsft(model: Any, chunk_size: int, is_vlm: bool = False) -> None:
    """Our head, exact, with the sums the tests read."""
    import trimsft
    from trimsft.train import patch

    patch(model, trimsft.SFT(), skip_below=0.0, entropy=True)
    patched = model.forward

    def forward(self: Any, *args: Any, labels: Any = None, **kwargs: Any) -> Any:
        if labels is None:
            return patched(*args, **kwargs)
        out = patched(*args, labels=labels, **kwargs)
        correct, entropy, count = sums_of(out.tokens)
        return SimpleNamespace(
            loss=out.loss,
            aux_loss=out.aux_loss,
            logits=getattr(out, "logits", None),
            num_correct_tokens=correct,
            entropy_sum=entropy,
            num_valid_tokens=count,
        )

    model.forward = MethodType(forward, model)


def chunked_loss(
    hidden_states: Any,
    lm_head_weight: Any,
    chunk_size: int,
    labels: Any = None,
    shift_labels: Any = None,
    num_items_in_batch: Any = None,
    lm_head_bias: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """(loss, right tokens, summed entropy, trained tokens) of our chunked backend."""
    import trimsft

    if labels is None and shift_labels is None:
        raise ValueError("At least one of labels and shift_labels is needed")
    targets = shifted(labels) if shift_labels is None else shift_labels
    out = trimsft.linear_cross_entropy(
        hidden_states,
        lm_head_weight,
        targets,
        trimsft.SFT(),
        bias=lm_head_bias,
        normalizer=num_items_in_batch,
        skip_below=0.0,
        entropy=True,
        backend="chunked",
    )
    return out.loss, *sums_of(out.tokens)


def shifted(labels: Any) -> Any:
    """The label each position predicts, nothing for the last."""
    from torch.nn.functional import pad

    return pad(labels[..., 1:], (0, 1), value=IGNORE)


def dft_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    """DFT on given logits: they are their own hidden states where the head's weight is the identity."""
    import torch

    import trimsft

    logits = outputs.logits
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype)
    out = trimsft.linear_cross_entropy(
        logits, identity, shifted(labels), trimsft.DFT(), normalizer=num_items_in_batch, skip_below=0.0
    )
    return out.loss


def sums_of(tokens: Any) -> tuple[Any, Any, Any]:
    """Tokens ranked first, summed entropy, and count; a gap above zero means nothing ranks higher."""
    import torch

    return (tokens.gap > 0).sum().float(), tokens.entropy.sum(), torch.tensor(tokens.gap.numel())
