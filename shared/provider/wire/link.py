"""Links: what leaves the origin of a request and what stays behind, and the links that a reply's Link header names."""

import dataclasses
import re
from collections.abc import Iterator
from itertools import islice

from shared.errors import TransportError
from shared.provider.wire.message import Call
from shared.provider.wire.origin import joined

_HARMLESS = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "content-encoding", "content-language",
        "content-type", "range", "user-agent",
    }
)  # fmt: skip
"""Headers that say how to answer, or what a body is: nobody is known by them."""
MAX_LINKS = 100  # read of one reply: an API names a few, and each takes some time
MAX_LINK_BYTES = 65_536  # a link that begins behind so many is not read
_LINK = re.compile(r"[\s,]*<([^>]*)>")
_PARAMETER = re.compile(r"\s*;\s*([!#$%&'*+.^_`|~0-9A-Za-z-]*)\s*(?:=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]*)))?")


def abroad(call: Call) -> Call:
    """The call as it goes to an origin to which a link leads and not the file: with no header that could tell a secret,
    for its name or as a value has filled it.

    RFC 9110, 15.4 says it of redirects; whichever way leads there, the same is left behind.
    """
    literal = call.headers.keys() - call.filled
    kept = {name: value for name, value in call.headers.items() if name in literal and name.lower() in _HARMLESS}
    return dataclasses.replace(call, headers=kept)


def links(header: str, url: str) -> dict[str, str]:
    """The links in a Link header (RFC 8288, 3) of the reply from `url`: relation, in lower case -> absolute URL.

    Of several with one relation the first; one about another page (`anchor`) or that makes no URL is passed over. Only
    the first MAX_LINKS are read.
    """
    found: dict[str, str] = {}
    here = joined(url, "")
    for target, parameters in islice(_targets(header), MAX_LINKS):
        try:
            anchor = parameters.get("anchor")
            if not anchor or joined(url, anchor) == here:
                link = joined(url, target)
                for relation in parameters.get("rel", "").lower().split():
                    found.setdefault(relation, link)
        except TransportError:
            continue
    return found


def _targets(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each link's target as it is written, and its parameters: of several with one name the first."""
    at = 0
    while at < MAX_LINK_BYTES and (link := _LINK.match(header, at)):
        at, parameters = link.end(), dict[str, str]()
        while (one := _PARAMETER.match(header, at)) and one.end() > at:
            at = one.end()
            quoted, plain = one[2], one[3]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain or ""
            parameters.setdefault(one[1].lower(), value)
        yield link[1], parameters
        at = min(header.find(",", at) % (len(header) + 1), len(header))
