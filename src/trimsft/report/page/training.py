"""How the trainings went: variables of training.html.j2, from the telemetry of the runs that have any."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.report.course import Logged
from trimsft.report.page.charts import Curve, course_chart, legend_mark, run_lines
from trimsft.report.runs import Run
from trimsft.runs.records import TelemetryLine, figures_of

PANELS = figures_of(TelemetryLine, "page") | {"counts_from": "gap with weight 1/2"}
"""Fields of `Logged` that the page draws, and how it calls them."""
_FINEST = 300  # points of a line


def training_parts(runs: Sequence[Run], courses: Mapping[str, Sequence[Logged]]) -> dict[str, Any]:
    """Nothing is shown where no run has telemetry.

    Args:
        courses: what each run logged, by label.
    """
    drawn = {label: course for label, course in courses.items() if course}
    panels = {title: _curves(drawn, field) for field, title in PANELS.items()}
    panels = {title: curves for title, curves in panels.items() if curves}
    if not panels:
        return {"sections": [], "course_chart": None}
    lines = run_lines(runs)
    return {
        "sections": [("training", "Training")],
        "course_chart": course_chart(panels, lines),
        "legend": [(legend_mark(lines[label]), label) for label in drawn],
        "adapts": [label for label, course in drawn.items() if course[-1].gate is not None],
    }


def _curves(courses: Mapping[str, Sequence[Logged]], field: str) -> dict[str, Curve]:
    """The line of each run that has the field."""
    curves: dict[str, Curve] = {}
    for label, course in courses.items():
        every = -(-len(course) // _FINEST)
        values = [(line.step, getattr(line, field)) for line in course[::every]]
        curve = [(step, value) for step, value in values if value is not None and math.isfinite(value)]
        if curve:
            curves[label] = curve
    return curves
