"""The hub where it cannot be reached: one attempt, one line, and what is on this machine.

    with asking_hub("Qwen/Qwen2.5-Math-1.5B"):
        tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-Math-1.5B")

huggingface_hub tries each file six times over half a minute, and says so each time, before it takes what it has
stored. Here the hub is asked once in a process whether it is there; if not, loading goes on in offline mode.
"""

import functools
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimsft.errors import UsageError, one_line


@contextmanager
def asking_hub(name: str | Path) -> Iterator[None]:
    """Load something by its name within; without a network, from what is stored here alone."""
    from huggingface_hub import constants

    if Path(name).exists() or constants.HF_HUB_OFFLINE or why_unreachable() is None:
        yield
        return
    constants.HF_HUB_OFFLINE = True  # what the environment variable of that name sets
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


@functools.cache
def why_unreachable() -> str | None:
    """Why no connection to the hub can be made; None where there is one. Asked once in a process."""
    import httpx
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return one_line(error)
    except httpx.HTTPError:  # whatever else goes wrong there, the library says better
        return None
    return None


def not_loaded(what: str, name: str | Path, error: Exception, *, field: str) -> UsageError:
    """Return the error for a model or tokenizer that could not be loaded.

    Args:
        what: what was to be loaded, as `cannot load ...` goes on.
        field: the setting to blame.
    """
    reason = textwrap.shorten(one_line(error), 400, placeholder=" ...")
    if Path(name).is_dir():
        return UsageError(f"cannot load {what}: {reason}", field=field)
    # said first where a name is no folder, since the library then speaks of the hub alone
    if (unreachable := why_unreachable()) is None or not _is_of_network(error):
        return UsageError(f"cannot load {what} (no such folder here, so the hub was asked): {reason}", field=field)
    return UsageError(
        f"cannot load {what} (no such folder here, and the hub cannot be reached: {unreachable})",
        field=field,
        hint=f"name a folder, or run 'hf download {name}' with a network first",
    )


def _is_of_network(error: BaseException | None) -> bool:
    """Return whether an error began with something that is not stored here and could not be fetched."""
    import httpx
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    while error is not None:
        if isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled | httpx.TransportError):
            return True
        error = error.__cause__ or error.__context__
    return False
