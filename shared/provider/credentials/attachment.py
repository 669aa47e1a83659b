"""Credentials put on a request, and taken out of its reply: no expression sees them, so nothing stores them."""

import dataclasses
import re
from collections.abc import Collection
from urllib.parse import unquote_plus

from shared.codec import Json
from shared.provider.credentials.credentials import Attached
from shared.provider.credentials.mask import MASKED, Mask, spellings
from shared.provider.wire.message import Call

SHORTEST_MASKED = 8
"""Characters of the shortest secret that is masked: what is shorter may well stand in data by chance."""


class Attachment(Mask):
    """What the schemes add to a call. In texts and values a key's pair leaves a link's query, all else is masked."""

    def __init__(self, attached: Attached) -> None:
        super().__init__()
        self._attached = attached
        for secret in attached.secrets:
            if len(secret) >= SHORTEST_MASKED:
                self.learn(secret)
        self._pairs = [_pair(name, value) for name, value in attached.query.items() if len(value) >= SHORTEST_MASKED]

    def to(self, call: Call) -> Call:
        """The call with its credentials. They win over what it says itself; a link may have the key already."""
        return dataclasses.replace(
            call,
            url=_without(call.url, self._attached.query),
            headers=call.headers | self._attached.headers,
            query=call.query | dict[str, Json](self._attached.query),
        )

    def may_be_in(self, body: bytes) -> bool:
        """Whether a secret, or a pair that has been masked already, may stand in an encoded body."""
        return super().may_be_in(body) or (bool(self._pairs) and MASKED.encode() in body)

    def text(self, text: str) -> str:
        """The text without secrets. A link without its key still works: the key is attached to it again."""
        for pair in self._pairs:
            text = pair.sub("", text)
        return super().text(text)


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
