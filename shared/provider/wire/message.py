"""What goes to a provider and comes back: plain values, for those who make or read them without sending any."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.codec import Json

MAX_RESPONSE_BYTES = 10_000_000  # counted after decompression
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, ready to send. A `body` of None is left out; a text goes as it is, else as `content_type` says.

    `filled` names the headers that a value has filled, of whoever it is.
    """

    method: str
    url: str
    query: dict[str, Json]
    headers: dict[str, str]
    body: Json = None
    content_type: str = "application/json"
    filled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, its body undecoded. Header names are in lower case; `authorised`: credentials had been attached.

    `unreadable` says why the body could not be unpacked, so that there is none; empty where nothing is wrong with it.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    url: str
    authorised: bool = False
    unreadable: str = ""


def are_headers(headers: Mapping[str, str]) -> bool:
    """Whether these can be sent as headers."""
    return all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in headers.items())
