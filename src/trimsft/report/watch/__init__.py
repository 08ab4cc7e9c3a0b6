"""`trimsft watch`: how trainings are going, from their telemetry.jsonl alone, as a page of this machine or as text.

watched = Watched(Path("runs/trim"))          # a run, a folder of runs, or one that is not there yet
watched.look().runs[0].state                  # waiting, running, finished, interrupted, silent
WatchServer(watched, port=8765).serve_forever()

`follow.py` reads what is new, `page.py` makes the page, `server.py` hands it out, `text.py` draws with letters. Nothing
is written into a run, and torch is not loaded.
"""

from trimsft.report.watch.settings import WatchSettings

__all__ = ["WatchSettings"]
