"""The story of a page: which runs are held against each other, what is counted, which example is shown."""

from pathlib import Path

import numpy as np
import pytest

from tests.tokens.tiny import make_table
from trimsft.objectives import PARAMETERS
from trimsft.report.course import ENDED, Moment
from trimsft.report.runs import Run, read_runs
from trimsft.report.story import LEVELS, MINUS, SHOWN, sides_of, tell_story

WRONG = ["Step ", "1", ": ", "3", " * ", "8", " = ", "2", "5", ".\n", "So ", "25"]
RIGHT = ["Step ", "1", ": ", "2", " + ", "2", " = ", "4", "."]


def gaps(texts: list[list[str]], special: dict[tuple[int, int], float], usual: float = 6.0) -> np.ndarray:
    """A gap for each token: the usual one but at these places (example, token)."""
    return np.array([special.get((n, k), usual) for n, row in enumerate(texts) for k in range(len(row))])


def runs_of(folder: Path, **objectives: str) -> list[Run]:
    """Runs by label, whose config.yaml is the given text; the first has the table of the folder."""
    for label, config in objectives.items():
        (folder / label).mkdir(exist_ok=True)
        if config:
            (folder / label / "config.yaml").write_text(config)
    return read_runs({label: folder / label for label in objectives})


def test_wrong_steps_are_counted_and_what_two_objectives_spend_on_them(tmp_path) -> None:
    texts = [RIGHT, WRONG, RIGHT]
    gap = gaps(texts, {(1, 8): -9.0, (1, 10): 1.5, (2, 7): -0.5})
    make_table(tmp_path / "base" / "tokens.parquet", texts, gap=gap, prompts=("A?", "B?", "C?"))
    runs = runs_of(tmp_path, base="", SFT="objective: sft", mine="objective: trim\nmargin: 1.5\nbandwidth: 0.8")
    story = tell_story(runs, PARAMETERS)
    norm = np.sqrt(2) / (1 + np.exp(gap))  # as the table has it
    weight = np.exp(-((gap - 1.5) ** 2) / (2 * 0.8**2))
    at = len(RIGHT) + 8  # the 5 of 25: 24 would be right, so the 2 is
    expected = [100 * (w * norm)[at] / (w * norm).sum() for w in (1, weight)]
    assert story.spent_percent == pytest.approx(expected, rel=1e-5)  # the table is float32: 2^-24, and a few sums
    assert story.headline.startswith("1 of 3 arithmetic steps in these 3 examples is wrong: SFT spends 5")
    assert "of its gradient on the wrong digit, TrimSFT less than 0.000001 %." in story.headline
    assert story.detail == (
        f"The logits of base show it: every wrong result has a token with a gap of {MINUS}9.0 or less, "
        f"no right one goes below {MINUS}0.5."
    )
    shown = story.excerpt
    assert (shown.number, shown.prompt, [step.right for step in shown.wrong]) == (1, "B?", ["24"])
    assert [token.text for token in shown.tokens] == WRONG and [token.marked for token in shown.tokens].index(True) == 8
    assert shown.tokens[8].levels == (LEVELS, 0)  # most of what SFT learns from, nothing to TrimSFT
    assert shown.tokens[10].levels[1] == LEVELS  # in the band


def test_what_the_model_cannot_tell_is_not_claimed(tmp_path) -> None:
    texts = [RIGHT, WRONG]
    make_table(tmp_path / "base" / "tokens.parquet", texts, gap=gaps(texts, {(0, 7): -4.0, (1, 8): -3.0}))
    story = tell_story(runs_of(tmp_path, base=""), PARAMETERS)
    assert story.detail == (
        f"The logits of base do not show all of it: one wrong result has no gap below {MINUS}3.0, "
        f"and a right one goes down to {MINUS}4.0."
    )
    assert [side.name for side in story.sides] == ["SFT", "TrimSFT"]  # with no run, for comparison


def test_without_wrong_steps_the_story_is_the_band(tmp_path) -> None:
    texts = [RIGHT, [" word"] * 199 + [" odd"]]
    gap = gaps(texts, {(1, 199): -8.0, (1, 3): 1.5})
    make_table(tmp_path / "base" / "tokens.parquet", texts, gap=gap)
    story = tell_story(runs_of(tmp_path, base=""), PARAMETERS | {"margin": 2.0, "bandwidth": 1.0})
    assert story.steps is None and "arithmetic" not in story.headline + story.detail
    assert (
        story.headline.startswith("SFT spends ")
        and "on the 0.48 % of tokens whose logit gap lies below 1.0" in story.headline
    )
    assert story.detail.startswith("Between 1.0 and 3.0, by the logits of base, lie 0.48 % of the tokens: SFT takes ")
    assert story.lowest[0].text == " odd" and story.lowest[0].gap == -8.0
    shown = story.excerpt
    assert len(shown.tokens) == SHOWN and (shown.start, shown.cut_after) == (200 - SHOWN, False)
    assert shown.tokens[-1].marked and shown.tokens[-1].levels == (LEVELS, 0)


