"""Every score of a study beside the paper's: a row for each setting, benchmark and metric, and the tables of them.

    >>> trim = cells.Cell(model="Qwen2.5-Math-1.5B", objective="trim", fields=(("bandwidth", 0.5), ("margin", 1.0)))
    >>> paper_row(numbers_of("ablation"), trim).average
    29.82

Models and benchmarks that the paper does not have get the numbers of `STAND_IN`, in columns that bear its name: they
show the pattern, who is above whom, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trimsft.evaluate.compare import AVERAGE
from trimsft.intervals import Interval
from trimsft.objectives import BANDWIDTH, GAMMA, MARGIN
from trimsft.study import cell as cells
from trimsft.study import paper
from trimsft.study.paper_tables import paper_model
from trimsft.study.results import Summaries, Summary, labels_of, paired, trainings
from trimsft.tables import DOWN, UP, Cell, Table, mark_best, points

STAND_IN = "Qwen2.5-Math-1.5B"  # the model of all of the paper's studies but Table 1 and Figure 2
DEFAULT_BAND = (MARGIN, BANDWIDTH)  # trimSFT's in Table 1
TABLES = {
    "main": ("main",),
    "passes": (),
    "ablation": ("bandwidth_ablation", "margin_ablation", "main"),
    "half-trims": ("half_trims_complete", "main"),
}
"""Study -> the paper's tables that have its settings; where two print different numbers, the first counts."""
_OTHER_LABELS = {"tab:variants-complete": ("app:variants",), "fig:ablation": ("tab:weight-diagnostic",)}
"""Places whose contradictions touch a table as well."""


# ---- the paper's numbers


Numbers: TypeAlias = Mapping[tuple[str, str, tuple[float, float] | None], paper.Score]
"""What the paper prints, by model, method and band."""


def numbers_of(study: str) -> Numbers:
    """Return the numbers of the tables that a study is about."""
    rows: dict[tuple[str, str, tuple[float, float] | None], paper.Score] = {}
    for table in TABLES.get(study, ()):
        for row in paper.scores(table):
            band = None if row.setting is None else (row.setting.margin, row.setting.bandwidth)
            if row.method.startswith("trim") and band is None:
                band = DEFAULT_BAND
            rows.setdefault((row.model, row.method, band), row)
    return rows


def paper_row(numbers: Numbers, setting: cells.Cell, model: str = "") -> paper.Score | None:
    """Return the row of the same model, or of another one, method and band, all else at the paper's recipe."""
    model = model or paper_model(setting.model) or ""
    is_other = bool(setting.shared_fields) or setting.get("gamma", GAMMA) != GAMMA
    return None if is_other else numbers.get((model, setting.objective, setting.band))


def contradictions(labels: Sequence[str]) -> list[str]:
    """Return the paper's own contradictions in these tables and figures, a sentence for each number or statement."""
    wanted = {*labels, *(other for label in labels for other in _OTHER_LABELS.get(label, ()))}
    by_number: dict[tuple[str, int, str], list[paper.Disagreement]] = {}
    for entry in paper.disagreements():
        if entry.label in wanted:
            by_number.setdefault((entry.label, entry.line, entry.what), []).append(entry)
    return list(map(_contradiction, by_number.values()))


def _contradiction(entries: Sequence[paper.Disagreement]) -> str:
    """Return what else speaks against the same number follows as a reason: one number should be one other."""
    entry = entries[0]
    where = f"The paper against itself, {entry.label} (line {entry.line}): {entry.what}"
    why = "; ".join(each.why for each in entries)
    if entry.kind == "statement" or entry.printed is None or entry.expected is None:
        return f"{where}; {why}."
    should = "but looks like" if entry.kind == "count" else "and should be"
    return f"{where} is {entry.printed:g}{',' if entry.kind == 'count' else ''} {should} {entry.expected:g}: {why}."


def same_order(ours: Sequence[float], theirs: Sequence[float]) -> tuple[int, int]:
    """Return concordant pairs and all pairs; the paper's ties are skipped."""
    pairs = [(a, b) for a in range(len(ours)) for b in range(a) if theirs[a] != theirs[b]]
    return sum((ours[a] - ours[b]) * (theirs[a] - theirs[b]) > 0 for a, b in pairs), len(pairs)


