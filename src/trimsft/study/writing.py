"""What a study came to: tables beside the paper's, figures, claims, a page; from the run directories alone.

runs/study-lab/tables/
  problems.csv               correct samples of every problem, for each cell and benchmark
  claims.md, claims.json     every claim of the paper that the finished cells of any study can be held against
  main/main.md               to read: ours with intervals, the paper's, the difference, claims, notes
  main/main.txt              ours, as `trimsft study run` prints it
  main/main.tex              the same tables for booktabs
  main/main.csv, main.json   every score, one row for each setting, benchmark and metric
  main/figures/              .svg .pdf .png, and .csv with what is drawn
  main/report.html           the page about its runs of seed 0

problems.csv has one row for each cell and benchmark; a column of counts has one number for each problem, in the order
of their ids:

  cell             benchmark  samples  correct    no_answer  greedy
  lab/sft/seed0    lab-easy   8        8 6 7 ...  0 0 1 ...  1 1 0 ...
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.intervals import RESAMPLES
from trimsft.objectives import OBJECTIVES
from trimsft.runs.files import write_whole
from trimsft.study import score_tables as scores
from trimsft.study.cell import BASE, Cell
from trimsft.study.claims import Claim, score_claims
from trimsft.study.figures import score_figures, token_figures, weight_figure
from trimsft.study.folder import StudyFolder
from trimsft.study.notes import (
    missing_note,
    partial_note,
    protocol_note,
    scale_note,
    study_title,
    unanswered_note,
    undrawn_note,
)
from trimsft.study.results import Results, Summaries, labels_of, load_results, summarise
from trimsft.study.scales import Scale
from trimsft.study.studies import SCORES, STUDIES, TOKENS, Study, belonging, in_the_paper
from trimsft.study.token_claims import finite, token_claims, token_records, token_table
from trimsft.tables import Cell as TableCell
from trimsft.tables import Table, csv_of, escape_markdown, render, to_latex, to_text
from trimsft.tokens.table import TokenTable, read_token_table

_METRICS: dict[str, tuple[str, ...]] = {
    "main": ("average", "greedy"),
    "passes": ("pass@{samples}", "majority@{samples}"),
    "objectives": ("average", "greedy", "pass@{samples}"),
}
"""By study; average elsewhere."""
MOST_ON_A_PAGE = 8  # runs; more would be read by nobody


def write_study(
    study: Study,
    scale: Scale,
    cells: Sequence[Cell],
    out: Path,
    *,
    resamples: int = RESAMPLES,
    load: Collection[str] = (),
) -> list[Path]:
    """Write everything that the finished ones of these cells have data for; return the files.

    Args:
        load: objectives of one's own whose code may be loaded; weights of others are not drawn.
    """
    folder = StudyFolder(out)
    every = belonging([*folder.requested(), *cells], STUDIES.values(), scale)  # and not of sweeps in this folder
    loaded = load_results(dict.fromkeys([*every, *(cells if study.need == SCORES else ())]), out, partial=True)
    results = {cell: loaded[cell] for cell in cells if cell in loaded} if study.need == SCORES else {}
    tables = _token_tables(folder, cells) if study.need == TOKENS else {}
    if not results and not tables:
        hint = f"run it with trimsft study run {study.name} --out {out}"
        raise RunError(f"{out}: no cell of {study.name!r} is finished", hint=hint)
    everything = {cell: loaded[cell] for cell in every if cell in loaded}
    judged = claims(everything, _token_tables(folder, every), resamples=resamples)
    finished = results if study.need == SCORES else list(filter(folder.has_tokens, cells))
    missing = [cell for cell in cells if cell not in finished]
    notes = [
        *partial_note(results, folder.names_of(scale)),
        *missing_note(missing),
        *scores.contradictions(study.paper),
        *(undrawn_note(cells, load) if study.is_open else []),
    ]
    own = [claim for claim in judged if claim.study == study.name]
    writer = _Writer(study, scale, out / "tables" / study.name, notes, own, load)
    files: list[Path] = []
    if results:
        files += writer.write_scores(summarise(results, resamples=resamples))
    if tables:
        files += writer.write_tokens(tables)
    files += writer.write_pages({cell: folder.run(cell) for cell in cells if cell in results or cell in tables})
    if everything:
        files.append(write_problems(out / "tables" / "problems.csv", everything))
    return [*files, *write_claims(out / "tables", judged)]


def claims(
    results: Results, tables: Mapping[Cell, TokenTable] | None = None, *, resamples: int = RESAMPLES
) -> list[Claim]:
    """Return the paper's claims about scores and, where there are tables of the first seed, about tokens."""
    judged = score_claims(summarise(results, resamples=resamples))
    by_model: dict[str, dict[str, TokenTable]] = {}
    for cell, table in (tables or {}).items():
        by_model.setdefault(cell.model, {}).setdefault(cell.objective, table)
    for model, of_model in by_model.items():
        start = f"{model}: " if len(by_model) > 1 else ""
        judged += [replace(claim, sentence=f"{start}{claim.sentence}") for claim in token_claims(of_model)]
    return judged


