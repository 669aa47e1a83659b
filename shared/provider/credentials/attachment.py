"""Credentials put on a request, and taken out of its reply: no expression sees them, so nothing stores them."""

import base64
import dataclasses
import re
from collections.abc import Collection
from urllib.parse import unquote_plus

from shared.codec import Json
from shared.errors import TransportError
from shared.provider.credentials.mask import MASKED, Mask, spellings
from shared.provider.language.security import ApiKey, Http, OAuth2, Scheme
from shared.provider.wire.message import Call
from shared.reasons import Reason

SHORTEST_MASKED = 8  # characters of the shortest secret that is masked: a shorter one may stand in data by chance


class Attachment(Mask):
    """What the schemes add to a call. In texts and values a key's pair leaves a link's query, all else is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: dict[str, str] = {}
        self.query: dict[str, str] = {}
        self._pairs: list[re.Pattern[str]] = []

    def add(self, scheme: Scheme, secret: str) -> None:
        """Add the scheme's credentials. Raises TransportError for a secret that cannot stand where it must."""
        match scheme:
            case Http(scheme="basic"):
                self.headers["Authorization"] = basic(secret)
                self.learn(secret.partition(":")[2])
            case Http() | OAuth2():
                self.headers["Authorization"] = "Bearer " + _ascii(secret)
            case ApiKey(where="header"):
                self.headers[scheme.name] = scheme.prefix + _ascii(secret)
            case ApiKey():
                self.query[scheme.name] = value = scheme.prefix + secret
                if len(value) >= SHORTEST_MASKED:
                    self._pairs.append(_pair(scheme.name, value))
        self.learn(secret)

    def learn(self, secret: str, stand_in: str = MASKED) -> None:
        """Hide this text from now on, unless it is short."""
        if len(secret) >= SHORTEST_MASKED:
            super().learn(secret, stand_in)

    def to(self, call: Call) -> Call:
        """The call with its credentials. They win over what it says itself; a link may have the key already."""
        query = call.query | dict[str, Json](self.query)
        headers = call.headers | self.headers
        return dataclasses.replace(call, url=_without(call.url, self.query), headers=headers, query=query)

    def may_be_in(self, body: bytes, content_type: str = "") -> bool:
        """Whether a secret, or a pair that has been masked already, may stand in an encoded body."""
        return super().may_be_in(body, content_type) or (bool(self._pairs) and MASKED.encode() in body)

    def text(self, text: str) -> str:
        """The text without secrets. A link without its key still works: the key is attached to it again."""
        for pair in self._pairs:
            text = pair.sub("", text)
        return super().text(text)


def basic(pair: str) -> str:
    """The header of user and password, `user:password` in one text."""
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _ascii(secret: str) -> str:
    """A secret that can stand in a header as it is."""
    if not secret.isascii():
        raise TransportError("a secret is not ASCII, as a header must be", reason=Reason.SECRET)
    return secret


def _pair(name: str, value: str) -> re.Pattern[str]:
    """A pair of a link's query with the sign before it, or with the one behind it if others follow.

    What a recorded conversation has in the value's place counts as it.
    """
    pair = f"{spellings(name)}=(?:{spellings(value)}|{MASKED})"
    return re.compile(rf"[?&]{pair}(?:&{pair})*(?=[#\s\"'<>,;)\]}}]|$)|(?<=[?&]){pair}&")


def _without(url: str, names: Collection[str]) -> str:
    """The URL, its query without these names."""
    base, mark, query = url.partition("?")
    if not names or not mark:
        return url
    kept = [pair for pair in query.split("&") if unquote_plus(pair.partition("=")[0]) not in names]
    return f"{base}?{'&'.join(kept)}" if kept else base
