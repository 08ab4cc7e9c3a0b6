"""Each kind of line that is written, as one dataclass for its writer and all its readers.

>>> TelemetryLine(step=20, nll=0.93).nll
0.93
>>> figures_of(TelemetryLine, "format")["nll"].format(0.93)
'nll 0.93'
"""

from dataclasses import dataclass, field, fields
from typing import Any


def figure(label: str, **shown: Any) -> Any:
    """Declare a figure of a line: its `label` in tables and where else it is `shown`."""
    return field(default=None, metadata={"label": label} | shown)


def figures_of(kind: type, shown: str) -> dict[str, Any]:
    """Return what the fields of a kind of line say under one key, such as "label", in their order."""
    return {one.name: one.metadata[shown] for one in fields(kind) if one.metadata.get(shown)}


@dataclass(frozen=True, kw_only=True)
class TelemetryLine:
    """A log of a training, a line of `telemetry.jsonl`; None stands for what an objective does not have.

    A field with a `format` is in the line on the terminal; `page` is a panel of the report.
    """

    step: int = 0
    time: str | None = None
    loss: float | None = figure("weighted loss", format="loss {:.3g}", card=True, page="loss")
    nll: float | None = figure("nll", format="nll {:.3g}", card=True, page="nll")
    mean_token_accuracy: float | None = figure("token accuracy", format="acc {:.0%}", card=True)
    entropy: float | None = figure("entropy")
    weighted_loss: float | None = figure("weighted loss of the tokens alone")
    gap_p05: float | None = figure("gap: 5 % are below", page="gap: 5 % are below", quantile=0.05)
    gap_p25: float | None = figure("gap: 25 % are below", quantile=0.25)
    gap_p50: float | None = figure("median logit gap", format="gap {:.1f}", card=True, page="gap: median", quantile=0.5)
    gap_p75: float | None = figure("gap: 75 % are below", quantile=0.75)
    gap_p95: float | None = figure("gap: 95 % are below", page="gap: 95 % are below", quantile=0.95)
    mean_weight: float | None = figure("mean weight", card=True)
    effective_ratio: float | None = figure(
        "effective ratio R_eff", format="R_eff {:.0%}", card=True, page="effective ratio"
    )
    high_weight: float | None = figure("share of tokens with a weight above 1/2")
    skipped: float | None = figure("skipped rows")
    mass_low: float | None = figure("gradient mass below the band")
    mass_middle: float | None = figure("gradient mass in the band")
    mass_high: float | None = figure("gradient mass above the band")
    out_of_reach: float | None = figure("share of tokens far below the band")
    eos_weight: float | None = figure("weight of eos")
    eos_prob: float | None = figure("probability of eos")
    trained_tokens: float | None = figure("trained tokens")
    tokens_per_second: float | None = figure("tokens per second")
    peak_memory_gib: float | None = figure("peak memory in GiB")
    grad_norm: float | None = figure("gradient norm")
    learning_rate: float | None = figure("learning rate")
