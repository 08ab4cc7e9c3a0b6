"""`trimsft study list | show | run | status | table`, `trimsft sweep` and `trimsft quickstart`.

While cells run, a terminal shows where they stand, and a log gets a line for each change:

    12 of 17 done, 2 running, 1 elsewhere, 1 failed, 1 waiting  4:12
    lab, TrimSFT (margin 1, bandwidth 2), seed 0  training             ━━━━━━━━──────────  14/50
    lab, TrimSFT (margin 1, bandwidth 3), seed 0  evaluating lab-easy  ━━━━━━━━━━━━━━────  210/360
    lab, TrimSFT (margin 1, bandwidth 4), seed 0  failed               learning_rate: must not be below 0, got -1
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimsft.cli.from_settings import command_of
from trimsft.cli.terminal import JsonFlag, called, ending, leaving, make_console, make_table, tell
from trimsft.errors import FAILED, counted
from trimsft.evaluate.compare import AVERAGE
from trimsft.evaluate.scores import load_run
from trimsft.lab import TIERS
from trimsft.quickstart import (
    BASELINE,
    GREEDY,
    SAMPLED,
    QuickstartOutcome,
    QuickstartSettings,
    Results,
    describe,
    next_commands,
    run_quickstart,
)
from trimsft.runs.secrets import hide_secrets
from trimsft.study import run as command
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.study.plan import StudyPlan, plan_study
from trimsft.study.run import CellState, Event, StudyOutcome, read_status
from trimsft.study.scales import ScaleOptions
from trimsft.study.studies import STUDIES, find_studies, in_the_paper
from trimsft.study.sweep import SweepOutcome, SweepSettings, plan_sweep, run_sweep
from trimsft.tables import DOWN, UP

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

HELP = """Repeat the paper's tables and figures, on your models.

\b
Examples:
  trimsft study list
  trimsft study run main --scale lab
  trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run --gpus 2xA6000
"""
study_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)
Name = Annotated[str, typer.Argument(metavar="STUDY", help="A study, see trimsft study list.")]
Folder = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the study, such as runs/study-lab.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what is missing, with --gpus 2xA6000 also what it takes.")
]
_SHOWN = ("scale", "models", "benchmarks", "seeds")
_NOT_SHOWN: dict[str, Any] = {field.name: field.default for field in fields(ScaleOptions) if field.name not in _SHOWN}


def study_list(as_json: JsonFlag = False) -> None:
    """List the studies, with the paper's tables that they repeat."""
    if as_json:
        listed = [{"study": s.name, "title": s.title, "paper": list(s.paper)} for s in STUDIES.values()]
        typer.echo(json.dumps(listed))
    else:
        table = make_table("study", "", "in the paper", texts=True)
        for study in STUDIES.values():
            table.add_row(study.name, study.title, in_the_paper(study))
        make_console().print(table)


@command_of(ScaleOptions, **_NOT_SHOWN)
def study_show(options: ScaleOptions, *, name: Name, as_json: JsonFlag = False) -> None:
    """Show the models, benchmarks and cells of a study.

    \b
    Example:
      trimsft study show main --scale paper
    """
    described = command.describe_study(name, options)
    if as_json:
        typer.echo(json.dumps(described))
        return
    (study,) = find_studies([described["study"]])
    where = in_the_paper(study)
    lines = [f"{study.name}: {study.title}{f' ({where} of the paper)' if where else ''}"]
    lines += [f"{what}: {', '.join(described[what])}" for what in ("models", "benchmarks", "needs")]
    typer.echo("\n".join([*lines, *(f"  {cell}" for cell in described["cells"])]))


