"""`trimsft report`: one page about runs; with `--figures` tables and figures beside it.

files = make_report(ReportSettings(runs=("Base=tokens-base.parquet", "TrimSFT=runs/trim")))
files.page, files.others, files.warnings

Made from tokens.parquet, eval/ and telemetry.jsonl alone, in seconds, without a model or a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError
from trimsft.objectives import BANDWIDTH, GAMMA, MARGIN, OBJECTIVES, PARAMETERS
from trimsft.options import check_options, option


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """The runs of a report, and the parameters that weights are computed with."""

    runs: tuple[str, ...] = option(
        help="Run directories or token tables; the first is the base.", argument="[LABEL=]RUN"
    )
    out: Path | None = option(None, help="Folder to write to (default: the run's own, for several ./report).")
    margin: float = option(MARGIN, help="Margin of TrimSFT's weights.")
    bandwidth: float = option(BANDWIDTH, help="Bandwidth of TrimSFT's weights.", above=0)
    gamma: float = option(GAMMA, help="Exponent of FSFT's weights.", least=0)
    objectives: tuple[str, ...] = option(
        (),
        flags=("--objective",),
        help="Weigh tokens by this objective, too, by name or as my_module:MyObjective; repeat it for several.",
    )
    title: str | None = option(None, help="Title of the page.")
    figures: bool = option(False, flags=("--figures",), help="Write tables and figures beside the page, too.")

    def __post_init__(self) -> None:
        check_options(self)
        if self.out is not None and (self.out.is_file() or self.out.suffix == ".html"):
            hint = "the page in it is called report.html"
            raise UsageError("must be a folder", field="out", value=str(self.out), hint=hint)


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report."""

    folder: Path
    page: Path
    others: tuple[Path, ...]  # tables and figures
    warnings: tuple[str, ...]  # why token tables cannot be compared, whose weights are not shown


def make_report(settings: ReportSettings) -> ReportFiles:
    """Write the page, on request tables and figures; nothing where a run or a parameter is refused."""
    from trimsft.report.page.build import write_report
    from trimsft.report.runs import named_runs, read_runs
    from trimsft.tokens.table import incomparable

    runs = named_runs(settings.runs)
    read, others = read_runs(runs), list[Path]()
    folder = settings.out or (read[0].folder if len(read) == 1 and not read[0].is_table else Path("report"))
    title = settings.title or (" and ".join(runs) if len(runs) < 3 else f"{len(runs)} runs")
    parameters = {name: getattr(settings, name) for name in PARAMETERS}
    given: dict[str, Any] = {"objectives": settings.objectives}
    page = write_report(folder / "report.html", read, title=title, settings=parameters, **given)
    if settings.figures:
        from trimsft.report.run_tables import write_analysis

        others = write_analysis(folder, read, parameters=parameters, **given)
    differing = incomparable({run.label: run.table for run in read if run.table})
    unloaded = [
        f"{run.label}: trained with {name}, whose code is loaded only where --objective {name} asks for its weights"
        for run in read
        if (name := run.objective or "sft") not in (*OBJECTIVES, *settings.objectives)
    ]
    return ReportFiles(folder, page, tuple(others), (*map(str, differing.values()), *unloaded))
