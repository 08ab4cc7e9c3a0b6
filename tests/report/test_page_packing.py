import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.unpacking import unpack
from trimsft.report.page.packing import linear, rooted, single, whole


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


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_floats_come_back(values) -> None:
    assert unpack(single(np.array(values))).tolist() == values


def test_what_is_not_finite_is_the_largest() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3.0])
    step = linear(values)["step"]
    assert unpack(linear(values)).tolist() == pytest.approx([0, 1e6, -1e6, 3], abs=step / 2)
    assert unpack(rooted(values))[:2].tolist() == pytest.approx([0, 1e6])
