"""Words for a computation: the problem as a bare chain or a story, the solution in one of seven styles.

Start with 7. Add 5. Multiply by 3. What is the result?
Mia has 7 pens. She buys 5 more. A game makes them 3 times as many. How many pens does Mia have now?

`steps`, the format of fine-tuning:          `arrows`, which the base model has never seen:

    Step 1: 7 + 5 = 12.                          [7 + 5 -> 12] [12 * 3 -> 36] => \\boxed{36}
    Step 2: 12 * 3 = 36.
    The answer is \\boxed{36}.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# ---- problems


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


def word_problem(start: int, steps: Sequence[tuple[str, int]], story_share: float, rng: random.Random) -> str:
    """Return the whole problem: opening, one sentence a step, question; a story in that share of the cases."""
    wording = rng.choice(list(STORIES.values())) if rng.random() < story_share else CHAIN
    name, pronoun = rng.choice(NAMES)
    places = {"name": name, "She": pronoun, "she": pronoun.lower(), "things": rng.choice(wording.things)}
    sentences = [rng.choice(wording.openings).format(n=start, **places)]
    sentences += [rng.choice(wording.events[operator]).format(n=n, **places) for operator, n in steps]
    sentences.append(rng.choice(wording.questions).format(**places))
    return " ".join(sentences)


# ---- solutions


@dataclass(frozen=True, kw_only=True)
class Style:
    """Patterns of a step and of the end; {result} occurs once in a step."""

    steps: dict[str, str]  # operator -> pattern with {number}, {left}, {right} and {result}
    end: str  # pattern with {answer}
    between: str  # what stands between steps
    first: str = ""  # what stands before the first step


def _alike(pattern: str) -> dict[str, str]:
    """Return one pattern for all operators, whose sign stands at {operator}."""
    return {operator: pattern.replace("{operator}", operator) for operator in "+-*/"}


EQUATION = "{left} {operator} {right} = {result}"
STYLES: dict[str, Style] = {
    "steps": Style(
        steps=_alike(f"Step {{number}}: {EQUATION}."), between="\n", end="\nThe answer is \\boxed{{{answer}}}."
    ),
    "prose": Style(
        steps=_alike(f"{EQUATION}."), first="First, ", between=" Then, ", end=" So we get \\boxed{{{answer}}}."
    ),
    "lines": Style(steps=_alike(EQUATION), between="\n", end="\n= \\boxed{{{answer}}}"),
    "words": Style(
        steps={
            "+": "Adding {right} to {left} gives {result}.",
            "-": "Taking {right} from {left} gives {result}.",
            "*": "Multiplying {left} by {right} gives {result}.",
            "/": "Dividing {left} by {right} gives {result}.",
        },
        between=" ",
        end=" Therefore the result is \\boxed{{{answer}}}.",
    ),
    "bullets": Style(
        steps=_alike("- {left} {operator} {right} is {result}"), between="\n", end="\nFinal: \\boxed{{{answer}}}"
    ),
    "plain": Style(steps=_alike(EQUATION), first="We have ", between=", ", end=". Answer: {answer}"),
    "arrows": Style(
        steps=_alike("[{left} {operator} {right} -> {result}]"), between=" ", end=" => \\boxed{{{answer}}}"
    ),
}
TARGET = "steps"  # the format of fine-tuning
UNFAMILIAR = "arrows"  # the format that pre-training never shows
FAMILIAR = tuple(name for name in STYLES if name != UNFAMILIAR)

FILLER = (
    "Let us go on.",
    "This is easy to see.",
    "We keep this number in mind.",
    "Numbers are useful.",
    "So far so good.",
)
