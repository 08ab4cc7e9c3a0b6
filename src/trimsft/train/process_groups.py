"""The process groups of a training end before Python does, however the training ends.

with ended_process_groups():
    trainer.train()
"""

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from torch import distributed


@contextmanager
def ended_process_groups() -> Iterator[None]:
    """Wait, at the end, for the threads of gloo's groups.

    Such a thread lets go of the tensors of a collective some time after the collective is done, and needs the GIL to do
    so. If Python is at its end by then, the thread aborts the whole process ("terminate called without an active
    exception", pytorch issue 190489), and a launcher calls a finished training failed. Only the destructor of a group
    waits for its threads, so nothing may refer to the group: not a trainer, not the traceback of an error.
    """
    # it is the last that refers to the group: Python gives the GIL away to destroy it, where DDP would keep it and wait
    # for ever for a thread that wants it
    group = distributed.group.WORLD if distributed.is_available() else None
    try:
        yield
    except BaseException as error:
        if group is not None:
            _forget_locals(error)
        raise
    finally:
        # a group of NCCL is left after an error: to end it would mean to wait for ranks that may be lost
        if group is not None and distributed.is_initialized() and distributed.get_backend() == "gloo":
            distributed.destroy_process_group()
        if group is not None:
            gc.collect()  # a trainer refers to itself
        del group


def _forget_locals(error: BaseException | None) -> None:
    """Empty the frames of an error and of those that it came from; what a traceback prints stays."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