def write_claims(folder: Path, judged: Sequence[Claim]) -> list[Path]:
    listed = _listed(judged) or "None can be judged yet."
    text = f"# The paper's claims, held against these results\n\n{listed}\n"
    return [
        write_whole(folder / "claims.md", text.encode()),
        write_json(folder / "claims.json", [asdict(claim) for claim in judged]),
    ]


def write_problems(path: Path, results: Results) -> Path:
    """Write the counts that every score and interval, but for votes, can be computed from."""
    rows = [[cell.name, *_counts(score)] for cell, of_cell in results.items() for score in of_cell]
    return write_whole(path, csv_of(["cell", "benchmark", "samples", "correct", "no_answer", "greedy"], rows))


def _counts(score: BenchmarkScore) -> list[Any]:
    problems = score.per_problem
    has_greedy = problems[0].greedy is not None
    return [
        score.benchmark,
        score.samples,
        " ".join(str(problem.correct) for problem in problems),
        " ".join(str(problem.no_answer) for problem in problems),
        " ".join(str(int(bool(problem.greedy))) for problem in problems if has_greedy),
    ]


def write_json(path: Path, record: Any) -> Path:
    return write_whole(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def write_flat(path: Path, rows: Sequence[Mapping[str, Any]], first: Iterable[str] = ()) -> Path:
    """Write a CSV of all columns that any row has; those in `first` come first."""
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    return write_whole(path, csv_of(names, [[row.get(name) for name in names] for row in rows]))


def markdown_images(figures: Sequence[Path]) -> list[str]:
    drawn = [path for path in figures if path.suffix == ".png"]
    return [f"![{path.stem.replace('_', ' ')}](figures/{path.name})" for path in drawn]


def _token_tables(folder: StudyFolder, cells: Iterable[Cell]) -> dict[Cell, TokenTable]:
    """Return the tables of seed 0 at the default parameters: one for each objective."""
    wanted = [cell for cell in cells if cell == Cell(model=cell.model, objective=cell.objective)]
    return {cell: read_token_table(folder.tokens(cell)) for cell in wanted if folder.has_tokens(cell)}


def _listed(judged: Sequence[Claim]) -> str:
    return "\n".join(
        f"- **{claim.verdict}**: {escape_markdown(f'{claim.statement} ({claim.source})')} "
        f"{escape_markdown(claim.sentence)}"
        for claim in judged
    )


@dataclass(frozen=True)
class _Writer:
    """The files of one study."""

    study: Study
    scale: Scale
    folder: Path
    notes: Sequence[str]
    claims: Sequence[Claim]
    load: Collection[str] = ()

    def write_scores(self, summaries: Summaries) -> list[Path]:
        notes = [*unanswered_note(summaries), *self.notes]
        summaries = dict(sorted(summaries.items(), key=lambda entry: self._rank(entry[0])))
        samples = min(summary.samples for summary in summaries.values())
        metrics = [metric.format(samples=samples) for metric in _METRICS.get(self.study.name, ("average",))]
        rows = scores.score_rows(summaries, metrics, scores.numbers_of(self.study.name))
        title = study_title(self.study.title, self.scale, samples)
        tables = [table for metric in metrics for table in self._score_tables(title, summaries, rows, metric)]
        figures = score_figures(self.study.name, summaries, rows, samples, self.folder / "figures")
        if self.study.is_open:
            figures += weight_figure(summaries, self.load, self.folder / "figures")
        record = {
            "study": self.study.name,
            "title": title,
            "paper": list(self.study.paper),
            "scale": self.scale.name,
            "rows": [row.as_dict() for row in rows],
            "claims": [asdict(claim) for claim in self.claims],
            "notes": notes,
        }
        return self._write(title, tables, notes, figures, record, [row.as_flat_dict() for row in rows])

    def _score_tables(
        self, title: str, summaries: Summaries, rows: Sequence[scores.ScoreRow], metric: str
    ) -> list[Table]:
        of_metric = [row for row in rows if row.metric == metric]
        if metric != "average":
            title = metric
        if metric.startswith("majority@"):
            title = f"best-of-{metric.partition('@')[2]} by majority vote"
        notes = () if metric == "average" or not self.study.paper else ("The paper prints no numbers of this metric.",)
        known = list(dict.fromkeys(row.setting.model for row in of_metric if row.paper is not None))
        differs, differs_from_scale = protocol_note(self.scale, known), scale_note(self.scale)
        tables = [
            scores.our_table(title, summaries, of_metric, notes),
            scores.paper_table(summaries, of_metric, [differs] if differs else []),
            scores.pattern_table(summaries, of_metric, [differs_from_scale] if differs_from_scale else []),
        ]
        return [table for table in tables if table is not None]

    def _rank(self, setting: Cell) -> tuple[Any, ...]:
        """Models as the scale has them; then as the paper's table goes."""
        models, methods = list(self.scale.models), [BASE, *OBJECTIVES]
        model = models.index(setting.model) if setting.model in models else len(models)
        method = methods.index(setting.objective) if setting.objective in methods else len(methods)
        band = setting.band or (-1.0, -1.0)
        return (model, band, method) if self.study.name == "half-trims" else (model, method, band)

    def write_tokens(self, tables: Mapping[Cell, TokenTable]) -> list[Path]:
        by_objective = {cell.objective: table for cell, table in tables.items()}
        model = next(iter(tables)).model
        records = token_records(self.study.name, model, by_objective)
        rows = [{name: finite(value) for name, value in row.items()} for row in records.rows]
        figures = token_figures(self.study.name, by_objective, self.folder / "figures")
        title = study_title(self.study.title, self.scale, self.scale.samples)
        record = {
            "columns": records.columns,
            "rows": rows,
            "study": self.study.name,
            "title": title,
            "paper": list(self.study.paper),
            "notes": list(self.notes),
            "claims": [asdict(claim) for claim in self.claims],
        }
        return self._write(title, [token_table(records, model)], self.notes, figures, record, rows)

    def _write(
        self,
        title: str,
        tables: Sequence[Table],
        notes: Sequence[str],
        figures: Sequence[Path],
        record: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Path]:
        parts = [f"# {escape_markdown(title)}", *(render(table, "markdown").rstrip() for table in tables)]
        parts += markdown_images(figures)
        parts += [f"## The paper's claims\n\n{_listed(self.claims)}"] if self.claims else []
        parts += ["## Notes\n\n" + "\n".join(f"- {escape_markdown(note)}" for note in notes)] if notes else []
        name = str(self.folder / self.study.name)
        return [
            write_whole(Path(f"{name}.md"), ("\n\n".join(parts) + "\n").encode()),
            write_whole(Path(f"{name}.txt"), "\n".join(map(to_text, self._printed(tables))).encode()),
            write_whole(Path(f"{name}.tex"), "\n".join(to_latex(table) for table in tables).encode()),
            write_flat(Path(f"{name}.csv"), rows),
            write_json(Path(f"{name}.json"), record),
            *figures,
        ]

    def _printed(self, tables: Sequence[Table]) -> list[Table]:
        """Return the table of the study, and the claims of the paper with what these results say to them."""
        rows = [(TableCell(claim.verdict), TableCell(claim.statement)) for claim in self.claims]
        judged = [Table("The paper's claims", ("", "claim"), tuple(rows), left=(0, 1))] if rows else []
        where = in_the_paper(self.study)
        ours = [replace(table, title=f"{table.title} ({where})" if where else table.title) for table in tables[:1]]
        return [*ours, *judged]

    def write_pages(self, runs: Mapping[Cell, Path]) -> list[Path]:
        """Write a page for each model, with its runs of seed 0, the base first; of many, those that stand for them."""
        from trimsft.report.page.build import write_report

        first = sorted((cell for cell in runs if cell.seed == 0), key=lambda cell: cell.objective != BASE)
        models = list(dict.fromkeys(cell.model for cell in first))
        files = []
        for model in models:
            by_setting = {cell.setting: runs[cell] for cell in first if cell.model == model}
            shown = _for_a_page(list(by_setting))
            labels = labels_of(shown)
            name = "report.html" if len(models) == 1 else f"report-{model}.html"
            title = f"{study_title(self.study.title, self.scale, self.scale.samples)}, {model}"
            seeds = len({cell.seed for cell in runs if cell.model == model})
            if seeds > 1:
                title += f" (seed 0 of {seeds}: intervals over seeds are in {self.study.name}.md)"
            of_labels = {labels[s]: by_setting[s] for s in shown}
            files.append(write_report(self.folder / name, of_labels, title=title, objectives=list(self.load)))
        return files


def _for_a_page(settings: Sequence[Cell]) -> list[Cell]:
    """Return all where they are few; of a plane of margins and bandwidths its corners."""
    if len(settings) <= MOST_ON_A_PAGE:
        return list(settings)
    bands = [setting.band for setting in settings if setting.band is not None]
    ends = [(min(values), max(values)) for values in zip(*bands, strict=True)]
    corners = [s for s in settings if s.band is None or all(v in end for v, end in zip(s.band, ends, strict=True))]
    return corners[:MOST_ON_A_PAGE]
