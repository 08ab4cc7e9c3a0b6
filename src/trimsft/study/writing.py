"""The files of a study: tables beside the paper's, figures, claims; from the run directories alone.

runs/study-lab/tables/
  main/main.md               to read: ours with intervals, the paper's, the difference, claims, notes
  main/main.txt              ours, as `trimsft study run` prints it
  main/main.csv, main.json   every score, one row for each setting, benchmark and metric
  main/figures/              .svg .pdf .png, and .csv with what is drawn
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.intervals import RESAMPLES
from trimsft.report import figures
from trimsft.report.figures import Spread, ablation_curves, score_dots, spread_percent
from trimsft.report.run_tables import confidence_table, row_of
from trimsft.runs import write_whole
from trimsft.study import paper, paper_tables
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.study.claims import Claim, judge_claims
from trimsft.study.folder import StudyFolder
from trimsft.study.results import Summaries, load_results, plane, summarise
from trimsft.study.scales import Scale
from trimsft.study.studies import SCORES, TOKENS, Study
from trimsft.tables import Table, csv_of, escape_markdown, render, text_table, to_text
from trimsft.tokens.statistics import confidence
from trimsft.tokens.table import TokenTable, read_token_table


@dataclass
class Content:
    """Content of the files of a study."""

    tables: list[Table]
    figures: list[Path]
    rows: list[dict[str, Any]]  # for programs
    notes: list[str]


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
    if not scored and not tables:
        hint = f"run it with trimsft study run {study.name} --out {out}"
        raise RunError(f"{out}: no cell of {study.name!r} is finished", hint=hint)
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
    parts = [f"# {escape_markdown(title)}", *(render(table, "markdown").rstrip() for table in content.tables)]
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
        write_whole(place / f"{name}.txt", "\n".join(map(to_text, printed)).encode()),
        write_whole(place / f"{name}.csv", csv_of(columns, [[*map(row.get, columns)] for row in content.rows])),
        write_whole(place / f"{name}.json", (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()),
        *content.figures,
    ]


def _of_scores(study: Study, scale: Scale, title: str, summaries: Summaries, place: Path) -> Content:
    # as the scale has its models, and the paper's tables their rows
    order = [run for run in study.runs(scale) if run in summaries]
    summaries = {setting: summaries[setting] for setting in dict.fromkeys([*order, *summaries])}
    samples = min(summary.samples for summary in summaries.values())
    titles = {"average": title}
    if study.name == "main":
        titles |= {"greedy": "greedy"}
        titles |= {f"T={one:g}": f"average at temperature {one:g}" for one in scale.temperatures}
    elif study.name == "passes":
        titles = {f"pass@{samples}": f"pass@{samples}", f"majority@{samples}": f"best-of-{samples} by majority vote"}
    rows = paper_tables.score_rows(study.name, summaries, list(titles))
    tables = [
        paper_tables.our_table(heading, [row for row in rows if row.metric == metric])
        for metric, heading in titles.items()
    ]
    drawn = score_figures(study.name, summaries, samples, place)
    return Content(tables, drawn, [row.as_dict() for row in rows], [])


def _of_tokens(study: Study, tables: Mapping[Cell, TokenTable], place: Path) -> Content:
    by_objective = {cell.objective: table for cell, table in tables.items()}
    drawn = list[Path]()
    if study.name in paper_tables.OF_TOKENS:
        table, columns = paper_tables.OF_TOKENS[study.name](by_objective[BASE], next(iter(tables)).model)
    else:
        band = dict(zip(("margin", "bandwidth"), paper_tables.DEFAULT_BAND, strict=True))
        named = {method_name(name): one for name, one in by_objective.items()}
        columns = [row_of({"run": name}, confidence(one, **band)) for name, one in named.items()]
        note = "One training (seed 0) of each method, however many seeds were trained."
        table = replace(confidence_table(named, band), notes=(note,))
        drawn = figures.gap_distribution(named, **band).save(place / "gap_distribution.svg")  # Figure 4
    # JSON knows no NaN; of a category without tokens there is nothing to say
    rows = [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
        for row in columns
    ]
    return Content([table], drawn, rows, [])


# ---- figures


def score_figures(study: str, summaries: Summaries, samples: int, folder: Path) -> list[Path]:
    """Draw Figure 2 for `passes`, Figure 3 for `ablation`."""
    models = list(dict.fromkeys(setting.model for setting in summaries))
    drawn: dict[str, figures.Drawing] = {}
    for model in models:
        end = "" if len(models) == 1 else f"-{model}"
        if study == "passes":
            drawn[f"sampling{end}"] = _passes(summaries, model, samples)
        elif study == "ablation" and (bands := plane(summaries, model)):
            scores = {s.setting.band: spread_percent(s.interval("average")) for s in bands if s.setting.band}
            sft = summaries.get(Cell(model=model, objective="sft"))
            baseline = None if sft is None else 100 * sft.interval("average").value
            metric = f"average@{samples}, %"
            drawing = ablation_curves(scores, baseline=baseline, metric=metric)
            drawn[f"ablation{end}"] = drawing
    return [path for name, drawing in drawn.items() for path in drawing.save(folder / f"{name}.svg")]


def _passes(summaries: Summaries, model: str, samples: int) -> figures.Drawing:
    metrics: dict[str, dict[str, dict[str, Spread]]] = {}
    for metric in (f"pass@{samples}", f"majority@{samples}"):
        for setting, summary in summaries.items():
            for benchmark in summary.benchmarks if setting.model == model else ():
                bars = metrics.setdefault(f"{metric}, %", {}).setdefault(benchmark, {})
                bars[method_name(setting.objective)] = spread_percent(summary.interval(metric, benchmark))
    return score_dots(metrics)
