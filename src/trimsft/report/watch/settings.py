"""What `trimsft watch` is told."""

from dataclasses import dataclass
from pathlib import Path

from trimsft.errors import UsageError
from trimsft.options import check_options, option

PORT = 8765
FORMATS = (".html", ".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """What is watched, and how it is shown."""

    run: Path = option(help="A run directory, or a folder of several; it may not be there yet.", argument="RUN")
    port: int = option(
        PORT, help="Port of 127.0.0.1 to show the page on; 0 takes one that is free.", least=0, most=65535
    )
    text: bool = option(False, flags=("--text",), help="Draw in the terminal instead, and end with the training.")
    once: bool = option(False, flags=("--once",), help="Show what there is now, and end.")
    out: Path | None = option(
        None, help="With --once, the .html, .png, .svg or .pdf to write (default: watch.html in this folder)."
    )
    every: float = option(1.0, help="Seconds between two looks at the files.", least=0.1, most=3600)

    def __post_init__(self) -> None:
        check_options(self)
        if self.run.exists() and not self.run.is_dir():
            hint = "name the run directory, or a folder of several"
            raise UsageError("is a file", field="run", value=str(self.run), hint=hint)
        if self.out is None:
            return
        if not self.once or self.text:
            hint = "give --once, too" if not self.once else "leave out --text"
            raise UsageError("has no effect", field="out", value=str(self.out), hint=hint)
        if self.out.suffix not in FORMATS or self.out.is_dir():
            raise UsageError("must be a file", field="out", value=str(self.out), hint=f"it ends in {' '.join(FORMATS)}")
