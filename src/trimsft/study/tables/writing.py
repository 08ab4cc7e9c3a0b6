"""What a study came to: tables beside the paper's, figures, claims, a page; from the run directories alone.

runs/study-lab/tables/
  problems.csv               correct samples of every problem, for each cell and benchmark
  claims.md, claims.json     every claim of the paper that the finished cells of any study can be held against
  main/main.md               to read: ours with intervals, the paper's, the difference, claims, notes
  main/main.tex              the same tables for booktabs
  main/main.csv, main.json   every score, one row for each setting, benchmark and metric
  main/figures/              .svg .pdf .png, and .csv with what is drawn
  main/report.html           the page about its runs of seed 0
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import RunError
from trimsft.report.figures.style import csv_of
from trimsft.report.tables.formats import escape_markdown, render
from trimsft.report.tables.scores import Table
from trimsft.runs.files import write_whole
from trimsft.scoring.intervals import RESAMPLES
from trimsft.study.cells import BASE, Cell
from trimsft.study.places import Place
from trimsft.study.scales import Scale
from trimsft.study.studies import SCORES, STUDIES, TOKENS, Study, belonging
from trimsft.study.tables.beside_the_paper import contradictions, numbers_of
from trimsft.study.tables.claims_of_the_paper import Claim, score_claims
from trimsft.study.tables.figures import score_figures, token_figures
from trimsft.study.tables.notes import missing_note, partial_note, unanswered_note
from trimsft.study.tables.protocol import protocol_note, scale_note, study_title
from trimsft.study.tables.raw import write_problems, write_rows
from trimsft.study.tables.results import load_partial_results
from trimsft.study.tables.score_rows import ScoreRow, our_table, paper_table, pattern_table, score_rows
from trimsft.study.tables.summaries import Setting, Summary, labels_of, setting_of, summarise
from trimsft.study.tables.token_claims import token_claims
from trimsft.study.tables.token_tables import token_results
from trimsft.tokens.table import TokenTable, read_token_table

if TYPE_CHECKING:
    from trimsft.scoring.scores import BenchmarkScore

_METRICS = {
    "main": ("average", "greedy"),
    "passes": ("pass@{samples}", "majority@{samples}"),
}
"""By study; average elsewhere."""
_ORDER = ("base", "sft", "fsft", "dft", "trim", "trim-e", "trim-h")
MOST_ON_A_PAGE = 8
"""Runs; more would be read by nobody."""


def write_study(
    study: Study, scale: Scale, cells: Sequence[Cell], out: Path, *, resamples: int = RESAMPLES
) -> list[Path]:
    """Everything that the finished ones of these cells have data for; returns the files written."""
    place = Place(out)
    folder = out / "tables" / study.name
    results = load_partial_results(cells, out) if SCORES in study.needs else {}
    tables = _token_tables(place, cells) if TOKENS in study.needs else {}
    if not results and not tables:
        raise RunError(
            f"{out}: no cell of {study.name!r} is finished; run it with trimsft study run {study.name} --out {out}"
        )
    every = belonging([*place.asked_for(), *cells], STUDIES.values(), scale)  # and not of sweeps in this folder
    everything = load_partial_results(every, out)
    judged = claims(everything, _token_tables(place, every), resamples=resamples)
    notes = [*missing_note(_missing(study, place, cells, results)), *contradictions(study.paper)]
    notes = [*partial_note(results, place.names_of(scale)), *notes]
    files: list[Path] = []
    if results:
        summaries = summarise(results, resamples=resamples)
        told = [*unanswered_note(summaries), *notes]
        files += _write_scores(study, scale, summaries, folder, told, judged)
    if tables:
        files += _write_tokens(study, scale, tables, folder, notes, judged)
    shown = [cell for cell in cells if cell in results or cell in tables]
    files += _write_page(study, scale, place, shown, folder)
    if everything:
        files.append(write_problems(out / "tables" / "problems.csv", everything))
    return [*files, *write_claims(out / "tables", judged)]


def claims(
    results: Mapping[Cell, Sequence[BenchmarkScore]],
    tables: Mapping[Cell, TokenTable] | None = None,
    *,
    resamples: int = RESAMPLES,
) -> list[Claim]:
    """The paper's claims about scores and, where there are tables of the first seed, about tokens."""
    found = score_claims(summarise(results, resamples=resamples))
    by_model: dict[str, dict[str, TokenTable]] = {}
    for cell, table in (tables or {}).items():
        by_model.setdefault(cell.model, {}).setdefault(cell.objective, table)
    for model, of_model in by_model.items():
        start = f"{model}: " if len(by_model) > 1 else ""
        found += [replace(claim, sentence=f"{start}{claim.sentence}") for claim in token_claims(of_model)]
    return found


