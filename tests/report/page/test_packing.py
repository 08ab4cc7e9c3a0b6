"""Arrays and examples as the page carries them; test_viewer.py compares what the page makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.page.pages import unpack
from tests.tokens.tiny import make_table
from trimsft.report.page import tokens_tab as module
from trimsft.report.page.tokens_tab import linear, packed_examples, rooted, shown_prompt, whole
from trimsft.tokens.table import read_token_table


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_whole_numbers_come_back(values) -> None:
    packed = whole(np.array(values, dtype=np.int64))
    assert unpack(packed).tolist() == values
    assert packed["bytes"] == max(1, -(-max(values, default=0).bit_length() // 8))


@given(st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=20))
def test_gaps_are_off_by_half_a_step_at_most(values) -> None:
    packed = linear(np.array(values, dtype=np.float32))
    largest = max(abs(value) for value in values)
    assert packed["step"] == 1 / 1024 or packed["step"] <= 2 * largest / 32767
    assert np.abs(unpack(packed) - values).max() <= packed["step"] / 2


@given(st.lists(st.floats(0, 64, width=32), min_size=1, max_size=20))
def test_roots_keep_what_is_near_zero(values) -> None:
    packed = rooted(np.array(values, dtype=np.float32))
    roots = np.sqrt(values)
    assert np.abs(np.sqrt(unpack(packed)) - roots).max() <= packed["step"] * 0.501
    assert packed["step"] <= 8 / 65535 or packed["step"] == 1.0


def test_what_is_not_finite_is_the_largest() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3.0])
    step = linear(values)["step"]
    assert unpack(linear(values)).tolist() == pytest.approx([0, 1e6, -1e6, 3], abs=step / 2)
    assert unpack(rooted(values))[:2].tolist() == pytest.approx([0, 1e6])


def read(tmp_path, texts, **more):
    number = len(list(tmp_path.iterdir()))
    path = make_table(tmp_path / f"{number}.parquet", texts, **more)
    return read_token_table(path, examples=range(module.EXAMPLES))


def test_each_token_is_named_once_and_its_numbers_come_back(tmp_path) -> None:
    table = read(tmp_path, [[" a", "b\n"], ["c"]], prompts=("P?",))
    _, packed = packed_examples([None, table])
    texts = packed["vocabulary"]["texts"]
    assert texts == [" a", "b\n", "c"] and unpack(packed["vocabulary"]["ids"]).tolist() == [0, 1, 2]
    assert [texts[i] for i in unpack(packed["tokens"])] == [" a", "b\n", "c"]
    assert (packed["numbers"], packed["lengths"], packed["prompts"]) == ([0, 1], [2, 1], ["P?", ""])
    assert packed["runs"][0] is None and packed["runs"][1]["missing"] == []
    run = packed["runs"][1]
    np.testing.assert_allclose(unpack(run["gap"]), table["gap"], atol=1 / 2048)
    np.testing.assert_allclose(unpack(run["nll"]), table["nll"], rtol=0.01, atol=1e-6)
    norm = (1 - np.exp(-table["nll"])) * (1 + (2**0.5 - 1) * unpack(run["norm"]) / 255)
    np.testing.assert_allclose(norm, table["gradient_norm"], rtol=2e-3)
    assert [texts[i] for i in unpack(run["competitor"])] == ["c", "c", "c"]


def test_examples_are_left_out_where_there_is_no_room(tmp_path) -> None:
    rng = np.random.default_rng(0)
    texts = [[f"{number}" for number in rng.integers(0, 99, 50)] for _ in range(40)]
    table = read(tmp_path, texts, gap=rng.normal(0, 5, 2000))
    everything, packed = packed_examples([table])
    size = len(module.json_for_script(packed))
    assert len(everything.numbers) == 40
    shown, packed = packed_examples([table], budget=size // 4)
    assert 1 < len(shown.numbers) < 40 and shown.numbers == list(range(len(shown.numbers)))
    assert len(module.json_for_script(packed)) <= size // 4
    assert len(packed_examples([table], budget=1)[0].numbers) == 1


def test_long_examples_and_prompts_are_cut_and_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 10)
    shown, packed = packed_examples([read(tmp_path, [["a"] * 25, ["b"] * 5])])
    assert packed["lengths"] == [10, 5] and packed["left_out"] == [15, 0] and len(shown) == 15
    cut = shown_prompt("q" * 3000 + "\u202e" * 3000)
    assert cut.startswith("qq") and "2,000 more characters" in cut and cut.endswith("⟨U+202E⟩")
