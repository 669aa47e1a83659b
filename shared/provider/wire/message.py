"""What goes to a provider and comes back: plain values, for those who make or read them without sending any."""

from dataclasses import dataclass

from shared.codec import Json

MAX_RESPONSE_BYTES = 10_000_000  # counted after decompression


@dataclass(frozen=True, slots=True)
class Call:
    """One request, ready to send. A `body` of None is left out; a text goes as it is, else as `content_type` says."""

    method: str
    url: str
    query: dict[str, Json]
    headers: dict[str, str]
    body: Json = None
    content_type: str = "application/json"


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
