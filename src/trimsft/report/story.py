"""What the runs of a page have to tell, in a sentence and one example: which tokens two objectives learn from.

    story = tell_story(runs, parameters, moments)
    story.headline
    # "18 of 318 arithmetic steps in these 100 examples are wrong: SFT spends 16 % of its gradient on the 31 wrong
    #  digits, TrimSFT 0.00002 %."
    story.excerpt.tokens[7]       # Lit(text="8", marked=True, levels=(8, 0), gap=-9.6, competitor="2")

Weighed are the first tokens of the base, the first run with a table that no training is known of. Where steps such as
"3 * 8 = 24" stand in them and some do not hold, the story is about the digits of those, if a side learns from them at
all; elsewhere about what lies below the band. The gradient of a token is w ||softmax - onehot||; a share is of its sum
over these tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trimsft.grading.steps import ArithmeticStep, arithmetic_steps
from trimsft.intervals import Array
from trimsft.objectives import PAPER_OBJECTIVES, PARAMETERS, Objective, display_name
from trimsft.report.colours import method_of
from trimsft.report.course import Moment, start_of
from trimsft.report.runs import Run, base_of
from trimsft.runs.parsing import checked
from trimsft.tokens.statistics.weighting import Regions, objective_of, region_percents, weights_of
from trimsft.tokens.table import TokenTable, read_token_table

READ = 200  # examples that are looked at
SHOWN = 72  # tokens of the example that is shown
LEVELS = 8  # strengths in which a token is lit, beside none
LOWEST = 5  # tokens that are named where no step is wrong
MINUS = "\u2212"
_MATTERS = 0.5  # percent of some side's gradient; wrong steps with less are no story, or the text means something else
_FAINT = 0.02  # of the strongest token; less is not lit


# ---- what is told


@dataclass(frozen=True)
class Lit:
    """A token of the example that is shown."""

    text: str
    marked: bool  # whether the story is about it
    levels: tuple[int, ...]  # how much each side learns from it, beside the strongest token here: 0 to `LEVELS`
    gap: float
    competitor: str


@dataclass(frozen=True)
class Excerpt:
    """One example, or the part of it that fits."""

    number: int
    prompt: str
    start: int  # the place of the first token that is shown
    tokens: tuple[Lit, ...]
    cut_after: bool
    wrong: tuple[ArithmeticStep, ...]  # the steps that do not hold in the whole of it


@dataclass(frozen=True)
class Steps:
    """Arithmetic steps of all examples that were read."""

    count: int
    wrong: int
    lowest_wrong: float  # in every wrong step a token of the result has this gap or a lower one
    lowest_right: float  # no token of a right result has a lower gap

    @property
    def are_told_apart(self) -> bool:
        return self.lowest_wrong < self.lowest_right


@dataclass(frozen=True)
class Story:
    """Everything that the page says in its first screen, but for scores."""

    model: str  # whose logits the table has
    examples: int
    all_examples: int
    sides: tuple[Side, ...]
    marked: int  # tokens that the story is about
    single: bool  # whether each of them is one digit
    spent_percent: tuple[float, ...]  # of each side's gradient, on those tokens
    tokens_percent: Regions
    mass_percent: tuple[Regions, ...]  # of each side
    band: tuple[float, float]
    steps: Steps | None  # None where no step is wrong, or none that matters
    lowest: tuple[Lit, ...]
    excerpt: Excerpt

    @cached_property
    def headline(self) -> str:
        first, second = self.sides[:2]
        spent = [percent_text(share) for share in self.spent_percent]
        if self.steps is not None:
            kind = "digit" if self.single else "token"
            digits = f"{self.marked:,} wrong {kind}s" if self.marked > 1 else f"wrong {kind}"
            are = "is" if self.steps.wrong == 1 else "are"
            return (
                f"{self.steps.wrong:,} of {self.steps.count:,} arithmetic steps in {self._where} {are} wrong: "
                f"{first.name} spends {spent[0]} of its gradient on the {digits}, "
                f"{second.name} {spent[1]}."
            )
        low = percent_text(self.tokens_percent.low)
        return (
            f"{first.name} spends {spent[0]} of its gradient on the {low} of tokens whose logit gap lies below "
            f"{_signed(self.band[0])}, {second.name} {spent[1]}."
        )

    @property
    def _where(self) -> str:
        if self.examples < self.all_examples:
            return f"the first {self.examples:,} of {self.all_examples:,} examples"
        return f"these {self.examples:,} examples" if self.examples > 1 else "this example"

    @property
    def detail(self) -> str:
        """A second sentence: how the model sees it."""
        if self.steps is None:
            low, high = map(_signed, self.band)
            pairs = zip(self.sides, self.mass_percent, strict=True)
            taken = [f"{side.name} takes {percent_text(mass.middle)}" for side, mass in pairs]
            within = percent_text(self.tokens_percent.middle)
            return (
                f"Between {low} and {high}, by the logits of {self.model}, lie {within} of the tokens: "
                f"{' and '.join(taken)} of its gradient from them."
            )
        wrong, right = (_signed(gap) for gap in (self.steps.lowest_wrong, self.steps.lowest_right))
        if self.steps.are_told_apart:
            return (
                f"The logits of {self.model} show it: every wrong result has a token with a gap of {wrong} or less, "
                f"no right one goes below {right}."
            )
        return (
            f"The logits of {self.model} do not show all of it: one wrong result has no gap below {wrong}, "
            f"and a right one goes down to {right}."
        )


def percent_text(percent: float) -> str:
    """A share in percent, with two digits that count, or one below 0.1.

    >>> percent_text(16.15), percent_text(1.26), percent_text(0.434), percent_text(0.0000155), percent_text(0)
    ('16 %', '1.3 %', '0.43 %', '0.00002 %', '0 %')
    """
    if not np.isfinite(percent):
        return "an unknown share"
    if percent == 0:
        return "0 %"
    if percent >= 10:
        return f"{percent:.0f} %"
    if percent >= 0.1:
        return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2f} %"
    decimals = int(np.ceil(-np.log10(percent)))
    return f"{percent:.{decimals}f} %" if decimals <= 6 else "less than 0.000001 %"


def _signed(value: float) -> str:
    return f"{value:.1f}".replace("-", MINUS)


# ---- how it is found


def tell_story(runs: Sequence[Run], parameters: Mapping[str, float], moments: Sequence[Moment] = ()) -> Story | None:
    """Return the story of the base's table; None where no run has tokens from before a training."""
    run = base_of(runs)
    if run is None or run.table is None:
        return None
    first = run.table.first_examples(READ)
    table = read_token_table(run.tokens_path, examples=first)
    sides = tuple(sides_of(runs, parameters, start_of(moments)))
    examples = [np.flatnonzero(table["example"] == number) for number in first]
    return _Teller(table, sides, examples, run.label, run.table.example_count, parameters).story()


