"""`trimsft quickstart`: the paper's comparison on the lab, a small study on a CPU, offline.

runs/quickstart/
  config.yaml        the settings; another quickstart may not be mixed in
  data/              train.jsonl, held-out.jsonl
  base/              eval/, tokens.parquet
  sft/ ... trim-h/   ordinary run directories: config.yaml, manifest.json, train/, model/, eval/, tokens.parquet
  logs/              what the libraries said, a file for each method
  quickstart.json, report.html

outcome = run_quickstart(QuickstartSettings(out=Path("runs/quickstart")))    # the same call continues
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft import lab
from trimsft.evaluate.compare import AVERAGE, Comparison, compare_runs
from trimsft.evaluate.scores import BenchmarkScore, best_temperature, load_run, macro
from trimsft.lab.task import LONG, TIERS, FineTuning
from trimsft.objectives import PAPER_OBJECTIVES
from trimsft.options import check_options, option
from trimsft.runs import RunDirectory, write_whole
from trimsft.study.cell import BASE, Cell, check_objectives, method_name
from trimsft.study.folder import StudyFolder
from trimsft.study.run import OnEvent, Outcome, ignore, run_cells
from trimsft.study.scales import LAB, Scale
from trimsft.tables import Table, mark_best

HELD_OUT = 1_000_000  # added to the seed: no training takes these rows
TEMPERATURES = (0.3, 0.6)  # beside the samples at 1 and the greedy answers
BASELINE, METHOD, OURS = "sft", "trim", "auto-trim"
FULL = {
    "methods": (*PAPER_OBJECTIVES, OURS), "rows": 1200, "problems": 40, "table_rows": 100,
    "tiers": tuple(TIERS), "slip_rate": FineTuning.slip_rate, "max_tokens": 128,
}  # fmt: skip
LONGER = {
    "methods": (BASELINE, "dft", METHOD, OURS), "problems": 60, "table_rows": 40,
    "tiers": (LONG,), "slip_rate": 0.4, "max_tokens": 160,
}  # fmt: skip
FAST = {"methods": (BASELINE, METHOD, OURS), "rows": 600, "problems": 16, "table_rows": 40}


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """One quickstart: the options of the command, and how much is done for every method."""

    out: Path | None = option(None, help="The folder for everything (default: runs/quickstart; -long, -fast).")
    fast: bool = option(False, flags=("--fast",), help="Half of the data, fewer problems, three methods.")
    long: bool = option(False, flags=("--long",), help="Teach longer chains, from rows with 40 % wrong steps.")
    seed: int = option(0, help="Seed of the training data, its order and the samples.", least=0, most=2**32 - 1)
    methods: tuple[str, ...] = option(
        (),
        flags=("--objective",),
        metavar="NAME",
        help="An objective, by name or as my_module:MyObjective (default: the paper's six and auto-trim).",
    )
    rows: int = 0  # of training data, for one epoch; 0: by `fast`, as for the next two
    problems: int = 0  # of each tier, always the same ones
    table_rows: int = 0  # held-out solutions whose tokens are measured before and after
    batch: int = 24
    samples: int = 8
    max_tokens: int = 0  # more than the longest solutions take
    tiers: tuple[str, ...] = ()
    slip_rate: float = 0.0
    workers: int | None = None  # methods side by side; by default as many as there are cores

    def __post_init__(self) -> None:
        check_options(self)
        for name, value in (FULL | (LONGER if self.long else {}) | (FAST if self.fast else {})).items():
            object.__setattr__(self, name, getattr(self, name) or value)
        check_objectives(self.methods, field="methods")

    def to_scale(self) -> Scale:
        return replace(
            LAB,
            benchmarks=self.tiers,
            rows=self.rows,
            defaults={**LAB.defaults, "per_device_train_batch_size": self.batch},
            limit=self.problems,
            samples=self.samples,
            temperatures=TEMPERATURES,
            temperature_samples=min(self.samples, 4),
            sampling={"max_tokens": self.max_tokens},
            table_rows=self.table_rows,
        )

    def cells(self) -> list[Cell]:
        """Return a cell for each method, the base first."""
        return [Cell(model="lab", objective=name, seed=self.seed) for name in (BASE, *self.methods)]

    def folder(self) -> QuickstartFolder:
        name = f"quickstart{'-long' if self.long else ''}{'-fast' if self.fast else ''}"
        return QuickstartFolder(self.out or Path("runs") / name, self)

    def as_dict(self) -> dict[str, Any]:
        """Return all that results depend on."""
        record = dataclasses.asdict(self) | {"methods": list(self.methods)}
        return {name: value for name, value in record.items() if name not in ("out", "fast", "long", "workers")}


@dataclass(frozen=True)
class QuickstartFolder(StudyFolder):
    """The folder of a study with shorter names: there is one model and one seed."""

    settings: QuickstartSettings

    def settle(self, scale: Scale, cells: Sequence[Cell]) -> None:
        """Record the settings; make what all methods train on, and held-out rows."""
        settings = self.settings
        RunDirectory(self.out).settle_config(settings.as_dict(), harmless=("methods",))  # each has its own folder
        of_task = FineTuning(seed=settings.seed, tiers=settings.tiers, slip_rate=settings.slip_rate)
        trained = replace(of_task, rows=settings.rows)
        held_out = replace(of_task, rows=settings.table_rows, seed=settings.seed + HELD_OUT)
        for path, rows in ((self.training_data(settings.seed), trained), (self.token_rows, held_out)):
            if not path.exists():
                lab.write_training(path, rows)

    def run(self, cell: Cell) -> Path:
        return self.out / cell.folder_name

    def log(self, cell: Cell) -> Path:
        return self.out / "logs" / f"{cell.folder_name}.log"

    def training_data(self, seed: int) -> Path:
        return self.out / "data" / "train.jsonl"

    @property
    def token_rows(self) -> Path:
        return self.out / "data" / "held-out.jsonl"


@dataclass
class QuickstartOutcome:
    """The result of a quickstart."""

    settings: QuickstartSettings
    cells: Outcome
    scores: dict[str, list[BenchmarkScore]]  # by objective, the base first; of each run that could be scored
    report: Path | None = None
    total_seconds: float = 0.0
    comparisons: dict[str, list[Comparison]] = field(default_factory=dict)  # by metric, each run against SFT

    def compare(self, **options: Any) -> None:
        """Hold each run against SFT: at temperature 1, greedily, and where SFT is best."""
        name = method_name(BASELINE)
        others = {method_name(one): scores for one, scores in self.scores.items() if one != BASELINE}
        if baseline := self.scores.get(BASELINE):
            for metric in (SAMPLED, GREEDY, _best_metric(baseline)):
                self.comparisons[metric] = compare_runs(baseline, others, [metric], name=name, **options)

    def failures(self) -> list[str]:
        """Return a line for each run that failed: why, and where to read more."""
        return self.cells.failures(lambda cell: method_name(cell.objective))

    def as_dict(self) -> dict[str, Any]:
        """Return the content of quickstart.json."""
        seconds: dict[str, Any] = {cell.objective: steps for cell, steps in self.cells.seconds.items()}
        return {
            "settings": self.settings.as_dict(),
            "scores": {name: [asdict(score) for score in scores] for name, scores in self.scores.items()},
            "against_sft": {name: [one.as_dict() for one in made] for name, made in self.comparisons.items()},
            "failures": {cell.objective: error for cell, error in self.cells.failed.items()},
            "seconds": seconds | {"total": self.total_seconds},
            "report": None if self.report is None else str(self.report),
        }


def run_quickstart(settings: QuickstartSettings, *, on_event: OnEvent = ignore) -> QuickstartOutcome:
    """Do what is missing; raises `RunError` where the folder holds another quickstart."""
    from trimsft.report.page.build import write_report

    began, folder, scale = time.monotonic(), settings.folder(), settings.to_scale()
    cells = run_cells(settings.cells(), scale, folder, workers=settings.workers, on_event=on_event)
    runs = {cell.objective: folder.run(cell) for cell in settings.cells() if cell in cells.done}
    outcome = QuickstartOutcome(settings, cells, {name: load_run(run, settings.tiers) for name, run in runs.items()})
    outcome.compare()
    if runs:
        command = f"trimsft quickstart{' --long' * settings.long} --seed {settings.seed}"
        outcome.report = write_report(
            folder.out / "report.html",
            {method_name(name): run for name, run in runs.items()},
            title="TrimSFT quickstart",
            settings={"command": command, **settings.as_dict()},
            objectives=[name for name in settings.methods if name not in PAPER_OBJECTIVES],
        )
    outcome.total_seconds = time.monotonic() - began
    write_whole(folder.out / "quickstart.json", (json.dumps(outcome.as_dict(), indent=1) + "\n").encode())
    return outcome


# ---- what the runs scored, each held against SFT

GREEDY, SAMPLED = "greedy", "average"


def headline(settings: QuickstartSettings, cell: Cell) -> str:
    """Return one number of a run that is done."""
    mean = macro(load_run(settings.folder().run(cell), settings.tiers), SAMPLED).value
    return f"average@{settings.samples} {100 * mean:.1f}"


def _best_metric(baseline: Sequence[BenchmarkScore]) -> str:
    """Return the metric at SFT's best temperature: what anybody gets by sampling sharper."""
    return baseline[0].known_as(f"T={best_temperature(baseline):g}")


