"""What differs between two runs of the suite, and which differences are meant."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

Outcomes = dict[str, dict[str, Any]]

# test (without its parameters): what ours then says, and why; failing with other words is a loss
REFUSED: dict[str, tuple[str, str]] = {
    "TestSFTTrainer::test_train_dft_loss": (
        "UsageError: loss_type: would be ignored here, got 'dft'",
        "loss_type='dft' is refused: what a token is worth is said once, by objective='dft'",
    ),
    "TestSFTTrainer::test_train_model_dtype": (
        "non-finite logits at",
        "float16 weights at learning rate 0.1 diverge to NaN: with TRL's trainer every parameter ends as NaN, which "
        "the test takes for changed; ours stops and says so",
    ),
}


def short(test: str) -> str:
    """ "tests/test_sft_trainer.py::TestA::test_b[c]" -> "TestA::test_b"."""
    return test.split("::", 1)[-1].split("[")[0]


def compare(trl: Outcomes, ours: Outcomes) -> dict[str, Any]:
    """Tests that pass with TRL's trainer and not with ours (refused or lost), and the other way round."""
    refused, lost, gained = {}, {}, []
    for test in sorted(trl.keys() & ours.keys()):
        passes, passed = ours[test]["outcome"] == "passed", trl[test]["outcome"] == "passed"
        words, reason = REFUSED.get(short(test), ("", ""))
        if passed and not passes and words and words in ours[test]["message"]:
            refused[test] = reason
        elif passed and not passes:
            lost[test] = ours[test]["message"]
        elif passes and not passed:
            gained.append(test)
    distances = loss_distances(trl, ours)
    return {"refused": refused, "lost": lost, "gained": gained, "loss_distances": distances}


def loss_distances(trl: Outcomes, ours: Outcomes) -> dict[str, float]:
    """For tests that train and pass with both: the largest relative difference of a training's mean loss."""
    distances = {}
    for test in sorted(trl.keys() & ours.keys()):
        pairs = list(zip(trl[test].get("losses", []), ours[test].get("losses", []), strict=False))
        if pairs and trl[test]["outcome"] == ours[test]["outcome"] == "passed":
            distances[test] = max(abs(a - b) / abs(a) if a else abs(b) for a, b in pairs)
    return distances


def reasons(outcomes: Outcomes, outcome: str) -> Counter[str]:
    """Why tests skipped or failed, and how many each."""
    said = (entry["message"].strip() for entry in outcomes.values() if entry["outcome"] == outcome)
    return Counter(re.sub(r"\s+", " ", message)[:160] for message in said)


def summary(outcomes: dict[str, Outcomes], result: dict[str, Any]) -> str:
    """A few lines to read: counts by trainer, why tests did not run or failed, and what differs."""
    lines = []
    for trainer, tests in outcomes.items():
        counts = Counter(entry["outcome"] for entry in tests.values())
        seconds = sum(entry["seconds"] for entry in tests.values())
        shown = ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
        lines.append(f"{trainer}: {len(tests)} tests, {shown}, {seconds:.0f} s")
        for outcome in ("skipped", "failed"):
            lines += [f"  {outcome} {n}: {reason}" for reason, n in reasons(tests, outcome).most_common()]
    lines += [f"refused: {test}: {reason}" for test, reason in result["refused"].items()]
    lines += [f"LOST: {test}: {message.splitlines()[0][:200]}" for test, message in result["lost"].items()]
    distances = result["loss_distances"]
    if distances:
        worst = max(distances, key=distances.__getitem__)
        lines.append(f"losses of {len(distances)} tests: within {distances[worst]:.1e} of TRL's, furthest {worst}")
    lines.append(f"passing with ours only: {len(result['gained'])}")
    return "\n".join(lines)
