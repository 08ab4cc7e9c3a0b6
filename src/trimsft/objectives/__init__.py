"""Weights of tokens: one small frozen class per method.

Every method has the form  loss = sum_t sg(w_t) * nll_t  and differs only in the weight w_t
(section 3.3 of *Which Tokens Should SFT Actually Learn?*). A weight is a function of what the
forward pass says about one token, `TokenStats`:

    >>> import torch
    >>> tokens = TokenStats(nll=torch.tensor([0.1, 2.3]), gap=torch.tensor([1.5, -1.0]),
    ...                     gold_logit=torch.tensor([9.0, 4.0]), competitor=torch.tensor([17, 3]))
    >>> TrimSFT(margin=1.5, bandwidth=0.8).weights(tokens)
    tensor([1.0000, 0.0076])

So micro-batches, ranks, packing and resuming change no weight. Nothing here imports torch.
"""

from trimsft.objectives.auto_trim import AutoTrim
from trimsft.objectives.by_name import (
    NAMES,
    OBJECTIVES,
    PAPER_NAMES,
    PAPER_OBJECTIVES,
    PARAMETERS,
    BuiltinObjective,
    display_name,
    fingerprint_objective,
    make_objective,
    parameters_of,
    require_known,
)
from trimsft.objectives.other_papers import DEFT, EAFT, IDFT, SAFT, TALR, InfoSFT, PAlpha, PThreshold, RankTuner
from trimsft.objectives.paper import BANDWIDTH, DFT, FSFT, GAMMA, MARGIN, SFT, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.objectives.token_stats import ROLES, Objective, TokenStats, WeighsTokens, is_finite_number, needs_of

__all__ = [
    "BANDWIDTH", "DEFT", "DFT", "EAFT", "FSFT", "GAMMA", "IDFT", "MARGIN", "NAMES", "OBJECTIVES", "PAPER_NAMES",
    "PAPER_OBJECTIVES", "PARAMETERS", "ROLES", "SAFT", "SFT", "TALR", "AutoTrim", "BuiltinObjective", "InfoSFT",
    "Objective", "PAlpha", "PThreshold", "RankTuner", "TokenStats", "TrimSFT", "TrimSFTEasy", "TrimSFTHard",
    "WeighsTokens", "display_name", "fingerprint_objective", "is_finite_number", "make_objective", "needs_of",
    "parameters_of", "require_known",
]  # fmt: skip
