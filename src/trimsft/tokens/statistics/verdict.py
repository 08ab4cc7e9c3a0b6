"""The verdict on whether a model supports the data, and the band that would hold enough of its tokens.

    verdict = judge_table(read_token_table(Path("tokens.parquet")))
    verdict.sentence      # "The model supports this data: 2% of the tokens are out of reach ..."
    verdict.band          # Band(margin=4.5, bandwidth=2.4), or None where no band is advised

A token is out of reach where its gap is below margin - 3 bandwidths: TrimSFT gives it no weight. Where that holds for
most tokens, no band helps. Else the paper's band is taken if its effective ratio (R_eff) is at least that of the
paper's own models; if it is lower, the same band is widened, margin and bandwidth alike, until it is not. The weight of
a token that ties with its competitor (gap 0) so stays what it is in the paper.
"""

from dataclasses import dataclass

import numpy as np

from trimsft.objectives import BANDWIDTH, MARGIN
from trimsft.tokens.statistics.weighting import effective_ratio_grid
from trimsft.tokens.table import TokenTable

ENOUGH = 0.2
"""R_eff that a band should have: the paper's Qwen2.5-Math-1.5B has 0.21 at (1, 1). At the lab, whose base has 0.09
there, bands that reach it score as well as DFT, and the paper's does not (docs/results.md)."""
WIDEST = 6.0  # times the paper's band


@dataclass(frozen=True)
class Band:
    """A band that may be tried."""

    margin: float
    bandwidth: float
    effective_ratio: float

    @property
    def words(self) -> str:
        """Return the options of `trimsft train`."""
        return f"--objective trim --margin {self.margin:g} --bandwidth {self.bandwidth:g}"


@dataclass(frozen=True)
class Verdict:
    """The gaps of a token table, judged for training on its rows."""

    out_of_reach: float  # share of the tokens
    paper_ratio: float  # R_eff of the paper's band
    band: Band | None

    @property
    def is_supported(self) -> bool:
        return self.out_of_reach <= 0.5

    @property
    def sentence(self) -> str:
        """Return the verdict in words, with the reasons."""
        reach = f"{self.out_of_reach:.0%} of the tokens are out of reach (gap below {MARGIN - 3 * BANDWIDTH:g})"
        if not self.is_supported:
            return f"The model does not support this data: {reach}. A fixed band would learn next to nothing."
        paper = f"The paper's band (margin {MARGIN:g}, bandwidth {BANDWIDTH:g}) has R_eff {self.paper_ratio:.2f}"
        if self.band is None:
            end = f"; even one {WIDEST:g} times as wide holds too few tokens."
        elif self.band.margin == MARGIN:
            end = ", which is enough."
        else:
            end = f": too few tokens; the same band {self.band.margin / MARGIN:g} times as wide has "
            end += f"{self.band.effective_ratio:.2f}."
        return f"The model supports this data: {reach}. {paper}{end}"

    def as_dict(self) -> dict[str, object]:
        band = None if self.band is None else {"margin": self.band.margin, "bandwidth": self.band.bandwidth}
        return {"supported": self.is_supported, "out_of_reach": self.out_of_reach, "band": band, "text": self.sentence}


def judge_table(table: TokenTable) -> Verdict:
    """Judge by the gaps alone; whether a band trains well is for an evaluation to say."""
    gap = table["gap"].astype(np.float64)
    out_of_reach = float(np.mean(gap < MARGIN - 3 * BANDWIDTH))
    wider = np.arange(1, WIDEST + 0.5, 0.5)
    ratios = np.diag(effective_ratio_grid(gap, (MARGIN * wider).tolist(), (BANDWIDTH * wider).tolist())).tolist()
    bands = [
        Band(round(MARGIN * at, 2), round(BANDWIDTH * at, 2), ratio)
        for at, ratio in zip(wider.tolist(), ratios, strict=True)
    ]
    advised = (band for band in bands if band.effective_ratio >= ENOUGH and out_of_reach <= 0.5)
    return Verdict(out_of_reach, bands[0].effective_ratio, next(advised, None))
