"""`trimsft quickstart`: the paper's comparison on the lab, in minutes, on a CPU, offline. A study with a small table.

runs/quickstart/
  config.yaml        the settings; another quickstart may not be mixed in
  data/              train.jsonl, held-out.jsonl
  base/              eval/, tokens.parquet
  sft/ ... trim-h/   ordinary run directories: config.yaml, manifest.json, train/, model/, eval/, tokens.parquet
  logs/              what the libraries said, a file for each method
  quickstart.json    the table, for programs
  report.html

outcome = run_quickstart(QuickstartSettings(out=Path("runs/quickstart")))    # the same call continues
outcome.results.score("trim", "average").value
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from trimsft import lab
from trimsft.errors import UsageError, one_line
from trimsft.evaluate.compare import AVERAGE, Comparison, compare_runs
from trimsft.evaluate.scores import BenchmarkScore, macro
from trimsft.intervals import Interval
from trimsft.lab import TIERS, FineTuning
from trimsft.objectives import BANDWIDTH, MARGIN, PAPER_OBJECTIVES
from trimsft.options import check_options, option
from trimsft.runs import RunDirectory, write_whole
from trimsft.study.cell import BASE, Cell, check_objectives, method_name, takes_of
from trimsft.study.folder import StudyFolder
from trimsft.study.run import OnEvent, Outcome, ignore, run_cells
from trimsft.study.scales import LAB, LAB_BASE, ModelAt, Scale

HELD_OUT = 1_000_000  # added to the seed: no training takes these rows
BASELINE, METHOD, OURS = "sft", "trim", "auto-trim"
METHODS = (*PAPER_OBJECTIVES, OURS)
FULL = {"methods": METHODS, "rows": 1200, "problems": 40, "table_rows": 100}
FAST = {"methods": (BASELINE, METHOD, OURS), "rows": 600, "problems": 16, "table_rows": 40}
_BY_FAST: Any = None  # the default of fields that FULL and FAST have a value for


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
        for name in ("rows", "batch", "problems", "samples", "max_tokens", "table_rows"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError("must be a whole number of at least 1", field=name, value=value)
        if self.device not in ("cpu", "cuda"):
            raise UsageError("must be cpu or cuda", field="device", value=self.device)
        check_objectives(self.methods, field="methods")
        self.task(self.rows, self.seed)  # refuses shares that are none

    def task(self, rows: int, seed: int) -> FineTuning:
        """Return the data that is trained on, or other rows of the same kind."""
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
        """Return a cell for each method, the base first."""
        cells = [Cell(model="lab", objective=BASE, seed=self.seed)]
        for name in self.methods:
            takes = takes_of(name) if name in PAPER_OBJECTIVES else ()
            fields = tuple((field, getattr(self, field)) for field in ("margin", "bandwidth") if field in takes)
            cells.append(Cell(model="lab", objective=name, seed=self.seed, fields=fields))
        return cells

    def folder(self) -> QuickstartFolder:
        return QuickstartFolder(self.out or Path("runs/quickstart-fast" if self.fast else "runs/quickstart"), self)

    def as_dict(self) -> dict[str, Any]:
        """Return all that results depend on."""
        record = dataclasses.asdict(self) | {"methods": list(self.methods)}
        return {name: value for name, value in record.items() if name not in ("out", "fast", "workers")}


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
        """Do nothing: the settings say it all."""

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
        """Return a line for each run that failed: why, and where to read more."""
        lines = self.cells.failures(lambda cell: method_name(cell.objective))
        if self.report_error:
            lines.append(f"report.html: {self.report_error}; the run directories in {self.cells.folder.out} are whole")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return the content of quickstart.json."""
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

    began, folder, scale = time.monotonic(), settings.folder(), settings.to_scale()
    needs, workers = frozenset({"scores", "tokens"}), settings.workers
    cells = run_cells(settings.cells(), scale, folder, needs=needs, workers=workers, retries=0, on_event=on_event)
    done = [cell for cell in settings.cells() if cell in cells.done]
    results = Results({cell.objective: load_run(folder.run(cell), tuple(TIERS)) for cell in done}) if done else None
    page, error = None, ""
    try:
        page = _write_page(folder, done) if done else None
    except Exception as failure:  # the table is worth showing without it
        error = one_line(failure)
    outcome = QuickstartOutcome(settings, cells, results, page, error, time.monotonic() - began)
    write_whole(folder.out / "quickstart.json", (json.dumps(outcome.as_dict(), indent=1) + "\n").encode())
    return outcome


def _write_page(folder: QuickstartFolder, done: Sequence[Cell]) -> Path:
    from trimsft.report.page.build import write_report

    settings = folder.settings
    options = " --fast" if settings.fast else ""
    if settings.methods != (FAST if settings.fast else FULL)["methods"]:
        options += "".join(f" --objective {name}" for name in settings.methods)
    command = f"trimsft quickstart{options} --seed {settings.seed} --out {folder.out}"
    names = ", ".join(map(method_name, settings.methods))
    counted = "the paper's six objectives and AutoTrim" if settings.methods == METHODS else names
    return write_report(
        folder.out / "report.html",
        {method_name(cell.objective): folder.run(cell) for cell in done},
        title=f"TrimSFT quickstart: {counted} on the lab",
        settings={"command": command, **settings.as_dict()},
        objectives=[name for name in settings.methods if name not in PAPER_OBJECTIVES],
    )


