"""What the table shows, in words: each sentence is chosen by the numbers, none is written beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimsft.study.cells import BASE, NAMES
from trimsft.study.quickstart.scores import BASELINE, Results

METHOD = "trim"
GREEDY = "greedy"
SAMPLED = "average"
SCATTERED = 0.1
"""Greedy above sampled by so much: the model knows more than it says at temperature 1."""


def describe(results: Results) -> str:
    """One paragraph."""
    sentences = [_base(results), _method(results), _others(results), _best(results), _greedy(results)]
    return " ".join(sentence for sentence in sentences if sentence)


def _base(results: Results) -> str:
    if BASE not in results.scores:
        return ""
    sampled, greedy = (results.score(BASE, metric).value for metric in (SAMPLED, GREEDY))
    text = f"The base model solves {_percent(greedy)} % greedy and {_percent(sampled)} % at temperature 1"
    return f"{text}: able, but scattered." if greedy - sampled >= SCATTERED else f"{text}."


def _method(results: Results) -> str:
    """The paper's claim, or that it does not show here."""
    if METHOD not in results.scores or BASELINE not in results.scores:
        return ""
    compared = results.against_sft(METHOD, SAMPLED)
    assert compared is not None
    pair = f"{_percent(compared.after)} against {_percent(compared.before)} (average@{results.samples})"
    change, low, high = (100 * value for value in compared.difference.as_dict().values())
    spread = f"{change:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"
    direction = results.direction(METHOD, SAMPLED)
    if direction > 0:
        return f"TrimSFT is above SFT: {pair}, {spread}."
    if direction < 0:
        return f"TrimSFT is below SFT here: {pair}, {spread}; the paper's claim does not show."
    return f"TrimSFT is not told apart from SFT here: {pair}, {spread}."


def _others(results: Results) -> str:
    """Where the other methods stand to SFT."""
    if BASELINE not in results.scores:
        return ""
    others = [name for name in results.trained() if name not in (METHOD, BASELINE)]
    parts = []
    for direction, place in ((1, "above SFT"), (-1, "below SFT"), (0, "not told apart from it")):
        names = [name for name in others if results.direction(name, SAMPLED) == direction]
        names.sort(key=lambda name: -results.score(name, SAMPLED).value)
        if names:
            listed = [f"{NAMES[name]} ({_percent(results.score(name, SAMPLED).value)})" for name in names]
            parts.append(f"{place}: {_listed(listed)}")
    if not parts:
        return ""
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _best(results: Results) -> str:
    """Only where the method of the paper is not itself the highest."""
    trained = results.trained()
    if METHOD not in trained:
        return ""
    best = max(trained, key=lambda name: results.score(name, SAMPLED).value)
    if best in (METHOD, BASELINE):
        return ""
    return f"The highest here is {NAMES[best]}, not TrimSFT."


def _greedy(results: Results) -> str:
    """Whether what was won at temperature 1 was won greedy, too."""
    trained = results.trained()
    if not trained:
        return ""
    values = [results.score(name, GREEDY).value for name in trained]
    low, high = _percent(min(values)), _percent(max(values))
    who = "model solves" if len(values) == 1 else "models solve"
    text = f"Greedy, the trained {who} {low if low == high else f'{low} to {high}'} %"
    if METHOD not in trained or results.direction(METHOD, SAMPLED) <= 0:
        return f"{text}."
    greedy = results.direction(METHOD, GREEDY)
    if greedy > 0:
        return f"{text}, and TrimSFT is above SFT there, too."
    stands = "below SFT" if greedy < 0 else "not told apart from SFT"
    return f"{text}; TrimSFT is {stands} there, so what it wins here is won in sampling."


def next_commands(out: Path, methods: Sequence[str]) -> str:
    """How to go on with a model of one's own."""
    pair = " ".join(str(out / name) for name in (BASELINE, METHOD) if name in methods)
    return "\n".join(
        [
            "Next, on your own model: look at its tokens and choose a band, then train, evaluate, compare.",
            "  trimsft tokens MODEL --data DATA.jsonl --sample 200 --top 5 --out tokens.parquet",
            "  trimsft report tokens.parquet --out look",
            "  trimsft train --model_name_or_path MODEL --dataset_name DATA.jsonl --objective trim "
            "--output_dir runs/trim",
            "  trimsft eval runs/trim -b math500",
            "  trimsft compare runs/sft runs/trim"
            + (f"      # the same: trimsft compare {pair}" if " " in pair else ""),
            "DATA.jsonl: a problem and a solution a line. Once more with --objective sft makes runs/sft.",
        ]
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