def write_claims(folder: Path, judged: Sequence[Claim]) -> list[Path]:
    """claims.md and claims.json."""
    text = f"# The paper's claims, held against these results\n\n{_claims(judged) or 'None can be judged yet.'}\n"
    content = json.dumps([claim.as_dict() for claim in judged], indent=1)
    return [
        write_whole(folder / "claims.md", text.encode()),
        write_whole(folder / "claims.json", f"{content}\n".encode()),
    ]


# ---- studies of scores


def _write_scores(
    study: Study,
    scale: Scale,
    summaries: Mapping[Setting, Summary],
    folder: Path,
    notes: Sequence[str],
    judged: Sequence[Claim],
) -> list[Path]:
    summaries = dict(sorted(summaries.items(), key=lambda entry: _rank(study, scale, entry[0])))
    samples = min(summary.samples for summary in summaries.values())
    metrics = [metric.format(samples=samples) for metric in _METRICS.get(study.name, ("average",))]
    rows = score_rows(summaries, metrics, numbers_of(study.name))
    title = study_title(study.title, scale, samples)
    tables = [table for metric in metrics for table in _tables(title, scale, summaries, rows, metric)]
    own = [claim for claim in judged if claim.study == study.name]
    figures = score_figures(study.name, summaries, rows, samples, folder / "figures")
    record = {
        "study": study.name,
        "title": title,
        "paper": list(study.paper),
        "scale": scale.name,
        "rows": [row.as_dict() for row in rows],
        "claims": [claim.as_dict() for claim in own],
        "notes": list(notes),
    }
    return [
        *_write_texts(study, title, tables, own, notes, figures, folder),
        *write_rows(study.name, record, rows, folder),
        *figures,
    ]


def _tables(
    title: str, scale: Scale, summaries: Mapping[Setting, Summary], rows: Sequence[ScoreRow], metric: str
) -> list[Table]:
    of_metric = [row for row in rows if row.metric == metric]
    if metric != "average":
        title = metric
    if metric.startswith("majority@"):
        title = f"best-of-{metric.partition('@')[2]} by majority vote"
    notes = () if metric == "average" else ("The paper prints no numbers of this metric.",)
    known = list(dict.fromkeys(row.setting.model for row in of_metric if row.paper is not None))
    found = [
        our_table(title, summaries, of_metric, notes),
        paper_table(summaries, of_metric, _told(protocol_note(scale, known))),
        pattern_table(summaries, of_metric, _told(scale_note(scale))),
    ]
    return [table for table in found if table is not None]


def _told(note: str) -> tuple[str, ...]:
    return (note,) if note else ()


def _rank(study: Study, scale: Scale, setting: Setting) -> tuple[Any, ...]:
    """Models as the scale has them; then as the paper's table goes."""
    model = list(scale.models).index(setting.model) if setting.model in scale.models else len(scale.models)
    method = _ORDER.index(setting.objective) if setting.objective in _ORDER else len(_ORDER)
    band = setting.band or (-1.0, -1.0)
    return (model, band, method) if study.name == "half-trims" else (model, method, band)


# ---- studies of tokens


def _write_tokens(
    study: Study,
    scale: Scale,
    tables: Mapping[Cell, TokenTable],
    folder: Path,
    notes: Sequence[str],
    judged: Sequence[Claim],
) -> list[Path]:
    labelled = {cell.objective: table for cell, table in tables.items()}
    model = next(iter(tables)).model
    own = [claim for claim in judged if claim.study == study.name]
    made, record = token_results(study.name, model, labelled)
    figures = token_figures(study.name, labelled, folder / "figures")
    title = study_title(study.title, scale, scale.samples)
    record |= {"study": study.name, "title": title, "paper": list(study.paper), "notes": list(notes)}
    record["claims"] = [claim.as_dict() for claim in own]
    content = json.dumps(record, indent=1, allow_nan=False)
    columns, rows = record["columns"], record["rows"]
    return [
        *_write_texts(study, title, [made], own, notes, figures, folder),
        write_whole(folder / f"{study.name}.csv", csv_of(columns, [[row[name] for name in columns] for row in rows])),
        write_whole(folder / f"{study.name}.json", f"{content}\n".encode()),
        *figures,
    ]


