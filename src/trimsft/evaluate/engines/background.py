"""Work that waits for a network, in a thread of its own, so that whoever listens can leave at any moment.

async def count(put: Put) -> None:
    put(1)

list(in_background(count))  # [1]
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias

Put: TypeAlias = Callable[[Any], None]
_END = object()


def in_background(work: Callable[[Put], Coroutine[Any, Any, None]]) -> Iterator[Any]:
    """What `work` puts, as it comes, and at last what it raises.

    Who leaves early, as Ctrl-C does, cancels it at once and closes its connections, however long a server is silent.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(_finish(work, answers.put))
    thread = threading.Thread(target=_run, args=(loop, task), daemon=True)
    thread.start()
    try:
        while (answer := answers.get()) is not _END:
            if isinstance(answer, Exception):
                raise answer
            yield answer
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


async def _finish(work: Callable[[Put], Coroutine[Any, Any, None]], put: Put) -> None:
    try:
        await work(put)
        put(_END)
    except Exception as error:
        put(error)


def _run(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.run_until_complete(loop.shutdown_asyncgens())  # replies that were left in the middle
