"""What the page says of tokens: variables of tokens.html.j2, and what its scripts find in `data-tokens`.

Tables, the chart of densities and the first few examples are written by the template and need no script. The scripts
put the viewer in place of those few: all shown examples (examples.py), the whole corpus behind the sliders (cells.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from trimsft.objectives import OBJECTIVES, PAPER_NAMES, TokenStats
from trimsft.report.page.cells import cells_each, corpus_cells
from trimsft.report.page.charts import density_chart, legend_mark
from trimsft.report.page.examples import BUDGET, Shown, packed_examples, read_examples, shown_prompt
from trimsft.report.page.provenance import cut_notes, incomparable
from trimsft.report.page.sources import Run
from trimsft.text.visible import json_for_script, spaced, visible
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.density import density, range_of
from trimsft.tokens.statistics.weighting import confidence, diagnose, objective_of

GAP_EDGES = (-6.0, -3.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
"""Between the nine colours of gaps, in the template and in colours.js."""
WRITTEN = 5
"""Examples that the template writes, for readers without a script."""
_WRITTEN_TOKENS = 600


def token_parts(runs: Sequence[Run], parameters: Mapping[str, float], budget: int = BUDGET) -> dict[str, Any]:
    """Variables of tokens.html.j2; its data takes so many characters at most, if one example does."""
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    with_tokens = [(number, run) for number, run in enumerate(runs) if run.table]  # and it is not empty
    parts: dict[str, Any] = {
        "sections": [],
        "data": {"examples": None, **_data(runs, parameters)},
        "parameters": parameters,
        "first": with_tokens[0][1] if with_tokens else None,
        "edges": GAP_EDGES,
        "names": PAPER_NAMES,
        "categories": CATEGORIES,
    }
    if not with_tokens:
        return parts
    data = parts["data"]
    shown, packed = packed_examples(read_examples(runs), budget - len(json_for_script(data)))
    return parts | {
        "sections": [("tokens", "Tokens"), ("gaps", "Logit gaps"), ("weights", "Weights")],
        "data": {**data, "examples": packed},
        "gap_chart": _gap_chart(with_tokens, parameters),
        "legend": [(legend_mark(number), run.label) for number, run in with_tokens],
        "confidences": [(run.label, confidence(run.table, **band)) for _, run in with_tokens if run.table],
        "diagnostics": _diagnostics([run for _, run in with_tokens], parameters),
        "counts": _counts(with_tokens[0][1], shown, packed),
        "written": _written(shown),
        "margins": _margins([run for _, run in with_tokens]),
        "incomparable": incomparable(runs),
        "cut": cut_notes(runs),
    }


def _data(runs: Sequence[Run], parameters: Mapping[str, float]) -> dict[str, Any]:
    most = cells_each(sum(run.table is not None for run in runs))
    return {
        "runs": [visible(run.label) for run in runs],
        "model": next((visible(run.table.metadata.get("model", "")) for run in runs if run.table), ""),
        "objectives": PAPER_NAMES,
        "parameters": {name: float(value) for name, value in parameters.items()},
        "edges": GAP_EDGES,
        "categories": CATEGORIES,
        "corpus": [corpus_cells(run.table, parameters, most) if run.table else None for run in runs],
    }


def _margins(runs: Sequence[Run]) -> tuple[int, int]:
    """Where the slider of the margin ends: -5 and 10, or beyond where gaps lie there (but for two in a thousand)."""
    ends = [np.quantile(run.table["gap"], (0.001, 0.999)) for run in runs if run.table is not None]
    return min(-5, *(int(np.floor(low)) for low, _ in ends)), max(10, *(int(np.ceil(high)) for _, high in ends))


def _counts(run: Run, shown: Shown, packed: Mapping[str, Any]) -> dict[str, Any]:
    """How much there is, how much of it is shown, and what is left out."""
    assert run.table is not None
    return {
        "tokens": len(run.table),
        "examples": len(np.unique(run.table["example"])),
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
                "text": spaced(first.texts["text"][row]),
                "step": gap_step(float(first["gap"][row])),
                "nll": float(first["nll"][row]),
                "gap": float(first["gap"][row]),
                "competitor": spaced(first.texts["competitor_text"][row]),
            }
            for row in rows[:_WRITTEN_TOKENS].tolist()
        ]
        prompt = shown_prompt(prompts[number]) if number < len(prompts) else ""
        left_out = int((first["example"] == number).sum()) - len(tokens)
        examples.append({"number": number, "prompt": prompt, "tokens": tokens, "left_out": left_out})
    return examples


def gap_step(gap: float) -> int:
    """Which of the nine colours."""
    return sum(gap >= edge for edge in GAP_EDGES)


def _gap_chart(runs: Sequence[tuple[int, Run]], parameters: Mapping[str, float]) -> Markup:
    gaps = {run.label: run.table["gap"].astype(np.float64) for _, run in runs if run.table is not None}
    grid = np.linspace(*range_of(list(gaps.values())), 301)
    weights = objective_of("trim", parameters).weights(_tokens_with(grid)).numpy()
    densities = {label: density(values, grid) for label, values in gaps.items()}
    return density_chart(grid, densities, weights, "TrimSFT", [number for number, _ in runs])


def _tokens_with(gaps: Any) -> TokenStats:
    import torch

    gap = torch.from_numpy(gaps)
    return TokenStats(nll=gap, gap=gap, gold_logit=gap, competitor=torch.zeros(len(gap), dtype=torch.int64))


def _diagnostics(runs: Sequence[Run], parameters: Mapping[str, float]) -> list[dict[str, Any]]:
    """For each objective: what it makes of the first run's tokens, and of those of the run trained with it."""
    if not runs or runs[0].table is None:
        return []
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    rows = []
    for name in OBJECTIVES:
        objective = objective_of(name, parameters)
        trained = next((run for run in runs[1:] if run.objective == name), None)
        after = diagnose(trained.table, objective, **band) if trained and trained.table else None
        rows.append({"name": PAPER_NAMES[name], "before": diagnose(runs[0].table, objective, **band), "after": after})
    return rows
