"""The form of the paper's Table 1, in 80 columns, with marks only where they are earned; a paragraph that agrees."""

import io
import os
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from tests.evaluate.graded import same, samples_of
from trimsft import lab
from trimsft.cli.study import legend, main_table, other_table
from trimsft.evaluate.scores import BenchmarkScore, score
from trimsft.quickstart import Results, describe, next_commands

TIERS = ("lab-easy", "lab-medium", "lab-hard")
ALL = {
    "base": (4, 1.0),
    "sft": (4, 1.0),
    "fsft": (1, 0.9),
    "dft": (7, 1.0),
    "trim": (6, 1.0),
    "trim_e": (8, 1.0),
    "trim_h": (4, 1.0),
    "auto_trim": (8, 1.0),
}


def make_results(problems: int = 24, **solved: tuple[int, float]) -> Results:
    """Samples of 8 that solve a problem, and the share solved greedy, for each run (dashes as underscores)."""

    def tier(name: str, right: int, greedy: float) -> BenchmarkScore:
        results = []
        for number in range(problems):
            # one more or one less by turns: problems differ, and runs on them, but means do not
            correct = right + ((number + 2 * right) % 3 - 1 if 0 < right < 8 else 0)
            answers = " ".join(["1"] * correct + ["0"] * (8 - correct))
            results += samples_of(f"p{number:03}", answers, greedy="1" if number < greedy * problems else "0")
        return score(name, results, same, resamples=200)

    return Results({name.replace("_", "-"): [tier(each, *how) for each in TIERS] for name, how in solved.items()})


