"""The files of a study: ours beside the paper's in tables, figures, claims; from run directories.

runs/study-lab/tables/
  main/main.md               to read: ours with intervals, the paper's, claims, notes
  main/main.txt              ours, as `trimsft study run` prints it
  main/main.csv, main.json   every score, one row for each setting, benchmark and metric
  main/figures/              .svg .pdf .png, and .csv with what is drawn

Models that the paper does not have stand beside the numbers of `STAND_IN`: they show the pattern, who
is above whom, and not the size of the numbers.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trimsft.evaluate.compare import AVERAGE
from trimsft.intervals import RESAMPLES, Interval
from trimsft.objectives import BANDWIDTH, GAMMA, MARGIN
from trimsft.objectives.paper import Setting
from trimsft.report import figures
from trimsft.report.figures import Spread, ablation_curves, score_dots, spread_percent
from trimsft.report.run_tables import confidence_table, row_of, table_of
from trimsft.runs import write_whole
from trimsft.study import paper
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.study.claims import Claim, judge_claims
from trimsft.study.folder import StudyFolder
from trimsft.study.results import Summaries, labels_of, load_results, paired, plane, summarise
from trimsft.study.scales import Scale
from trimsft.study.studies import SCORES, TOKENS, Study
from trimsft.tables import DOWN, FORMATS, UP, Table, Value, csv_of, escape_markdown, mark_best, rounded, text_table
from trimsft.tables import Cell as Entry
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import category_intervals, confidence, mass_intervals, weight_intervals
from trimsft.tokens.table import TokenTable, read_token_table

STAND_IN = "Qwen2.5-Math-1.5B"  # the model of all of the paper's studies but Table 1 and Figure 2
PAPER_MODELS = {row.model for row in paper.rows("main")}
BAND: dict[str, Any] = {"margin": MARGIN, "bandwidth": BANDWIDTH}  # TrimSFT's in Table 1
SCORE_TABLES = {
    "ablation": ("bandwidth_ablation", "margin_ablation", "main"),
    "half-trims": ("half_trims_complete", "main"),
}
"""Study -> the paper's tables that have its settings (elsewhere Table 1); the first counts."""
Row: TypeAlias = dict[str, Value]
TokenRows: TypeAlias = tuple[Table, list[Row]]  # to read, and for files


# ---- tokens


def weights(table: TokenTable, who: str) -> TokenRows:
    """High-Weight and R_eff over the paper's grid."""
    theirs, lines = {row.setting: row for row in paper.rows("weight_diagnostics")}, []
    for setting, found in weight_intervals(table).items():
        ours = {"high_weight_percent": found["high_weight_percent"], "effective_ratio": found["r_eff"]}
        lines.append((setting._asdict(), ours, theirs[setting]))
    return _beside("weight_diagnostics", "Token weights by margin and bandwidth", lines, table, who)


def masses(table: TokenTable, who: str) -> TokenRows:
    """Gradient mass by region for TrimSFT and its halves."""
    theirs, lines = {(row.setting, row.method): row for row in paper.rows("gradient_mass")}, []
    for (setting, objective), ours in mass_intervals(table).items():
        first = {"objective": method_name(objective), **setting._asdict()}
        lines.append((first, ours, theirs[setting, objective]))
    return _beside("gradient_mass", "Percent of the gradient mass by region of gaps", lines, table, who)


def categories(table: TokenTable, who: str) -> TokenRows:
    """Token categories at the paper's setting."""
    theirs, lines = {row.category: row for row in paper.rows("token_categories")}, []
    counts = np.bincount(table["category"], minlength=len(CATEGORIES)).tolist()
    for (name, found), count in zip(category_intervals(table, Setting(1.0, 1.0)).items(), counts, strict=True):
        ours = {column.removesuffix("_percent"): interval for column, interval in found.items()}
        lines.append(({"category": name, "tokens": count}, ours, theirs[name]))
    made, rows = _beside("token_categories", "Token categories", lines, table, who)
    note = "TrimSFT at margin 1, bandwidth 1. How categories are told apart: docs/analysis.md."
    return replace(made, notes=(note, *made.notes)), rows


OF_TOKENS = {"weights": weights, "gradient-mass": masses, "categories": categories}