class _Teller:
    """The tokens that were read, what each side makes of them, and the steps in their texts."""

    def __init__(
        self,
        table: TokenTable,
        sides: tuple[Side, ...],
        examples: list[NDArray[np.int64]],
        model: str,
        all_examples: int,
        parameters: Mapping[str, float],
    ) -> None:
        self.table, self.sides, self.examples = table, sides, examples
        self.model, self.all_examples = model, all_examples
        norm = table["gradient_norm"].astype(np.float64)
        self.mass = [weights_of(side.weigher, table) * norm for side in sides]
        self.gap = table["gap"].astype(np.float64)
        banded = next((vars(side.weigher) for side in sides[1:] if side.objective.startswith("trim")), parameters)
        self.margin, self.bandwidth = banded["margin"], banded["bandwidth"]
        self.steps: list[list[ArithmeticStep]] = []
        self.results: list[list[NDArray[np.int64]]] = []  # of each step the tokens of its result
        self.wrong: list[NDArray[np.int64]] = []  # of each example the tokens in which results are wrong
        for rows in examples:
            self._read(rows)

    def _read(self, rows: NDArray[np.int64]) -> None:
        """Find the steps of an example; tokens that were masked in between end a text."""
        apart = np.diff(self.table["position"][rows], prepend=-1) > 1
        texts = [("\n" if cut else "") + self.table.texts["text"][row] for row, cut in zip(rows, apart, strict=True)]
        ends = np.cumsum([len(text) for text in texts])
        steps = arithmetic_steps("".join(texts))

        def tokens(start: int, end: int) -> NDArray[np.int64]:
            first, last = np.searchsorted(ends, [start, end - 1], side="right")
            return rows[first : last + 1]

        self.steps.append(steps)
        self.results.append([tokens(*step.result) for step in steps])
        wrong = [tokens(step.wrong_from, step.result[1]) for step in steps if step.wrong_from is not None]
        self.wrong.append(np.concatenate(wrong) if wrong else np.zeros(0, np.int64))

    def story(self) -> Story:
        marked = np.concatenate(self.wrong)
        matters = max(_percent(mass[marked].sum(), mass.sum()) for mass in self.mass) >= _MATTERS
        steps = self._counted() if len(marked) and matters else None
        lowest = self._lowest()
        place, chosen = self._best_example() if steps else self._example_of(lowest[0])
        low = np.flatnonzero(self.gap < self.margin - self.bandwidth)
        about = marked if steps else low
        texts = self.table.texts["text"]
        return Story(
            model=self.model,
            examples=len(self.examples),
            all_examples=self.all_examples,
            sides=self.sides,
            marked=len(about),
            single=all(texts[row].strip().isdigit() and len(texts[row].strip()) == 1 for row in about),
            spent_percent=tuple(_percent(mass[about].sum(), mass.sum()) for mass in self.mass),
            tokens_percent=self._regions(np.ones_like(self.gap)),
            mass_percent=tuple(self._regions(mass) for mass in self.mass),
            band=(self.margin - self.bandwidth, self.margin + self.bandwidth),
            steps=steps,
            lowest=tuple(self._lit(row, (), marked=True) for row in lowest),
            excerpt=self._excerpt(place, chosen),
        )

    def _regions(self, mass: Array) -> Regions:
        return region_percents(self.gap, mass, margin=self.margin, bandwidth=self.bandwidth)

    def _counted(self) -> Steps:
        found = [
            (step.holds, float(self.gap[tokens].min()))
            for steps, results in zip(self.steps, self.results, strict=True)
            for step, tokens in zip(steps, results, strict=True)
        ]
        wrong, right = ([gap for holds, gap in found if holds is kind] for kind in (False, True))
        return Steps(len(found), len(wrong), max(wrong), min(right, default=np.inf))

    def _lowest(self) -> list[int]:
        """The tokens with the lowest gaps, each text once."""
        texts, seen = self.table.texts["text"], dict[str, int]()
        for row in np.argsort(self.gap, kind="stable")[: 20 * LOWEST].tolist():
            seen.setdefault(texts[row], row)
        return list(seen.values())[:LOWEST]

    def _example_of(self, row: int) -> tuple[int, NDArray[np.int64]]:
        place = next(place for place, rows in enumerate(self.examples) if row in rows)
        return place, np.array([row])

    def _best_example(self) -> tuple[int, NDArray[np.int64]]:
        """The example that shows it best: it fits, one step is wrong, and the first side learns most from that."""

        def rank(place: int) -> tuple[bool, bool, float]:
            rows, wrong = self.examples[place], self.wrong[place]
            shares = [_percent(mass[wrong].sum(), mass[rows].sum()) for mass in self.mass[:2]]
            single = sum(not step.holds for step in self.steps[place]) == 1
            return len(rows) <= SHOWN, single, shares[0] - shares[1]

        places = [place for place, wrong in enumerate(self.wrong) if len(wrong)]
        best = max(places, key=rank)
        return best, self.wrong[best]

    def _excerpt(self, place: int, marked: NDArray[np.int64]) -> Excerpt:
        rows = self.examples[place]
        first = int(np.searchsorted(rows, marked[0]))
        start = min(max(0, first - SHOWN // 2), max(0, len(rows) - SHOWN))
        shown = rows[start : start + SHOWN]
        tops = [max(mass[shown].max(), mass.mean()) or 1.0 for mass in self.mass]
        prompts = self.table.metadata.get("prompts", [])
        number = int(self.table["example"][rows[0]])
        return Excerpt(
            number=number,
            prompt=prompts[number] if number < len(prompts) else "",
            start=start,
            tokens=tuple(self._lit(row, tops, marked=bool(row in marked)) for row in shown.tolist()),
            cut_after=start + SHOWN < len(rows),
            wrong=tuple(step for step in self.steps[place] if not step.holds),
        )

    def _lit(self, row: int, tops: Sequence[float], *, marked: bool) -> Lit:
        shares = [float(mass[row]) / top for mass, top in zip(self.mass, tops, strict=False)]
        levels = tuple(map(level_of, shares))
        texts = self.table.texts
        return Lit(texts["text"][row], marked, levels, float(self.gap[row]), texts["competitor_text"][row])


def level_of(share: float) -> int:
    """Return how strongly a token is lit that takes this share of the largest gradient: 0 to `LEVELS`."""
    return int(np.ceil(LEVELS * min(1.0, share))) if share >= _FAINT else 0


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole > 0 else 0.0


# ---- the objectives that are held against each other


@dataclass(frozen=True)
class Side:
    """An objective that is held against another."""

    objective: str
    weigher: Objective
    run: Run | None  # the run that was trained with it; None where it is there for comparison
    name: str = ""  # of the objective; of the run where another side has the same objective

    @property
    def setting(self) -> str:
        """Describe its parameters; empty for one that has none, and a run that is called like it."""
        own = self.run is not None and self.run.label != self.name and method_of(self.run.label) != self.objective
        return ", ".join(filter(None, [self.run.label if self.run and own else "", self._values]))

    @property
    def _values(self) -> str:
        if isinstance(self.weigher, Moment):
            return f"step {self.weigher.step}: gate {self.weigher.gate:.2g}, exponent {self.weigher.exponent:.2g}"
        fields = vars(self.weigher)
        return ", ".join(f"{name} {fields[name]:g}" for name in PARAMETERS if name in fields)


def sides_of(runs: Sequence[Run], parameters: Mapping[str, float], moment: Moment | None) -> list[Side]:
    """SFT and TrimSFT where runs were trained with them, else two other settings of the runs; then AutoTrim, if any.

    A run that is missing for two is filled in by SFT, and then by TrimSFT with the page's parameters.
    """
    known: dict[str, Side] = {}
    for run in runs:
        if run.objective is not None and (weigher := _weigher(run, parameters, moment)) is not None:
            known.setdefault(repr(weigher), Side(run.objective, weigher, run))
    trained = list(known.values())
    if not any(side.objective == "sft" for side in trained) and len(trained) < 2:
        trained.insert(0, _implied("sft", parameters))
    if len(trained) < 2:
        trained.append(_implied("trim", parameters))
    first = next((side for side in trained if side.objective == "sft"), trained[0])
    others = [side for side in trained if side is not first]
    wanted = [side for name in ("trim", "auto-trim") for side in others if side.objective == name]
    second = wanted[0] if wanted else others[-1]
    third = [side for side in wanted if side.objective == "auto-trim" and side is not second]
    return _named([first, second, *third[:1]])


def _named(sides: Sequence[Side]) -> list[Side]:
    """The sides with names that tell them apart."""
    objectives = [side.objective for side in sides]
    named = []
    for side in sides:
        shared = side.run is not None and objectives.count(side.objective) > 1
        named.append(replace(side, name=side.run.label if side.run and shared else display_name(side.objective)))
    return named


def _implied(name: str, parameters: Mapping[str, float]) -> Side:
    return Side(name, objective_of(name, parameters), None)


def _weigher(run: Run, parameters: Mapping[str, float], moment: Moment | None) -> Objective | None:
    """Return the objective by which a run weighs tokens; None where the page cannot say."""
    if run.objective == "auto-trim":
        return moment
    if run.objective not in PAPER_OBJECTIVES:
        return None
    config = None if run.folder.is_file() else run.directory.read_config()
    if config is None:  # its label alone names the objective
        return objective_of(run.objective, parameters)
    given = {name: config[name] for name in PARAMETERS if config.get(name) is not None}
    return objective_of(run.objective, checked(dict[str, float], given, where=str(run.directory.config_path)))