def tables_of(outcome: QuickstartOutcome) -> list[Table]:
    """Return methods by tiers at temperature 1 and greedily, and over temperatures."""
    from trimsft.report.score_tables import score_table, temperature_table

    named = {method_name(name): scores for name, scores in outcome.scores.items()}
    made = [score_table(named, metric, comparisons=outcome.comparisons.get(metric, ())) for metric in (SAMPLED, GREEDY)]
    if baseline := outcome.scores.get(BASELINE):
        best = best_temperature(baseline)
        (row,) = score_table({f"{method_name(BASELINE)} at T={best:g}": baseline}, _best_metric(baseline)).rows
        made[0] = replace(made[0], rows=mark_best([*made[0].rows, row]))
    curve = temperature_table(named)
    return [*made, *([curve] if curve else [])]


def describe(outcome: QuickstartOutcome) -> list[str]:
    """Return what the scores say; the numbers choose each sentence."""
    sentences = []
    places = {SAMPLED: "at temperature 1", GREEDY: "with greedy decoding"}
    for metric, comparisons in outcome.comparisons.items():
        place = places.get(metric, f"where SFT is best, at temperature {metric.removeprefix('T=')}")
        means = [one for one in comparisons if one.benchmark == (LONG if outcome.settings.long else AVERAGE)]
        named = [one for name in (METHOD, OURS) for one in means if one.candidate == method_name(name)]
        for one in named:
            verb = "is above" if one.difference.value > 0 else "is below"
            verb = verb if one.significant else "shows no significant difference from"
            change, low, high = (100 * end for end in (one.difference.value, one.difference.low, one.difference.high))
            sentences.append(
                f"{one.candidate} {verb} {one.baseline} {place}: {100 * one.after:.1f} against {100 * one.before:.1f}, "
                f"{change:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}."
            )
        highest = max(means, key=lambda one: one.after, default=None)
        if highest is not None and highest not in named:
            sentences.append(f"The highest {place} is {highest.candidate}: {100 * highest.after:.1f}.")
    return sentences
