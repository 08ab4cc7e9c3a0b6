"""Tokens on the page: the variables of tokens.html.j2 and gaps.html.j2, and the data of the viewer.

Shown are the first examples of the first run that has a token table, up to `EXAMPLES` of them and `LONGEST` tokens of
each; where that takes more characters than there is room for, fewer examples. The page says what is left out.

{"vocabulary": {"ids": packed, "texts": [" the", ...],          every token that is named, once
                "short": {"17": "====…⟨1,000 characters⟩"}},    what is shown of those that are too long, by their place
 "numbers": [0, 1], "lengths": [412, 80], "left_out": [0, 0], "prompts": ["What is ...", ""],
 "tokens": packed, "category": packed,                          for the tokens of all examples, one after the other
 "runs": [{"missing": [], "gap": packed, "nll": ..., "entropy": ..., "norm": ..., "competitor": ...}, null]}

`tokens` and `competitor` are indexes into the vocabulary. `norm` is the gradient norm, which lies between d = 1 - p and
sqrt(2) d, as 255 (norm / d - 1) / (sqrt(2) - 1). A packed array is {"code": "linear", "bytes": 2, "step": 0.0009765625,
"data": "eJxj..."}: all first (lowest) bytes, then all second ones, which deflates better; zlib format; base64.

| code | stored | value |
|---|---|---|
| whole | unsigned, as many bytes as the largest needs | q |
| linear | uint16; the finest step of 2^-k, at least 1/1024, that reaches all of them | (q - 32768) step |
| rooted | uint16; the step is sqrt(largest) / levels: fine near 0, to tell probabilities near 1 apart | (q step)^2 |
"""

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from trimsft.audit.run import AuditSettings
from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.data.visible import json_for_script, shortened, spaced, visible
from trimsft.objectives import PAPER_NAMES, Objective, TokenStats, display_name
from trimsft.report.course import ENDED, Moment, start_of
from trimsft.report.page.charts import density_chart, legend_mark, run_lines
from trimsft.report.page.details_tab import cut_notes
from trimsft.report.runs import Run, base_of
from trimsft.report.story import level_of
from trimsft.runs.secrets import without_folders
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.gaps import density, range_of
from trimsft.tokens.statistics.weighting import confidence, diagnose, objective_of, objectives_of, weights_of
from trimsft.tokens.table import TokenTable, incomparable, read_token_table

VIEWED = PAPER_NAMES | {"auto-trim": display_name("auto-trim")}
"""Objectives that the viewer weighs tokens by: their formulas are in weights.js."""
EXAMPLES = 200
LONGEST = 4000  # tokens of one example that are shown
PROMPT = 4000  # characters of a prompt that are shown
BUDGET = 9_000_000  # characters of data in the file, which leaves tables, style and script a million below 10 MB
WRITTEN = 5  # examples that the template writes, for readers without a script
_WRITTEN_TOKENS = 600
_FINEST_STEP = 1 / 1024
Tables = Mapping[str, TokenTable]


def token_parts(
    runs: Sequence[Run],
    parameters: Mapping[str, float],
    budget: int = BUDGET,
    objectives: Sequence[str] = (),
    moments: Sequence[Moment] = (ENDED,),
) -> dict[str, Any]:
    """Return the variables of tokens.html.j2; its data takes so many characters at most, if one example does.

    Args:
        objectives: names of those that the table of weights has beside the viewer's.
        moments: AutoTrim in the course of a training; the table weighs by its start and by the last of them.
    """
    weighing = objectives_of(parameters) | {"auto-trim": moments[-1]}
    weighing |= objectives_of(parameters, [name for name in objectives if name not in weighing])
    tables = {run.label: run.table for run in runs if run.table}  # and it is not empty
    data = {
        "runs": [visible(run.label) for run in runs],
        "model": next((visible(without_folders(table.metadata.get("model", ""))) for table in tables.values()), ""),
        "suspect": AuditSettings.threshold,
        "objectives": VIEWED,
        "moments": [[one.step, one.gate, one.exponent] for one in moments],
        "parameters": {name: float(value) for name, value in parameters.items()},
        "categories": CATEGORIES,
        "spaces": {letter: spaced(letter) for letter in " \t\n"},  # how tokens show them
        "examples": None,
    }
    if not tables:
        return {"sections": [], "data": data, "first": None}
    base, start = base_of(runs), start_of(moments) or moments[-1]
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    shown, packed = packed_examples(_read_examples(runs), budget - len(json_for_script(data)))
    lines, first = run_lines(runs), next(iter(tables.values()))
    with_tokens = [run for run in runs if run.label in tables]
    return {
        "sections": [("tokens", "Tokens"), ("gaps", "Logit gaps"), ("weights", "Weights")],
        "data": {**data, "examples": packed},
        "parameters": parameters,
        "first": next(iter(tables)),
        "base": base and base.label,
        "names": VIEWED,
        "moments": moments,
        "start": start,
        "spaces": {"space": spaced(" "), "line break": spaced("\n").strip()},
        "gap_chart": _gap_chart(tables, lines, parameters),
        "legend": [(legend_mark(lines[label]), label) for label in tables],
        "confidences": [(label, confidence(table, **band)) for label, table in tables.items()],
        "diagnostics": _diagnostics(with_tokens, tables, band, weighing | {"auto-trim": start}, weighing),
        "not_in_viewer": [display_name(name) for name in weighing if name not in VIEWED],
        "counts": {
            "tokens": len(first),
            "examples": first.example_count,
            "shown_tokens": len(shown),
            "shown_examples": len(shown.numbers),
            "cut_tokens": sum(shown.left_out),
        },
        "written": _written(shown, parameters),
        "incomparable": {label: visible(f"{why.problem}; {why.hint}") for label, why in incomparable(tables).items()},
        "cut": cut_notes(runs),
    }


