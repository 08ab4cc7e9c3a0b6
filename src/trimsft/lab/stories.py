"""How a computation is put into words: a bare chain, or a small story told step by step.

Start with 7. Add 5. Multiply by 3. What is the result?
Mia has 7 pens. She buys 5 more. A game makes them 3 times as many. How many pens does Mia have now?
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Wording:
    """Sentences with the places {n}, {name}, {She}, {she} and {things}."""

    openings: tuple[str, ...]
    events: Mapping[str, tuple[str, ...]]  # operator -> ways to say it
    questions: tuple[str, ...]
    things: tuple[str, ...] = ("",)


NAMES = tuple((name, "She") for name in ("Mia", "Ana", "Zoe", "Eva", "Lin")) + tuple(
    (name, "He") for name in ("Tom", "Ben", "Max", "Leo", "Sam")
)

CHAIN = Wording(
    openings=("Start with {n}.", "Take {n}.", "Begin with {n}."),
    events={"+": ("Add {n}.",), "-": ("Subtract {n}.",), "*": ("Multiply by {n}.",), "/": ("Divide by {n}.",)},
    questions=("What is the result?", "What do you get?"),
)

STORIES: dict[str, Wording] = {
    "shopping": Wording(
        openings=("{name} has {n} {things}.", "{name} buys {n} {things}."),
        events={
            "+": ("{She} buys {n} more.", "{She} finds {n} more."),
            "-": ("{She} gives away {n}.", "{She} loses {n}."),
            "*": ("A game makes them {n} times as many.",),
            "/": ("{She} makes {n} equal piles and keeps one pile.",),
        },
        questions=("How many {things} does {name} have now?",),
        things=("pens", "apples", "cards", "stamps", "books", "shells"),
    ),
    "sharing": Wording(
        openings=("{name} bakes {n} {things}.", "There are {n} {things} on the table."),
        events={
            "+": ("{name} bakes {n} more.", "A friend brings {n} more."),
            "-": ("The guests eat {n}.", "{n} are sold."),
            "*": ("For a party there must be {n} times as many.",),
            "/": ("They are shared equally by {n} friends, and we count one share.",),
        },
        questions=("How many {things} are there?",),
        things=("cakes", "rolls", "pies", "cookies"),
    ),
    "travelling": Wording(
        openings=("A bus carries {n} people.", "There are {n} people on a train."),
        events={
            "+": ("{n} people get on.", "{n} more people enter."),
            "-": ("{n} people get off.", "{n} people leave."),
            "*": ("At the station it becomes {n} times as full.",),
            "/": ("Only one in {n} people stays.",),
        },
        questions=("How many people are there now?",),
    ),
    "walking": Wording(
        openings=("{name} walks {n} km.", "{name} rides {n} km."),
        events={
            "+": ("Then {she} walks {n} km more.", "A detour adds {n} km."),
            "-": ("A shortcut saves {n} km.", "{She} turns back {n} km early."),
            "*": ("{She} plans {n} times the distance.",),
            "/": ("{She} needs {n} equal days and counts one day.",),
        },
        questions=("How many km is that?",),
    ),
    "saving": Wording(
        openings=("{name} has {n} coins.", "{name} saves {n} coins."),
        events={
            "+": ("{She} earns {n} coins.", "{She} gets {n} coins as a gift."),
            "-": ("{She} spends {n} coins.", "{She} pays {n} coins."),
            "*": ("The savings grow to {n} times as much.",),
            "/": ("The coins are divided among {n} people, {name} too.",),
        },
        questions=("How many coins does {name} have?", "How many coins are left for {name}?"),
    ),
}


def tell(start: int, steps: Sequence[tuple[str, int]], story_share: float, rng: random.Random) -> str:
    """Return the whole problem: opening, one sentence a step, question; a story in that share of the cases."""
    wording = rng.choice(list(STORIES.values())) if rng.random() < story_share else CHAIN
    name, pronoun = rng.choice(NAMES)
    places = {"name": name, "She": pronoun, "she": pronoun.lower(), "things": rng.choice(wording.things)}
    sentences = [rng.choice(wording.openings).format(n=start, **places)]
    sentences += [rng.choice(wording.events[operator]).format(n=n, **places) for operator, n in steps]
    sentences.append(rng.choice(wording.questions).format(**places))
    return " ".join(sentences)
