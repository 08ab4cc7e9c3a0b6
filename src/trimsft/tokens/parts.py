"""What is done of a token table, beside its place: one file for each window of rows, joined when all are there.

tokens.parquet.parts/
  inputs.json          fingerprints of model, data and settings; a start with others is refused
  00000.arrow ...      one for each window, whole or absent
  .lock                held while the folder is begun or joined
  .1of4.lock           held by the process that works on these windows; says which one

Any number of processes, here or on other machines that see the folder, may fill it; the last one joins.
"""

import contextlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimsft.errors import RunError, UsageError
from trimsft.runs import RunLock, refuse_links, sync, write_whole
from trimsft.runs.files import written_beside
from trimsft.runs.parsing import checked, parse_json, read_json
from trimsft.tokens.table import read_metadata, schema_with, writing

INPUTS = (
    "schema", "model", "model_sha256", "data", "template", "system_prompt", "max_length", "truncation_mode",
    "assistant_only_loss", "completion_only_loss", "top",
    "dtype", "window",
)  # fmt: skip
"""What two starts must share to be about the same table; `model` only where it has no fingerprint."""

CUT = ("rows_cut", "tokens_cut", "rows_lost")  # what a maximum length took, in the metadata under `cut`
_KEY = b"trimsft"


def parts_folder(out: Path) -> Path:
    """Where the parts of a table are, until all are there."""
    return out.with_name(out.name + ".parts")


