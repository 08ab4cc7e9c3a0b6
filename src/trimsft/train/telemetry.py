"""The figures of each log of a training: sums over its tokens, kept on the device and read once; and their warnings.

Every figure is a ratio of sums over all trained tokens since the last log, so it is right across micro-batches and
ranks. `runs/records.py` lists the fields of a line of `telemetry.jsonl`:

    {"step": 20, "loss": 0.148, "nll": 0.93, "mean_token_accuracy": 0.76, "gap_p05": -3.3, "gap_p50": 3.9, ...}
"""

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from trimsft.head import IGNORED
from trimsft.head.problem import joined
from trimsft.objectives import SFT, TokenStats, TrimSFT, TrimSFTEasy
from trimsft.objectives.paper import HIGH_WEIGHT
from trimsft.runs import JsonLines
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.train.batches import real_tokens
from trimsft.train.patching import TrimOutput

PREFIX = "trim/"  # before the figures of a training in its log: a section of their own in trackers
STATE = "TrimSFTTelemetry"  # under this name a checkpoint keeps what the telemetry must remember
QUANTILES: dict[str, float] = figures_of(TelemetryLine, "quantile")
_FORMATS = figures_of(TelemetryLine, "format")
logger = logging.getLogger("trimsft")
_OF_TRL = ("mean_token_accuracy", "entropy")  # logged by its trainer under these names, too
_OF_TRAINING = ("seen_tokens", "tokens_per_second", "skipped")
_SUMS = [
    "tokens", "nll", "weight", "weight_squared", "weighted_nll", "correct", "high", "entropy", "low_mass",
    "middle_mass", "high_mass", "out_of_reach", "eos", "eos_weight", "eos_prob", "kept", "seen",
]  # fmt: skip
_PENDING = 1 << 16  # so many tokens are counted in one go: each small operation on the device costs the host some 20 us
_LOWEST, _HIGHEST, _BIN = -40.0, 40.0, 0.05
_BINS = round((_HIGHEST - _LOWEST) / _BIN) + 2  # one more at either end for what lies beyond


@dataclass(frozen=True)
class Band:
    """The gaps in the middle region: margin - bandwidth to margin + bandwidth."""

    margin: float
    bandwidth: float


