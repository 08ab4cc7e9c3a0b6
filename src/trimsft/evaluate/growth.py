"""Whether a recorded evaluation may go on under new settings: it may grow, and nothing else.

    >>> refusals({"samples": 8, "seed": 0}, {"samples": 16, "seed": 0}, [], [])
    []
    >>> refusals({"samples": 8, "seed": 0}, {"samples": 8, "seed": 1}, [], [])
    ['seed: was 0, now 1']

More samples, the greedy answer beside them and more problems after the same first ones leave every recorded sample as
it would have come out, because a sample's seed depends on the seed, the problem and its own number alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimsft.evaluate.problem_files import Problem

HARMLESS = ("details",)
"""Settings that may differ between two starts of one evaluation."""


def refusals(
    was: Mapping[str, Any], now: Mapping[str, Any], recorded: Sequence[Problem], problems: Sequence[Problem]
) -> list[str]:
    """What stands in the way, each in words; nothing where the evaluation is the same or has grown."""
    found = changes(was, now)
    said: list[str] = []
    if any(name.startswith("problems.") for name in found):
        said += _about_problems(recorded, problems)
        found = {name: text for name, text in found.items() if not name.startswith("problems.")}
    for name, text in found.items():
        if name == "samples" and was["samples"] > now["samples"]:
            said.append(
                f"{text} (a record never shrinks: give --samples {was['samples']} and read pass@{now['samples']} or "
                f"majority@{now['samples']}, which average over every choice of {now['samples']})"
            )
        elif name == "greedy" and was["greedy"]:
            said.append(f"{text} (a record never shrinks: leave the greedy answers in)")
        elif name not in ("samples", "greedy"):
            said.append(text)
    return said


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """What differs, by name and in words, but for what may always differ."""
    return {name: text for name, text in _differences(was, now) if not name.startswith(HARMLESS)}


def _about_problems(recorded: Sequence[Problem], problems: Sequence[Problem]) -> list[str]:
    counts = f"problems: was {len(recorded)}, now {len(problems)}"
    shared = min(len(recorded), len(problems))
    other = next((at for at in range(shared) if recorded[at] != problems[at]), None)
    if other is not None:
        return [
            f"{counts}, and number {other + 1} is another (recorded {recorded[other].id!r}, now "
            f"{problems[other].id!r}, or another text, answer or grading field)"
        ]
    if len(problems) < len(recorded):
        return [f"{counts} (a record never shrinks: ask for {len(recorded)}, or choose another output directory)"]
    return []


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    old, new = dict(_flat(was)), dict(_flat(now))
    for name in old | new:
        if name in old and name in new and old[name] == new[name]:
            continue
        texts = [repr(side[name]) if name in side else "not set" for side in (old, new)]
        # of two long prompts, show where they part
        part = next((at for at, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 0)
        before, after = (_around(text, part) for text in texts)
        yield name, f"{name}: was {before}, now {after}"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from _flat(entry, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _around(text: str, at: int, longest: int = 160) -> str:
    if len(text) <= longest:
        return text
    start = max(0, at - 40)
    return f"{'...' if start else ''}{text[start : start + longest]}{'...' if start + longest < len(text) else ''}"
