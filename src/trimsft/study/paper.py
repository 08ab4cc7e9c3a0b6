"""The numbers of the paper's tables, to stand beside ours. Data only.

    >>> rows("main")[4].method, rows("main")[4].average
    ('trim', 4.14)
    >>> rows("weight_diagnostics")[0].effective_ratio
    0.212

`paper.json` names the LaTeX label of each table and the line of each row in the paper's source. Methods carry the
names of `trimsft.objectives` (and "base"), benchmarks those of `trimsft.evaluate`. Where the paper disagrees with
itself the printed numbers stand.
"""

import json
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from trimsft.objectives.paper import Setting


def rows(table: str) -> list[Any]:
    """Return the rows of a table as `paper.json` has them, in percent; margin and bandwidth are the `setting`.

    Those of average@8 have scores by benchmark, and the average as printed; half trims have none. In Table 1 nothing
    has a setting: it is (1.5, 0.8) throughout.
    """
    made = []
    for row in _content()["tables"][table]["rows"]:
        values = {name: value for name, value in row.items() if name not in Setting._fields}
        setting = Setting(row["margin"], row["bandwidth"]) if "margin" in row else None
        made.append(SimpleNamespace(**{"average": None, **values}, setting=setting))
    return made


def claims() -> dict[str, tuple[str, str]]:
    """Return what the paper says in words: claim -> the study that it is about, and the statement."""
    return {name: (one["study"], one["statement"]) for name, one in _content()["claims"].items()}


def printed_name(label: str) -> str:
    """Return what the paper prints for a table or figure, by the label of its source: Table 2."""
    return str(_content()["names"][label])


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files("trimsft.study").joinpath("paper.json").read_text(encoding="utf-8"))
    return content