class TokenSums:
    """Sums over the tokens of one mode, training or evaluation, since the last `collect`."""

    def __init__(self, band: Band, eos_ids: tuple[int, ...], fixed: tuple[int, ...] = ()) -> None:
        self.band, self.eos_ids, self.fixed = band, eos_ids, fixed
        self.starved: list[int] = []  # ids of `fixed` that hardly count and are not known either, of the last log
        self._fixed: Tensor | None = None
        # the sums, then how many gaps fell into each bin, then count, weight and probability of each fixed part
        self._totals: Tensor | None = None
        self._pending: list[tuple[TokenStats, Tensor, Tensor, int, Tensor | int]] = []  # micro-batches to be counted
        self._since = time.perf_counter()

    def add(self, tokens: TokenStats, weights: Tensor, labels: Tensor, *, kept: int, seen: Tensor | int) -> None:
        """Take one micro-batch; `seen` is how many tokens went through the model, prompts included.

        Nothing here waits for the device.
        """
        self._pending.append((tokens, weights, labels, kept, seen))
        if sum(len(one[0]) for one in self._pending) >= _PENDING:
            self._count()

    def _count(self) -> None:
        """Add what is pending to the sums."""
        if not self._pending:
            return
        parts, all_weights, all_labels, kept, seen = zip(*self._pending, strict=True)
        self._pending = []
        tokens, weights, labels = joined(parts), torch.cat(all_weights), torch.cat(all_labels)
        totals = self._totals_on(weights.device)
        rows = self._rows(tokens, weights, labels)
        totals[: len(rows)] += torch.stack(rows).sum(dim=1, dtype=totals.dtype)
        totals[_SUMS.index("kept")] += sum(kept)
        # counted where the inputs are: with `device_map`, another device than the head's
        totals[_SUMS.index("seen")] += sum(one.to(totals.device) if isinstance(one, Tensor) else one for one in seen)
        bins = ((tokens.gap - _LOWEST) / _BIN).floor().clamp(-1, _BINS - 2).long() + 1
        totals[len(_SUMS) :].index_add_(0, bins, torch.ones_like(tokens.gap, dtype=totals.dtype))
        if self.fixed:
            is_fixed = (labels[:, None] == self._fixed_on(labels.device)).to(totals.dtype)
            counted = torch.stack([torch.ones_like(weights), weights, tokens.prob]).to(totals.dtype)
            totals[len(_SUMS) + _BINS :] += (counted @ is_fixed).flatten()

    def _totals_on(self, device: torch.device) -> Tensor:
        if self._totals is None:
            wide = torch.float32 if device.type == "mps" else torch.float64
            self._totals = torch.zeros(len(_SUMS) + _BINS + 3 * len(self.fixed), device=device, dtype=wide)
        self._totals = self._totals.to(device)
        return self._totals

    def _fixed_on(self, device: torch.device) -> Tensor:
        """Return the ids of fixed parts; copied to the device once, because a copy waits for it."""
        if self._fixed is None or self._fixed.device != device:
            self._fixed = torch.tensor(self.fixed, device=device)
        return self._fixed

    def pending_tokens(self, device: torch.device) -> Tensor:
        """Return how many tokens this rank has seen since the last `collect`."""
        self._count()
        return self._totals_on(device)[_SUMS.index("seen")]

    def _rows(self, tokens: TokenStats, weights: Tensor, labels: Tensor) -> list[Tensor]:
        """Return the summands of each token, in the order of `_SUMS`."""
        m, tau = self.band.margin, self.band.bandwidth
        gap, mass = tokens.gap, weights.abs() * gradient_norm(tokens)
        low, high = gap < m - tau, gap > m + tau
        eos = sum((labels == i for i in self.eos_ids), torch.zeros_like(labels, dtype=torch.bool))
        rows: dict[str, Tensor] = {
            "tokens": torch.ones_like(gap),
            "nll": tokens.nll,
            "weight": weights,
            "weight_squared": weights.square(),
            "weighted_nll": weights * tokens.nll,
            "correct": (gap > 0).float(),
            "high": (weights > HIGH_WEIGHT).float(),
            "entropy": torch.zeros_like(gap) if tokens.entropy is None else tokens.entropy,
            "low_mass": mass * low,
            "middle_mass": mass * ~(low | high),
            "high_mass": mass * high,
            "out_of_reach": (gap < m - 3 * tau).float(),
            "eos": eos.float(),
            "eos_weight": weights * eos,
            "eos_prob": tokens.prob * eos,
        }
        return [rows[name] for name in _SUMS if name in rows]

    def collect(self, reduce: Callable[[Tensor], Tensor], device: torch.device) -> dict[str, float]:
        """Return the figures since the last call, over all ranks by `reduce` (a sum).

        Empty if there were no tokens, only the speed if none of them was trained on.
        """
        self._count()
        everything = reduce(self._totals_on(device)).tolist()  # a rank that had nothing still takes part
        seconds, self._since = time.perf_counter() - self._since, time.perf_counter()
        self.reset()
        total = dict(zip(_SUMS, everything, strict=False))
        speed = {"tokens_per_second": total["seen"] / seconds, "seen_tokens": total["seen"]}
        if total["tokens"] == 0:
            return speed if total["seen"] else {}
        bins, rest = everything[len(_SUMS) :][:_BINS], everything[len(_SUMS) + _BINS :]
        each = zip(self.fixed, *(rest[at * len(self.fixed) :] for at in range(3)), strict=False)
        self.starved = [token for token, n, weight, prob in each if n and weight < 0.01 * n and prob < 0.5 * n]
        return {**_figures(total), **_quantiles(bins), **speed}

    def reset(self) -> None:
        """Forget what was counted since the last `collect`."""
        self._totals, self._pending = None, []

    def restart_clock(self) -> None:
        """Leave out of `tokens_per_second` what has passed since the last log."""
        self._since = time.perf_counter()