def test_a_wrong_step_that_the_model_expects_is_no_story(tmp_path) -> None:
    """Nobody learns from it: perhaps it means something else."""
    texts = [RIGHT, WRONG]
    make_table(tmp_path / "base" / "tokens.parquet", texts, gap=gaps(texts, {(1, 8): 12.0, (0, 1): -2.0}))
    story = tell_story(runs_of(tmp_path, base=""), PARAMETERS)
    assert story.steps is None and story.excerpt.tokens[1].marked


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, ["SFT", "TrimSFT"]),
        ({"a": "objective: dft"}, ["SFT", "DFT a"]),
        ({"a": "objective: sft"}, ["SFT a", "TrimSFT"]),
        ({"a": "objective: fsft", "b": "objective: dft"}, ["FSFT a", "DFT b"]),
        ({"a": "objective: trim\nmargin: 1", "b": "objective: trim\nmargin: 3"}, ["a a", "b b"]),
        ({"a": "objective: trim", "b": "objective: trim", "c": "objective: sft"}, ["SFT c", "TrimSFT a"]),
        (
            {"a": "objective: auto-trim", "b": "objective: trim", "c": "objective: sft"},
            ["SFT c", "TrimSFT b", "AutoTrim a"],
        ),
        ({"a": "objective: auto-trim", "c": "objective: sft"}, ["SFT c", "AutoTrim a"]),
        ({"a": "objective: my_module:Mine", "b": "objective: infosft"}, ["SFT", "TrimSFT"]),  # not weighed here
    ],
)
def test_which_are_held_against_each_other(tmp_path, configs, expected) -> None:
    """By the names of their objectives; two settings of one objective by those of the runs."""
    sides = sides_of(runs_of(tmp_path, base="", **configs), PARAMETERS, ENDED)
    assert [f"{side.name} {side.run.label if side.run else ''}".strip() for side in sides] == expected


def test_settings_are_those_of_the_run(tmp_path) -> None:
    """Where its config.yaml names none it was trained with the paper's; the page's are for a table alone."""
    runs = runs_of(tmp_path, a="objective: trim\nmargin: 3", b="objective: auto-trim")
    page, moment = PARAMETERS | {"bandwidth": 0.5}, Moment(step=7, gate=0.25, exponent=2.0)
    expected = ["a, margin 3, bandwidth 0.8", "b, step 7: gate 0.25, exponent 2"]
    assert [side.setting for side in sides_of(runs, page, moment)] == expected
    alone = make_table(tmp_path / "trim.parquet", [RIGHT])
    assert sides_of(read_runs({"trim": alone}), page, moment)[1].setting == "margin 1.5, bandwidth 0.5"


def test_a_run_trained_with_the_default_objective_is_known_by_its_manifest(tmp_path) -> None:
    runs = runs_of(tmp_path, base="", mine="learning_rate: 0.1")
    (tmp_path / "mine/manifest.json").write_text('{"objective": {"name": "trim", "fingerprint": null}}')
    first, second = sides_of(runs, PARAMETERS, ENDED)
    assert (first.name, second.name, second.setting) == ("SFT", "TrimSFT", "mine, margin 1.5, bandwidth 0.8")


def test_logits_of_trained_models_alone_tell_no_story(tmp_path) -> None:
    """What SFT would make of a model that was trained already is no figure of any training."""
    for name in ("mine", "base"):
        make_table(tmp_path / name / "tokens.parquet", [RIGHT, WRONG], gap=gaps([RIGHT, WRONG], {(1, 8): -9.0}))
    config = "objective: trim"
    assert tell_story(runs_of(tmp_path, mine=config), PARAMETERS) is None
    assert tell_story(runs_of(tmp_path, mine=config, base=""), PARAMETERS).model == "base"


def test_auto_trim_is_weighed_as_it_answered_to_the_base(tmp_path) -> None:
    """Its first update knows nothing yet; the gate of the second is what it made of the base's logits."""
    texts, gap = [RIGHT, WRONG], gaps([RIGHT, WRONG], {(1, 8): -9.0})
    make_table(tmp_path / "base" / "tokens.parquet", texts, gap=gap)
    runs = runs_of(tmp_path, base="", SFT="objective: sft", auto="objective: auto-trim")
    moments = [Moment(1, 1.0, 1.0), Moment(2, 0.25, 1.0), Moment(50, 0.0, 3.0)]
    story = tell_story(runs, PARAMETERS, moments)
    assert story.sides[1].setting == "auto, step 2: gate 0.25, exponent 1"
    norm, p = np.sqrt(2) / (1 + np.exp(gap)), 1 / (1 + np.exp(-gap))
    mass = (0.25 + 0.75 * p) * norm
    at = len(RIGHT) + 8
    assert story.spent_percent[1] == pytest.approx(100 * mass[at] / mass.sum(), rel=1e-5)  # the table is float32
    assert [side.name for side in tell_story(runs, PARAMETERS, [ENDED]).sides] == ["SFT", "TrimSFT"]  # without a log
