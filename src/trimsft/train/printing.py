"""Log lines that a person reads, in place of the dictionary that Trainer prints:

step 20/834  loss 0.148  nll 0.931  acc 76.2%  gap 3.9 [-3.3, 14.1]  weight 0.231  R_eff 35%  31,200 tok/s
"""

import time
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from trimsft.train.telemetry import PREFIX

_SHOWN = {
    "loss": "loss {:.4g}",
    "nll": "nll {:.4g}",
    "mean_token_accuracy": "acc {:.1%}",
    "gap_p50": "gap {:.1f} [{gap_p05:.1f}, {gap_p95:.1f}]",
    "gate": "gate {:.2f}",
    "mean_weight": "weight {:.3g}",
    "effective_ratio": "R_eff {:.0%}",
    "skipped": "skipped {:.0%}",
    "grad_norm": "grad {:.2g}",
    "learning_rate": "lr {:.1e}",
    "tokens_per_second": "{:,.0f} tok/s",
    "peak_memory_gib": "{:.1f} GiB",
}
"""The figures a person watches, in this order; the others are left to the log file."""


def _prefix(logs: dict[str, Any]) -> str | None:
    """What stands before the names of figures: "" in training, "eval_" or "eval_NAME_"; None if there are none."""
    losses = [name for name in logs if name == "loss" or (name.startswith("eval_") and name.endswith("_loss"))]
    return min(losses, key=len).removesuffix("loss") if losses else None  # a longer one is a metric of the user's own


def _figures_line(logs: dict[str, Any], state: Any, prefix: str) -> str:
    figures = {name.removeprefix(prefix or PREFIX): value for name, value in logs.items() if name.startswith(prefix)}
    whose = prefix.removeprefix("eval").strip("_")
    where = f"eval{f' of {whose}' if whose else ''} at " if prefix else ""
    parts = [f"{where}step {state.global_step}/{state.max_steps}"]
    for name, form in _SHOWN.items():
        if figures.get(name) is not None and not (prefix and name == "skipped"):
            parts.append(form.format(figures[name], **figures))
    return "  ".join(parts)


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _line(logs: dict[str, Any], state: Any) -> str:
    """What a log says to a person."""
    if "train_loss" in logs:
        ending = f"trained in {_clock(int(logs['train_runtime']))}, mean loss {logs['train_loss']:.4g}"
        # steps since the last log, if there were any
        return ending if f"{PREFIX}nll" not in logs else f"{_figures_line(logs, state, '')}\n{ending}"
    if (prefix := _prefix(logs)) is not None:
        return _figures_line(logs, state, prefix)
    return "  ".join(f"{name} {value}" for name, value in logs.items() if name != "total_flos")


class LogEarly(TrainerCallback):  # type: ignore[misc]
    """Has a training log its first step, and a small one at least twenty times."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        state.logging_steps = max(1, min(state.logging_steps, state.max_steps // 20))
        self._first = state.global_step + 1  # of this start: a resumed one speaks as soon

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._first:
            control.should_log = True


class TimeLeft:
    """How long a training will take from here, by the steps since it was started."""

    _began: tuple[float, int] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._began = (time.monotonic(), state.global_step)
        super().on_train_begin(args, state, control, **kwargs)  # type: ignore[misc]

    def left(self, logs: dict[str, Any], state: Any) -> str:
        """For the end of a line; empty after the last step, and for what is no step."""
        if self._began is None or "loss" not in logs or state.global_step >= state.max_steps:
            return ""
        began, first = self._began
        seconds = (time.monotonic() - began) / max(1, state.global_step - first) * (state.max_steps - state.global_step)
        return f"  {_clock(int(seconds))} left"


class ReadableProgress(ProgressCallback):  # type: ignore[misc]
    """Trainer's progress bar with readable lines above it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and self.training_bar is not None:
            self.training_bar.write(_line(logs, state))


class ReadablePrinter(TimeLeft, PrinterCallback):  # type: ignore[misc]
    """The same lines without a bar (`disable_tqdm`), and so with the time that is left."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            print(_line(logs, state) + self.left(logs, state), flush=True)  # noqa: T201


def replace_printers(trainer: Any) -> None:
    """Swap Trainer's own printers for the readable ones; others (notebooks, the user's) stay."""
    readable = {ProgressCallback: ReadableProgress, PrinterCallback: ReadablePrinter}
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback) in readable:
            trainer.remove_callback(callback)
            trainer.add_callback(readable[type(callback)])
