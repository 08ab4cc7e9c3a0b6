"""Damaged records: files of runs with a bit flipped, cut short, or with other values than anybody would write.

    campaign(folder, trials=300)      # Counter({"refused": 251, "shown": 49})

A trial damages one file and gives the runs to `report` or `compare`. Either must end well or refuse in one line with
exit code 2; anything else is counted under the name of the error. By hand: `python -m tests.report.damage 300`.
"""

import io
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.report.page.pages import make_three
from tests.tokens.tiny import make_table
from trimsft.errors import TrimSFTError
from trimsft.report import CompareSettings, ReportSettings, compare, make_report
from trimsft.report.figures import Drawing

TEXTS = [["So", " the", " sum", " is", " 4", "2", "."], ["Thus", " x", " =", " 7", "."]]
ODD: list[Any] = [None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "", "x", [], [[]], {}, {"a": {}}]


def make_runs(folder: Path) -> dict[str, Path]:
    """Two runs with scores, samples, settings, configuration, manifest and token table."""
    runs = {label: run for label, run in make_three(folder).items() if label != "Base"}
    for shift, run in enumerate(runs.values()):
        make_table(run / "tokens.parquet", TEXTS, shift=float(shift), prompts=("What is it?", "And x?"), top=True)
        (run / "config.yaml").write_text("objective: trim\nmargin: 1.5\n")
        (run / "manifest.json").write_text(
            json.dumps({"model": {"name": "m"}, "versions": {"torch": "2"}, "command": "c"})
        )
    return runs


def damage(content: bytes, name: str, rng: random.Random) -> bytes:
    """The content after one misfortune."""
    kind = rng.choice(["flip", "cut", "zero", "value", "value", "value"])
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    if kind == "zero":
        start = rng.randrange(len(content))
        return content[:start] + bytes(min(64, len(content) - start)) + content[start + 64 :]
    if kind == "value" and name.endswith((".json", ".jsonl")):
        lines = content.splitlines() if name.endswith(".jsonl") else [content]
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(_with_other_value(json.loads(lines[place]), rng)).encode()
        return b"\n".join(lines) + b"\n"
    if kind == "value" and name.endswith(".parquet"):
        return _other_table(content, rng)
    flipped = bytearray(content)
    flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _other_table(content: bytes, rng: random.Random) -> bytes:
    """The table with another number somewhere, or another value in its metadata."""
    table = pq.read_table(io.BytesIO(content))
    if rng.random() < 0.5:
        metadata = _with_other_value(json.loads(table.schema.metadata[b"trimsft"]), rng)
        table = table.replace_schema_metadata({b"trimsft": json.dumps(metadata).encode()})
    else:
        place = rng.choice([at for at, field in enumerate(table.schema) if field.name != "category"])
        field = table.schema.field(place)
        odd: list[Any] = [None, -1, 0, 2**24]
        odd = ["", None] if field.type == pa.string() else [None, []] if pa.types.is_list(field.type) else odd
        odd += [float("nan"), float("inf"), -float("inf")] if pa.types.is_floating(field.type) else []
        values = table.column(place).to_pylist()
        values[rng.randrange(len(values))] = rng.choice(odd)
        table = table.set_column(place, field, pa.array(values, type=field.type))
    written = io.BytesIO()
    pq.write_table(table, written)
    return written.getvalue()


def _with_other_value(record: Any, rng: random.Random) -> Any:
    """One value somewhere within replaced or taken away."""
    inner = (
        list(record.items())
        if isinstance(record, dict)
        else list(enumerate(record))
        if isinstance(record, list)
        else []
    )
    if not inner or rng.random() < 0.1:
        return rng.choice(ODD)
    key, value = rng.choice(inner)
    if rng.random() < 0.2:
        del record[key]
    else:
        record[key] = _with_other_value(value, rng)
    return record


def campaign(
    folder: Path, trials: int, seed: int = 0, *, told: Callable[[str], None] = lambda line: None
) -> Counter[str]:
    """How so many trials ended, by outcome."""
    rng, outcomes = random.Random(seed), Counter[str]()
    runs = make_runs(folder)
    files = sorted(path for run in runs.values() for path in run.rglob("*") if path.is_file())
    for _ in range(trials):
        path = rng.choice(files)
        whole = path.read_bytes()
        path.write_bytes(damage(whole, path.name, rng))
        outcome = _outcome(runs, folder / "out")
        if outcome not in ("shown", "refused"):
            told(f"{path.relative_to(folder)}: {outcome}")
        outcomes[outcome] += 1
        path.write_bytes(whole)
        shutil.rmtree(folder / "out", ignore_errors=True)
    return outcomes


def _outcome(runs: dict[str, Path], out: Path) -> str:
    refused = False
    for make in (
        lambda: compare(CompareSettings(runs=tuple(runs.values()))).render("markdown"),
        lambda: make_report(ReportSettings(runs=tuple(f"{label}={run}" for label, run in runs.items()), out=out)),
    ):
        try:
            make()
        except TrimSFTError as error:
            if error.exit_code != 2 or "\n" in str(error):
                return f"told badly: {error}"
            refused = True
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:100]}"
    return "refused" if refused else "shown"


if __name__ == "__main__":
    Drawing.save = lambda self, path: []  # type: ignore[method-assign]  # figures are drawn from what was read
    with tempfile.TemporaryDirectory() as name:
        print(campaign(Path(name), int(sys.argv[1]), told=print))  # noqa: T201