def _beside(
    name: str, title: str, lines: Sequence[tuple[Row, Mapping[str, Interval], Any]], table: TokenTable, who: str
) -> TokenRows:
    """Return a line for each: its first columns, and our intervals beside the paper's numbers."""
    rows, shown = list[Row](), list[tuple[Entry, ...]]()
    start = table_of(title, [first for first, _, _ in lines])
    for (first, ours, theirs), line in zip(lines, start.rows, strict=True):
        rows.append(dict(first))
        for column, one in ours.items():
            # JSON knows no NaN; of a category without tokens there is nothing to say
            ours_low_high = [None if math.isnan(end) else end for end in (one.value, one.low, one.high)]
            of_paper, digits = getattr(theirs, column), 3 if column == "effective_ratio" else 2
            ends = zip(("ours", "low", "high", "paper"), (*ours_low_high, of_paper), strict=True)
            rows[-1] |= {f"{column}_{end}": number for end, number in ends}
            value, low, high, printed = (rounded(end, digits) for end in (one.value, one.low, one.high, of_paper))
            spread = f"[{low}, {high}] " if low and one.low != one.high else ""
            data = None if math.isnan(one.value) else one
            line = (*line, Entry(value, f"{spread}({printed})", data=data))
        shown.append(line)
    notes = (
        f"Ours: {who}, {len(table):,} tokens of {table.example_count} examples.",
        "In square brackets: 95 % intervals over examples.",
        f"In round brackets: the paper's, of {STAND_IN}, 40,082 tokens of 100 examples.",
    )
    header = (*start.header, *(column.replace("_", " ") for column in lines[0][1]))
    return replace(start, header=header, rows=tuple(shown), notes=notes), rows


# ---- scores


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One number of ours, and the paper's; all are shares from 0 to 1."""

    setting: Cell
    benchmark: str
    metric: str
    ours: Interval
    by_seed: tuple[float, ...]
    against_sft: Interval | None  # of the same model, with the same fields but for the objective's own
    paper: float | None  # of the same model, or else of `STAND_IN`

    def as_dict(self) -> dict[str, Any]:
        sft = self.against_sft
        return {
            "model": self.setting.model,
            "objective": self.setting.objective,
            **dict(self.setting.fields),
            "benchmark": self.benchmark,
            "metric": self.metric,
            **asdict(self.ours),
            "seeds": len(self.by_seed),
            "by_seed": " ".join(f"{score:.6g}" for score in self.by_seed),
            "against_sft": None if sft is None else sft.value,
            "against_sft_low": None if sft is None else sft.low,
            "against_sft_high": None if sft is None else sft.high,
            "paper": self.paper,
        }

    @property
    def entry(self) -> Entry:
        """Our number, with an arrow where it is told apart from SFT's."""
        one = self.against_sft
        if one is None or not one.excludes_zero:
            return Entry.of(self.ours)
        return Entry.of(self.ours, UP if one.value > 0 else DOWN)


def score_rows(
    study: str, summaries: Summaries, metrics: Sequence[str], benchmarks: Sequence[str] = ()
) -> list[ScoreRow]:
    """Return settings in their order, benchmarks in theirs, then the average over them."""
    theirs: dict[tuple[Any, ...], Any] = {}
    for printed in (row for table in SCORE_TABLES.get(study, ("main",)) for row in paper.rows(table)):
        band = tuple(BAND.values()) if printed.method.startswith("trim") else None
        theirs.setdefault((printed.model, printed.method, printed.setting or band), printed)
    names = tuple(benchmarks or next(iter(summaries.values())).benchmarks)
    columns = {name: (name,) for name in names} | ({AVERAGE: names} if len(names) > 1 else {})
    rows = []
    for metric, (setting, summary) in itertools.product(metrics, summaries.items()):
        sft = summaries.get(Cell(model=setting.model, objective="sft", fields=setting.shared_fields))
        # another recipe is another experiment
        is_papers = metric == "average" and not setting.shared_fields and setting.get("gamma", GAMMA) == GAMMA
        key = (setting.model if setting.model in PAPER_MODELS else STAND_IN, setting.objective, setting.band)
        for benchmark, of in columns.items():
            row = ScoreRow(
                setting=setting,
                benchmark=benchmark,
                metric=metric,
                ours=summary.interval(metric, *of),
                by_seed=summary.by_seed(metric, of),
                against_sft=None if sft is None or sft is summary else paired(summary, sft, metric, *of),
                paper=_papers_mean(theirs[key], of, study) if is_papers and key in theirs else None,
            )
            rows.append(row)
    return rows


