"""One readable line for each logging step, in place of the dictionary that Trainer prints.

step 120/834  loss 0.148  nll 0.931  acc 76.2 %  gap 3.9 [-3.3, 14.1]  weight 0.231  R_eff 35 %  31,200 tok/s
"""

from __future__ import annotations

from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback


def readable(logs: dict[str, Any], step: int, last_step: int) -> str:
    """The figures a person watches, in one line; anything unusual is left to the log file."""
    prefix = "eval_" if any(name.startswith("eval_") for name in logs) else ""

    def get(name: str) -> float | None:
        return logs.get(prefix + name)

    parts = [f"{'eval at ' if prefix else ''}step {step}/{last_step}"]
    for name, label, form in (
        ("loss", "loss", "{:.4g}"),
        ("nll", "nll", "{:.4g}"),
        ("mean_token_accuracy", "acc", "{:.1%}"),
    ):
        if get(name) is not None:
            parts.append(f"{label} {form.format(get(name))}")
    if get("gap_p50") is not None:
        parts.append(f"gap {get('gap_p50'):.1f} [{get('gap_p05'):.1f}, {get('gap_p95'):.1f}]")
    for name, label, form in (
        ("mean_weight", "weight", "{:.3g}"),
        ("effective_ratio", "R_eff", "{:.0%}"),
        ("skipped", "skipped", "{:.0%}"),
        ("grad_norm", "grad", "{:.2g}"),
        ("learning_rate", "lr", "{:.1e}"),
        ("tokens_per_second", "", "{:,.0f} tok/s"),
        ("peak_memory_gib", "", "{:.1f} GiB"),
    ):
        if get(name) is not None and not (prefix and name == "skipped"):
            parts.append(f"{label} {form.format(get(name))}".strip())
    return "  ".join(parts)


def summary(logs: dict[str, Any], state: Any) -> str:
    """The last line of a training."""
    seconds = int(logs["train_runtime"])
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    ending = f"trained in {clock}, mean loss {logs['train_loss']:.4g}"
    # steps since the last log, if there were any
    return ending if "nll" not in logs else f"{readable(logs, state.global_step, state.max_steps)}\n{ending}"


def _line(logs: dict[str, Any], state: Any) -> str:
    if "train_loss" in logs:
        return summary(logs, state)
    if "loss" in logs or "eval_loss" in logs:
        return readable(logs, state.global_step, state.max_steps)
    return "  ".join(f"{name} {value}" for name, value in logs.items() if name != "total_flos")


class ReadableProgress(ProgressCallback):  # type: ignore[misc]
    """Trainer's progress bar with readable lines above it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and self.training_bar is not None:
            self.training_bar.write(_line(logs, state))


class ReadablePrinter(PrinterCallback):  # type: ignore[misc]
    """The same lines without a bar (`disable_tqdm`)."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            print(_line(logs, state), flush=True)  # noqa: T201


def replace_printers(trainer: Any) -> None:
    """Swap Trainer's own printers for the readable ones; others (notebooks, the user's) stay."""
    replacements: dict[type[TrainerCallback], type[TrainerCallback]] = {
        ProgressCallback: ReadableProgress,
        PrinterCallback: ReadablePrinter,
    }
    for plain, ours in replacements.items():
        for callback in list(trainer.callback_handler.callbacks):
            if type(callback) is plain:
                trainer.remove_callback(callback)
                trainer.add_callback(ours)
