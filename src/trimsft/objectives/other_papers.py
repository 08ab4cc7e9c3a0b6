"""Other objectives of the form sum_t sg(w_t) * nll_t, which need no reference model; see docs/objectives.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trimsft.objectives.token_stats import TokenStats, require_number, without
from trimsft.options import unknown_name

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PAlpha:
    """w = p^alpha: the gradient of the loss (1 - p^alpha) / alpha; 0 is SFT, 1 is DFT.

    The larger alpha, the fewer tokens but the likely ones count. The paper's example is 10.

    *Beyond Log Likelihood: Probability-Based Objectives for Supervised Fine-Tuning across the Model Capability
    Continuum* (2025, arXiv:2510.00526).
    """

    alpha: float = 10.0

    def __post_init__(self) -> None:
        require_number(self, "alpha", at_least=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        return (-self.alpha * tokens.nll).exp()


@dataclass(frozen=True)
class PThreshold:
    """w = p^alpha where low <= p <= high, else 0: cross-entropy (alpha 0) or 1 - p (alpha 1) of some tokens only.

    The paper's code has a lower or an upper bound, each with both losses, and no default; the 0.2 is ours.

    *Beyond Log Likelihood* (2025, arXiv:2510.00526).
    """

    low: float = 0.2
    high: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        require_number(self, "low", at_least=0)
        require_number(self, "high", at_least=self.low)
        require_number(self, "alpha", at_least=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        prob = tokens.prob
        return (-self.alpha * tokens.nll).exp() * ((prob >= self.low) & (prob <= self.high))


@dataclass(frozen=True)
class EAFT:
    """w = (min(H, ln 20) / ln 20)^alpha with the entropy H of the prediction: what the model is sure of counts little.

    The paper takes H over the 20 most probable tokens; here it is over all of them, which the head has at hand.

    *Entropy-Adaptive Fine-Tuning: Resolving Confident Conflicts to Mitigate Forgetting* (2026, arXiv:2601.02151).
    """

    alpha: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def __post_init__(self) -> None:
        require_number(self, "alpha", at_least=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        if tokens.entropy is None:
            raise without("entropy", self)
        return (tokens.entropy / math.log(20)).clamp(0, 1).pow(self.alpha)


@dataclass(frozen=True)
class InfoSFT:
    """w = p * max(0, 1 - logit(p) / logit(P)), logit(p) = ln(p / (1 - p)): tokens of medium probability count most.

    Nothing is left of tokens that are likelier than P.

    *InfoSFT: Learn More and Forget Less with Information-Aware Token Weighting* (2026, arXiv:2605.14967), in the form
    and with the P of the authors' code.
    """

    mastered: float = 0.93
    """P of the paper: from this probability on a token has weight 0."""

    def __post_init__(self) -> None:
        require_number(self, "mastered", above=0.5, below=1)

    def weights(self, tokens: TokenStats) -> Tensor:
        log_odds = -tokens.nll - tokens.doubt.log()
        return tokens.prob * (1 - log_odds / math.log(self.mastered / (1 - self.mastered))).clamp(min=0)


@dataclass(frozen=True)
class TALR:
    """w = max(exp(-nll / tau), floor) = max(p^(1/tau), floor): the higher the temperature tau, the milder the weights.

    The paper's tau follows the batch: it is the median, over the batch, of the sequences' mean nll. Here tau is fixed,
    so that a weight depends on nothing but its token.

    *SFT Doesn't Always Hurt General Capabilities: Revisiting Domain-Specific Fine-Tuning in LLMs* (2025,
    arXiv:2509.20758): Token-Adaptive Loss Reweighting.
    """

    temperature: float = 1.0
    floor: float = 0.01

    def __post_init__(self) -> None:
        require_number(self, "temperature", above=0)
        require_number(self, "floor", at_least=0, below=1)

    def weights(self, tokens: TokenStats) -> Tensor:
        return (-tokens.nll / self.temperature).exp().clamp(min=self.floor)


@dataclass(frozen=True)
class SAFT:
    """w = (1 - alpha) + alpha p (linear), p^alpha (geometric) or p / (alpha + (1 - alpha) p) (harmonic), at least 1e-8.

    In every form alpha 0 is SFT and alpha 1 is DFT. The defaults are those of the published configuration of the
    linear form; that of the other two has alpha 0.5.

    *Spectrum-Adaptive Fine-Tuning* (ICML 2026); formulas as in the authors' code.
    """

    alpha: float = 1.0
    form: str = "linear"
    forms: ClassVar[tuple[str, ...]] = ("linear", "geometric", "harmonic")

    def __post_init__(self) -> None:
        require_number(self, "alpha", at_least=0)
        if self.form not in self.forms:
            raise unknown_name("form", self.form, self.forms)

    def weights(self, tokens: TokenStats) -> Tensor:
        alpha, prob = self.alpha, tokens.prob
        if self.form == "linear":
            weights = (1 - alpha) + alpha * prob
        elif self.form == "geometric":
            weights = (-alpha * tokens.nll).exp()
        else:
            # alpha / p + (1 - alpha), without infinity, which alpha 0 would make NaN of
            weights = 1 / (1 + alpha * tokens.nll.expm1().clamp(max=1e30))
        return weights.clamp(1e-8, 10)
