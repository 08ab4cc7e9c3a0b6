"""How well does `trimsft audit` find errors? Precision and recall where the errors are known; writes JSON and a table.

    python benchmarks/audit.py --out runs/audit --results results/audit.json
    python benchmarks/audit.py --out runs/audit --conditions gsm8k math --model SmolLM2-135M --data DATA \
        --template plain --learning-rate 1e-4 --updates 12 --rows 300 --results results/audit.json

In the lab the wrong steps are known: some rows at three rates, in the format that the base knows and in one that it has
never seen. In GSM8K and MATH one digit of one number is altered in a share of the rows; DATA is a folder with
gsm8k_train.jsonl and math_train.jsonl.gz, whose rows have the fields problem and solution. What these hold of errors
of their own counts as right here, so that their precision is a lower bound.

Each condition and seed is a folder of an ordinary audit below --out: stopped, the same command continues. "base" ranks
by the gaps of the model as it is, from the same tables.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import machine

from trimsft.audit.run import AuditFolder, AuditSettings, Suspect, audit
from trimsft.audit.suspects import BATCH_ROWS, FOLDS, find_suspects, read_gaps
from trimsft.data.encode import load_tokenizer
from trimsft.data.load import read_file
from trimsft.lab import FineTuning, base_model_path, training_rows
from trimsft.runs import write_whole

LAB: dict[str, dict[str, float]] = {
    "slips 2 %": {"slip_rate": 0.02},
    "slips 5 %": {"slip_rate": 0.05},
    "slips 20 %": {"slip_rate": 0.2},
    "new format, slips 5 %": {"slip_rate": 0.05, "unfamiliar_share": 1.0},
    "new format, slips 20 %": {"slip_rate": 0.2, "unfamiliar_share": 1.0},
    "half new, slips 5 %": {"slip_rate": 0.05, "unfamiliar_share": 0.5},
}
ALTERED = {"gsm8k": "gsm8k_train.jsonl", "math": "math_train.jsonl.gz"}
LONGEST = 300
"""Characters of a problem and of a solution of the rows that are altered, so that a CPU is done in minutes."""
LOW = 1.0  # the threshold down to which spans are ranked, for their average precision

WAYS = ("base", "trained", "base, numbers only", "trained, numbers only")

Row = dict[str, Any]
Spans = list[list[int]]


def main() -> None:
    options = _parser().parse_args()
    results: dict[str, dict[int, Any]] = {}
    for name in options.conditions:
        for seed in options.seeds:
            folder = options.out / f"{re.sub('[^a-z0-9]+', '-', name)}-{seed}"
            rows = _lab_rows(name, seed, options.rows) if name in LAB else _altered_rows(name, seed, options)
            results.setdefault(name, {})[seed] = _measure(folder, rows, options, seed)
            content = {"machine": machine(), "settings": _settings_told(options), "conditions": results}
            write_whole(options.results, (json.dumps(content, indent=1) + "\n").encode())
            print(name, seed, json.dumps(results[name][seed]), flush=True)
    print(_table(results))


# ---- rows with known errors: problem, solution, and `wrong`, spans of characters


def _lab_rows(name: str, seed: int, count: int) -> list[Row]:
    rows = training_rows(FineTuning(rows=count, seed=seed, **LAB[name]))  # type: ignore[arg-type]
    return [{"problem": row["problem"], "solution": row["solution"], "wrong": row["slip_spans"]} for row in rows]


def _altered_rows(name: str, seed: int, options: argparse.Namespace) -> list[Row]:
    rng = random.Random(f"audit/{name}/{seed}")
    file = read_file(options.data / ALTERED[name])
    pairs = zip(file.column("problem"), file.column("solution"), strict=True)
    short = [pair for pair in pairs if max(map(len, pair)) <= LONGEST and re.search(r"\d", pair[1])]
    rows: list[Row] = [{"problem": p, "solution": s, "wrong": []} for p, s in rng.sample(short, options.rows)]
    for row in rng.sample(rows, round(options.altered * len(rows))):
        row["solution"], span = _alter(row["solution"], rng)
        row["wrong"] = [span]
    return rows


def _alter(solution: str, rng: random.Random) -> tuple[str, list[int]]:
    """Another digit in the place of one, in one number; a number does not begin with a new 0."""
    number = rng.choice(list(re.finditer(r"[0-9]+", solution)))
    place = rng.randrange(number.start(), number.end())
    is_leading = place == number.start() and number.end() - place > 1
    digits = [digit for digit in "0123456789" if digit != solution[place] and not (is_leading and digit == "0")]
    return solution[:place] + rng.choice(digits) + solution[place + 1 :], [number.start(), number.end()]


# ---- what is found


def _measure(folder: Path, rows: Sequence[Row], options: argparse.Namespace, seed: int) -> dict[str, Any]:
    data = folder.with_suffix(".jsonl")
    write_whole(data, "".join(json.dumps(row) + "\n" for row in rows).encode())
    settings = AuditSettings(
        data=str(data),
        model=str(options.model or base_model_path()),
        out=folder,
        seed=seed,
        learning_rate=options.learning_rate,
        updates=options.updates,
        template=options.template,
        device=options.device,
    )
    audit(settings)
    ways = {"base": replace(settings, training=False), "trained": settings}
    ways |= {f"{way}, numbers only": replace(one, only="numeric") for way, one in ways.items()}
    wrong = {number: row["wrong"] for number, row in enumerate(rows) if row["wrong"]}
    counts = {"rows": len(rows), "wrong_rows": len(wrong), "wrong_spans": sum(map(len, wrong.values()))}
    return {**counts, **{way: _scores(one, wrong) for way, one in ways.items()}}


def _scores(settings: AuditSettings, wrong: Mapping[int, Spans]) -> dict[str, float]:
    """Precision and recall of rows and spans at the default threshold, average precision of both rankings."""
    (rows, _), tokenizer = settings.read(), load_tokenizer(settings.model)
    folder = AuditFolder(settings.out)
    gaps = read_gaps(folder, settings, len(rows))
    scores, ranked = find_suspects(folder, gaps, rows, tokenizer, replace(settings, threshold=LOW))
    _, suspects = find_suspects(folder, gaps, rows, tokenizer, settings)
    flagged = {one.row for one in suspects}
    hits = [_is_wrong(one.row, one.start, one.end, wrong) for one in suspects]
    right_rows = len(flagged & wrong.keys())
    return {
        "row_precision": _share(right_rows, len(flagged)),
        "row_recall": _share(right_rows, len(wrong)),
        "row_average_precision": _row_ranking(dict(enumerate(scores.tolist())), wrong),
        "span_precision": _share(sum(hits), len(hits)),
        "span_recall": _share(len(_spans_found(suspects, wrong)), sum(map(len, wrong.values()))),
        "span_average_precision": _span_ranking(ranked, wrong),
    }


def _is_wrong(row: int, start: int, end: int, wrong: Mapping[int, Spans]) -> bool:
    return any(start < last and first < end for first, last in wrong.get(row, []))


def _spans_found(suspects: list[Suspect], wrong: Mapping[int, Spans]) -> set[tuple[int, int]]:
    """The errors that some suspect touches."""
    touched = set()
    for one in suspects:
        spans = wrong.get(one.row, [])
        touched |= {(one.row, first) for first, last in spans if one.start < last and first < one.end}
    return touched


def _row_ranking(scores: Mapping[int, float], wrong: Mapping[int, Spans]) -> float:
    order = sorted(scores, key=lambda row: -scores[row])
    return average_precision([row in wrong for row in order], len(wrong))


def _span_ranking(ranked: list[Suspect], wrong: Mapping[int, Spans]) -> float:
    hits = [_is_wrong(one.row, one.start, one.end, wrong) for one in ranked]
    return average_precision(hits, sum(map(len, wrong.values())))


def average_precision(hits: Iterable[bool], wrong: int) -> float:
    """The mean precision at each error that is found; one that is not in the ranking counts 0.

    >>> average_precision([True, False, True], wrong=4)
    0.4167
    """
    is_hit = np.array(list(hits), dtype=bool)
    precision = np.cumsum(is_hit) / np.arange(1, len(is_hit) + 1)
    return _share(float(precision[is_hit].sum()), wrong)


def _share(part: float, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


# ---- what is told


def _settings_told(options: argparse.Namespace) -> dict[str, Any]:
    defaults = AuditSettings(data="-", model="-")
    told = {"threshold": defaults.threshold, "folds": FOLDS, "batch_rows": BATCH_ROWS}
    own = {
        "rows": options.rows,
        "learning_rate": options.learning_rate,
        "updates": options.updates,
        "template": options.template,
        "altered": options.altered,
    }
    return {**told, **own, "model": Path(options.model).name if options.model else "the lab's own"}


def _table(results: Mapping[str, Mapping[int, Any]]) -> str:
    """Means over seeds, in percent, as Markdown."""
    measures = ("row_precision", "row_recall", "row_average_precision", "span_precision", "span_recall")
    lines = [
        "| data | gaps | row precision | row recall | row AP | span precision | span recall |",
        "|---|---|" + "---|" * 5,
    ]
    for name, seeds in results.items():
        for way in WAYS:
            cells = [f"{100 * np.mean([one[way][measure] for one in seeds.values()]):.0f}" for measure in measures]
            lines.append(f"| {name} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="Folder of the audits.")
    parser.add_argument("--results", type=Path, required=True, help="JSON file to write.")
    parser.add_argument("--conditions", nargs="+", choices=[*LAB, *ALTERED], default=list(LAB))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rows", type=int, default=1200)
    parser.add_argument("--altered", type=float, default=0.05, help="Share of the rows in which a number is altered.")
    parser.add_argument("--model", help="Model folder; by default the lab's base.")
    parser.add_argument("--data", type=Path, help="Folder of the rows that are altered.")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--updates", type=int, default=AuditSettings.updates)
    parser.add_argument("--template", default="auto")
    parser.add_argument("--device", default="cpu")
    return parser


if __name__ == "__main__":
    main()