# ---- what the runs scored, each held against SFT

GREEDY, SAMPLED = "greedy", "average"
SCATTERED = 0.1  # greedy above sampled by so much: the model knows more than it says at temperature 1
_NO_DIFFERENCE = "shows no significant difference from"


@dataclass(frozen=True, eq=False)
class Results:
    """Scores of each run that has them, by its name, and what can be said of them."""

    scores: Mapping[str, Sequence[BenchmarkScore]]

    @property
    def samples(self) -> int:
        return min(score.samples for scores in self.scores.values() for score in scores)

    @property
    def metrics(self) -> dict[str, str]:
        """What each metric is called in tables, the paper's first."""
        k = self.samples
        return {SAMPLED: f"average@{k}"} | {name: name for name in (GREEDY, f"pass@{k}", f"majority@{k}")}

    @property
    def tiers(self) -> list[str]:
        return [score.benchmark for score in next(iter(self.scores.values()))]

    @cache  # noqa: B019 - results live as long as the command
    def score(self, name: str, metric: str, tier: str = AVERAGE) -> Interval:
        """Return the score on one tier, or the mean over tiers."""
        if tier == AVERAGE:
            return macro(self.scores[name], metric)
        return next(score for score in self.scores[name] if score.benchmark == tier).interval(metric)

    @cache  # noqa: B019
    def _comparisons(self, metric: str) -> dict[tuple[str, str], Comparison]:
        others = {other: scores for other, scores in self.scores.items() if other != BASELINE}
        made = compare_runs(self.scores[BASELINE], others, metric, name=method_name(BASELINE))
        return {(one.candidate, one.benchmark): one for one in made}

    def against_sft(self, name: str, metric: str, tier: str = AVERAGE) -> Comparison | None:
        """Return the paired comparison, corrected for all that are made of this metric; None without SFT's scores."""
        return self._comparisons(metric).get((name, tier)) if BASELINE in self.scores else None

    def direction(self, name: str, metric: str, tier: str = AVERAGE) -> int:
        """Return 1 above SFT, -1 below it, 0 where the paired comparison does not earn either."""
        compared = self.against_sft(name, metric, tier)
        if compared is None or not compared.significant:
            return 0
        return 1 if compared.difference.value > 0 else -1

    def trained(self) -> list[str]:
        return [name for name in self.scores if name != BASE]

    def as_dict(self) -> dict[str, Any]:
        """Return every score with its interval: run, tier, metric."""
        return {name: {tier: self._described(name, tier) for tier in (*self.tiers, AVERAGE)} for name in self.scores}

    def _described(self, name: str, tier: str) -> dict[str, Any]:
        described: dict[str, Any] = {}
        for metric, shown in self.metrics.items():
            described[shown] = self.score(name, metric, tier).as_dict()
            compared = self.against_sft(name, metric, tier)
            if compared is not None:
                described[shown]["against_sft"] = {
                    **compared.difference.as_dict(),
                    "p": compared.p_value,
                    "p_holm": compared.p_holm,
                    "significant": compared.significant,
                }
        return described


def describe(results: Results) -> str:
    """Return what the results say; each sentence is chosen by the numbers, none is written beforehand."""
    stand = [_against_sft(results, name) for name in (METHOD, OURS)]
    sentences = [_base(results), *stand, _rival(results), _others(results), _greedy(results)]
    best = max(results.trained(), key=lambda name: results.score(name, SAMPLED).value, default=METHOD)
    if METHOD in results.scores and OURS not in results.scores and best not in (METHOD, BASELINE):
        sentences.insert(-1, f"The highest here is {method_name(best)}, not TrimSFT.")
    return " ".join(filter(None, sentences))


def _base(results: Results) -> str:
    if BASE not in results.scores:
        return ""
    sampled, greedy = (results.score(BASE, metric).value for metric in (SAMPLED, GREEDY))
    text = f"The base model solves {_percent(greedy)} % greedy and {_percent(sampled)} % at temperature 1"
    unreliable = ": correct with greedy decoding, unreliable when sampled"
    return f"{text}{unreliable if greedy - sampled >= SCATTERED else ''}."


def _against_sft(results: Results, name: str) -> str:
    """Say where a method stands to SFT; of the paper's, whether its claim shows here."""
    compared = results.against_sft(name, SAMPLED)
    if compared is None:
        return ""
    pair = f"{_percent(compared.after)} against {_percent(compared.before)} (average@{results.samples})"
    stands = {1: "is above SFT", 0: f"{_NO_DIFFERENCE} SFT here", -1: "is below SFT here"}
    direction = results.direction(name, SAMPLED)
    claim = "; the paper's claim does not show" if name == METHOD and direction < 0 else ""
    return f"{method_name(name)} {stands[direction]}: {pair}, {_spread(compared)}{claim}."


