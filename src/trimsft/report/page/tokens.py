"""Tokens of the page: the base's first examples, what each method makes of them, and their wrong steps.

The base is the first run with a table that no training is known of: its logits are those before a training. Without
one, the tokens are those of the first run that has a table, and only its own objective is shown.

{"base": true, "path": "base", "numbers": [0, 1], "lengths": [412, 80], "prompts": ["What is ...", ""],
 "texts": [" the", ...], "token": packed, "competitor": packed,          indexes into the texts, token after token
 "gap": packed, "nll": packed, "norm": packed, "range": [-16, 27],
 "steps": 318, "wrong": [[example, from, to, "16 * 3 = 34", "48"], ...], "doubt": [-5.0, -0.9],
 "sides": [{"name": "SFT", "objective": "sft", "run": "SFT"}, {"name": "TrimSFT", "margin": 1.5, "bandwidth": 0.8}]}

A side has the fields of its objective where the script computes the weights, `weights` (packed) where Python did. A
packed array is float32, in zlib's format, as base64.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.data.visible import visible
from trimsft.errors import UsageError
from trimsft.head.problem import weigh
from trimsft.objectives import OBJECTIVES, PAPER_OBJECTIVES, PARAMETERS, Objective, display_name, make_objective
from trimsft.report.page.steps import arithmetic_steps
from trimsft.report.runs import Run
from trimsft.runs.parsing import checked
from trimsft.runs.secrets import without_folders
from trimsft.tokens.statistics import objective_of, weights_of
from trimsft.tokens.table import TokenTable, read_token_table

LONGEST_TOKEN = 100
"""Characters of a token that are shown."""
EXAMPLES = 200
MOST = 250_000  # tokens of all of them
PROMPT = 300  # characters of a prompt
COMPUTED = (*PAPER_OBJECTIVES, "auto-trim")  # the script has their formulas
USUAL = ("dft", "trim", "auto-trim")  # what SFT is compared with where nothing was trained
_MATTERS = 0.5  # percent of some side's gradient; with less, wrong steps are no story


@dataclass(frozen=True)
class Side:
    """An objective that is shown."""

    objective: str
    weigher: Objective
    run: str | None  # the first run that was trained with it, by label
    name: str = ""


def token_parts(
    runs: Sequence[Run], parameters: Mapping[str, float], objectives: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the data of the tokens, and the objectives that weigh them; None where no run has a table.

    Args:
        objectives: names of those that are weighed beside those of the runs; one's own are loaded.
    """
    base = next((run for run in runs if run.table and run.objective is None), None)
    run = base or next((run for run in runs if run.table), None)
    if run is None or run.table is None:
        return None
    sides = sides_of(runs if base else [run], parameters, objectives)
    if base is None:  # what SFT would do to a trained model is nobody's question
        own = next((side for side in sides if side.run), replace(sides[0], name=run.label))
        sides = [own, *(side for side in sides if side.objective in objectives and side is not own)]
    table = read_token_table(run.tokens_path, examples=run.table.first_examples(EXAMPLES))
    rows = _shown_rows(table)
    here = np.concatenate(rows)
    texts, token, competitor = _vocabulary(table, here)
    weights = {side.name: weights_of(side.weigher, table)[here] for side in sides}
    prompts, numbers = table.metadata.get("prompts", []), [int(table["example"][one[0]]) for one in rows]
    low, high = np.quantile(table["gap"][here].astype(np.float64), [0.001, 0.999])
    data = {
        "base": base is not None,
        "path": visible(without_folders(str(table.metadata.get("model", "")))),
        "numbers": numbers,
        "lengths": [len(one) for one in rows],
        "prompts": _prompts([prompts[number] if number < len(prompts) else "" for number in numbers]),
        "texts": texts,
        "token": packed(token),
        "competitor": packed(competitor),
        "gap": packed(table["gap"][here]),
        "nll": packed(table["nll"][here]),
        "norm": packed((table["gradient_norm"] * table["data_weight"])[here]),
        "data": packed(table["data_weight"][here]) if (table["data_weight"][here] != 1).any() else None,
        "range": [float(np.clip(low - 1, -40, -4)), float(np.clip(high + 1, 8, 40))],
        "sides": [_side_data(side, table, here) for side in sides],
        **_steps(table, rows, [one * table["gradient_norm"][here] for one in weights.values()]),
    }
    weighing = {side.name: side.weigher for side in sides}
    count = f"{run.table.example_count:,}"
    shown = count if len(rows) == run.table.example_count else f"{len(rows)} of {count}"
    about = f"{shown} examples, logits of {run.label}"
    return {"data": data, "about": about, "weighing": weighing, "model": run.label}


def _shown_rows(table: TokenTable) -> list[NDArray[np.int64]]:
    """Return the rows of each example that is shown."""
    rows, total = [], 0
    for number in np.unique(table["example"]).tolist():
        rows.append(np.flatnonzero(table["example"] == number))
        total += len(rows[-1])
        if total >= MOST:
            break
    return rows


