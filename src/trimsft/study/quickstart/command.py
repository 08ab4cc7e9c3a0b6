"""The quickstart from beginning to end: data, cells side by side, table, report; the same call continues.

outcome = run_quickstart(QuickstartSettings(out=Path("runs/quickstart")))
outcome.results.score("trim", "average").value
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft import lab
from trimsft.errors import UsageError, one_line
from trimsft.lab import TIERS, FineTuning
from trimsft.objectives import BANDWIDTH, MARGIN, PAPER_OBJECTIVES
from trimsft.options import check_options, option
from trimsft.runs import RunDirectory, write_whole
from trimsft.study.cells import BASE, Cell, check_objectives, method_name, takes_of
from trimsft.study.folder import StudyFolder
from trimsft.study.running.execution import OnEvent, Outcome, ignore, run_cells
from trimsft.study.scales import LAB, LAB_BASE, ModelAt, Scale

if TYPE_CHECKING:
    from trimsft.study.quickstart.scores import Results

HELD_OUT = 1_000_000  # added to the seed: no training takes these rows
METHODS = (*PAPER_OBJECTIVES, "auto-trim")
FULL = {"methods": METHODS, "rows": 1200, "problems": 40, "table_rows": 100}
FAST = {"methods": ("sft", "trim", "auto-trim"), "rows": 600, "problems": 16, "table_rows": 40}
_BY_FAST: Any = None  # the default of fields that FULL and FAST have a value for
_NOT_RECORDED = ("out", "fast", "workers")


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """One quickstart: the options of the command, and how much is done, the same for every method."""

    out: Path | None = option(
        None, help="The folder for everything (default: runs/quickstart, or runs/quickstart-fast with --fast)."
    )
    fast: bool = option(
        False,
        flags=("--fast",),
        help="Train on half of the data and evaluate on fewer problems; SFT, TrimSFT and AutoTrim only, unless "
        "--objective names others.",
    )
    seed: int = option(0, help="Seed of the training data, its order and the samples.", least=0, most=2**32 - 1)
    methods: tuple[str, ...] = option(
        (),
        flags=("--objective", "--method"),
        metavar="NAME",
        help="An objective, by name or as my_module:MyObjective; repeat it for several "
        "(default: the paper's six and auto-trim, or those of --fast).",
    )
    rows: int = _BY_FAST  # rows of training data: one epoch
    batch: int = 24
    learning_rate: float = 5e-4
    problems: int = _BY_FAST  # problems of each tier, always the same ones
    samples: int = 8
    max_tokens: int = 128  # twice what the longest solutions take: who has not answered by then will not
    table_rows: int = _BY_FAST  # held-out solutions whose tokens are measured before and after
    slip_rate: float = FineTuning.slip_rate
    filler_rate: float = FineTuning.filler_rate
    unfamiliar_share: float = FineTuning.unfamiliar_share
    """Imperfections of the training data, see `lab.FineTuning`."""
    margin: float = MARGIN
    bandwidth: float = BANDWIDTH
    base: str = ""  # folder of another base model of the lab; empty: the one of the package
    device: str = "cpu"
    workers: int | None = None  # methods side by side; by default as many as there are cores

    def __post_init__(self) -> None:
        check_options(self)
        for name, value in (FAST if self.fast else FULL).items():
            if getattr(self, name) in (_BY_FAST, ()):
                object.__setattr__(self, name, value)
        for name in ("seed", "rows", "batch", "problems", "samples", "max_tokens", "table_rows"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (name != "seed"):
                raise UsageError(f"must be a whole number of at least {int(name != 'seed')}", field=name, value=value)
        if self.device not in ("cpu", "cuda"):
            raise UsageError("must be cpu or cuda", field="device", value=self.device)
        check_objectives(self.methods, field="methods")
        self.task(self.rows, self.seed)  # refuses shares that are none

    def task(self, rows: int, seed: int) -> FineTuning:
        """The data that is trained on, or other rows of the same kind."""
        imperfections = {name: getattr(self, name) for name in ("slip_rate", "filler_rate", "unfamiliar_share")}
        return FineTuning(rows=rows, seed=seed, **imperfections)

    def to_scale(self) -> Scale:
        return replace(
            LAB,
            models={"lab": ModelAt(path=str(Path(self.base).resolve()) if self.base else LAB_BASE)},
            rows=self.rows,
            defaults={**LAB.defaults, "per_device_train_batch_size": self.batch, "learning_rate": self.learning_rate},
            problems=self.problems,
            samples=self.samples,
            sampling={"max_tokens": self.max_tokens},
            table_rows=self.table_rows,
            device=self.device,
        )

    def cells(self) -> list[Cell]:
        """A cell for each method, the base first."""
        cells = [Cell(model="lab", objective=BASE, seed=self.seed)]
        for name in self.methods:
            takes = takes_of(name) if name in PAPER_OBJECTIVES else ()
            fields = tuple((field, getattr(self, field)) for field in ("margin", "bandwidth") if field in takes)
            cells.append(Cell(model="lab", objective=name, seed=self.seed, fields=fields))
        return cells

    def folder(self) -> QuickstartFolder:
        return QuickstartFolder(self.out or Path("runs/quickstart-fast" if self.fast else "runs/quickstart"), self)

    def as_dict(self) -> dict[str, Any]:
        """What is recorded: all that results depend on."""
        record = {name: value for name, value in dataclasses.asdict(self).items() if name not in _NOT_RECORDED}
        return record | {"methods": list(self.methods)}


@dataclass(frozen=True)
class QuickstartFolder(StudyFolder):
    """The folder of a study with shorter names: there is one model and one seed."""

    settings: QuickstartSettings

    def _settle(self, scale: Scale) -> None:
        """Record the settings, and make what all methods train on and held-out rows of the same kind."""
        settings = self.settings
        RunDirectory(self.out).settle_config(settings.as_dict(), harmless=("methods",))  # each has its own folder
        if not self.training_data(settings.seed).exists():
            lab.write_training(self.training_data(settings.seed), settings.task(settings.rows, settings.seed))
        if not self.token_rows.exists():
            lab.write_training(self.token_rows, settings.task(settings.table_rows, settings.seed + HELD_OUT))

    def remember(self, cells: Sequence[Cell], needs: object) -> None:
        """The settings say it all."""

    def run(self, cell: Cell) -> Path:
        return self.out / cell.folder_name

    def log(self, cell: Cell) -> Path:
        return self.out / "logs" / f"{cell.folder_name}.log"

    def training_data(self, seed: int) -> Path:
        return self.out / "data" / "train.jsonl"

    @property
    def token_rows(self) -> Path:
        return self.out / "data" / "held-out.jsonl"


@dataclass(frozen=True)
class QuickstartOutcome:
    """What a quickstart came to."""

    settings: QuickstartSettings
    cells: Outcome
    results: Results | None  # None where no run could be scored
    report: Path | None
    report_error: str
    total_seconds: float

    def failures(self) -> list[str]:
        """Which run failed, why, and where to read more."""
        lines = self.cells.failures(_label)
        if self.report_error:
            lines.append(f"report.html: {self.report_error}; the run directories in {self.cells.folder.out} are whole")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The content of quickstart.json."""
        failures = {cell.objective: error for cell, error in self.cells.failed.items()}
        return {
            "settings": self.settings.as_dict(),
            "labels": {name: method_name(name) for name in (BASE, *self.settings.methods)},
            "scores": {} if self.results is None else self.results.as_dict(),
            "failures": failures | ({"report": self.report_error} if self.report_error else {}),
            "seconds": {cell.objective: steps for cell, steps in self.cells.seconds.items()}
            | {"total": self.total_seconds},
            "report": None if self.report is None else str(self.report),
        }


