"""Log lines for a person, in place of the dictionary that Trainer prints:

step 20/834  loss 0.148  nll 0.931  acc 76.2%  gap 3.9  weight 0.231  R_eff 35%
"""

import time
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.train.telemetry import PREFIX

_FORMATS = figures_of(TelemetryLine, "format")


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
