"""Cells: one cell of a study is a model, what it is trained with, and a seed; its name is that of its run directory.

    >>> Cell(model="lab", objective="trim").name
    'lab/trim-margin1.5-bandwidth0.8/seed0'

The parameters of an objective stand at their defaults where they are not given, so that one training is one cell in
every study. Of a user's own objective only what is given stands there: reading a folder must not load its code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimsft import objectives
from trimsft.errors import UsageError
from trimsft.objectives import OBJECTIVES, display_name, make_objective, parameters_of, require_known
from trimsft.runs.secrets import is_secret

BASE = "base"
BANDED = ("trim", "trim-e", "trim-h")  # the objectives of a plane of margins and bandwidths
PARAMETERS = tuple(objectives.PARAMETERS)  # of objectives; these come first in a name
OWN = ("objective", "seed", "output_dir", "model_name_or_path")
"""Fields of `trimsft train` that a cell or its study sets itself."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a study; equal cells are the same run."""

    model: str  # its name within the scale, such as "lab" or "Qwen2.5-Math-1.5B"
    objective: str  # "base" (evaluated as it is) or a name of `make_objective`
    fields: tuple[tuple[str, Any], ...] = ()
    """Margin, bandwidth, gamma and any other field of `trimsft train`; sorted."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Complete the objective's parameters; refuse fields without effect, which would give one run two names."""
        if not _SAFE.fullmatch(self.model):
            problem = "must be a name of letters, digits and . _ + -"
            raise UsageError(problem, field="models", value=self.model, hint="NAME=PATH gives it one")
        fields, takes = dict(self.fields), tuple[str, ...]()
        refuse_secrets(fields)
        if self.objective != BASE:
            require_known(self.objective)
            takes = takes_of(self.objective) if self.objective in OBJECTIVES else PARAMETERS
        for name, value in fields.items():
            if self.objective == BASE or name in OWN or (name in PARAMETERS and name not in takes):
                problem = f"has no effect with objective {self.objective!r}"
                raise UsageError(problem, field=name, value=value, hint="leave it out")
        if self.objective in OBJECTIVES:
            made = make_objective(self.objective, **{name: fields[name] for name in takes if name in fields})
            fields = {name: getattr(made, name) for name in takes} | fields
        object.__setattr__(self, "fields", tuple(sorted(fields.items())))

    @property
    def name(self) -> str:
        """Return a relative path, readable and of this cell alone."""
        method = "-".join([self.folder_name, *(f"{name}{_path_text(value)}" for name, value in self.shown_fields)])
        return f"{self.model}/{method}/seed{self.seed}"

    @property
    def shown_fields(self) -> list[tuple[str, Any]]:
        """Return the fields as names and labels have them: those of the objective first."""
        own = [entry for name in PARAMETERS for entry in self.fields if entry[0] == name]
        return [*own, *self.shared_fields]

    @property
    def folder_name(self) -> str:
        return self.objective.replace(":", "+")

    @property
    def is_base(self) -> bool:
        return self.objective == BASE

    @property
    def setting(self) -> Cell:
        """Return what is trained, whatever the seed: the cell of seed 0."""
        return replace(self, seed=0)

    @property
    def band(self) -> tuple[float, float] | None:
        """Return (margin, bandwidth) of a trimmed objective."""
        margin, bandwidth = self.get("margin"), self.get("bandwidth")
        return (float(margin), float(bandwidth)) if self.objective in BANDED else None

    @property
    def shared_fields(self) -> tuple[tuple[str, Any], ...]:
        """Return the fields that are no objective's own, which SFT is trained with as well."""
        return tuple(entry for entry in self.fields if entry[0] not in PARAMETERS)

    @property
    def label(self) -> str:
        """Return "TrimSFT (margin 1, bandwidth 0.5)"."""
        texts = [
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in self.shown_fields
        ]
        return method_name(self.objective) + (f" ({', '.join(texts)})" if texts else "")

    def get(self, field: str, default: Any = None) -> Any:
        return dict(self.fields).get(field, default)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"fields": dict(self.fields)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cell:
        """Read what `as_dict` wrote."""
        return cls(**{**record, "fields": tuple(record["fields"].items())})


def takes_of(objective: str) -> tuple[str, ...]:
    """Return the parameters that an objective takes; loads a user's own."""
    known = parameters_of(objective)
    return tuple(name for name in PARAMETERS if name in known)


def check_objectives(names: Sequence[str], *, field: str) -> None:
    """Load every objective that the user names; refuse an unknown one, and two of one name."""
    for place, name in enumerate(names):
        if any(method_name(name) == method_name(other) for other in names[:place]):
            raise UsageError(f"two are called {method_name(name)}", field=field, value=name, hint="name each once")
        try:
            make_objective(name)
        except UsageError as error:
            error.field = field
            raise


def method_name(objective: str) -> str:
    """Return what tables call an objective, or the base."""
    return "Base" if objective == BASE else display_name(objective)


def refuse_secrets(names: Iterable[str]) -> None:
    """Refuse settings that hold secrets: every cell's files would hold them."""
    if secret := next((name for name in names if is_secret(name)), None):
        problem, hint = f"{secret!r} is a secret, which a study writes down", "set HF_TOKEN in the environment"
        raise UsageError(problem, field="fields", hint=hint)


def _path_text(value: Any) -> str:
    """Return a value as part of a file name; texts that cannot be one are told apart by their hash."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(float(value)).removesuffix(".0")
    text = str(value)
    if _SAFE.fullmatch(text):
        return f"={text}"
    readable = re.sub(r"[^A-Za-z0-9._+]+", "_", text)[-40:].strip("_")
    return f"={readable}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