def _vocabulary(table: TokenTable, rows: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the texts of all tokens and competitors, and the place of each among them."""
    ids = np.concatenate([table["token_id"][rows], table["competitor_id"][rows]])
    _, first, places = np.unique(ids, return_index=True, return_inverse=True)
    texts = []
    for at in first.tolist():
        column = "text" if at < len(rows) else "competitor_text"
        texts.append(shortened(table.texts[column][rows[at % len(rows)]]))
    return texts, places[: len(rows)], places[len(rows) :]


def shortened(text: str) -> str:
    """Return a text safe to look at; of a long one, the beginning and how long it is."""
    # a space that does not break stands for no character of the token
    more = f"…⟨{len(text):,}\u00a0characters⟩" if len(text) > LONGEST_TOKEN else ""
    return visible(text[:LONGEST_TOKEN]) + more


def _prompts(prompts: Sequence[str]) -> list[str]:
    """Return the questions as far as they fit, without what a template puts around each of them."""
    bare = [" ".join(prompt.replace(SYSTEM_PROMPT, "").split()) for prompt in prompts]
    if len(bare) > 1:
        shared = os.path.commonprefix  # letter by letter
        before = shared(bare).rpartition(" ")[0]
        after = shared([one[::-1] for one in bare])[::-1].partition(" ")[2]
        bare = [one[len(before) : len(one) - len(after)].strip() or one for one in bare]
    return [visible(one if len(one) <= PROMPT else f"… {one[-PROMPT:]}") for one in bare]


# ---- wrong steps


def _steps(
    table: TokenTable, rows: Sequence[NDArray[np.int64]], masses: Sequence[NDArray[np.float64]]
) -> dict[str, Any]:
    """Return how many arithmetic steps there are, the wrong digits among them, and how low gaps lie.

    `doubt` is the lowest gap that every wrong result has or goes below, and the lowest that a right one has. Wrong
    steps that no objective learns from are none: `masses` are the gradients of the tokens under each.
    """
    count, start = 0, 0
    wrong: list[list[Any]] = []
    about: list[int] = []
    doubted: list[float] = []
    held: list[float] = []
    for place, own in enumerate(rows):
        # tokens that were masked in between end a text
        apart = np.diff(table["position"][own], prepend=-1) > 1
        texts = [("\n" if cut else "") + table.texts["text"][row] for row, cut in zip(own, apart, strict=True)]
        ends = np.cumsum([len(text) for text in texts])
        for step in arithmetic_steps("".join(texts)):
            start_of_result, end = step.result
            first, last = np.searchsorted(ends, [start_of_result, end - 1], side="right").tolist()
            count += 1
            (held if step.holds else doubted).append(float(table["gap"][own[first : last + 1]].min()))
            if step.wrong_from is not None:
                begin = int(np.searchsorted(ends, step.wrong_from, side="right"))
                wrong.append([place, begin, last, visible(step.text), visible(step.right)])
                about += range(start + begin, start + last + 1)
        start += len(own)
    if not any(100 * mass[about].sum() >= _MATTERS * mass.sum() > 0 for mass in masses):
        return {"steps": 0, "wrong": [], "doubt": None}
    return {"steps": count, "wrong": wrong, "doubt": [max(doubted), min(held)] if doubted and held else None}


# ---- the objectives that are shown


def sides_of(runs: Sequence[Run], parameters: Mapping[str, float], objectives: Sequence[str] = ()) -> list[Side]:
    """Return SFT, each setting that a run was trained with, those that are named, and TrimSFT."""
    known: dict[str, Side] = {}
    for run in runs:
        if run.objective is not None and (weigher := _weigher(run, parameters, objectives)) is not None:
            known.setdefault(repr(weigher), Side(run.objective, weigher, run.label))
    for name in ["sft", *(() if known else USUAL), *objectives, "trim"]:
        if not any(side.objective == name for side in known.values()):
            known[name] = Side(name, _made(name, parameters), None)
    sides = sorted(known.values(), key=lambda side: side.objective != "sft")
    names = [side.objective for side in sides]
    return [
        replace(side, name=side.run if side.run and names.count(side.objective) > 1 else display_name(side.objective))
        for side in sides
    ]


def _weigher(run: Run, parameters: Mapping[str, float], objectives: Sequence[str]) -> Objective | None:
    """Return the objective by which a run weighs tokens; None where the page cannot say."""
    name = run.objective or ""
    if name in PAPER_OBJECTIVES:
        given = {key: run.config[key] for key in PARAMETERS if run.config.get(key) is not None}
        where = str(run.directory.config_path)
        return objective_of(name, checked(dict[str, float], given, where=where) if run.config else parameters)
    made = _made(name, parameters) if name in (*OBJECTIVES, *objectives) else None
    try:
        return made if made and run.table and len(weights_of(made, run.table)) else None
    except UsageError:  # it needs what no table has
        return None


def _made(name: str, parameters: Mapping[str, float]) -> Objective:
    return objective_of(name, parameters) if name in PAPER_OBJECTIVES else make_objective(name)


def _side_data(side: Side, table: TokenTable, rows: NDArray[np.int64]) -> dict[str, Any]:
    data = {"name": visible(side.name), "objective": side.objective, "run": side.run and visible(side.run)}
    if side.objective in COMPUTED:
        return {**data, **vars(side.weigher)}
    return data | {"weights": packed(weigh(side.weigher, table.stats()).numpy()[rows])}


def packed(values: NDArray[Any]) -> str:
    """Pack numbers as float32 of 12 bits of precision, whose last bytes of zeros deflate to nothing.

    Token numbers and places are whole and small enough to come back as they were.
    """
    whole = np.issubdtype(values.dtype, np.integer)
    finite = np.nan_to_num(values.astype("<f4"), posinf=1e6, neginf=-1e6)
    bits = finite.view("<u4") if whole else (finite.view("<u4") + 0x800) & np.uint32(0xFFFFF000)
    return deflated(bits.tobytes())


def deflated(content: bytes) -> str:
    """Return bytes as text for the script."""
    return base64.b64encode(zlib.compress(content, 6)).decode()
