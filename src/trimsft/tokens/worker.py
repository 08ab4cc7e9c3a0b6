"""The process that `trimsft.tokens.shards` starts for one device: a job on stdin, its progress on stdout.

{"model": "runs/trim", "rows": [...], "out": "tokens.parquet", "device": "cuda:1", "shard": "2/8", ...}
-> {"done": 256, "total": 2500}   ...   {"error": "rows 3: non-finite logits ..."}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trimsft.errors import one_line


def main() -> int:
    # what libraries print must not be taken for progress
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    from trimsft.tokens.measure import write_token_table

    job = json.loads(sys.stdin.buffer.read())
    model, rows, place = job.pop("model"), job.pop("rows"), Path(job.pop("out"))
    try:
        write_token_table(model, rows, place, on_progress=lambda done, total: say(done=done, total=total), **job)
    except BrokenPipeError:  # whoever asked for it is gone
        os._exit(1)
    except Exception as error:
        say(error=one_line(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
