"""The first screen: variables of story.html.j2, from what `tell_story` found and from the scores.

The strip has the figures of the last column of the tables of scores: the mean over benchmarks where there are several.
An arrow marks a significant difference from the reference of all comparisons, as in the table of differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.data.visible import shortened, visible
from trimsft.report.colours import METHOD_LINES
from trimsft.report.course import Logged
from trimsft.report.page.charts import line_class, number, run_lines
from trimsft.report.page.scores_tab import Difference, Table
from trimsft.report.runs import Run
from trimsft.report.story import MINUS, Excerpt, Lit, Story, percent_text

PROMPT = 300  # characters of the prompt that are shown
NAMED = 2  # wrong steps of the example that are spelled out
CARDS = 12  # runs in the strip


def story_parts(
    runs: Sequence[Run], story: Story | None, evaluation: Mapping[str, Any], courses: Mapping[str, Sequence[Logged]]
) -> dict[str, Any]:
    """Return the variables of story.html.j2; without a base's tokens the first training log speaks, if there is one."""
    return {
        "sections": [],  # it is the top of the page
        "log": "" if story else next(filter(None, (_log_headline(*one) for one in courses.items())), ""),
        "story": None if story is None else _told(runs, story),
        "strip": _strip(runs, evaluation),
    }


def _log_headline(label: str, course: Sequence[Logged]) -> str:
    """Return what a training log says of the model at its first and its last step."""
    ends = [(one.step, one.mean_token_accuracy) for one in (*course[:1], *course[1:][-1:])]
    known = [f"{percent_text(100 - 100 * share)} at step {step:,}" for step, share in ends if share is not None]
    words = f"By the training log of {label}, tokens that its model would have written differently: "
    return visible(f"{words}{' and '.join(known)}.") if known else ""


# ---- the example


def _told(runs: Sequence[Run], story: Story) -> dict[str, Any]:
    excerpt = story.excerpt
    return {
        "headline": visible(story.headline),
        "detail": visible(story.detail),
        "about": _about(story, excerpt),
        "number": excerpt.number + 1,
        "prompt": _prompt(excerpt.prompt),
        "rows": [_row(runs, story, place) for place in range(len(story.sides))],
        "lowest": [] if story.steps else [_named(token) for token in story.lowest],
        "look": _address(story),
        "model": visible(story.model),
        "on": "on what is wrong" if story.steps else f"below a gap of {number(story.band[0]).replace('-', MINUS)}",
    }


def _address(story: Story) -> str:
    """Return where the viewer shows the first marked token under the second side (tokens.js reads it)."""
    place = story.excerpt.start + [token.marked for token in story.excerpt.tokens].index(True)
    side = story.sides[1]
    fields = vars(side.weigher)
    band = {key: f"{fields[name]:g}" for key, name in (("t.m", "margin"), ("t.tau", "bandwidth")) if name in fields}
    return urlencode({"t.at": f"{story.excerpt.number}~{place}", "t.method": side.objective, **band})


def _row(runs: Sequence[Run], story: Story, place: int) -> dict[str, Any]:
    """Return the row of one side."""
    side, excerpt = story.sides[place], story.excerpt
    line = run_lines(runs)[side.run.label] if side.run else METHOD_LINES[side.objective]
    return {
        "label": visible(side.name),
        "setting": visible(side.setting),
        "line": line_class(line),
        "spent": percent_text(story.spent_percent[place]),
        "before": "…" if excerpt.start else "",
        "after": "…" if excerpt.cut_after else "",
        "tokens": [
            {
                "text": shortened(token.text, visible),
                "class": f"lit l{token.levels[place]}" + (" told" if token.marked else ""),
                "title": _named(token),
            }
            for token in excerpt.tokens
        ],
    }


def _named(token: Lit) -> str:
    texts = (token.text, token.competitor)
    gold, competitor = (shortened(text, visible).strip() or shortened(text).strip() for text in texts)
    return f"“{gold}” has a gap of {number(token.gap).replace('-', MINUS)} to “{competitor}”"


def _about(story: Story, excerpt: Excerpt) -> str:
    """Describe what is wrong in the example, or lowest in it."""
    if story.steps is None:
        return f"the lowest of all is marked: {_named(story.lowest[0])}"
    told = [f"{step.text} is wrong, {step.right} would be right" for step in excerpt.wrong[:NAMED]]
    more = len(excerpt.wrong) - len(told)
    return visible("; ".join([*told, *([f"{more} more are wrong"] if more else [])]))


def _prompt(prompt: str) -> str:
    """The question as far as it fits, without the usual words before it."""
    bare = " ".join(prompt.replace(SYSTEM_PROMPT, "").split())
    return visible(bare if len(bare) <= PROMPT else f"… {bare[-PROMPT:]}")


# ---- scores


def _strip(runs: Sequence[Run], evaluation: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last column of the first table of scores, greedy beside it."""
    tables: Sequence[Mapping[str, Any]] = evaluation["score_tables"]
    if not tables:
        return None
    lines = {label: line_class(line) for label, line in run_lines(runs).items()}
    cells = {table["metric"]: {label: row[-1] for label, row in table["rows"]} for table in tables}
    shown = list(dict.fromkeys([tables[0]["metric"], "greedy"]))
    reference = evaluation["data"]["pair"] and evaluation["data"]["pair"][0]
    places = [place for place, run in enumerate(runs) if run.label in cells[shown[0]]]
    cards = []
    for place in places[:CARDS]:
        label, figures = runs[place].label, []
        for metric in shown:
            name = "greedy" if metric == "greedy" else "average"
            difference = _difference(evaluation["pairs"], reference, place, name, evaluation["columns"][-1])
            mark = difference.mark if difference else ""
            figures.append({"metric": metric, "interval": cells[metric][label], "mark": mark})
        cards.append({"label": visible(label), "line": lines[label], "figures": figures})
    benchmarks, others = evaluation["benchmarks"], [place for place in places if place != reference]
    return {
        "metrics": shown,
        "over": f"mean of {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else visible(benchmarks[0]),
        "cards": cards,
        "left_out": len(places) - len(cards),
        "reference": None if reference is None else visible(runs[reference].label),
        "all_compared": all({(reference, place), (place, reference)} & evaluation["pairs"].keys() for place in others),
    }


def _difference(
    pairs: Mapping[tuple[int, int], Table], reference: int | None, place: int, metric: str, column: str
) -> Difference | None:
    if reference is None or place == reference:
        return None
    found = pairs.get((reference, place), {}).get(metric, {}).get(column)
    turned = pairs.get((place, reference), {}).get(metric, {}).get(column)
    return found or (turned.mirrored() if turned else None)
