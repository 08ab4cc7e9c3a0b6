"""Which processes of a training are lost: torch says that a connection is gone, not whose.

with naming_lost_ranks():
    trainer.train()     # TrimSFTError: rank 1 of 2 no longer answers; ...
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch import distributed

from trimsft.errors import TrimSFTError

PATIENCE = 10.0
"""Seconds in which every process that still works notices that a collective has failed, and says so."""
ANSWER = 5.0
"""Seconds in which a store answers, if anybody keeps it."""


@contextmanager
def naming_lost_ranks() -> Iterator[None]:
    """A collective that failed becomes one line that names the ranks without which it failed."""
    try:
        yield
    except Exception as error:
        if not _is_of_a_collective(error) or not distributed.is_initialized():
            raise
        store, rank = distributed.distributed_c10d._get_default_store(), distributed.get_rank()
        lost = lost_ranks(store, rank, count := distributed.get_world_size(), PATIENCE)
        if not lost:
            raise
        names = " and ".join(f"rank {number}" for number in lost)
        problem = f"{names} of {count} no longer answer{'s' if len(lost) == 1 else ''}"
        hint = "its own output says more; started again, all of them continue from the last checkpoint"
        raise TrimSFTError(problem, hint=hint) from error


def lost_ranks(store: Any, rank: int, count: int, patience: float) -> list[int]:
    """The ranks that have not noticed the failure within `patience` seconds, since they died or stopped.

    Args:
        store: what the ranks found each other by; rank 0 keeps it, unless a launcher does.
    """
    missing = [number for number in range(count) if number != rank]

    def ask() -> None:
        end = time.monotonic() + patience
        with suppress(distributed.DistError):
            store.set(f"trimsft/noticed/{rank}", "")
            while missing:
                for number in [number for number in missing if store.check([f"trimsft/noticed/{number}"])]:
                    missing.remove(number)
                if time.monotonic() > end:
                    return
                time.sleep(0.05)
            return
        missing[:] = [0] if 0 in missing else missing  # who kept the store is gone

    asking = threading.Thread(target=ask, daemon=True)  # a store whose keeper has stopped never answers
    asking.start()
    asking.join(patience + ANSWER)
    return [0] if asking.is_alive() and 0 in missing else list(missing)


def _is_of_a_collective(error: BaseException | None) -> bool:
    while error is not None:
        # gloo, unlike NCCL, has no class of errors, and names itself in the text alone
        if isinstance(error, distributed.DistError) or (type(error) is RuntimeError and "gloo" in str(error)):
            return True
        error = error.__cause__
    return False
