"""Grids of a sweep: ranges without noise, fields of training, what has no effect, and what is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.sweep import left_out, points, read_axes


def values(text):
    return read_axes([text])[0].values


def test_ranges_have_both_ends_and_no_representation_noise():
    assert values("margin=0:6:1") == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert values("bandwidth=0.1:0.5:0.1") == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert values("learning_rate=1e-5:3e-5:1e-5") == (1e-5, 2e-5, 3e-5)
    assert values("margin=-1:1:1") == (-1.0, 0.0, 1.0)
    assert values("margin=0:1:0.4") == (0.0, 0.4, 0.8)
    assert values("margin=2:2:1") == (2.0,)


@given(st.integers(-50, 50), st.integers(1, 30), st.integers(1, 40))
def test_a_range_of_tenths_is_what_one_would_write(start, step, count):
    text = f"margin={start / 10}:{(start + step * count) / 10}:{step / 10}"
    assert values(text) == tuple(float(f"{(start + step * n) / 10:.1f}") for n in range(count + 1))


def test_values_have_the_type_that_training_gives_the_field():
    assert values("bandwidth=0.5,1, 2") == (0.5, 1.0, 2.0)
    assert [type(value) for value in values("margin=1,2")] == [float, float]
    assert [type(value) for value in values("max_steps=10,20")] == [int, int]
    assert values("packing=true,false") == (True, False)
    assert values("lr_scheduler_type=cosine,linear") == ("cosine", "linear")
    assert values("learning-rate=1e-4") == (1e-4,)


def test_axes_make_their_product_in_order():
    found = points(read_axes(["margin=1,2", "bandwidth=0.5,3"]), "lab", "trim-e")
    assert [dict(point.fields) for point in found] == [
        {"margin": m, "bandwidth": tau} for m in (1.0, 2.0) for tau in (0.5, 3.0)
    ]
    assert {point.objective for point in found} == {"trim-e"}
    assert found[0].fields == (("bandwidth", 0.5), ("margin", 1.0)), "sorted, as cells have them"


def test_an_objective_that_does_not_take_a_field_is_made_once_and_it_is_said():
    axes = read_axes(["objective=trim,dft,fsft", "margin=1,2", "gamma=1,3", "learning_rate=1e-4,2e-4"])
    found = points(axes, "lab")
    assert [point.objective for point in found].count("trim") == 4
    assert [point.objective for point in found].count("dft") == 2
    assert Cell(model="lab", objective="dft", fields=(("learning_rate", 1e-4),)) in found
    assert Cell(model="lab", objective="fsft", fields=(("gamma", 3.0), ("learning_rate", 2e-4))) in found
    assert left_out(axes) == [
        "trim takes no gamma: these values make no further runs of it.",
        "dft takes no margin and no gamma: these values make no further runs of it.",
        "fsft takes no margin: these values make no further runs of it.",
    ]
    assert left_out(read_axes(["margin=1,2"])) == []


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("margn=1", "no field 'margn'; did you mean 'margin'?"),
        ("margin", "must be FIELD=VALUES, such as margin=0:6:1 or bandwidth=0.5,1,2, got 'margin'"),
        ("margin=", "must be FIELD=VALUES"),
        ("margin=wide", "margin must be a number, got 'wide'"),
        ("margin=1,,2", "margin must be a number, got ''"),
        ("margin=1,1.0", "margin has a value twice"),
        ("margin=0:6", "a range is START:STOP:STEP"),
        ("margin=6:0:1", "STOP not below START"),
        ("margin=0:6:0", "STEP above 0"),
        ("margin=0:nan:1", "a range is"),
        ("margin=0:1e9:0.1", "has 10,000,000,001 values; make the step larger"),
        ("max_steps=0:1:0.5", "max_steps must be a whole number, got '0.5'"),
        ("packing=perhaps", "packing must be true or false, got 'perhaps'"),
        ("lr_scheduler_type=cosin", "lr_scheduler_type must be one of linear, cosine"),
        ("seed=0,1", "'seed' is not for a grid; --seeds sets it"),
        ("output_dir=a,b", "--out sets it"),
        ("lora_target_modules=a,b", "takes a list of values"),
        ("hub-token=hf_x,hf_x", "'hub_token' is a secret, which a study writes down; set HF_TOKEN in the environment"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_would_be_right(grid, message):
    with pytest.raises(UsageError, match="grid: ") as caught:
        read_axes([grid])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("grids", "objective", "message"),
    [
        (["gamma=1,2"], "trim", "'gamma' has no effect with objective trim; it is a field of fsft"),
        (["margin=1"], "dft", "has no effect with objective dft; it is a field of trim, trim-e, trim-h"),
        (["objective=sft,dft", "margin=1"], "trim", "has no effect with objective sft or dft"),
        (["objective=trim,dtf"], "trim", "grid: objective: unknown name 'dtf'; did you mean 'dft'?"),
        (["margin=1"], "dtf", "objective: unknown name 'dtf'; did you mean 'dft'?"),
        (["bandwidth=0,1"], "trim", "bandwidth: must be a finite number > 0, got 0.0"),
    ],
)
def test_what_could_not_be_trained_is_refused_before_anything_runs(grids, objective, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        points(read_axes(grids), "lab", objective)


def test_a_field_may_be_given_once():
    with pytest.raises(UsageError, match="'margin' is there twice; give all of its values in one"):
        read_axes(["margin=1", "margin=2"])