def _papers_mean(row: Any, names: Sequence[str], study: str) -> float | None:
    """Return the paper's mean over these benchmarks, over its own where it has none of them."""
    if len(names) > 1 and not set(names) & set(row.scores):
        # the table of half trims has fewer benchmarks than SFT's row of Table 1
        names = list(paper.rows(SCORE_TABLES.get(study, ("main",))[0])[0].scores)
    if set(names) == set(row.scores) and row.average is not None:
        return float(row.average) / 100
    return float(np.mean([row.scores[name] for name in names])) / 100 if set(names) <= set(row.scores) else None


def our_table(title: str, rows: Sequence[ScoreRow], *, against_sft: bool = False) -> Table:
    """Return settings by benchmarks; a last column is the difference to SFT, or else the paper's."""
    by_setting: dict[Cell, list[ScoreRow]] = {}
    for row in rows:
        by_setting.setdefault(row.setting, []).append(row)
    labels, last = labels_of(by_setting), [of_setting[-1] for of_setting in by_setting.values()]
    lines = [[Entry(labels[setting]), *(row.entry for row in of)] for setting, of in by_setting.items()]
    seeds = sorted({len(row.by_seed) for row in last if not row.setting.is_base})
    over = "seeds and problems" if seeds and seeds[-1] > 1 else "problems"
    about = [
        f"Percent, trainings of each: {', '.join(map(str, seeds)) or 'none'}. Brackets: 95 % interval over {over}."
    ]
    if any(cell.marker for line in lines for cell in line):
        about.append(f"{UP} {DOWN}: the interval of the paired difference to SFT leaves out 0.")
    best, header = mark_best(lines, groups=[setting.model for setting in by_setting]), [row.benchmark for row in rows]
    more = list[Entry]()
    if against_sft:
        header.append("against SFT")
        more = [Entry.of(row.against_sft, sign="+") for row in last]
    elif any(row.paper is not None for row in last):
        header.append("paper")
        more = [Entry("" if row.paper is None else f"{100 * row.paper:.2f}", data=row.paper) for row in last]
        if any(setting.model not in PAPER_MODELS for setting in by_setting):
            about.append(f"The paper's are of {STAND_IN}, another model: for the pattern, not for the size.")
    whole = tuple((*line, *more[number : number + 1]) for number, line in enumerate(best))
    return Table(title, ("", *dict.fromkeys(header)), whole, tuple(about))


# ---- the files


@dataclass
class Content:
    """Content of the files of a study."""

    tables: list[Table]
    figures: list[Path]
    rows: list[dict[str, Any]]  # for programs
    notes: list[str] = field(default_factory=list)


def write_study(
    study: Study, scale: Scale, cells: Sequence[Cell], out: Path, *, resamples: int = RESAMPLES
) -> list[Path]:
    """Write everything that the finished ones of these cells have data for; return the files."""
    folder, place = StudyFolder(out), out / "tables" / study.name
    scored = load_results(cells, out) if study.shows == SCORES else {}
    tables = dict[Cell, TokenTable]()
    if study.shows == TOKENS:  # of seed 0 at the default parameters: one for each objective
        wanted = [cell for cell in cells if cell == Cell(model=cell.model, objective=cell.objective)]
        tables = {cell: read_token_table(folder.tokens(cell)) for cell in wanted if folder.tokens(cell).is_file()}
    title = re.sub(r"(?<=@)8\b|(?<=-of-)8\b", str(scale.samples), study.title)
    title = f"Smoke test, its numbers say nothing: {title}" if scale.smoke else title
    summaries = summarise(scored, resamples=resamples)
    if study.shows == SCORES:
        content = _of_scores(study, scale, title, summaries, place / "figures")
        judged = judge_claims(summaries)
    else:
        content = _of_tokens(study, tables, place / "figures")
        judged = judge_claims({}, {cells[0].model: {cell.objective: table for cell, table in tables.items()}})
    missing = [cell.name for cell in cells if cell not in scored and cell not in tables]
    if missing:
        content.notes.append(f"Not finished, and so left out: {len(missing)}, such as {missing[0]}.")
    claims = [claim for claim in judged if claim.study == study.name]
    return write_files(place, study.name, title, content, claims, study.paper, scale=scale.name)