def _token_tables(place: Place, cells: Iterable[Cell]) -> dict[Cell, TokenTable]:
    """Of seed 0, at the default parameters: one for each objective."""
    wanted = [cell for cell in cells if cell == Cell(model=cell.model, objective=cell.objective)]
    return {cell: read_token_table(place.tokens(cell)) for cell in wanted if place.has_tokens(cell)}


# ---- texts


def _write_texts(
    study: Study,
    title: str,
    tables: Sequence[Table],
    own: Sequence[Claim],
    notes: Sequence[str],
    figures: Sequence[Path],
    folder: Path,
) -> list[Path]:
    parts = [f"# {escape_markdown(title)}", *(render(table, "markdown").rstrip() for table in tables)]
    drawn = [path for path in figures if path.suffix == ".png"]
    parts += [f"![{path.stem.replace('_', ' ')}](figures/{path.name})" for path in drawn]
    parts += [f"## The paper's claims\n\n{_claims(own)}"] if own else []
    parts += ["## Notes\n\n" + "\n".join(f"- {escape_markdown(note)}" for note in notes)] if notes else []
    return [
        write_whole(folder / f"{study.name}.md", ("\n\n".join(parts) + "\n").encode()),
        write_whole(folder / f"{study.name}.tex", "\n".join(map(fitting_latex, tables)).encode()),
    ]


def fitting_latex(table: Table) -> str:
    """As `trimsft compare` writes it, but never wider than the page."""
    smaller = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    text = render(table, "latex").replace("% needs \\usepackage{booktabs}", "% needs \\usepackage{booktabs,graphicx}")
    return text.replace("\\begin{tabular}", f"{smaller}\n\\begin{{tabular}}").replace(
        "\\end{tabular}", "\\end{tabular}}"
    )


def _claims(judged: Sequence[Claim]) -> str:
    return "\n".join(
        f"- **{claim.verdict}**: {escape_markdown(f'{claim.statement} ({claim.source})')} "
        f"{escape_markdown(claim.sentence)}"
        for claim in judged
    )


def _missing(study: Study, place: Place, cells: Sequence[Cell], results: Mapping[Cell, Any]) -> list[Cell]:
    return [
        cell
        for cell in cells
        if (SCORES in study.needs and cell not in results) or (TOKENS in study.needs and not place.has_tokens(cell))
    ]


def _write_page(study: Study, scale: Scale, place: Place, cells: Sequence[Cell], folder: Path) -> list[Path]:
    """The runs of seed 0, the base first; of many, those that stand for them."""
    from trimsft.report import write_report

    first = sorted((cell for cell in cells if cell.seed == 0), key=lambda cell: cell.objective != BASE)
    models = list(dict.fromkeys(cell.model for cell in first))
    files = []
    for model in models:
        runs = {setting_of(cell): place.run(cell) for cell in first if cell.model == model}
        shown = _for_a_page(list(runs))
        labels = labels_of(shown)
        name = "report.html" if len(models) == 1 else f"report-{model}.html"
        title = f"{study_title(study.title, scale, scale.samples)}, {model}"
        seeds = len({cell.seed for cell in cells if cell.model == model})
        if seeds > 1:
            title += f" (seed 0 of {seeds}: intervals over seeds are in {study.name}.md)"
        files.append(write_report(folder / name, {labels[s]: runs[s] for s in shown}, title=title))
    return files


def _for_a_page(settings: Sequence[Setting]) -> list[Setting]:
    """All where they are few; of a plane of margins and bandwidths its corners."""
    if len(settings) <= MOST_ON_A_PAGE:
        return list(settings)
    bands = [setting.band for setting in settings if setting.band is not None]
    ends = [(min(values), max(values)) for values in zip(*bands, strict=True)]
    corners = [s for s in settings if s.band is None or all(v in end for v, end in zip(s.band, ends, strict=True))]
    return corners[:MOST_ON_A_PAGE]
