"""What `trimsft study` and `trimsft sweep` print: studies, what they would take, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trimsft.study.command import StudyOutcome
from trimsft.study.running.cost import CellCost, Cost
from trimsft.study.scales import Scale, ScaleOptions
from trimsft.study.studies import STUDIES, find_studies, in_the_paper
from trimsft.study.sweeps.command import SweepOutcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def list_table() -> Table:
    """Every study, and which of the paper's tables and figures it makes again."""
    from rich import box
    from rich.table import Table

    table = Table("study", "", "in the paper", box=box.SIMPLE_HEAD)
    for study in STUDIES.values():
        table.add_row(study.name, study.title, in_the_paper(study))
    return table


def show_study(described: Mapping[str, Any], console: Console) -> None:
    """What `describe_study` returns, for people."""
    (study,) = find_studies([described["study"]])
    where = in_the_paper(study)
    console.print(f"{study.name}: {study.title}{f' ({where} of the paper)' if where else ''}", markup=False)
    for what in ("models", "benchmarks", "needs"):
        console.print(f"{what}: {', '.join(described[what])}", markup=False, soft_wrap=True)
    for cell in described["cells"]:
        console.print(f"  {cell}", markup=False, soft_wrap=True)


def show_outcomes(outcomes: Iterable[StudyOutcome], console: Console) -> None:
    """The table of each study, what it says to the paper's claims, and where the rest is."""
    for outcome in outcomes:
        for path in outcome.files:
            if path.suffix == ".txt":
                console.print(path.read_text(encoding="utf-8"), soft_wrap=True, markup=False)
        count, out = len(outcome.cells.done), outcome.cells.folder.out
        console.print(f"{count} cell{' is' if count == 1 else 's are'} done: {out}", soft_wrap=True, markup=False)
        for path in outcome.files:
            if path.suffix in (".md", ".html"):
                console.print(f"  {path}", soft_wrap=True, markup=False)
        others = sum(path.suffix not in (".md", ".html") for path in outcome.files)
        if others:
            console.print(f"  and {others} more in {out / 'tables'}", soft_wrap=True, markup=False)


def show_sweep(outcome: SweepOutcome, console: Console) -> None:
    """The table, what it says, where the rest is."""
    from trimsft.report.rendering import to_rich
    from trimsft.study.sweeps.writing import conclusions, sweep_table

    if outcome.swept is None:
        return
    console.print(to_rich(sweep_table(outcome.swept, brief=True)))
    for sentence in (*conclusions(outcome.swept), *outcome.notes):
        console.print(sentence, markup=False)
    for path in outcome.files:
        if path.suffix in (".html", ".md", ".png"):
            console.print(f"  {path}", soft_wrap=True, markup=False)


def show_cost(cost: Cost, options: ScaleOptions, console: Console) -> None:
    scale = options.to_scale()
    console.print(cost_table(cost, scale))
    if not cost.cells:
        return
    kept = "kept" if scale.keep_weights else "deleted once a cell is evaluated (--keep-weights keeps them)"
    console.print(
        f"Weights are {kept}. A cell at work takes up to {size_text(cost.total.peak_bytes)} of disk, each of those "
        "that go side by side.",
        soft_wrap=True,
    )
    for text in cost.assumptions:
        console.print(f"- {text}", soft_wrap=True, markup=False)


def cost_table(cost: Cost, scale: Scale, most: int = 30) -> Table:
    """A row for each cell, the first ones, and the total."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    rows = [_row(cell) for cell in cost.cells]
    time = "core\nminutes" if scale.device == "cpu" else "GPU\nhours"
    headers = ("to run", "trained\ntokens", "generated\ntokens", time, "disk")
    cells = f"{len(cost.cells)} cell{'' if len(cost.cells) == 1 else 's'}"
    feet = (f"{cells}, and {cost.already_done} done", *_row(cost.total)[1:])
    for number, (header, foot) in enumerate(zip(headers, feet, strict=True)):
        # names stay whole, over two lines where they must: they differ at their ends
        table.add_column(
            header,
            footer=foot,
            justify="right" if number else "left",
            min_width=8 if number else 20,
            overflow="ellipsis" if number else "fold",
        )
    for row in rows[:most]:
        table.add_row(*(Text(text) for text in row))
    if len(rows) > most:
        table.add_row(f"and {len(rows) - most} more")
    return table


def _row(cell: CellCost) -> tuple[str, str, str, str, str]:
    time = 60 * cell.cpu_hours or cell.gpu_hours
    return (
        cell.name,
        f"{cell.trained_tokens / 1e6:,.2f} M",
        f"{cell.generated_tokens / 1e6:,.2f} M",
        f"{time:,.1f}" if time < 100 else f"{time:,.0f}",
        size_text(cell.disk_bytes),
    )


def size_text(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:,.0f} kB"