class Parts:
    """The folder of one table."""

    def __init__(self, out: Path, inputs: Mapping[str, Any], windows: int) -> None:
        self.out = out
        self.folder = parts_folder(out)
        self._inputs = self.folder / "inputs.json"
        self.inputs = {name: inputs[name] for name in INPUTS if name in inputs}
        self.windows = windows
        self._made: list[Path] = []

    def begin(self, *, overwrite: bool) -> bool:
        """Make the folder, or go on with what it holds; False where the table is there already, made of the same.

        Without `overwrite`, parts or a table made of anything else are refused.
        """
        if not overwrite and self.out.exists() and not self._inputs.exists():
            finished: dict[str, Any] = {}
            with contextlib.suppress(RunError):  # it is no table, then
                finished = read_metadata(self.out)
            if changed := _differences(finished, self.inputs):
                problem = f"{self.out}: is there, made with other inputs ({changed})"
                hint = "name another file, or replace this one"
                raise RunError(problem, hint=hint, remedy=("overwrite", True))
            shutil.rmtree(self.folder, ignore_errors=True)  # of one that was killed while it removed it
            return False
        refuse_links(self.folder)
        self._made = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        with self._lock():
            self._settle(overwrite=overwrite)
        return True

    def _settle(self, *, overwrite: bool) -> None:
        """Write down the inputs where they are new; parts of others go, or are refused without `overwrite`."""
        try:
            changed = _differences(read_json(self._inputs, dict[str, Any], hint="remove its folder"), self.inputs)
        except FileNotFoundError:
            changed = "it says nothing about how it was made"
        if not changed:
            return
        parts = list(self.folder.glob("*.arrow"))
        if parts and self._inputs.exists() and not overwrite:
            problem = f"{self.folder}: holds parts of a table with other inputs ({changed})"
            hint = "give the same ones to continue it, name another file, or begin again"
            raise RunError(problem, hint=hint, remedy=("overwrite", True))
        for lock in self.folder.glob(".*of*.lock"):
            RunLock(lock).release()  # refuses where a process still works on the others
        for part in parts:
            part.unlink()
        write_whole(self._inputs, (json.dumps(self.inputs, indent=1) + "\n").encode())

    def leave(self, *, refused: bool) -> None:
        """After a failure: no folder stays behind that was made for nothing."""
        if refused and self.folder in self._made and not any(self.folder.glob("*.arrow")):
            shutil.rmtree(self.folder, ignore_errors=True)
        for folder in self._made:
            with contextlib.suppress(OSError):  # something is in it, or it is gone
                folder.rmdir()

    def working_on(self, name: str) -> RunLock:
        """Keep a second process from the same windows."""
        return RunLock(self.folder / f".{name}.lock")

    def missing(self, windows: Sequence[int]) -> list[int]:
        """Those of the windows that are not done, or whose part is damaged."""
        return [window for window in windows if not self._counts(window)]

    def write(self, window: int, table: pa.Table, counts: Mapping[str, int]) -> None:
        """One window, whole or not at all, and what was counted in it."""
        table = table.replace_schema_metadata({_KEY: json.dumps(counts)})
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            written_beside(self._path(window)) as beside,
            pa.ipc.new_file(str(beside), table.schema, options=options) as file,
        ):
            file.write_table(table)

    def join(self, metadata: Mapping[str, Any]) -> bool:
        """Make the table of the parts and remove them; False while windows are missing."""
        with self._lock():
            if not self._inputs.exists():  # another process has joined them while this one waited
                shutil.rmtree(self.folder)
                return True
            counts = [self._counts(window) for window in range(self.windows)]
            if not all(counts):
                return False
            self._join(metadata, counts)
        return True

    def _join(self, metadata: Mapping[str, Any], counts: Sequence[Mapping[str, int]]) -> None:
        tokens = sum(one["tokens"] for one in counts)
        if tokens == 0:
            self._remove()
            problem, length = "leaves no token to train on in any row", self.inputs["max_length"]
            raise UsageError(problem, field="max_length", value=length, hint="raise it")
        facts = {**metadata, **self.inputs, "model": metadata["model"], "tokens": tokens}
        facts["cut"] = {name: sum(one.get(name, 0) for one in counts) for name in CUT}
        facts["longest"] = max(one.get("longest", 0) for one in counts)
        with writing(self.out, facts, self._schema) as append:
            for window in range(self.windows):  # read again: all of them may be more than the memory holds
                if (part := self._read(window)).num_rows:
                    append(part)
        self._remove()
        sync(self.out.parent)

    def _remove(self) -> None:
        """The inputs first: parts that a kill leaves without them are never taken for those of others."""
        self._inputs.unlink()
        shutil.rmtree(self.folder)

    @property
    def _schema(self) -> pa.Schema:
        return schema_with(self.inputs["top"] or 0)

    def _read(self, window: int) -> pa.Table:
        with pa.OSFile(str(self._path(window))) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()

    def _counts(self, window: int) -> dict[str, int]:
        """What was counted in a part; nothing where it is not there or not whole."""
        try:
            part = self._read(window)
            part.validate(full=True)
            counts = parse_json((part.schema.metadata or {}).get(_KEY, b"{}"))
            counts = checked(dict[str, int], counts, where=str(self._path(window)))
        except (pa.ArrowException, OSError, ValueError, RunError):
            return {}
        return {**counts, "tokens": part.num_rows} if part.schema.equals(self._schema) else {}

    def _path(self, window: int) -> Path:
        return self.folder / f"{window:05}.arrow"

    def _lock(self) -> RunLock:
        """Wait for whoever begins or joins the folder; it is made again where it is gone afterwards."""
        while True:
            try:
                return RunLock(self.folder / ".lock", patience=math.inf)
            except RunError as error:  # whoever joined it may remove the folder between its making and its locking
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs, in words; the name of a model only where that is all there is to tell it by."""
    if not was:
        return "it says nothing about how it was made"
    names = [name for name in INPUTS if name != "model" or now.get("model_sha256") is None]
    changed = [name for name in names if was.get(name) != now.get(name)]
    return "; ".join(f"{name}: was {_short(was.get(name))}, now {_short(now.get(name))}" for name in changed)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('rows')} rows, {_short(value.get('sha256'))}"
    return value[:12] if isinstance(value, str) and len(value) == 64 else repr(value)