def printed(table: object, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_table_has_tiers_and_average_by_method() -> None:
    results = make_results(**ALL)
    lines = printed(main_table(results), width=200)
    assert max(len(line.rstrip()) for line in lines) <= 80
    header, _, *body = [line.split() for line in lines if line.strip()]
    assert header == [*TIERS, "average"]
    methods = ["Base", "SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H", "AutoTrim"]
    assert [row[0] for row in body] == ["average@8", *methods, "greedy", *methods]
    assert all(len(row) == 9 for row in body if row[0] in methods)
    sampled = {row[0]: row for row in body[:9]}
    assert sampled["TrimSFT"][1::2] == ["75.0↑"] * 4 and sampled["FSFT"][1::2] == ["12.5↓"] * 4
    low, high = map(int, re.fullmatch(r"(\d+)-(\d+)", sampled["TrimSFT"][8]).groups())  # type: ignore[union-attr]
    assert low < 75 < high
    lines = printed(other_table(results))
    assert "pass@8" in lines[1] and "majority@8" in lines[1]
    assert len([line for line in lines if "100.0" in line]) >= 5


def test_nothing_is_marked_without_a_difference() -> None:
    for results in (make_results(base=(5, 1.0), sft=(5, 1.0)), make_results(base=(5, 1.0), trim=(8, 1.0))):
        text = "\n".join(printed(main_table(results)))
        assert "↑" not in text and "↓" not in text
    assert "SFT" not in legend(results)
    assert make_results(problems=2, sft=(2, 1.0), trim=(6, 1.0)).direction("trim", "average") == 0


def test_json_has_every_interval() -> None:
    record = make_results(**ALL).as_dict()
    assert list(record) == [name.replace("_", "-") for name in ALL]
    for tiers in record.values():
        assert list(tiers) == [*TIERS, "average"]
        for scores in tiers.values():
            assert list(scores) == ["average@8", "greedy", "pass@8", "majority@8"]
            assert all(entry["low"] <= entry["value"] <= entry["high"] for entry in scores.values())
    assert record["trim"]["average"]["average@8"]["against_sft"]["significant"]
    assert "against_sft" not in record["sft"]["average"]["average@8"]


@pytest.mark.parametrize(
    ("solved", "said", "unsaid"),
    [
        (
            {"base": (5, 1.0), "sft": (4, 0.5), "trim": (7, 0.5)},
            [
                "TrimSFT is above SFT: 87.5 against 50.0 (average@8), +37.5 points, 95 % interval",
                "The base model solves 100.0 % greedy and 62.5 % at temperature 1: correct with greedy decoding, "
                "unreliable when sampled.",
                "TrimSFT shows no significant difference from SFT there, so its gain is in sampling",
            ],
            ["highest"],
        ),
        (
            {"base": (5, 0.625), "sft": (7, 1.0), "trim": (4, 1.0)},
            ["TrimSFT is below SFT here: 50.0 against 87.5", "the paper's claim does not show"],
            ["above SFT", "its gain", "unreliable"],
        ),
        (
            {"sft": (6, 1.0), "trim": (6, 1.0)},
            ["TrimSFT shows no significant difference from SFT here: 75.0 against 75.0"],
            ["base", "above"],
        ),
        (
            {
                "sft": (5, 1.0),
                "fsft": (1, 0.9),
                "dft": (7, 1.0),
                "trim": (6, 1.0),
                "trim_e": (5, 1.0),
                "trim_h": (3, 1),
            },
            [
                "Above SFT: DFT (87.5); below SFT: TrimSFT-H (37.5) and FSFT (12.5); ",
                "no significant difference from SFT: TrimSFT-E (62.5).",
                "The highest here is DFT, not TrimSFT.",
            ],
            [],
        ),
        ({"sft": (4, 0.6), "trim": (7, 1.0)}, ["is above SFT there, too"], []),
        ({"sft": (4, 0.6), "trim": (7, 0.2)}, ["is below SFT there"], []),
        (
            {"sft": (4, 1.0), "dft": (6, 1.0), "auto_trim": (7, 1.0)},
            [
                "AutoTrim is above SFT: 87.5 against 50.0 (average@8), +37.5 points",
                "It is above DFT, the highest of the others: +12.5 points, 95 % interval +",
                "Above SFT: DFT (75.0).",
            ],
            ["TrimSFT", "claim"],
        ),
        (
            {"sft": (4, 1.0), "trim": (7, 1.0), "auto_trim": (7, 1.0)},
            ["It shows no significant difference from TrimSFT, the highest of the others: +0.0 points"],
            ["highest here"],
        ),
        (
            {"sft": (7, 1.0), "trim_e": (5, 1.0), "auto_trim": (4, 1.0)},
            ["AutoTrim is below SFT here: 50.0 against 87.5"],
            ["the highest", "claim"],
        ),
        ({"trim": (6, 1.0)}, ["With greedy decoding the trained model solves 100.0 %."], ["SFT:"]),
    ],
    ids=[
        *("gain", "loss", "no difference", "other methods", "greedy agrees", "greedy does not"),
        *("auto", "level", "auto loses", "others failed"),
    ],
)
def test_the_paragraph_says_what_the_numbers_say(
    solved: dict[str, tuple[int, float]], said: list[str], unsaid: list[str]
) -> None:
    text = describe(make_results(**solved))
    assert all(part in text for part in said) and not any(part in text for part in unsaid)


def test_next_commands_can_be_run_as_they_stand() -> None:
    """Every path is there, or is made by a line above; nothing is left to fill in."""
    folder = Path("runs/quickstart")
    trained = {name: folder / name for name in ("trim", "sft", "auto-trim")}
    took = {name: {"train": 60.0, "evaluate": 20.0} for name in trained}
    text = next_commands(folder, trained, program="bin/trimsft", max_tokens=128, seconds=took)
    lines = [line.removeprefix("  bin/trimsft ") for line in text.splitlines() if line.startswith("  bin/trimsft ")]
    *commands, own = lines
    assert " ".join(line.split()[0] for line in commands) == "tokens report train train train eval eval compare"
    assert commands[-1] == "compare runs/my-sft runs/my-auto-trim"
    assert own == "tokens MODEL --data DATA.jsonl --sample 200"
    assert text.startswith("Next: the same by hand, about 4 minutes on this machine.")  # 2 x (60 + 20 / 2) + 8 x 10 s
    there = {str(lab.base_model_path()), os.path.relpath(lab.base_model_path()), "runs/quickstart/data/train.jsonl"}
    there |= {str(run / "config.yaml") for run in trained.values()}
    for line in commands:
        words = shlex.split(line)
        paths = {word for word in words if "/" in word}
        made = {words[words.index("--out") + 1]} if "--out" in words else set()
        assert paths - made <= there, line
        there |= made
    alone = next_commands(folder, {"dft": folder / "dft"}, program="trimsft", max_tokens=128, seconds={})
    assert "compare" not in alone and "Next: the same by hand, in minutes." in alone