def ranks(values: Sequence[float]) -> list[int]:
    """Return 1 for the highest; equal values share the better rank."""
    return [1 + sum(other > value for other in values) for value in values]


# ---- rows


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One number of ours, and the paper's; all are shares from 0 to 1."""

    setting: cells.Cell
    seeds: tuple[int, ...]
    benchmark: str
    metric: str
    ours: Interval
    by_seed: tuple[float, ...]
    paper: float | None  # where it has the same model, benchmark and setting
    stand_in: float | None
    """The average of `STAND_IN` with that setting, where the paper has no such model or benchmark."""

    @property
    def difference(self) -> Interval | None:
        """Ours minus the paper's, which is taken as it is printed: its own noise is not known."""
        if self.paper is None:
            return None
        return Interval(*(bound - self.paper for bound in (self.ours.value, self.ours.low, self.ours.high)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.setting.model,
            "objective": self.setting.objective,
            **dict(self.setting.fields),
            "benchmark": self.benchmark,
            "metric": self.metric,
            **self.ours.as_dict(),
            "seeds": list(self.seeds),
            "by_seed": list(self.by_seed),
            "paper": self.paper,
            "difference": None if self.difference is None else self.difference.as_dict(),
            f"paper ({STAND_IN})": self.stand_in,
        }

    def as_flat_dict(self) -> dict[str, Any]:
        """Return the same for a CSV."""
        difference = None if self.difference is None else self.difference.value
        by_seed = " ".join(f"{score:.6g}" for score in self.by_seed)
        return self.as_dict() | {"seeds": len(self.seeds), "by_seed": by_seed, "difference": difference}


def score_rows(summaries: Summaries, metrics: Sequence[str], numbers: Numbers) -> list[ScoreRow]:
    """Return settings in their order, benchmarks in theirs, then the average over them."""
    others = [row for setting in summaries if (row := paper_row(numbers, setting, STAND_IN)) is not None]
    shared = [name for name in (others[0].scores if others else ()) if all(name in row.scores for row in others)]
    columns = columns_of(summaries)
    overall = list(columns)[-1]
    return [
        _score_row(summary, benchmark, names, metric, numbers, shared if benchmark == overall else None)
        for metric in metrics
        for summary in summaries.values()
        for benchmark, names in columns.items()
        if summary.with_all(names)
    ]


def columns_of(summaries: Summaries) -> dict[str, tuple[str, ...]]:
    """Column -> the benchmarks whose mean it is: each one, and all of them where there are several."""
    names = tuple(dict.fromkeys(name for summary in summaries.values() for name in summary.benchmarks))
    return {name: (name,) for name in names} | ({AVERAGE: names} if len(names) > 1 else {})


def _score_row(
    summary: Summary, benchmark: str, names: Sequence[str], metric: str, numbers: Numbers, shared: Sequence[str] | None
) -> ScoreRow:
    """`shared` are the benchmarks of the stand-in, for the row that its average stands beside."""
    theirs = paper_row(numbers, summary.setting) if metric == "average" else None
    known: float | None = None
    if theirs is not None:
        same = set(names) == set(theirs.scores)
        known = (theirs.average if same else None) if benchmark == AVERAGE else theirs.scores.get(benchmark)
    other = paper_row(numbers, summary.setting, STAND_IN) if metric == "average" and theirs is None else None
    runs = summary.with_all(names)
    return ScoreRow(
        setting=summary.setting,
        seeds=tuple(runs),
        benchmark=benchmark,
        metric=metric,
        ours=summary.interval(metric, *names),
        by_seed=summary.by_seed(metric, names),
        paper=None if known is None else known / 100,
        stand_in=None if other is None or shared is None else _average(other, shared),
    )


def _average(row: paper.Score, shared: Sequence[str]) -> float:
    """Return the average as printed; where some rows (the half trims) have fewer benchmarks, the mean of the shared."""
    if row.average is not None and len(shared) == len(row.scores):
        return row.average / 100
    return sum(row.scores[name] for name in shared) / len(shared) / 100


# ---- tables


def our_table(title: str, summaries: Summaries, rows: Sequence[ScoreRow], notes: Sequence[str]) -> Table:
    """Return settings by benchmarks, with intervals; arrows where a setting is told apart from SFT of its model."""
    columns, labels = columns_of(summaries), labels_of(summaries)
    by_place = {(row.setting, row.benchmark): row for row in rows}
    lines = []
    for setting in summaries:
        of_setting = [by_place.get((setting, column)) for column in columns]
        shown = [Cell.of(row.ours, _arrow(row, summaries)) if row else Cell("") for row in of_setting]
        lines.append([Cell(labels[setting]), *shown])
    seeds = {summary.seeds for setting, summary in summaries.items() if setting.objective != "base"}
    over = "seeds and problems" if max(seeds, default=1) > 1 else "problems"
    many = f"{trainings(seeds)} each" if seeds else "nothing trained"
    about = [f"Percent, {many}. Brackets: 95 % interval over {over}."]
    if any(cell.marker for line in lines for cell in line):
        about.append(
            f"{UP} {DOWN}: the interval of the difference to SFT, paired by problem and seed, leaves out 0; not "
            "corrected for how many are tested."
        )
    best = mark_best(lines, groups=[setting.model for setting in summaries], also_ties=False)
    return Table(title, ("", *columns), best, (*about, *notes))


def paper_table(summaries: Summaries, rows: Sequence[ScoreRow], notes: Sequence[str] = ()) -> Table | None:
    """Return ours, the paper's and the difference; None where it has none of these models and benchmarks."""
    columns, labels = columns_of(summaries), labels_of(summaries)
    by_place = {(row.setting, row.benchmark): row for row in rows if row.paper is not None}
    known = {setting for setting, _ in by_place}
    if not known:
        return None
    lines = tuple(
        (Cell(labels[setting]), *(_beside(by_place.get((setting, column))) for column in columns))
        for setting in summaries
        if setting in known
    )
    note = (
        "Percent: ours (the paper's; ours minus it [95 % interval]). The interval is that of ours: the paper gives "
        "none, so that its own noise is left out."
    )
    return Table("Beside the paper", ("", *columns), lines, (note, *notes))


def pattern_table(summaries: Summaries, rows: Sequence[ScoreRow], more: Sequence[str] = ()) -> Table | None:
    """Our averages and those of the paper's `STAND_IN`, each with its rank."""
    shown = [row for row in rows if row.stand_in is not None]
    if len(shown) < 2:
        return None
    lines: list[tuple[Cell, ...]] = []
    labels = labels_of(summaries)
    notes = [
        f"The paper has none of these models and benchmarks: its {STAND_IN} stands beside ours for the pattern, who is "
        "above whom, not for the size of the numbers."
    ]
    for model in dict.fromkeys(row.setting.model for row in shown):
        of_model = [row for row in shown if row.setting.model == model]
        ours, theirs = [row.ours.value for row in of_model], [row.stand_in or 0.0 for row in of_model]
        for row, rank, other, other_rank in zip(of_model, ranks(ours), theirs, ranks(theirs), strict=True):
            beside = (Cell.of(row.ours), _count(rank), Cell(f"{100 * other:.2f}", data=other), _count(other_rank))
            lines.append((Cell(labels[row.setting]), *beside))
        same, pairs = same_order(ours, theirs)
        notes.append(f"{model}: {same} of {pairs} pairs are in the paper's order.")
    if any(row.setting.objective.startswith("trim-") for row in shown):
        notes.append("The paper's are means of the benchmarks that its table of half trims has.")
    header = ("", f"ours, {shown[0].benchmark}", "rank", f"paper ({STAND_IN})", "rank there")
    return Table("Beside the paper: the pattern", header, tuple(lines), (*notes, *more))


def _beside(row: ScoreRow | None) -> Cell:
    if row is None or row.paper is None or row.difference is None:
        return Cell("")
    value, low, high = (points(bound) for bound in row.difference.as_dict().values())
    spread = f"({100 * row.paper:.2f}; {value} [{low}, {high}])"
    return Cell(f"{100 * row.ours.value:.1f}", spread, data=row.ours)


def _count(number: int) -> Cell:
    return Cell(str(number), data=float(number))


def _arrow(row: ScoreRow, summaries: Summaries) -> str:
    baseline = summaries.get(cells.Cell(model=row.setting.model, objective="sft"))
    names = columns_of(summaries)[row.benchmark]
    if baseline is None or row.setting == baseline.setting or not baseline.with_all(names):
        return ""
    difference = paired(summaries[row.setting], baseline, row.metric, *names)
    return (UP if difference.value > 0 else DOWN) if difference.excludes_zero else ""
