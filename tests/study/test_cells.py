"""One training is one cell, whatever a study writes down of it; a name is a path of its own."""

import json
import re
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.objectives import OBJECTIVES
from trimsft.study.cell import Cell

VALUES = st.one_of(st.floats(0.1, 9), st.integers(1, 9), st.text(max_size=12), st.booleans(), st.none())
CELLS = st.builds(
    lambda objective, fields, seed: Cell(model="lab", objective=objective, fields=tuple(fields.items()), seed=seed),
    st.sampled_from(sorted(OBJECTIVES)),
    st.dictionaries(st.sampled_from(["learning_rate", "optim", "packing", "system_prompt"]), VALUES),
    st.integers(0, 3),
)


def test_defaults_and_order_make_no_other_cell() -> None:
    short = Cell(model="lab", objective="trim", fields=(("margin", 2),))
    long = Cell(model="lab", objective="trim", fields=(("margin", 2.0), ("bandwidth", 0.8)))
    assert short == long and hash(short) == hash(long) and short.name == long.name
    assert short.fields == (("bandwidth", 0.8), ("margin", 2))


@given(CELLS, CELLS)
def test_a_name_is_a_safe_path_of_one_cell_alone(a: Cell, b: Cell) -> None:
    assert (a == b) == (a.name == b.name)
    path = PurePosixPath(a.name)
    assert len(path.parts) == 3 and ".." not in path.parts and str(path) == a.name and a.name.isprintable()


@given(CELLS)
def test_a_cell_comes_back_from_json(cell: Cell) -> None:
    assert Cell.from_dict(json.loads(json.dumps(cell.as_dict()))) == cell


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "trimm"}, "objective: unknown name 'trimm'; did you mean 'trim'?"),
        ({"objective": "sft", "fields": (("margin", 2.0),)}, "margin: has no effect with objective 'sft'"),
        ({"objective": "trim", "fields": (("bandwidth", -1.0),)}, "bandwidth"),
        ({"objective": "sft", "fields": (("seed", 2),)}, "seed: has no effect with objective 'sft'"),
        ({"objective": "sft", "model": "../up"}, "models: must be a name of letters, digits and . _ + -"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Cell(**({"model": "lab"} | given))