def _written(shown: "Shown", parameters: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the examples that need no script, lit by TrimSFT's gradient."""
    first = shown.first
    gradient = weights_of(objective_of("trim", parameters), first) * first["gradient_norm"]
    prompts = first.metadata.get("prompts", [])
    examples = []
    for number, rows in list(zip(shown.numbers, shown.rows, strict=True))[:WRITTEN]:
        tokens = [
            {
                "text": shortened(first.texts["text"][row]),
                "level": level_of(float(gradient[row])),
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


# ---- the examples that are shown


class Shown:
    """The rows of the first table that are shown, and where the same tokens are in the other tables."""

    def __init__(self, tables: Sequence[TokenTable | None], examples: int) -> None:
        self.first = next(table for table in tables if table is not None)
        self.numbers = np.unique(self.first["example"])[:examples].tolist()
        self.rows = [_rows(self.first, number) for number in self.numbers]
        lengths = [int((self.first["example"] == number).sum()) for number in self.numbers]
        self.left_out = [length - len(rows) for length, rows in zip(lengths, self.rows, strict=True)]
        self.tables = tables
        self.matches = [None if table is None else self._match(table) for table in tables]

    def _match(self, table: TokenTable) -> list[NDArray[np.int64] | None]:
        """Return for each example its rows in another table; None where its tokens or its prompt are others."""
        matches: list[NDArray[np.int64] | None] = []
        for number, rows in zip(self.numbers, self.rows, strict=True):
            here = _rows(table, number)
            same = np.array_equal(table["token_id"][here], self.first["token_id"][rows])
            same = same and _same_prompt(self.first.metadata, table.metadata, number)
            matches.append(here if same else None)
        return matches

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows)


def _read_examples(runs: Sequence[Run]) -> list[TokenTable | None]:
    """Return the first examples of the first run that has tokens, as each run's table has them, with their texts."""
    with_tokens = [run.table for run in runs if run.table]
    first = with_tokens[0].first_examples(EXAMPLES) if with_tokens else []
    return [read_token_table(run.tokens_path, examples=first) if run.table else None for run in runs]


def packed_examples(tables: Sequence[TokenTable | None], budget: int = BUDGET) -> tuple[Shown, dict[str, Any]]:
    """Return as many examples as fit the budget."""
    shown = Shown(tables, EXAMPLES)
    packed = _pack(shown)
    while (size := len(json_for_script(packed))) > budget and len(shown.numbers) > 1:
        fewer = min(len(shown.numbers) - 1, int(len(shown.numbers) * 0.97 * budget / size))
        shown = Shown(tables, max(1, fewer))
        packed = _pack(shown)
    return shown, packed


def _pack(shown: Shown) -> dict[str, Any]:
    names: dict[int, str] = {}
    first, rows = shown.first, np.concatenate(shown.rows) if shown.rows else np.zeros(0, np.int64)
    _name(names, first["token_id"][rows], first.texts["text"], rows)
    runs = [
        None if table is None or match is None else _gather(table, match, shown, names)
        for table, match in zip(shown.tables, shown.matches, strict=True)
    ]
    ids = np.array(sorted(names), dtype=np.int64)
    texts = [visible(names[token]) for token in ids.tolist()]
    shorter = [shortened(names[token], visible) for token in ids.tolist()]
    short = {place: short for place, (short, text) in enumerate(zip(shorter, texts, strict=True)) if short != text}
    prompts = first.metadata.get("prompts", [])
    return {
        "vocabulary": {"ids": whole(ids), "texts": texts, "short": short},
        "numbers": shown.numbers,
        "lengths": [len(rows) for rows in shown.rows],
        "left_out": shown.left_out,
        "prompts": [shown_prompt(prompts[n]) if n < len(prompts) else "" for n in shown.numbers],
        "tokens": whole(np.searchsorted(ids, first["token_id"][rows])),
        "category": whole(first["category"][rows]),
        "runs": [run and _packed_run(run, ids) for run in runs],
    }


def shown_prompt(prompt: str) -> str:
    """Return a prompt as it is shown; a long one loses its middle, for question and end matter most."""
    if len(prompt) <= PROMPT:
        return visible(prompt)
    half = PROMPT // 2
    return visible(f"{prompt[:half]} [… {len(prompt) - 2 * half:,} more characters …] {prompt[-half:]}")


def _gather(
    table: TokenTable, match: Sequence[NDArray[np.int64] | None], shown: Shown, names: dict[int, str]
) -> dict[str, Any] | None:
    """Return the columns of one run for the shown tokens, zeros where its tokens are others; add the names it needs."""
    if all(rows is None for rows in match):
        return None
    there = np.concatenate([np.full(len(mine), rows is not None) for mine, rows in zip(shown.rows, match, strict=True)])
    rows = np.concatenate([rows for rows in match if rows is not None])
    gathered: dict[str, Any] = {"missing": [place for place, rows in enumerate(match) if rows is None]}
    for column in ("gap", "nll", "entropy", "gradient_norm", "competitor_id"):
        values = np.zeros(len(there), dtype=table[column].dtype)
        values[there] = table[column][rows]
        gathered[column] = values
    _name(names, table["competitor_id"][rows], table.texts["competitor_text"], rows)
    return gathered


def _packed_run(run: dict[str, Any], ids: NDArray[np.int64]) -> dict[str, Any]:
    doubt = -np.expm1(-run["nll"].astype(np.float64))
    ratio = run["gradient_norm"] / np.maximum(doubt, 1e-30)
    return {
        "missing": run["missing"],
        "gap": linear(run["gap"]),
        "nll": rooted(run["nll"]),
        "entropy": rooted(run["entropy"], levels=4095),
        "norm": whole(np.clip(np.round(255 * (ratio - 1) / (2**0.5 - 1)), 0, 255)),
        "competitor": whole(np.searchsorted(ids, run["competitor_id"]) % max(1, len(ids))),
    }


def _name(names: dict[int, str], ids: NDArray[Any], texts: Sequence[str], rows: NDArray[np.int64]) -> None:
    """Add the texts of these ids; texts are read once for each."""
    distinct, where = np.unique(ids, return_index=True)
    for token, place in zip(distinct.tolist(), where.tolist(), strict=True):
        names.setdefault(token, texts[rows[place]])


def _same_prompt(one: Mapping[str, Any], other: Mapping[str, Any], number: int) -> bool:
    """Tell whether the recorded prompts agree: equal completions after other prompts say nothing about training."""
    system = [metadata.get("system_prompt") for metadata in (one, other)]
    usual = [SYSTEM_PROMPT if prompt is None else prompt for prompt in system]
    if one.get("template") != other.get("template") or usual[0] != usual[1]:
        return False
    kept = [metadata.get("prompts", []) for metadata in (one, other)]
    return not all(number < len(prompts) for prompts in kept) or kept[0][number] == kept[1][number]


def _rows(table: TokenTable, number: int) -> NDArray[np.int64]:
    return np.flatnonzero(table["example"] == number)[:LONGEST]


# ---- packed arrays; values that are not finite become the largest of their sign, NaN becomes 0


def whole(values: NDArray[Any]) -> dict[str, Any]:
    largest = int(values.max(initial=0))
    width = next(width for width in (1, 2, 3, 4) if largest < 256**width or width == 4)
    return {"code": "whole", "bytes": width, "data": _data(values.astype("<u4"), width)}


def linear(values: NDArray[Any]) -> dict[str, Any]:
    finite = np.nan_to_num(values.astype(np.float64), posinf=1e6, neginf=-1e6)
    largest = float(np.abs(finite).max(initial=0.0))
    step = max(_FINEST_STEP, 2.0 ** math.ceil(math.log2(largest / 32767))) if largest else _FINEST_STEP
    stored = np.clip(np.round(finite / step) + 32768, 0, 65535).astype("<u2")
    return {"code": "linear", "bytes": 2, "step": step, "data": _data(stored, 2)}


def rooted(values: NDArray[Any], levels: int = 65_535) -> dict[str, Any]:
    roots = np.sqrt(np.clip(np.nan_to_num(values.astype(np.float64), posinf=1e6), 0, None))
    step = float(roots.max(initial=0.0)) / levels or 1.0
    return {"code": "rooted", "bytes": 2, "step": step, "data": _data(np.round(roots / step).astype("<u2"), 2)}


def _data(values: NDArray[Any], width: int) -> str:
    planes = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize)[:, :width].T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()