def _rival(results: Results) -> str:
    """Say where AutoTrim stands to the highest of the others, which luck may have made the highest."""
    others = [name for name in results.trained() if name != OURS]
    rival = max(others, key=lambda name: results.score(name, SAMPLED).value, default=BASELINE)
    if OURS not in results.scores or rival == BASELINE:
        return ""
    made = compare_runs(results.scores[rival], {OURS: results.scores[OURS]}, SAMPLED, name=method_name(rival))
    compared = made[-1]  # the mean over tiers
    place = "is above" if compared.difference.value > 0 else "is below"
    stands = place if compared.significant else _NO_DIFFERENCE
    return f"It {stands} {method_name(rival)}, the highest of the others: {_spread(compared)}."


def _others(results: Results) -> str:
    """Say where the other methods stand to SFT."""
    others = [name for name in results.trained() if name not in (METHOD, OURS, BASELINE)]
    parts = []
    for direction, place in ((1, "above SFT"), (-1, "below SFT"), (0, "no significant difference from SFT")):
        names = [name for name in others if results.direction(name, SAMPLED) == direction]
        names.sort(key=lambda name: -results.score(name, SAMPLED).value)
        listed = [f"{method_name(name)} ({_percent(results.score(name, SAMPLED).value)})" for name in names]
        if listed and BASELINE in results.scores:
            parts.append(f"{place}: {' and '.join(filter(None, (', '.join(listed[:-1]), listed[-1])))}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _greedy(results: Results) -> str:
    """Say whether what was won at temperature 1 was won greedy, too."""
    trained = results.trained()
    if not trained:
        return ""
    values = [results.score(name, GREEDY).value for name in trained]
    low, high = _percent(min(values)), _percent(max(values))
    who = "model solves" if len(values) == 1 else "models solve"
    text = f"With greedy decoding the trained {who} {low if low == high else f'{low} to {high}'} %"
    if METHOD not in trained or results.direction(METHOD, SAMPLED) <= 0:
        return f"{text}."
    greedy = results.direction(METHOD, GREEDY)
    if greedy > 0:
        return f"{text}, and TrimSFT is above SFT there, too."
    stands = "is below" if greedy < 0 else _NO_DIFFERENCE
    return f"{text}; TrimSFT {stands} SFT there, so its gain is in sampling."


def _spread(compared: Comparison) -> str:
    change, low, high = (100 * value for value in compared.difference.as_dict().values())
    return f"{change:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


# ---- what to do next

BENCHMARK, PROBLEMS = "lab-medium", 16
ROWS = 100  # whose tokens are measured
_START = 10  # seconds that a command takes to begin, on a small machine


def next_commands(
    folder: Path,
    trained: Mapping[str, Path],
    *,
    program: str,
    max_tokens: int,
    seconds: Mapping[str, Mapping[str, float]],
) -> str:
    """Return commands that repeat two trainings and a small evaluation, to be run as they are printed.

    Args:
        folder: of the quickstart.
        trained: its methods and their run directories; two of them are trained again and compared.
        program: how the program is called in the user's shell.
        max_tokens: how long the answers of this model may become.
        seconds: what each method took, by step, where that was measured.
    """
    first = [name for name in (BASELINE, OURS) if name in trained]
    pair = (first + [name for name in trained if name not in first])[:2]
    mine = [str(folder.parent / f"my-{trained[name].name}") for name in pair]
    base, look, data = lab.base_model_path(), str(folder / "look"), str(folder / "data" / "train.jsonl")
    shortest = min(str(base), os.path.relpath(base), key=len)
    configs = [str(trained[name] / "config.yaml") for name in pair]
    train = [["train", "--config", config, "--out", out] for config, out in zip(configs, mine, strict=True)]
    asked = ["-b", BENCHMARK, "--limit", str(PROBLEMS), "--max-tokens", str(max_tokens)]
    commands = [
        ["tokens", shortest, "--data", data, "--sample", str(ROWS), "--out", look],
        ["report", look, "--out", look],
        [*train[0], "--dry-run"],
        *train,
        *(["eval", run, *asked] for run in mine),
        *([["compare", *mine]] if len(mine) > 1 else []),
    ]
    duration = "in minutes"  # where the trainings were there already
    if all({"train", "evaluate"} <= seconds.get(name, {}).keys() for name in pair):
        work = sum(seconds[name]["train"] + seconds[name]["evaluate"] / 2 for name in pair)
        minutes = math.ceil((work + _START * len(commands)) / 60)
        duration = f"about {minutes} minute{'' if minutes == 1 else 's'} on this machine"
    return "\n".join(
        [
            f"Next: the same by hand, {duration}. Each line can be run as it stands.",
            *(f"  {program} {shlex.join(words)}" for words in commands),
            "Then with your own model and data, one problem and one solution a line:",
            f"  {program} tokens MODEL --data DATA.jsonl --sample 200",
            "It says whether the model supports the data, and prints the command that trains it.",
        ]
    )
