"""The address of a server, with what must never be shown or recorded set apart.

>>> read_address("http://me:secret@localhost:8000/v1/")
Address(url='http://localhost:8000')
"""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from trimsft.evaluate.engines.base import EngineError


@dataclass(frozen=True)
class Address:
    """Where a server is."""

    url: str  # without a login: may be shown and recorded
    login: tuple[str, str] | None = field(default=None, repr=False)  # user and password

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def read_address(given: str) -> Address:
    """The address as given; refuses what is none, and never repeats a login or what may be a key."""
    try:
        parts = urlsplit(given)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that cannot be
        is_address = False
    if not is_address:
        shown: dict[str, Any] = {} if "@" in given else {"value": given}
        hint = "it begins with http:// or https://, such as http://localhost:8000"
        raise EngineError("is no address of a server", field="server", hint=hint, **shown)
    if parts.query or parts.fragment:
        hint = "leave out what stands from ? or # on; a key goes into the environment variable OPENAI_API_KEY"
        raise EngineError("must be an address without a query", field="server", hint=hint)
    place = parts.netloc.rpartition("@")[2]
    url = f"{parts.scheme}://{place}{parts.path}".rstrip("/").removesuffix("/v1")
    login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return Address(url, login)