@command_of(command.StudySettings, resumes=True)
def study_run(settings: command.StudySettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Run what is missing of a study, and write its tables.

    The tables stand beside the paper's. Rerun the command to resume. Several of these may run at once in one folder,
    on one machine or on many that share it.

    \b
    Examples:
      trimsft study run main
      trimsft study run main ablation --scale lab --seeds 3
      trimsft study run objectives --objective dft --objective my_module:Mine
      trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run --gpus 2xA6000
    """
    for line in command.study_notes(settings):
        typer.echo(line, err=True)
    if dry_run:
        plan = plan_study(settings)
        if as_json:
            typer.echo(json.dumps({"studies": [study.name for study in settings.studies()], **plan.as_dict()}))
        else:
            show_plan(plan, make_console())
        return
    with Progress(make_console(stderr=True), cell_label) as progress, leaving(progress.there):
        outcomes = command.run_study(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps([outcome.as_dict() for outcome in outcomes]))
    else:
        show_outcomes(outcomes, make_console())
    exit_with([line for outcome in outcomes for line in outcome.failures()])


def exit_with(failures: list[str]) -> None:
    """Print what failed on the way, and exit with 1 if anything did."""
    for line in failures:
        tell(line)
    if failures:
        raise typer.Exit(FAILED)


def study_status(out: Folder, as_json: JsonFlag = False) -> None:
    """Show which cells are done, running, failed or missing.

    Also while the study runs, and on whichever machine.

    \b
    Example:
      trimsft study status runs/study-lab
    """
    with ending({}):
        states = read_status(out)
    if as_json:
        typer.echo(json.dumps([state.as_dict() for state in states]))
    else:
        make_console().print(status_table(states))


def study_table(name: Name, out: Folder, as_json: JsonFlag = False) -> None:
    """Write the tables of a study again, from what is finished.

    \b
    Example:
      trimsft study table main runs/study-lab
    """
    with ending({}):
        files = command.rebuild_tables(name, out)
    typer.echo(json.dumps([str(path) for path in files]) if as_json else "\n".join(map(str, files)))


@command_of(SweepSettings, resumes=True)
def sweep(settings: SweepSettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Train a grid of settings and say which is best.

    Any field of trimsft train may be varied. Every point is a run directory. Rerun the command to resume.

    \b
    Examples:
      trimsft sweep --grid margin=0:6:1 --grid bandwidth=0.5,1,2 --seeds 3
      trimsft sweep --grid objective=trim,dft --select-on lab-easy --dry-run
    """
    if dry_run:
        plan = plan_sweep(settings)
        if as_json:
            typer.echo(json.dumps(plan.as_dict()))
        else:
            show_plan(plan, make_console())
        return
    with Progress(make_console(stderr=True), cell_label) as progress, leaving(progress.there):
        outcome = run_sweep(settings, on_event=progress, command=shlex.join(["trimsft", *hide_secrets(sys.argv[1:])]))
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_sweep(outcome, make_console())
    exit_with(outcome.failures())


@command_of(QuickstartSettings, resumes=True)
def quickstart(settings: QuickstartSettings, *, as_json: JsonFlag = False) -> None:
    """Compare objectives on a small model, on a CPU, offline.

    Trains the lab's base model with the paper's six objectives and AutoTrim, samples and grades answers, and writes a
    report, in minutes. Rerun the command to resume.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    with quickstart_progress(settings, make_console(stderr=True)) as progress, leaving(progress.there):
        outcome = run_quickstart(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_quickstart(outcome, make_console(), program=called())
    exit_with(outcome.failures())


# ---- what is printed


def show_outcomes(outcomes: Iterable[StudyOutcome], console: Console) -> None:
    """Print the table of each study, what it says to the paper's claims, and where the rest is."""
    for outcome in outcomes:
        lines = [path.read_text(encoding="utf-8") for path in outcome.files if path.suffix == ".txt"]
        count, out = len(outcome.cells.done), outcome.cells.folder.out
        lines.append(f"{count} cell{' is' if count == 1 else 's are'} done: {out}")
        pages = [path for path in outcome.files if path.suffix in (".md", ".html")]
        lines += [f"  {path}" for path in pages]
        if others := len(outcome.files) - len(pages):
            lines.append(f"  and {others} more in {out / 'tables'}")
        console.print("\n".join(lines), soft_wrap=True, markup=False)


def show_sweep(outcome: SweepOutcome, console: Console) -> None:
    """Print the table, what it says, where the rest is."""
    from trimsft.study.sweep_tables import conclusions, sweep_table
    from trimsft.tables import to_rich

    if outcome.swept is None:
        return
    console.print(to_rich(sweep_table(outcome.swept, brief=True)))
    for sentence in (*conclusions(outcome.swept), *outcome.notes):
        console.print(sentence, markup=False)
    for path in outcome.files:
        if path.suffix in (".html", ".md", ".png"):
            console.print(f"  {path}", soft_wrap=True, markup=False)


def show_plan(plan: StudyPlan, console: Console, most: int = 30) -> None:
    """Print what is missing, the first cells by name; where GPUs are named, what it takes there."""
    lines = []
    for cell in plan.cells[:most]:
        tokens = f"{cell.trained_tokens / 1e6:,.1f} M tokens trained, {cell.generated_tokens / 1e6:,.1f} M generated"
        lines.append(cell.name if cell.gpu_hours is None else f"{cell.name}: {cell.gpu_hours:,.1f} GPU hours, {tokens}")
    if len(plan.cells) > most:
        lines.append(f"and {len(plan.cells) - most} more")
    hours = f", {plan.hours:,.0f} GPU hours" if any(cell.gpu_hours is not None for cell in plan.cells) else ""
    lines.append(f"{counted(len(plan.cells), 'cell')} to run, {plan.already_done} done{hours}")
    console.print("\n".join([*lines, *(f"- {note}" for note in plan.notes)]), soft_wrap=True, markup=False)


def quickstart_progress(settings: QuickstartSettings, console: Console) -> Progress:
    """Return a live view that names methods as the paper does, with one number for each that is done."""

    def headline(cell: Cell) -> str:
        scores = load_run(settings.folder().run(cell), tuple(TIERS))
        mean = sum(score.interval("average").value for score in scores) / len(scores)
        return f"average@{settings.samples} {100 * mean:.1f}"

    return Progress(console, lambda cell: method_name(cell.objective), headline)


def show_quickstart(outcome: QuickstartOutcome, console: Console, *, program: str = "trimsft") -> None:
    """Print the tables, where the rest is, and how to go on; `program` is how the user's shell calls it."""
    out, results = outcome.cells.folder.out, outcome.results
    if results is not None:
        for part in (main_table(results), other_table(results), legend(results) + "\n", describe(results) + "\n"):
            console.print(part)
    if outcome.report:
        console.print(f"Every score, token and gap: {outcome.report}", soft_wrap=True, markup=False)
    minutes, seconds = divmod(round(outcome.total_seconds), 60)
    console.print(f"Run directories: {out} ({minutes} min {seconds} s)", soft_wrap=True, markup=False)
    trained = {cell.objective: run for cell, run in outcome.cells.done.items() if cell.objective != BASE}
    if trained:
        took = {cell.objective: steps for cell, steps in outcome.cells.seconds.items()}
        length = outcome.settings.max_tokens
        following = next_commands(out, trained, program=program, max_tokens=length, seconds=took)
        console.print("\n" + following, soft_wrap=True, markup=False)


def main_table(results: Results) -> Table:
    """Return the table of average@k, and greedy below it."""
    columns = [*results.tiers, AVERAGE]
    table = make_table("", *columns)
    for metric in (SAMPLED, GREEDY):
        table.add_section()
        table.add_row(f"[bold]{results.metrics[metric]}[/]")
        for name in results.scores:
            table.add_row(f"  {method_name(name)}", *(_cell(results, name, metric, column) for column in columns))
    return table


def other_table(results: Results) -> Table:
    """Return the table of pass@k and majority@k, the mean over tiers."""
    metrics = list(results.metrics)[2:]
    table = make_table("mean over tiers", *(results.metrics[metric] for metric in metrics))
    for name in results.scores:
        table.add_row(f"  {method_name(name)}", *(_cell(results, name, metric, AVERAGE) for metric in metrics))
    return table


def legend(results: Results) -> str:
    """Return what the marks mean."""
    problems = sum(score.problems for score in next(iter(results.scores.values())))
    text = f"Percent, with 95 % intervals over {problems} problems; bold is the highest."
    if BASELINE in results.scores:
        text += f" {UP} {DOWN}: differs from SFT, paired by problem, Holm-corrected p < 0.05."
    return text


def _cell(results: Results, name: str, metric: str, column: str) -> Text:
    from rich.text import Text

    def shown(method: str) -> float:
        return round(100 * results.score(method, metric, column).value, 1)

    interval = results.score(name, metric, column)
    mark = {1: UP, -1: DOWN, 0: " "}[results.direction(name, metric, column)]
    style = "bold" if shown(name) == max(map(shown, results.scores)) else ""
    low, high = (round(100 * bound) for bound in (interval.low, interval.high))
    return Text.assemble((f"{shown(name):5.1f}", style), mark, (f" {f'{low}-{high}':<6}", "dim"))


# ---- cells at work


BAR = 18
SHOWN = 20  # lines at most: what is at work first, then what went wrong, then the rest
STYLES = {"failed": "red", "retrying": "red", "done": "green", "waiting": "dim", "missing": "dim", "running": "cyan"}
_AT_WORK = ("running", "elsewhere", "retrying", "failed", "waiting", "done")


class Progress:
    """`with Progress(console) as progress: run_cells(..., on_event=progress)`.

    A terminal shows a table that is redrawn; elsewhere there is a line for each change.

    Args:
        label: what a cell is called.
        result: what came out of a cell that is done, in a few words.
    """

    def __init__(
        self,
        console: Console,
        label: Callable[[Cell], str] = lambda cell: cell.name,
        result: Callable[[Cell], str] = lambda cell: "",
    ) -> None:
        from rich.live import Live

        self._console, self._label, self._result = console, label, result
        self._latest: dict[Cell, Event] = {}
        self._notes: dict[Cell, str] = {}
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self._view, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        before, self._latest[event.cell] = self._latest.get(event.cell), event
        parts = [event.note, self._result(event.cell) if event.state == "done" else ""]
        self._notes[event.cell] = note = "; ".join(part for part in parts if part)
        is_new = before is None or before.state != event.state or _stage(before) != _stage(event)
        if is_new and event.state != "waiting" and not self._console.is_terminal:
            between = " by " if event.state == "elsewhere" else ", "
            text = note if event.state == "running" else f"{event.state}{between if note else ''}{note}"
            self._console.print(f"{self._clock()}  {self._label(event.cell)}: {text}", markup=False, soft_wrap=True)

    def there(self) -> str:
        """Return what there is to continue from."""
        done = sum(event.state == "done" for event in self._latest.values())
        if not self._latest:
            return "nothing was begun; rerun the command to start again"
        return f"{done} of {len(self._latest)} trainings and evaluations are done; rerun the command to resume"

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02d}"

    def _view(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        events = list(self._latest.values())
        if len(events) > SHOWN:
            events = [event for event in events if event.state not in ("waiting", "done")]
            events.sort(key=lambda event: _AT_WORK.index(event.state))
        for event in events[:SHOWN]:
            table.add_row(*self._row(event))
        if len(events) > SHOWN:
            table.add_row(Text(f"  and {len(events) - SHOWN} more", style="dim"))
        counts = _counts([event.state for event in self._latest.values()], _AT_WORK)
        return Group(Text(f"  {counts}  {self._clock()}"), table)

    def _row(self, event: Event) -> list[RenderableType]:
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        name = Text(f"  {self._label(event.cell)}")
        if event.state != "running":
            state = Text(event.state, style=STYLES.get(event.state, ""))
            return [name, state, Text(self._notes[event.cell], overflow="ellipsis"), ""]
        bar = ProgressBar(event.total, event.done, width=BAR) if event.total else Text("")
        count = f"{event.done:,}/{event.total:,}" if event.total else f"{event.done:,}" if event.done else ""
        return [name, Text(event.note), bar, count]


def _stage(event: Event) -> str:
    """Return what is under way; benchmarks are one stage, and reasons of failures differ."""
    return event.note.partition(" ")[0] if event.state == "running" else event.note


def _counts(states: Sequence[str], order: Sequence[str]) -> str:
    counts = Counter(states)
    parts = [f"{counts[state]} {state}" for state in order if counts[state] and state != "done"]
    return ", ".join([f"{counts['done']} of {len(states)} done", *parts])


def cell_label(cell: Cell) -> str:
    """Return a cell by the names of the paper: "lab, TrimSFT (margin 1, bandwidth 0.5), seed 0"."""
    return f"{cell.model}, {cell.label}" + ("" if cell.is_base else f", seed {cell.seed}")


def status_table(states: Sequence[CellState]) -> Table:
    """Return where cells stand, what needs looking at first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from trimsft.data.visible import visible  # whose study it is nobody knows

    order = ("running", "failed", "missing", "done")
    caption = _counts([state.state for state in states], order)
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("cell", overflow="fold", min_width=20)  # names differ at their ends
    table.add_column("state", no_wrap=True)
    table.add_column("")
    for state in sorted(states, key=lambda state: order.index(state.state)):
        table.add_row(
            Text(visible(state.cell.name)), Text(state.state, style=STYLES[state.state]), Text(visible(state.note))
        )
    return table


COMMANDS: dict[str, Callable[..., None]] = {
    "list": study_list, "show": study_show, "run": study_run, "status": study_status, "table": study_table,
}  # fmt: skip
"""Of `trimsft study`, in the order of --help."""