def gradient_norm(tokens: TokenStats) -> Tensor:
    """Return ||softmax(z) - onehot(y)||_2 from the two probabilities the head knows, the gold and the competing one.

    The other probabilities are left out: at most p_competitor * (1 - p_gold - p_competitor) under the root.
    """
    competitor = torch.exp(-tokens.nll - tokens.gap)
    return torch.hypot(tokens.doubt, competitor.clamp(max=1))


def _figures(total: dict[str, float]) -> dict[str, float]:
    count = total["tokens"]
    mass = total["low_mass"] + total["middle_mass"] + total["high_mass"]
    figures = {
        "nll": total["nll"] / count,
        "weighted_loss": total["weighted_nll"] / count,
        "mean_token_accuracy": total["correct"] / count,
        "entropy": total["entropy"] / count,
        "mean_weight": total["weight"] / count,
        "effective_ratio": total["weight"] ** 2 / (count * total["weight_squared"]) if total["weight_squared"] else 0.0,
        "high_weight": total["high"] / count,
        "skipped": 1 - total["kept"] / count,
        "out_of_reach": total["out_of_reach"] / count,
        "trained_tokens": count,
    }
    for region in ("low", "middle", "high"):
        figures[f"mass_{region}"] = total[f"{region}_mass"] / mass if mass else 0.0
    if total["eos"]:
        figures["eos_weight"] = total["eos_weight"] / total["eos"]
        figures["eos_prob"] = total["eos_prob"] / total["eos"]
    return figures


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


def fixed_parts(dataset: Any, *, share: float = 0.9, rows: int = 1000, most: int = 64) -> tuple[int, ...]:
    """Return ids of trained tokens that nearly every row has: eos, the parts of a box, and common words.

    Args:
        share: how many of the rows have such a token at least.
        rows: how many are looked at, evenly spread.
        most: how many ids there are at most; the most frequent are kept.
    """
    if not isinstance(dataset, Dataset) or "labels" not in dataset.column_names or len(dataset) == 0:
        return ()
    labels = dataset.select(np.unique(np.linspace(0, len(dataset) - 1, rows).astype(int)))["labels"]
    counts: Counter[int] = Counter()
    for row in labels:
        counts.update({*row} - {IGNORED})
    return tuple(sorted(token for token, count in counts.most_common(most) if count >= share * len(labels)))


def warnings_for(
    figures: dict[str, float], band: Band, starved: Sequence[str] = (), *, trims_low: bool, weighs: bool
) -> dict[str, str]:
    """Return warnings about these figures, by a name under which each is given once.

    Args:
        starved: tokens of nearly every row that are neither known nor learned.
        trims_low: the objective gives tokens far below the margin no weight.
        weighs: its weights differ at all.
    """
    said = {}
    if trims_low and figures["out_of_reach"] > 0.5:
        said["out of reach"] = (
            f"{figures['out_of_reach']:.0%} of the tokens have a logit gap below margin - 3 bandwidths "
            f"({band.margin - 3 * band.bandwidth:g}): the base model does not support this data and hardly learns from "
            "it; objective=auto-trim or objective=sft is advised"
        )
    if weighs and figures["effective_ratio"] < 0.01:
        said["effective ratio"] = (
            f"the effective ratio is {figures['effective_ratio']:.2%}: under 1 % of the tokens carry the weight, "
            f"there is next to nothing left to learn from (median gap {figures['gap_p50']:.1f}); stop here, or "
            "choose another margin or a larger bandwidth"
        )
    # little weight is right where the model knows when to stop
    if weighs and figures.get("eos_weight", 1.0) < 0.01 and figures["eos_prob"] < 0.5:
        said["eos"] = (
            f"the end-of-sequence token has a mean weight of {figures['eos_weight']:.4f} and a mean probability of "
            f"{figures['eos_prob']:.3f}: the model does not learn when to stop; check the length of its answers"
        )
    if starved:
        tokens = ", ".join(repr(token) for token in starved[:8])
        said["format"] = (
            f"tokens that nearly every row has are neither known nor learned, with a mean weight below 0.01: {tokens}; "
            "the model will not write this format: use objective=auto-trim, or sft"
        )
    return said


