"""`python -m tools.soak`: the fault campaign, see docs/reliability.md; `make soak` runs it.

Exit code 1 if anything was lost; each loss is printed with the command that repeats it, and its folder is kept.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.soak.bench import Bench
from tools.soak.campaign import Campaign, Kind
from tools.soak.children import ROOT


def all_kinds() -> list[Kind]:
    """Every kind of fault, in the order of the table."""
    from tools.soak import crowds, damage, disks, inputs, kills, signals

    modules = (kills, signals, disks, damage, inputs, crowds)
    return [kind for module in modules for kind in module.KINDS]


def main(words: Sequence[str] | None = None) -> int:
    options = _parse(words)
    kinds = [kind for kind in all_kinds() if not options.only or kind.name in options.only]
    unknown = set(options.only or ()) - {kind.name for kind in kinds}
    if unknown:
        _say(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(kind.name for kind in all_kinds())}")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="trimsft-soak-", dir=options.out))
    _say(f"seed {options.seed}, {options.minutes:g} minutes, in {folder}")
    bench, began = Bench(folder, Path(options.root)), time.monotonic()
    with bench.children:
        campaign = Campaign(bench, kinds, options.seed, _say)
        if options.trial is None:
            campaign.run(options.minutes * 60, options.lanes)
        else:
            for kind in kinds:
                campaign.try_once(kind, options.trial)
    _say(campaign.table())
    lost = sum(bool(result.lost) for result in campaign.results)
    minutes = (time.monotonic() - began) / 60
    _say(f"{len(campaign.results)} trials in {minutes:.1f} minutes, {lost} lost; seed {options.seed}")
    record = json.dumps(campaign.as_dict() | {"minutes": minutes}, indent=1)
    if lost or options.json:
        place = Path(options.json) if options.json else folder / "result.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(record + "\n")
        _say(f"every trial: {place}")
    if not lost:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if lost else 0


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description="The fault campaign of trimsft.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long it may take (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="everything random comes from it (default: drawn)")
    parser.add_argument("--only", action="append", metavar="KIND", help="only this kind; may be repeated")
    parser.add_argument("--trial", type=int, default=None, metavar="N", help="only this trial of each kind")
    parser.add_argument("--lanes", type=int, default=2, help="trials side by side (default 2)")
    parser.add_argument("--out", default=None, help="where the folder of the campaign is made (default: temporary)")
    parser.add_argument("--json", default=None, metavar="FILE", help="write every trial as data")
    parser.add_argument("--root", default=str(ROOT), help="the checkout that is tried (default: this one)")
    options = parser.parse_args(words)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it leaves nothing running
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: unlike this handler, commands would inherit that
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    sys.exit(main())