def write_files(
    place: Path,
    name: str,
    title: str,
    content: Content,
    claims: Sequence[Claim] = (),
    labels: Sequence[str] = (),
    **record: Any,
) -> list[Path]:
    """Write NAME.md, .txt, .csv and .json; `labels` are those of the paper's tables and figures."""
    notes = content.notes
    parts = [f"# {escape_markdown(title)}", *(FORMATS["markdown"](table).rstrip() for table in content.tables)]
    drawn = [path for path in content.figures if path.suffix == ".png"]
    parts += [f"![{path.stem.replace('_', ' ')}](figures/{path.name})" for path in drawn]
    judged = [
        f"- **{claim.verdict}**: {escape_markdown(f'{claim.statement} ({claim.source}) {claim.sentence}')}"
        for claim in claims
    ]
    parts += ["## The paper's claims\n\n" + "\n".join(judged)] if claims else []
    parts += ["## Notes\n\n" + "\n".join(f"- {escape_markdown(note)}" for note in notes)] if notes else []
    first = content.tables[0]
    where = f" ({', '.join(map(paper.printed_name, labels))})" if labels else ""
    printed = [replace(first, title=f"{first.title}{where}", notes=(*first.notes, *notes))]
    if claims:
        lines = [(claim.model, claim.verdict, claim.statement) for claim in claims]
        printed.append(replace(text_table(("model", "", "claim"), lines), title="The paper's claims"))
    record |= {"study": name, "title": title, "paper": list(labels), "rows": content.rows, "notes": notes}
    record["claims"] = [asdict(claim) for claim in claims]
    columns = list(dict.fromkeys(column for row in content.rows for column in row))
    return [
        write_whole(place / f"{name}.md", ("\n\n".join(parts) + "\n").encode()),
        write_whole(place / f"{name}.txt", "\n".join(map(FORMATS["terminal"], printed)).encode()),
        write_whole(place / f"{name}.csv", csv_of(columns, [[*map(row.get, columns)] for row in content.rows])),
        write_whole(place / f"{name}.json", (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()),
        *content.figures,
    ]


def _of_scores(study: Study, scale: Scale, title: str, summaries: Summaries, place: Path) -> Content:
    samples = min(summary.samples for summary in summaries.values())
    titles = {"average": title}
    if study.name == "main":
        titles |= {"greedy": "greedy"}
        titles |= {f"T={one:g}": f"average at temperature {one:g}" for one in scale.temperatures}
    elif study.name == "passes":
        titles = {f"pass@{samples}": f"pass@{samples}", f"majority@{samples}": f"best-of-{samples} by majority vote"}
    rows = score_rows(study.name, summaries, list(titles))
    tables = [our_table(heading, [row for row in rows if row.metric == metric]) for metric, heading in titles.items()]
    drawn = score_figures(study.name, summaries, samples, place)
    return Content(tables, drawn, [row.as_dict() for row in rows])


def _of_tokens(study: Study, tables: Mapping[Cell, TokenTable], place: Path) -> Content:
    by_objective = {cell.objective: table for cell, table in tables.items()}
    drawn = list[Path]()
    if study.name in OF_TOKENS:
        table, rows = OF_TOKENS[study.name](by_objective[BASE], next(iter(tables)).model)
    else:
        named = {method_name(name): one for name, one in by_objective.items()}
        rows = [row_of({"run": name}, confidence(one, **BAND)) for name, one in named.items()]
        note = "One training (seed 0) of each method, however many seeds were trained."
        table = replace(confidence_table(named, BAND), notes=(note,))
        drawn = figures.gap_distribution(named, **BAND).save(place / "gap_distribution.svg")  # Figure 4
    return Content([table], drawn, rows)


# ---- figures


def score_figures(study: str, summaries: Summaries, samples: int, folder: Path) -> list[Path]:
    """Draw Figure 2 for `passes`, of each model; Figure 3 for `ablation`, which has one."""
    files, models = list[Path](), dict.fromkeys(setting.model for setting in summaries)
    for model in models if study == "passes" else ():
        metrics: dict[str, dict[str, dict[str, Spread]]] = {}
        for metric in (f"pass@{samples}", f"majority@{samples}"):
            for setting, summary in summaries.items():
                for benchmark in summary.benchmarks if setting.model == model else ():
                    bars = metrics.setdefault(f"{metric}, %", {}).setdefault(benchmark, {})
                    bars[method_name(setting.objective)] = spread_percent(summary.interval(metric, benchmark))
        files += score_dots(metrics).save(folder / f"sampling-{model}.svg")
    if study == "ablation" and (bands := plane(summaries, next(iter(models)))):
        scores = {s.setting.band: spread_percent(s.interval("average")) for s in bands if s.setting.band}
        sft = summaries.get(Cell(model=next(iter(models)), objective="sft"))
        baseline = None if sft is None else 100 * sft.interval("average").value
        drawing = ablation_curves(scores, baseline=baseline, metric=f"average@{samples}, %")
        files += drawing.save(folder / "ablation.svg")
    return files