class Telemetry:
    """Counts the tokens of a trainer, of training and of evaluation apart, and puts their figures into its logs."""

    def __init__(self, trainer: Any, band: Band, eos_ids: tuple[int, ...], fixed: tuple[int, ...]) -> None:
        self.trainer = trainer
        fixed = tuple(token for token in fixed if token not in eos_ids)  # eos has figures of its own
        self.sums = {mode: TokenSums(band, eos_ids, fixed) for mode in ("train", "eval")}
        self.warned: set[str] = set()
        self._evaluated: str | None = None  # the prefix of the evaluation that is running

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
            self.sums["train"].restart_clock()

    def add_figures(self, logs: dict[str, float]) -> None:
        """Put the figures since the last log into one of Trainer's own, which every rank gets to.

        A user's log() may be on one rank only and must not wait for the others.
        """
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
            named = {f"{self._evaluated}_{name}": value for name, value in figures.items()}
            if own := sorted(named.keys() & logs.keys()):
                problem = f"compute_metrics also gives {', '.join(own)}: that is logged, and the figure of this name is"
                self._warn_once({"own metrics": f"{problem} not; another name would leave room for both"})
            logs.update({name: value for name, value in named.items() if name not in own})

    def _collect(self, mode: str) -> dict[str, float]:
        """Return the figures since the last log, and give each warning about them once."""
        trainer, sums = self.trainer, self.sums[mode]
        figures = sums.collect(self.sum_over_ranks, trainer.args.device)
        if "trained_tokens" in figures:
            objective = trainer.objective
            weighs = not isinstance(objective, SFT)
            starved = [trainer._tokenizer.decode([token]) for token in sums.starved] if weighs else []
            trims_low = isinstance(objective, TrimSFT | TrimSFTEasy)
            self._warn_once(warnings_for(figures, sums.band, starved, trims_low=trims_low, weighs=weighs))
        return figures

    def _warn_once(self, warnings: dict[str, str]) -> None:
        for name, text in warnings.items():
            if name not in self.warned and self.trainer.args.process_index == 0:
                logger.warning("%s", text)
            self.warned.add(name)

    def sum_over_ranks(self, sums: Tensor) -> Tensor:
        trainer = self.trainer
        return trainer.accelerator.reduce(sums, reduction="sum") / trainer._tp_size  # type: ignore[no-any-return]

    def remember(self) -> None:
        """Put into the next checkpoint what transformers forgets: the mean loss of a resumed run would be too small."""
        trainer = self.trainer
        tokens = self.sum_over_ranks(self.sums["train"].pending_tokens(trainer.args.device))
        loss = trainer.accelerator.gather(trainer._tr_loss).mean()
        trainer.state.stateful_callbacks[STATE] = {
            "train_tokens": trainer._total_train_tokens + int(tokens),
            "loss_sum": trainer._total_loss_scalar + float(loss),
        }


# the record on disk -------------------------------------------------------------------------------------------------


