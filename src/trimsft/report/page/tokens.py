"""What the page says of tokens: variables of tokens.html.j2, and what its scripts find in `data-tokens`.

Tables, the chart of densities and the first few examples are written by the template and need no script. The scripts
put the viewer in place of those few: all shown examples (examples.py), and the whole corpus (packing.py) behind the
sliders.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from trimsft.audit.run import AuditSettings
from trimsft.data.visible import json_for_script, shortened, spaced, visible
from trimsft.objectives import PAPER_NAMES, Objective, TokenStats, display_name
from trimsft.report.course import ENDED, Moment, start_of
from trimsft.report.page.charts import density_chart, legend_mark, run_lines
from trimsft.report.page.examples import BUDGET, Shown, packed_examples, read_examples, shown_prompt
from trimsft.report.page.packing import cells_each, corpus_cells
from trimsft.report.page.provenance import cut_notes
from trimsft.report.runs import Run, base_of
from trimsft.runs.secrets import without_folders
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.gaps import density, range_of
from trimsft.tokens.statistics.weighting import confidence, diagnose, objective_of, objectives_of
from trimsft.tokens.table import TokenTable, incomparable

GAP_EDGES = (-6.0, -3.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
"""Between the nine colours of gaps, in the template and in text.js."""
VIEWED = PAPER_NAMES | {"auto-trim": display_name("auto-trim")}
"""Objectives that the viewer weighs tokens by: their formulas are in weights.js."""
WRITTEN = 5  # examples that the template writes, for readers without a script
_WRITTEN_TOKENS = 600
Tables = Mapping[str, TokenTable]


def token_parts(
    runs: Sequence[Run],
    parameters: Mapping[str, float],
    budget: int = BUDGET,
    objectives: Sequence[str] = (),
    moments: Sequence[Moment] = (ENDED,),
) -> dict[str, Any]:
    """Variables of tokens.html.j2; its data takes so many characters at most, if one example does.

    Args:
        objectives: names of those that the table of weights has beside the viewer's.
        moments: AutoTrim in the course of a training; the table weighs by its start and by the last of them.
    """
    weighing = objectives_of(parameters) | {"auto-trim": moments[-1]}
    weighing |= objectives_of(parameters, [name for name in objectives if name not in weighing])
    tables = {run.label: run.table for run in runs if run.table}  # and it is not empty
    parts: dict[str, Any] = {
        "sections": [],
        "data": {"examples": None, **_data(runs, tables, parameters, moments)},
        "parameters": parameters,
        "first": next(iter(tables), None),
        "base": (base := base_of(runs)) and base.label,
        "edges": GAP_EDGES,
        "names": VIEWED,
        "moments": moments,
        "start": (start := start_of(moments) or moments[-1]),
        "categories": CATEGORIES,
        "spaces": {"space": spaced(" "), "line break": spaced("\n").strip()},
    }
    if not tables:
        return parts
    data, lines, as_begun = parts["data"], run_lines(runs), weighing | {"auto-trim": start}
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    shown, packed = packed_examples(read_examples(runs), budget - len(json_for_script(data)))
    return parts | {
        "sections": [("tokens", "Tokens"), ("gaps", "Logit gaps"), ("weights", "Weights")],
        "data": {**data, "examples": packed},
        "gap_chart": _gap_chart(tables, lines, parameters),
        "legend": [(legend_mark(lines[label]), label) for label in tables],
        "confidences": [(label, confidence(table, **band)) for label, table in tables.items()],
        "diagnostics": _diagnostics([run for run in runs if run.label in tables], tables, band, as_begun, weighing),
        "not_in_viewer": [display_name(name) for name in weighing if name not in VIEWED],
        "counts": _counts(next(iter(tables.values())), shown, packed),
        "written": _written(shown),
        "incomparable": {label: visible(f"{why.problem}; {why.hint}") for label, why in incomparable(tables).items()},
        "cut": cut_notes(runs),
    }


def _data(
    runs: Sequence[Run], tables: Tables, parameters: Mapping[str, float], moments: Sequence[Moment]
) -> dict[str, Any]:
    most = cells_each(sum(run.table is not None for run in runs))
    cells = {label: corpus_cells(table, parameters, most) for label, table in tables.items()}
    return {
        "runs": [visible(run.label) for run in runs],
        "model": next((visible(without_folders(table.metadata.get("model", ""))) for table in tables.values()), ""),
        "trained": [visible(run.objective or "") for run in runs],
        "suspect": AuditSettings.threshold,
        "objectives": VIEWED,
        "moments": [[one.step, one.gate, one.exponent] for one in moments],
        "parameters": {name: float(value) for name, value in parameters.items()},
        "edges": GAP_EDGES,
        "categories": CATEGORIES,
        "spaces": {letter: spaced(letter) for letter in " \t\n"},  # how tokens show them
        "corpus": [cells.get(run.label) for run in runs],
    }


def _counts(table: TokenTable, shown: Shown, packed: Mapping[str, Any]) -> dict[str, Any]:
    """How much there is, how much of it is shown, and what is left out."""
    return {
        "tokens": len(table),
        "examples": table.example_count,
        "shown_tokens": len(shown),
        "shown_examples": len(shown.numbers),
        "cut_tokens": sum(shown.left_out),
        "top_left_out": packed["top_left_out"],
    }


def _written(shown: Shown) -> list[dict[str, Any]]:
    first = shown.first
    prompts = first.metadata.get("prompts", [])
    examples = []
    for number, rows in list(zip(shown.numbers, shown.rows, strict=True))[:WRITTEN]:
        tokens = [
            {
                "text": shortened(first.texts["text"][row]),
                "step": sum(first["gap"][row] >= edge for edge in GAP_EDGES),
                "nll": float(first["nll"][row]),
                "gap": float(first["gap"][row]),
                "competitor": shortened(first.texts["competitor_text"][row]),
            }
            for row in rows[:_WRITTEN_TOKENS].tolist()
        ]
        prompt = shown_prompt(prompts[number]) if number < len(prompts) else ""
        left_out = int((first["example"] == number).sum()) - len(tokens)
        examples.append({"number": number, "prompt": prompt, "tokens": tokens, "left_out": left_out})
    return examples


def _gap_chart(tables: Tables, lines: Mapping[str, Any], parameters: Mapping[str, float]) -> Markup:
    import torch

    gaps = {label: table["gap"] for label, table in tables.items()}
    grid = np.linspace(*range_of(list(gaps.values())), 301)
    gap = torch.from_numpy(grid)
    on_grid = TokenStats(nll=gap, gap=gap, gold_logit=gap, competitor=torch.zeros(len(gap), dtype=torch.int64))
    weights = objective_of("trim", parameters).weights(on_grid).numpy()
    densities = {label: density(values, grid) for label, values in gaps.items()}
    return density_chart(grid, densities, lines, weights, "TrimSFT")


def _diagnostics(
    runs: Sequence[Run],
    tables: Tables,
    band: Mapping[str, float],
    as_begun: Mapping[str, Objective],
    as_ended: Mapping[str, Objective],
) -> list[dict[str, Any]]:
    """Return for each objective what it makes of the base's tokens, and of those of the run trained with it."""
    base, trained = base_of(runs), {run.objective: run.label for run in reversed(runs)}  # the first of each
    rows = []
    for name, objective in as_ended.items():
        # weighed without a base, too: an objective that cannot weigh is refused before anything is written
        before = diagnose(tables[(base or runs[0]).label], as_begun[name], **band)
        after = diagnose(tables[trained[name]], objective, **band) if name in trained else None
        rows.append({"name": display_name(name), "before": base and before, "after": after})
    return rows
