"""The figures of the telemetry in a Trainer's logs: those of training, those of each evaluation, and warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from trimsft.objectives import SFT, Adapts, AutoTrim, TrimSFT, TrimSFTEasy
from trimsft.train.adapting import FollowsTraining
from trimsft.train.forms import refuse_no_rows
from trimsft.train.outputs import TrimOutput
from trimsft.train.packed import real_tokens
from trimsft.train.telemetry import PREFIX, Telemetry, warnings_for

logger = logging.getLogger("trimsft")
_OF_TRL = ("mean_token_accuracy", "entropy")  # logged by its trainer under these names, too
_OF_TRAINING = ("seen_tokens", "tokens_per_second", "skipped")


class LogsFigures(FollowsTraining):
    """For a Trainer, before it among the bases."""

    args: Any
    model: Any
    _telemetry: dict[str, Telemetry]
    """What is counted in training, "train", and in evaluation, "eval"."""
    _said: set[str]
    """Names of the warnings that were given."""
    _evaluating: str | None = None
    _tokenizer: Any
    _total_train_tokens: int
    _fused: Callable[[], AbstractContextManager[None]]
    """Within, the model computes its loss by the fused head."""

    def _observe(self, outputs: TrimOutput, inputs: dict[str, Any]) -> None:
        seen = real_tokens(inputs)
        mode = "train" if self.model.training else "eval"
        self._telemetry[mode].add(outputs.tokens, outputs.weights, outputs.labels, kept=outputs.kept, seen=seen)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        refuse_no_rows(eval_dataset=eval_dataset)
        with self._measuring(metric_key_prefix):
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # type: ignore[misc]

    def predict(self, test_dataset: Any, ignore_keys: Any = None, metric_key_prefix: str = "test") -> Any:
        refuse_no_rows(test_dataset=test_dataset)
        with self._measuring(metric_key_prefix):
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)  # type: ignore[misc]

    @contextmanager
    def _measuring(self, prefix: str) -> Iterator[None]:
        """Within, the figures of evaluation are those of one dataset; several nest."""
        outer, self._evaluating = self._evaluating, prefix
        self._telemetry["eval"].reset()
        try:
            with self._fused():
                yield
        finally:
            self._evaluating = outer
            self._telemetry["train"].restart_clock()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # figures are summed over ranks only with Trainer's own records, which every rank gets to; a user's log() may
        # be on one rank only and must not wait for the others
        if {"loss", "learning_rate"} <= logs.keys() or {"train_runtime", "train_loss"} <= logs.keys():
            figures = self._collect("train") | self._peak_memory()
            figures |= self.objective.figures() if isinstance(self.objective, Adapts) else {}
            self._total_train_tokens += int(figures.pop("seen_tokens", 0))
            logs.update({name if name in _OF_TRL else PREFIX + name: value for name, value in figures.items()})
            logs["num_tokens"] = self._total_train_tokens
        elif self._evaluating is not None and f"{self._evaluating}_runtime" in logs:
            logs.update(self._beside_own(logs, self._collect("eval"), self._evaluating))
        super().log(logs, start_time)  # type: ignore[misc]

    def _beside_own(self, logs: dict[str, float], figures: dict[str, float], prefix: str) -> dict[str, float]:
        """The figures of an evaluation by their names in the log, without those that are the user's own metrics."""
        named = {f"{prefix}_{name}": value for name, value in figures.items() if name not in _OF_TRAINING}
        own = sorted(named.keys() & logs.keys())
        if own:
            problem = f"compute_metrics also gives {', '.join(own)}: that is logged, and the figure of this name is not"
            self._say_once({"own metrics": f"{problem}; another name would leave room for both"})
        return {name: value for name, value in named.items() if name not in own}

    def _sum_over_ranks(self, sums: Tensor) -> Tensor:
        return self.accelerator.reduce(sums, reduction="sum") / self._tp_size  # type: ignore[no-any-return]

    def _peak_memory(self) -> dict[str, float]:
        """The most any rank has held, in GiB."""
        if self.args.device.type != "cuda":
            return {}
        peak = torch.tensor([torch.cuda.max_memory_allocated()], device=self.args.device, dtype=torch.float64)
        return {"peak_memory_gib": self.accelerator.gather(peak).max().item() / 2**30}

    def _collect(self, mode: str) -> dict[str, float]:
        """The figures since the last log, and each warning about them once."""
        figures = self._telemetry[mode].collect(self._sum_over_ranks, self.args.device)
        if "trained_tokens" not in figures:
            return figures
        trims_low, weighs = isinstance(self.objective, TrimSFT | TrimSFTEasy), not isinstance(self.objective, SFT)
        starved = [self._tokenizer.decode([token]) for token in self._telemetry[mode].starved] if weighs else []
        fallen = self.objective.fallen() if isinstance(self.objective, AutoTrim) and mode == "train" else None
        band = self._telemetry["train"].band
        self._say_once(warnings_for(figures, band, starved, fallen, trims_low=trims_low, weighs=weighs))
        return figures

    def _say_once(self, warnings: dict[str, str]) -> None:
        """Give those of these warnings that have not been given under their name."""
        for name, text in warnings.items():
            if name not in self._said and self.args.process_index == 0:
                logger.warning("%s", text)
            self._said.add(name)
