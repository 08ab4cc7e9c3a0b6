"""Other objectives of the form sum_t sg(w_t) * nll_t, which need no reference model; see docs/objectives.md.

>>> import torch
>>> nll = -torch.tensor([0.25, 0.81]).log()
>>> tokens = TokenStats(nll, gap=nll, gold_logit=nll, competitor=nll.long(), entropy=torch.tensor([1.3863, 0.2107]))
>>> TALR(temperature=2).weights(tokens), IDFT().weights(tokens)  # H = nll in both: to IDFT they are as expected
(tensor([0.5000, 0.9000]), tensor([0.2500, 0.8100]))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trimsft.objectives.token_stats import TokenStats, require_number
from trimsft.options import unknown_name

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PAlpha:
    """w = p^alpha: the gradient of the loss (1 - p^alpha) / alpha, known as GCE; 0 is SFT, 1 is DFT.

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

    The paper's code has a lower or an upper bound, each with both losses, and no default; the 0.2 is ours. A low of 0.1
    is ProFit (2026, arXiv:2601.09195).

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
        return (tokens.required("entropy", self) / math.log(20)).clamp(0, 1).pow(self.alpha)


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
    so that a weight depends on nothing but its token. A floor of 0.1 is the hard floor max(p, 0.1) that DFT's author
    has proposed.

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


@dataclass(frozen=True)
class DEFT:
    """w = p^a a / (a + 1e-6), a = sum_v p_v^2: DFT where the model is sure of a token, SFT where it is of none.

    The gradient of the loss (1 - p^a) / (a + 1e-6), a held fixed; exp of minus the Renyi-2 entropy is a.

    *Gradients Must Earn Their Influence: Unifying SFT with Generalized Entropic Objectives* (2026, arXiv:2602.11424);
    formula as in the authors' code.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"collision"})

    def weights(self, tokens: TokenStats) -> Tensor:
        concentration = tokens.required("collision", self)
        return (-concentration * tokens.nll).exp() * concentration / (concentration + 1e-6)


@dataclass(frozen=True)
class RankTuner:
    """w = p max(p s, 1e-6)^(-K): a token counts more, the worse it ranks for how sure the model is.

    With the entropy H in bits, the probability P of the first choice and the rank R of the gold token:
    s = 2^H / 4 + 1 where H >= 2, else 2 - P; K = 1 / log2(x + 1)^2 with x = max(s, R).

    *Probability-Entropy Calibration: An Elastic Indicator for Adaptive Fine-tuning* (2026, arXiv:2602.01745); formula
    as in a copy of its loss by others.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy", "rank"})

    def weights(self, tokens: TokenStats) -> Tensor:
        bits, prob = tokens.required("entropy", self) / math.log(2), tokens.prob
        first_prob = (-tokens.nll - tokens.gap.clamp(max=0)).exp()
        scale = (bits.exp2() / 4 + 1).where(bits >= 2, 2 - first_prob)
        power = scale.maximum(tokens.required("rank", self)).add(1).log2().pow(-2)
        return prob * (prob * scale).clamp(min=1e-6).pow(-power)


@dataclass(frozen=True)
class IDFT:
    """w = p^g, g = exp((nll - H) / temperature) within [0.1, 2]: DFT to a token as improbable as the model is unsure.

    More improbable tokens count less, likelier ones more. The paper begins with g = 1, DFT, for a fifth of the training
    and goes over to this in the next tenth; a weight here depends on its token alone, so the formula holds throughout.

    *Towards On-Policy SFT: Distribution Discriminant Theory and its Applications in LLM Training* (2026,
    arXiv:2602.12222): In-Distribution Fine-tuning; formula as in the authors' code.
    """

    temperature: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def __post_init__(self) -> None:
        require_number(self, "temperature", above=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        power = ((tokens.nll - tokens.required("entropy", self)) / self.temperature).exp().clamp(0.1, 2)
        return (-power * tokens.nll).exp()
