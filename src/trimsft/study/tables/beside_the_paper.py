"""The paper's number for a setting of ours, where it has one; and what it says against itself.

    >>> numbers = numbers_of("ablation")
    >>> numbers.of(Setting("Qwen2.5-Math-1.5B", "trim", (("bandwidth", 0.5), ("margin", 1.0)))).average
    29.82

Models and benchmarks that the paper does not have get the numbers of `STAND_IN`, in columns that bear its name: they
show the pattern, who is above whom, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimsft import paper
from trimsft.objectives import BANDWIDTH, GAMMA, MARGIN
from trimsft.study.tables.summaries import Setting

STAND_IN = "Qwen2.5-Math-1.5B"
"""The model of all of the paper's studies but Table 1 and Figure 2."""
DEFAULT_BAND = (MARGIN, BANDWIDTH)
"""Of Table 1."""
TABLES = {
    "main": ("main",),
    "passes": (),
    "ablation": ("bandwidth_ablation", "margin_ablation", "main"),
    "half-trims": ("half_trims_complete", "main"),
}
"""Study -> the paper's tables that have its settings; where two print different numbers, the first counts."""
_OTHER_LABELS = {"tab:variants-complete": ("app:variants",), "fig:ablation": ("tab:weight-diagnostic",)}
"""Places whose contradictions touch a table as well."""


@dataclass(frozen=True)
class Numbers:
    """What the paper prints, by model, method and band."""

    rows: Mapping[tuple[str, str, tuple[float, float] | None], paper.Score]

    def of(self, setting: Setting) -> paper.Score | None:
        """Of the same model, method and band, all else at the paper's recipe."""
        return self._row(paper_model(setting.model), setting)

    def stand_in(self, setting: Setting) -> paper.Score | None:
        """Of `STAND_IN`, with the same method and band."""
        return self._row(STAND_IN, setting)

    def _row(self, model: str | None, setting: Setting) -> paper.Score | None:
        others = [name for name, _ in setting.fields if name not in ("margin", "bandwidth", "gamma")]
        if model is None or others or setting.get("gamma", GAMMA) != GAMMA:
            return None
        return self.rows.get((model, setting.objective, setting.band))


def numbers_of(study: str) -> Numbers:
    """Those of the tables that a study is about."""
    rows: dict[tuple[str, str, tuple[float, float] | None], paper.Score] = {}
    for table in TABLES.get(study, ()):
        for row in paper.scores(table):
            band = None if row.setting is None else (row.setting.margin, row.setting.bandwidth)
            if row.method.startswith("trim") and band is None:
                band = DEFAULT_BAND
            rows.setdefault((row.model, row.method, band), row)
    return Numbers(rows)


def paper_model(name: str) -> str | None:
    """Which of the paper's models a name speaks of."""
    from trimsft.report.tables.paper import paper_model as found

    return found(name)


def contradictions(labels: Sequence[str]) -> list[str]:
    """The paper's own contradictions in these tables and figures, a sentence for each number or statement."""
    wanted = {*labels, *(other for label in labels for other in _OTHER_LABELS.get(label, ()))}
    by_number: dict[tuple[str, int, str], list[paper.Disagreement]] = {}
    for entry in paper.disagreements():
        if entry.label in wanted:
            by_number.setdefault((entry.label, entry.line, entry.what), []).append(entry)
    return [_told(*entries) for entries in by_number.values()]


def _told(entry: paper.Disagreement, *more: paper.Disagreement) -> str:
    """What else speaks against the same number follows as a reason: one number should be one other."""
    where = f"The paper against itself, {entry.label} (line {entry.line}): {entry.what}"
    why = "; ".join([entry.why, *(other.why for other in more)])
    if entry.kind == "statement" or entry.printed is None or entry.expected is None:
        return f"{where}; {why}."
    if entry.kind == "count":
        return f"{where} is {entry.printed:g}, but looks like {entry.expected:g}: {why}."
    return f"{where} is {entry.printed:g} and should be {entry.expected:g}: {why}."


def same_order(ours: Sequence[float], theirs: Sequence[float]) -> tuple[int, int]:
    """Of how many pairs both say the same who is above, and how many pairs there are; theirs that tie do not count."""
    pairs = [(a, b) for a in range(len(ours)) for b in range(a) if theirs[a] != theirs[b]]
    return sum((ours[a] - ours[b]) * (theirs[a] - theirs[b]) > 0 for a, b in pairs), len(pairs)


def ranks(values: Sequence[float]) -> list[int]:
    """1 for the highest; equal values share the better rank."""
    return [1 + sum(other > value for other in values) for value in values]
