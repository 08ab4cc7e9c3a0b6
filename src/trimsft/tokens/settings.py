"""The settings of `trimsft tokens`, and where its tables go; imports nothing heavy."""

import os
from dataclasses import dataclass
from pathlib import Path

from trimsft.data.load import NUMINA, RowSettings
from trimsft.errors import UsageError
from trimsft.options import option
from trimsft.runs import RunDirectory


@dataclass(frozen=True, kw_only=True)
class TokenSettings(RowSettings):
    """Models, rows, and how they are measured."""

    models: tuple[str, ...] = option(
        argument="MODEL...", flags=("--model",), help="Run directories, model folders or names of models on the hub."
    )
    sample: int | None = option(None, help="Choose this many rows at random.", least=1)
    seed: int | None = option(None, help="Seed of the random choice of rows (default: 0).", least=0)
    out: Path | None = option(
        None,
        help="File or folder of the table. By default tokens.parquet in a run directory, else ./tokens-NAME.parquet.",
    )
    objective: str = option(
        "trim",
        metavar="NAME",
        help="Whose R_eff and High-Weight are shown: an objective by name, or as my_module:MyObjective.",
    )
    top: int = option(0, help="Store this many of the most probable tokens beside each token.", least=0)
    device: str = option(
        "auto", metavar="DEVICE", help="auto (all GPUs, else cpu), cpu, cuda or cuda:N; several joined by commas."
    )
    batch_tokens: int | None = option(None, help="Most tokens in a batch, padding included.", least=1)
    shard: str | None = option(
        None, metavar="K/N", help="K/N does the K-th of N shares; the last one to end joins them all."
    )
    overwrite: bool = option(False, flags=("--overwrite",), help="Replace a table that was made with other inputs.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UsageError("there are none", field="models", hint="name at least one")
        if self.seed is not None and self.sample is None and self.data != NUMINA:
            raise UsageError("has no effect without a sample", field="seed", value=self.seed, hint="leave it out")
        self.places()

    def places(self) -> dict[str, Path]:
        """Return where the table of each model goes.

        By default a run directory has its own and any other model's is ./tokens-NAME.parquet. `out` is a .parquet
        file or a folder for one model; for several it is a folder, with one inside for each.
        """
        out = self.out
        is_file = out is not None and out.suffix == ".parquet"
        if is_file and len(self.models) > 1:
            problem = f"is one file for {len(self.models)} models"
            raise UsageError(problem, field="out", value=str(out), hint="name a folder")
        if out is not None:
            if is_file and out.is_dir():
                hint = "name a file in it, or a folder without .parquet"
                raise UsageError("is a folder", field="out", value=str(out), hint=hint)
            for folder in [out, *out.parents][is_file:]:
                if folder.exists() and not folder.is_dir():
                    hint = "name a folder, or a file that ends in .parquet"
                    raise UsageError("is a file", field="out", value=str(folder), hint=hint)
        places: dict[str, Path] = {}
        for model in self.models:
            if out is None:
                run = RunDirectory(model)
                place = run.tokens_path if run.is_run() else Path(f"tokens-{name_of(model)}.parquet")
            elif len(self.models) > 1:
                place = out / name_of(model) / "tokens.parquet"
            else:
                place = out if is_file else out / "tokens.parquet"
            if model in places or place in places.values():
                problem = f"{model!r} would be written to {str(place)!r}, as another one"
                raise UsageError(problem, field="models", hint="name it once")
            places[model] = place
        return places


def name_of(model: str) -> str:
    """Return the last part of a path (a link's own) or of a name of the hub; of RUN/model, the run's."""
    path = Path(model)
    path = Path(os.path.abspath(path)) if path.exists() else path  # . and .. have no name
    return path.parent.name if path.name == "model" and path.parent.name else path.name