def run_quickstart(settings: QuickstartSettings, *, on_event: OnEvent = ignore) -> QuickstartOutcome:
    """Do what is missing; raises `RunError` where the folder holds another quickstart.

    Args:
        on_event: called with every change of a cell.
    """
    from trimsft.evaluate.scores import load_run
    from trimsft.study.quickstart.scores import Results

    began = time.monotonic()
    folder = settings.folder()
    needs, workers = frozenset({"scores", "tokens"}), settings.workers
    scale = settings.to_scale()
    cells = run_cells(settings.cells(), scale, folder, needs=needs, workers=workers, retries=0, on_event=on_event)
    done = [cell for cell in settings.cells() if cell in cells.done]
    results = Results({cell.objective: load_run(folder.run(cell), tuple(TIERS)) for cell in done}) if done else None
    report, error = _try_report(folder, done)
    outcome = QuickstartOutcome(settings, cells, results, report, error, time.monotonic() - began)
    write_whole(folder.out / "quickstart.json", (json.dumps(outcome.as_dict(), indent=1) + "\n").encode())
    return outcome


def _try_report(folder: QuickstartFolder, done: Sequence[Cell]) -> tuple[Path | None, str]:
    """The page, or why there is none: the table is worth showing without it."""
    if not done:
        return None, ""
    settings = folder.settings
    options = " --fast" if settings.fast else ""
    if settings.methods != (FAST if settings.fast else FULL)["methods"]:
        options += "".join(f" --objective {name}" for name in settings.methods)
    command = f"trimsft quickstart{options} --seed {settings.seed} --out {folder.out}"
    try:
        from trimsft.report.page.build import write_report

        page = write_report(
            folder.out / "report.html",
            {method_name(cell.objective): folder.run(cell) for cell in done},
            title=f"TrimSFT quickstart: {_counted(settings.methods)} on the lab",
            settings={"command": command, **settings.as_dict()},
            objectives=[name for name in settings.methods if name not in PAPER_OBJECTIVES],
        )
    except Exception as error:
        return None, one_line(error)
    return page, ""


def _counted(methods: Sequence[str]) -> str:
    return "the paper's six objectives and AutoTrim" if methods == METHODS else ", ".join(map(method_name, methods))


def _label(cell: Cell) -> str:
    return method_name(cell.objective)
