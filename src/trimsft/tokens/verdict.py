"""Whether a model supports the data, and which band would hold enough of its tokens.

    verdict = judge_table(read_token_table(Path("tokens.parquet")))
    verdict.sentence      # "The base supports this data: 2 % of the tokens are out of reach. ..."
    verdict.band          # Band(margin=4.5, bandwidth=2.4), or None where no band is advised

A token is out of reach where its gap is below margin - 3 bandwidths: TrimSFT gives it no weight. Where that holds for
most tokens, no band helps. Else the paper's band is taken if its effective ratio (R_eff) is at least that of the
paper's own models; if it is lower, the same band is widened, margin and bandwidth alike, until it is not. The weight of
a token that ties with its competitor (gap 0) so stays what it is in the paper.
"""

from dataclasses import dataclass

import numpy as np

from trimsft.objectives import BANDWIDTH, MARGIN
from trimsft.tokens.statistics.quantiles import Column
from trimsft.tokens.statistics.weighting import GapBins
from trimsft.tokens.table import TokenTable

ENOUGH = 0.2
"""R_eff that a band should have: the paper's Qwen2.5-Math-1.5B has 0.21 at (1, 1). At the lab, whose base has 0.09
there, bands that reach it score as well as DFT, and the paper's does not (docs/results.md)."""
WIDEST = 6.0  # times the paper's band
_WIDER = [1 + step / 2 for step in range(int(2 * (WIDEST - 1)) + 1)]


@dataclass(frozen=True)
class Band:
    """A band that may be tried."""

    margin: float
    bandwidth: float
    effective_ratio: float

    @property
    def words(self) -> str:
        """As `trimsft train` takes it."""
        return f"--objective trim --margin {self.margin:g} --bandwidth {self.bandwidth:g}"


@dataclass(frozen=True)
class Verdict:
    """What a token table says about training on its rows."""

    out_of_reach: float  # share of the tokens
    paper_ratio: float  # R_eff of the paper's band
    band: Band | None

    @property
    def is_supported(self) -> bool:
        return self.out_of_reach <= 0.5

    @property
    def sentence(self) -> str:
        """The verdict in words, with the reasons."""
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
    """Look at the gaps alone; whether a band trains well is for an evaluation to say."""
    lowest = MARGIN - 3 * BANDWIDTH
    beyond = sum(int(np.count_nonzero(gap.astype(np.float64) < lowest)) for gap in Column(table, "gap"))
    out_of_reach = beyond / len(table)
    bins = GapBins(Column(table, "gap"))
    ratios = [bins.effective_ratio(MARGIN * wider, BANDWIDTH * wider) for wider in _WIDER]
    wide_enough = (at for at, ratio in zip(_WIDER, ratios, strict=True) if ratio >= ENOUGH)
    chosen = next(wide_enough, None) if out_of_reach <= 0.5 else None
    if chosen is None:
        return Verdict(out_of_reach, ratios[0], None)
    margin, bandwidth = round(MARGIN * chosen, 2), round(BANDWIDTH * chosen, 2)
    return Verdict(out_of_reach, ratios[0], Band(margin, bandwidth, ratios[_WIDER.index(chosen)]))
