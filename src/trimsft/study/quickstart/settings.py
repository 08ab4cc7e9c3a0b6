"""How much the quickstart does; the same for every method."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimsft.lab import TIERS, FineTuning, base_model_path
from trimsft.objectives import BANDWIDTH, MARGIN, PAPER_NAMES
from trimsft.study.running.training import as_word
from trimsft.study.scales import LAB

BASE = "base"
LABELS = {BASE: "Base", **PAPER_NAMES}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One quickstart; the defaults are those of `trimsft quickstart`."""

    seed: int = 0
    """Of the training data, of its order and of the samples; the problems of the benchmarks are always the same."""
    methods: tuple[str, ...] = tuple(name for name in LABELS if name != BASE)
    rows: int = 1200
    """Of training data: one epoch."""
    batch: int = 24
    learning_rate: float = 5e-4
    problems: int = 40
    """Of each tier."""
    samples: int = 8
    max_tokens: int = 128
    """Twice what the longest solutions take: who has not answered by then will not."""
    table_rows: int = 100
    """Held-out solutions whose tokens are measured before and after."""
    slip_rate: float = FineTuning.slip_rate
    filler_rate: float = FineTuning.filler_rate
    unfamiliar_share: float = FineTuning.unfamiliar_share
    """Imperfections of the training data, see `lab.FineTuning`."""
    margin: float = MARGIN
    bandwidth: float = BANDWIDTH
    base: str = ""
    """Folder of another base model of the lab; empty: the one of the package."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        least = {
            "seed": 0,
            "rows": 1,
            "batch": 1,
            "problems": 1,
            "samples": 1,
            "max_tokens": 1,
            "table_rows": 1,
        }
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"{name}: must be a whole number of at least {low}, got {value!r}")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device: must be cpu or cuda, got {self.device!r}")
        self.data()  # refuses shares that are none
        known = [name for name in LABELS if name != BASE]
        for method in self.methods:
            if method not in known:
                raise ValueError(f"methods: unknown name {method!r}; known: {', '.join(known)}")

    @classmethod
    def fast(cls, seed: int = 0) -> Settings:
        """Two methods, under a minute."""
        return cls(seed=seed, methods=("sft", "trim"), rows=600, problems=16, table_rows=40)

    def data(self, rows: int | None = None, seed_offset: int = 0) -> FineTuning:
        """What is trained on; with an offset, other rows of the same kind."""
        return FineTuning(
            rows=rows or self.rows,
            seed=self.seed + seed_offset,
            slip_rate=self.slip_rate,
            filler_rate=self.filler_rate,
            unfamiliar_share=self.unfamiliar_share,
        )

    @property
    def base_model(self) -> Path:
        return Path(self.base).resolve() if self.base else base_model_path()

    @property
    def steps(self) -> int:
        """Updates of one training."""
        return -(-self.rows // self.batch)

    @property
    def tiers(self) -> tuple[str, ...]:
        return tuple(TIERS)

    @property
    def runs(self) -> tuple[str, ...]:
        """Every run, the base first."""
        return (BASE, *self.methods)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"methods": list(self.methods)}


def training_words(settings: Settings, method: str, *, data: Path, out: Path) -> list[str]:
    """The command line of `trimsft train` that trains one method."""
    fields = {
        **LAB.defaults,
        "model_name_or_path": settings.base_model,
        "dataset_name": data,
        "output_dir": out,
        "objective": method,
        "per_device_train_batch_size": settings.batch,
        "learning_rate": settings.learning_rate,
        "seed": settings.seed,
        "use_cpu": settings.device == "cpu",
    }
    if method.startswith("trim"):  # the others have no band, and refuse one
        fields |= {"margin": settings.margin, "bandwidth": settings.bandwidth}
    return [word for name, value in fields.items() for word in (f"--{name}", as_word(value))]
