"""Arrays, the corpus and the examples as the page carries them; test_viewer.py compares what the page makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.page.pages import unpack
from tests.tokens.tiny import make_table
from trimsft.objectives import PARAMETERS
from trimsft.report.page import examples as module
from trimsft.report.page.examples import packed_examples, shown_prompt
from trimsft.report.page.packing import cells_each, corpus_cells, linear, rooted, whole
from trimsft.tokens.statistics.weighting import objective_of, weights_of
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


@pytest.fixture
def table(tmp_path):
    gap = np.random.default_rng(0).normal(3, 6, 4000)
    return read_token_table(make_table(tmp_path / "tokens.parquet", [["12", " so", "$", " a"] * 1000], gap=gap))


def test_a_small_corpus_is_kept_token_by_token(table) -> None:
    assert cells_each(1) == cells_each(3) == 32_768 and cells_each(10) == 10_000  # many runs share them
    packed = corpus_cells(table, PARAMETERS)
    cells = {name: unpack(column) for name, column in packed["columns"].items()}
    assert packed["tokens"] == 4000 and packed["width"] == 0
    assert (cells["count"] == 1).all() and (cells["spread"] == 0).all()
    order = np.lexsort((table["gap"], table["category"]))
    np.testing.assert_array_equal(cells["mean"], table["gap"][order])
    np.testing.assert_array_equal(cells["category"], table["category"][order])
    np.testing.assert_array_equal(cells["norm"], table["gradient_norm"][order])
    np.testing.assert_array_equal(cells["nll"], table["nll"][order])
    assert (cells["nll_spread"] == 0).all()


@pytest.mark.parametrize("most", [50, 500, 3999])
def test_a_large_corpus_is_put_into_cells_that_keep_sums(table, most) -> None:
    packed = corpus_cells(table, PARAMETERS, most)
    cells = {name: unpack(column) for name, column in packed["columns"].items()}
    assert len(cells["count"]) <= most and cells["count"].sum() == 4000
    assert packed["width"] in [2.0**power for power in range(-8, 3)]
    assert (np.sqrt(12) * cells["spread"] <= 2 * packed["width"]).all()
    for kind in range(4):
        of_kind, there = cells["category"] == kind, table["category"] == kind
        assert cells["count"][of_kind].sum() == there.sum()
        assert (cells["count"] * cells["mean"])[of_kind].sum() == pytest.approx(table["gap"][there].sum(), rel=1e-5)
        squares = (cells["count"] * (cells["mean"] ** 2 + cells["spread"] ** 2))[of_kind].sum()
        assert squares == pytest.approx(np.square(table["gap"][there].astype(float)).sum(), rel=1e-5)
        assert cells["norm"][of_kind].sum() == pytest.approx(table["gradient_norm"][there].sum(), rel=1e-5)
        nll = table["nll"][there].astype(float)
        assert (cells["count"] * cells["nll"])[of_kind].sum() == pytest.approx(nll.sum(), rel=1e-5)
        squares = (cells["count"] * (cells["nll"] ** 2 + cells["nll_spread"] ** 2))[of_kind].sum()
        assert squares == pytest.approx(np.square(nll).sum(), rel=1e-5)
    for name in ("dft", "fsft"):
        weights = weights_of(objective_of(name), table)
        assert cells[f"{name}.w"].sum() == pytest.approx(weights.sum(), rel=1e-5)
        assert cells[f"{name}.mass"].sum() == pytest.approx((weights * table["gradient_norm"]).sum(), rel=1e-5)
        assert packed["totals"][name]["high"] == (weights > 0.5).sum()
        assert packed["totals"][name]["squares"] == pytest.approx(np.square(weights).sum())


def read(tmp_path, texts, **more):
    number = len(list(tmp_path.iterdir()))
    path = make_table(tmp_path / f"{number}.parquet", texts, **more)
    return read_token_table(path, examples=range(module.EXAMPLES))


def test_each_token_is_named_once_and_its_numbers_come_back(tmp_path) -> None:
    table = read(tmp_path, [[" a", "b\n"], ["c"]], prompts=("P?",), top=True)
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
    assert unpack(run["top"][0]).tolist() == [0, 0, 0]  # both alternatives are known already


def test_alternatives_beside_gold_and_competitor(tmp_path) -> None:
    table = read(tmp_path, [["a", "b", "c", "d"]], top=True)
    columns = {
        "token_id": np.array([0, 1, 2, 3]),
        "competitor_id": np.array([1, 0, 0, 0]),
        "top_ids": np.array([[0, 1, 2, 3], [3, 0, 1, 2], [0, 1, 3, 2], [0, 1, 2, 9]]),
        "top_logprobs": np.log(np.array([[0.4, 0.3, 0.2, 0.1]] * 4)),
    }
    table.columns.update(columns)
    table.texts["top_texts"] = [[f"<{token}>" for token in row] for row in columns["top_ids"]]
    _, packed = packed_examples([table])
    texts, run = packed["vocabulary"]["texts"], packed["runs"][0]
    tops = [[texts[i - 1] if i else None for i in unpack(column)] for column in run["top"]]
    assert tops == [["c", "d", "b", "b"], ["d", "c", "d", "c"], [None, None, None, "<9>"], [None] * 4]
    p = [np.exp(-((unpack(column) / 40) ** 2)) for column in run["top_nll"]]
    np.testing.assert_allclose(p[0], [0.2, 0.4, 0.3, 0.3], rtol=0.04)


def test_alternatives_go_first_then_examples(tmp_path) -> None:
    rng = np.random.default_rng(0)
    texts = [[f"{number}" for number in rng.integers(0, 99, 50)] for _ in range(40)]
    table = read(tmp_path, texts, gap=rng.normal(0, 5, 2000), top=True)
    whole, everything = packed_examples([table])
    size = len(module.json_for_script(everything))
    assert not everything["top_left_out"] and len(whole.numbers) == 40
    shown, packed = packed_examples([table], budget=size - 200)
    assert packed["top_left_out"] and len(shown.numbers) == 40 and "top" not in packed["runs"][0]
    shown, packed = packed_examples([table], budget=size // 4)
    assert 1 < len(shown.numbers) < 40 and shown.numbers == list(range(len(shown.numbers)))
    assert len(module.json_for_script(packed)) <= size // 4 + 30
    assert len(packed_examples([table], budget=1)[0].numbers) == 1


def test_long_examples_and_prompts_are_cut_and_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 10)
    shown, packed = packed_examples([read(tmp_path, [["a"] * 25, ["b"] * 5])])
    assert packed["lengths"] == [10, 5] and packed["left_out"] == [15, 0] and len(shown) == 15
    cut = shown_prompt("q" * 3000 + "\u202e" * 3000)
    assert cut.startswith("qq") and "2,000 more characters" in cut and cut.endswith("⟨U+202E⟩")
