"""The figures of each log of a training, from sums kept on the device; and warnings about them.

Every figure is a ratio of sums over all trained tokens since the last log. A line of `telemetry.jsonl`:

    {"step": 20, "loss": 0.148, "nll": 0.93, "mean_token_accuracy": 0.76, "gap_p05": -3.3, "gap_p50": 3.9, ...}
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from trimsft.head.problem import joined
from trimsft.objectives import TokenStats, TrimSFT, TrimSFTEasy
from trimsft.objectives.paper import HIGH_WEIGHT
from trimsft.runs import JsonLines
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.tables import Cell, Table
from trimsft.train.batches import real_tokens
from trimsft.train.patching import TrimOutput

PREFIX = "trim/"  # before the figures of a training in its log: a section of their own in trackers
QUANTILES: dict[str, float] = figures_of(TelemetryLine, "quantile")
_FORMATS = figures_of(TelemetryLine, "format")
logger = logging.getLogger("trimsft")
_OF_TRL = ("mean_token_accuracy", "entropy")  # logged by its trainer under these names, too
_OF_TRAINING = ("seen_tokens", "tokens_per_second", "skipped")
_MEANS = [
    "nll", "weighted_loss", "mean_token_accuracy", "entropy", "mean_weight", "high_weight", "out_of_reach",
]  # fmt: skip
_MASSES = ["mass_low", "mass_middle", "mass_high"]
_SUMS = ["tokens", *_MEANS, *_MASSES, "weight_squared", "eos", "eos_weight", "eos_prob", "kept", "seen"]
_PENDING = 1 << 16  # tokens counted in one go: a small operation costs the host some 20 us
_LOWEST, _HIGHEST, _BIN = -40.0, 40.0, 0.05
_BINS = round((_HIGHEST - _LOWEST) / _BIN) + 2  # one more at either end for what lies beyond


class TokenSums:
    """Sums over the tokens of one mode, training or evaluation, since the last `collect`."""

    def __init__(self, band: tuple[float, float], eos_ids: tuple[int, ...]) -> None:
        self.band, self.eos_ids = band, eos_ids  # margin and bandwidth
        self._totals: Tensor | None = None  # the sums, then how many gaps fell into each bin
        self._pending: list[tuple[TokenStats, Tensor, Tensor, int, Tensor | int]] = []  # not counted yet
        self.since = time.perf_counter()

    def add(self, tokens: TokenStats, weights: Tensor, labels: Tensor, *, kept: int, seen: Tensor | int) -> None:
        """Take one micro-batch, without waiting for the device; `seen` counts all its tokens."""
        self._pending.append((tokens, weights, labels, kept, seen))
        if sum(len(one[0]) for one in self._pending) >= _PENDING:
            self._count(weights.device)

    def _count(self, device: torch.device) -> Tensor:
        """Add what is pending to the sums, and return them."""
        if self._totals is None:
            wide = torch.float32 if device.type == "mps" else torch.float64
            self._totals = torch.zeros(len(_SUMS) + _BINS, device=device, dtype=wide)
        totals = self._totals = self._totals.to(device)
        if not self._pending:
            return totals
        parts, all_weights, all_labels, kept, seen = zip(*self._pending, strict=True)
        self._pending = []
        tokens, weights, labels = joined(parts), torch.cat(all_weights), torch.cat(all_labels)
        m, tau = self.band
        gap = tokens.gap
        low, high = gap < m - tau, gap > m + tau
        eos = sum((labels == i for i in self.eos_ids), torch.zeros_like(labels, dtype=torch.bool))
        # ||softmax(z) - onehot(y)||_2 of the two probabilities the head knows; what this leaves out under the root
        # is at most p_competitor * (1 - p_gold - p_competitor)
        norm = torch.hypot(tokens.doubt, torch.exp(-tokens.nll - gap).clamp(max=1))
        mass = weights.abs() * norm
        summands: dict[str, Tensor] = {
            "tokens": torch.ones_like(gap),
            "nll": tokens.nll,
            "weighted_loss": weights * tokens.nll,
            "mean_token_accuracy": (gap > 0).float(),
            "entropy": torch.zeros_like(gap) if tokens.entropy is None else tokens.entropy,
            "mean_weight": weights,
            "high_weight": (weights > HIGH_WEIGHT).float(),
            "out_of_reach": (gap < m - 3 * tau).float(),
            "mass_low": mass * low,
            "mass_middle": mass * ~(low | high),
            "mass_high": mass * high,
            "weight_squared": weights.square(),
            "eos": eos.float(),
            "eos_weight": weights * eos,
            "eos_prob": tokens.prob * eos,
        }
        rows = torch.stack([summands[name] for name in _SUMS if name in summands])
        totals[: len(rows)] += rows.sum(dim=1, dtype=totals.dtype)
        totals[_SUMS.index("kept")] += sum(kept)
        # counted where the inputs are: with `device_map`, another device than the head's
        totals[_SUMS.index("seen")] += sum(one.to(device) if isinstance(one, Tensor) else one for one in seen)
        bins = ((gap - _LOWEST) / _BIN).floor().clamp(-1, _BINS - 2).long() + 1
        totals[len(_SUMS) :].index_add_(0, bins, torch.ones_like(gap, dtype=totals.dtype))
        return totals

    def collect(self, reduce: Callable[[Tensor], Tensor], device: torch.device) -> dict[str, float]:
        """Return the figures since the last call, over all ranks by `reduce`, a sum."""
        device = self._pending[0][1].device if self._pending else device
        everything = reduce(self._count(device)).tolist()  # a rank with nothing takes part
        seconds, self.since = time.perf_counter() - self.since, time.perf_counter()
        self.reset()
        total = dict(zip(_SUMS, everything, strict=False))
        speed = {"tokens_per_second": total["seen"] / seconds, "seen_tokens": total["seen"]}
        if total["tokens"] == 0:
            return speed if total["seen"] else {}
        count, squares = total["tokens"], total["weight_squared"]
        mass = sum(total[name] for name in _MASSES)
        figures = {name: total[name] / count for name in _MEANS}
        figures |= {name: total[name] / mass if mass else 0.0 for name in _MASSES}
        figures |= {name: total[name] / total["eos"] for name in ("eos_weight", "eos_prob") if total["eos"]}
        figures["effective_ratio"] = total["mean_weight"] ** 2 / (count * squares) if squares else 0.0
        figures |= {"skipped": 1 - total["kept"] / count, "trained_tokens": count}
        return {**figures, **_quantiles(everything[len(_SUMS) :]), **speed}

    def reset(self) -> None:
        """Forget what was counted since the last `collect`."""
        self._totals, self._pending = None, []


def _quantiles(counts: list[float]) -> dict[str, float]:
    """Return quantiles of the gap by linear interpolation within bins of 0.05."""
    cumulative = torch.tensor(counts, dtype=torch.float64).cumsum(0)
    quantiles = {}
    for name, share in QUANTILES.items():
        target = share * float(cumulative[-1])
        place = min(int(torch.searchsorted(cumulative, target)), _BINS - 1)
        before = float(cumulative[place - 1]) if place else 0.0
        within = (target - before) / counts[place] if counts[place] else 0.0
        edge = _LOWEST + (place - 1 + within) * _BIN
        quantiles[name] = min(max(edge, _LOWEST), _HIGHEST)
    return quantiles


def warnings_for(figures: dict[str, float], band: tuple[float, float], objective: Any) -> dict[str, str]:
    """Return warnings about these figures, by a name under which each is given once."""
    said: dict[str, str] = {}
    ratio, reach = figures["effective_ratio"], band[0] - 3 * band[1]
    if isinstance(objective, TrimSFT | TrimSFTEasy) and figures["out_of_reach"] > 0.5:
        said["out of reach"] = (
            f"{figures['out_of_reach']:.0%} of the tokens have a logit gap below margin - 3 bandwidths ({reach:g}): "
            "the base model hardly learns from them; objective=auto-trim or objective=sft is advised"
        )
    if ratio < 0.01:
        said["effective ratio"] = (
            f"the effective ratio is {ratio:.2%}: next to nothing is left to learn from; stop here, or choose another "
            "margin or a larger bandwidth"
        )
    # little weight is right where the model knows when to stop
    if figures.get("eos_weight", 1.0) < 0.01 and figures["eos_prob"] < 0.5:
        said["eos"] = (
            f"the end-of-sequence token has a mean weight of {figures['eos_weight']:.4f} and a mean probability of "
            f"{figures['eos_prob']:.3f}: the model does not learn when to stop; check the length of its answers"
        )
    return said


class Telemetry(TrainerCallback):  # type: ignore[misc]
    """Counts tokens; puts their figures into logs, on the terminal and into a file."""

    def __init__(self, trainer: Any, band: tuple[float, float], eos_ids: tuple[int, ...]) -> None:
        self.trainer = trainer
        self.sums = {mode: TokenSums(band, eos_ids) for mode in ("train", "eval")}
        self.warned: set[str] = set()
        self._evaluated: str | None = None  # the prefix of the evaluation that is running
        self._file: JsonLines | None = None
        self._began = (0.0, 0)  # the time and the step at which this start began

    def observe(self, outputs: TrimOutput, inputs: dict[str, Any]) -> None:
        """Count the tokens of a micro-batch."""
        sums = self.sums["train" if self.trainer.model.training else "eval"]
        sums.add(outputs.tokens, outputs.weights, outputs.labels, kept=outputs.kept, seen=real_tokens(inputs))

    @contextmanager
    def evaluation(self, prefix: str) -> Iterator[None]:
        """Within, the figures of evaluation are those of one dataset; several nest."""
        outer, self._evaluated = self._evaluated, prefix
        self.sums["eval"].reset()
        try:
            yield
        finally:
            self._evaluated = outer
            self.sums["train"].since = time.perf_counter()  # left out of tokens_per_second

    def add_figures(self, logs: dict[str, float]) -> None:
        """Put figures into a log of Trainer's own; a user's may be on one rank only."""
        trainer = self.trainer
        if {"loss", "learning_rate"} <= logs.keys() or {"train_runtime", "train_loss"} <= logs.keys():
            figures = self._collect("train")
            if trainer.args.device.type == "cuda":  # the most any rank has held
                peak = torch.tensor([torch.cuda.max_memory_allocated()], device=trainer.args.device).double()
                figures["peak_memory_gib"] = trainer.accelerator.gather(peak).max().item() / 2**30
            trainer._total_train_tokens += int(figures.pop("seen_tokens", 0))
            logs.update({name if name in _OF_TRL else PREFIX + name: value for name, value in figures.items()})
            logs["num_tokens"] = trainer._total_train_tokens
        elif self._evaluated is not None and f"{self._evaluated}_runtime" in logs:
            figures = {name: value for name, value in self._collect("eval").items() if name not in _OF_TRAINING}
            # a figure of compute_metrics of the same name stays
            logs.update({f"{self._evaluated}_{name}": value for name, value in figures.items()} | logs)

    def _collect(self, mode: str) -> dict[str, float]:
        """Return the figures since the last log, and give each warning about them once."""
        trainer, sums = self.trainer, self.sums[mode]
        figures = sums.collect(self._sum_over_ranks, trainer.args.device)
        if "trained_tokens" in figures:
            for name, text in warnings_for(figures, sums.band, trainer.objective).items():
                if name not in self.warned and trainer.args.process_index == 0:
                    logger.warning("%s", text)
                self.warned.add(name)
        return figures

    def _sum_over_ranks(self, sums: Tensor) -> Tensor:
        trainer = self.trainer
        return trainer.accelerator.reduce(sums, reduction="sum") / trainer._tp_size  # type: ignore[no-any-return]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Trainer begins both from 0 when it resumes: the mean loss of all steps would be too small
        trained = [log for log in state.log_history if {"loss", "num_tokens"} <= log.keys()]
        steps = [0, *(log["step"] for log in trained)]
        self.trainer._total_train_tokens = trained[-1]["num_tokens"] if trained else 0
        self.trainer._total_loss_scalar = sum(
            log["loss"] * (step - before) for log, step, before in zip(trained, steps[1:], steps, strict=False)
        )
        self._began = (time.monotonic(), state.global_step)
        if state.is_world_process_zero:
            self._file = JsonLines(Path(args.output_dir) / "telemetry.jsonl")
            # what follows will be recorded again, and so will the summary of the end
            self._file.keep_until(lambda one: "train_runtime" in one or one.get("step", 0) > state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        if self._file is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            plain = {name.removeprefix(PREFIX): _plain(value) for name, value in logs.items()}
            self._file.append({"step": state.global_step, "time": now, **plain})
        print(self._line(logs, state), flush=True)  # noqa: T201

    def _line(self, logs: dict[str, Any], state: Any) -> str:
        """Return what a person sees of a log, in place of Trainer's bar and dictionary.

        step 20/834  loss 0.148  nll 0.931  acc 76%  gap 3.9  R_eff 35%  0:12:40 left
        """
        if "train_loss" in logs:
            return f"trained in {_clock(logs['train_runtime'])}, mean loss {logs['train_loss']:.4g}"
        prefix = PREFIX if self._evaluated is None else f"{self._evaluated}_"
        figures = {name.removeprefix(prefix): value for name, value in logs.items()}
        shown = [form.format(figures[name]) for name, form in _FORMATS.items() if figures.get(name) is not None]
        if not shown:  # of the user's own
            return "  ".join(f"{name} {value}" for name, value in logs.items())
        began, first = self._began
        if "loss" in logs and began and state.global_step < state.max_steps:
            each = (time.monotonic() - began) / max(1, state.global_step - first)
            shown.append(f"{_clock(each * (state.max_steps - state.global_step))} left")
        where = "" if self._evaluated is None else f"{self._evaluated} at "
        return "  ".join([f"{where}step {state.global_step}/{state.max_steps}", *shown])


def _plain(value: Any) -> Any:
    """Return a value of JSON, which has no NaN, infinity or numbers of torch."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str | bool | list | dict | None) else str(value)


def first_and_last(records: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """Return a table of figures of a training, as they were logged first and last."""
    plain = [{name.removeprefix(PREFIX): value for name, value in record.items()} for record in records]
    labels, rows = figures_of(TelemetryLine, "label"), []
    for name in (*figures_of(TelemetryLine, "card"), "eval_loss", "eval_nll"):
        logged = [record[name] for record in plain if record.get(name) is not None]
        if logged:
            ends = (Cell(f"{value:.4g}", data=value) for value in (logged[0], logged[-1]))
            rows.append((Cell(labels.get(name, name)), *ends))
    return Table(title, ("", "first log", "last log"), tuple(rows))


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