class RecordTelemetry(TrainerCallback):  # type: ignore[misc]
    """Appends every log to `telemetry.jsonl` in the output directory; a resumed run goes on where it left off."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._file: JsonLines | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        restored = state.stateful_callbacks.get(STATE, {}) if state.global_step else {}
        self._trainer._total_train_tokens = restored.get("train_tokens", 0)
        self._trainer._total_loss_scalar = restored.get("loss_sum", 0.0)
        if not state.is_world_process_zero:
            return
        path = Path(args.output_dir) / "telemetry.jsonl"
        if not state.global_step and path.exists():  # of an earlier training here: it keeps it under a number
            numbered = (path.with_suffix(f".{number}.jsonl") for number in itertools.count(1))
            path.rename(next(name for name in numbered if not name.exists()))
        self._file = JsonLines(path)
        self._file.keep_until(lambda one: _is_after(one, state.global_step))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._file is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            plain = {name.removeprefix(PREFIX): _plain(value) for name, value in logs.items()}
            self._file.append({"step": state.global_step, "time": now, **plain})


def _is_after(record: dict[str, Any], step: int) -> bool:
    """Return whether what resumes at a step will record this again: a later step, or the summary of the end."""
    return "train_runtime" in record or (isinstance(record.get("step"), int) and record["step"] > step)


def _plain(value: Any) -> Any:
    """Return a value of JSON, which has no NaN, no infinity (a gradient norm may be one), no numbers of torch."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str | bool | list | dict | None) else str(value)


# log lines for a person, in place of the dictionary that Trainer prints ---------------------------------------------
#
# step 20/834  loss 0.148  nll 0.931  acc 76%  gap 3.9  R_eff 35%


def _figures_line(logs: dict[str, Any], state: Any, prefix: str) -> str:
    figures = {name.removeprefix(prefix or PREFIX): value for name, value in logs.items() if name.startswith(prefix)}
    dataset = prefix.removeprefix("eval").strip("_")
    where = f"eval{f' of {dataset}' if dataset else ''} at " if prefix else ""
    shown = [form.format(figures[name]) for name, form in _FORMATS.items() if figures.get(name) is not None]
    return "  ".join([f"{where}step {state.global_step}/{state.max_steps}", *shown])


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _line(logs: dict[str, Any], state: Any) -> str:
    if "train_loss" in logs:
        ending = f"trained in {_clock(logs['train_runtime'])}, mean loss {logs['train_loss']:.4g}"
        # steps since the last log, if there were any
        return ending if f"{PREFIX}nll" not in logs else f"{_figures_line(logs, state, '')}\n{ending}"
    losses = [name for name in logs if name == "loss" or (name.startswith("eval_") and name.endswith("_loss"))]
    if losses:  # the shortest: a longer one is a metric of the user's own
        return _figures_line(logs, state, min(losses, key=len).removesuffix("loss"))
    return "  ".join(f"{name} {value}" for name, value in logs.items() if name != "total_flos")


class LogEarly(TrainerCallback):  # type: ignore[misc]
    """Has a training log its first step, and a small one at least twenty times."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        state.logging_steps = max(1, min(state.logging_steps, state.max_steps // 20))
        self._first = state.global_step + 1  # of this start: a resumed one logs as soon

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._first:
            control.should_log = True


class ReadableProgress(ProgressCallback):  # type: ignore[misc]
    """Trainer's progress bar with readable lines above it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and self.training_bar is not None:
            self.training_bar.write(_line(logs, state))


class ReadablePrinter(PrinterCallback):  # type: ignore[misc]
    """The same lines without a bar (`disable_tqdm`), and so with the time that is left."""

    _began = (0.0, 0)  # the time and the step at which this start began

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._began = (time.monotonic(), state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        (began, first), line = self._began, _line(logs, state)
        if "loss" in logs and began and state.global_step < state.max_steps:
            each = (time.monotonic() - began) / max(1, state.global_step - first)
            line += f"  {_clock(each * (state.max_steps - state.global_step))} left"
        print(line, flush=True)  # noqa: T201


def replace_printers(trainer: Any) -> None:
    """Swap Trainer's own printers for the readable ones; others (notebooks, the user's) stay."""
    readable = {ProgressCallback: ReadableProgress, PrinterCallback: ReadablePrinter}
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback) in readable:
            trainer.remove_callback(callback)
            trainer.add_callback(readable[type(callback)])
