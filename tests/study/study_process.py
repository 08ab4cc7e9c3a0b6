"""A tiny study or quickstart as a process of its own: python -m tests.study.study_process study run main --smoke ...

With TRIMSFT_STUB set, cells take no time but for one: see `stub`.
"""

import os
import sys
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

if __name__ == "__main__":  # workers import this file, too, and need none of it
    from tests.study.stub import StubJob
    from trimsft import quickstart
    from trimsft.cli import main
    from trimsft.study import run, scales

    scales.SCALES["lab"] = replace(scales.LAB, compared=("base", "sft", "trim"))
    settings = quickstart.QuickstartSettings
    settings.__init__ = partialmethod(  # type: ignore[method-assign,assignment]
        settings.__init__, rows=24, batch=12, problems=2, samples=2, max_tokens=12, table_rows=2, workers=1
    )
    if "TRIMSFT_STUB" in os.environ:
        run.Job = StubJob  # type: ignore[misc]
        run.check_study = lambda *_, **__: None  # these load what trains
        run.write_tables = lambda *_, **__: [Path("table.md")]
    sys.argv = ["trimsft", *sys.argv[1:]]
    main()
