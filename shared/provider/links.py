"""Links that replies give: each is relative to the URL of the reply that gave it (RFC 3986, 5.1; RFC 9110, 10.2.2)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shared.codec import Json
from shared.errors import TransportError
from shared.provider.language.expression import Expression
from shared.provider.language.placeholder import leading
from shared.provider.wire.origin import Origin, has_origin, joined, origin_of
from shared.reasons import Reason

REPLIED = ("outputs", "response")
"""What placeholders read that replies have said, and neither the file nor a caller."""


def is_link(url: str) -> bool:
    """Whether a URL of a provider file begins with what a reply gave."""
    one = leading(url)
    return one is not None and any(one.expression.refers_to(root) for root in REPLIED)


def is_foreign(url: str, known: Collection[Origin]) -> bool:
    """Whether a URL that was asked has none of the known origins."""
    return url != "" and origin_of(url) not in known


def followed(base: str, link: str) -> str:
    """The URL that a reply's link means beside `base`. Raises TransportError if it is none: the reply is at fault."""
    try:
        url = joined(base, link)
        origin_of(url)
    except TransportError as error:
        raise TransportError("a link is no http or https URL", reason=Reason.EXPIRED_LINK) from error
    return url


def based(envelope: Json, link: str, server: str) -> str:
    """What a link is relative to: the URL of the reply that holds it; the server, where the file has made it up."""
    return envelope["url"] if envelope and envelope["url"] and _holds(_said(envelope), link) else server


def kept(found: Mapping[str, Json], urls: Sequence[Expression], envelope: dict[str, Json]) -> dict[str, Json]:
    """The outputs found in a reply, without nulls; what `urls` read in them, and the reply holds, made absolute."""
    outputs = {name: value for name, value in found.items() if value is not None}
    for name, value in outputs.items():
        for expression in urls:
            link = expression.of(envelope | {"outputs": {name: value}})
            if isinstance(link, str) and link and not has_origin(link):
                outputs[name] = _replaced(outputs[name], link, _absolute(based(envelope, link, ""), link))
    return outputs


def _absolute(base: str, link: str) -> str:
    """The link beside its base; itself where it makes no URL, which is told when it is followed."""
    try:
        return joined(base, link)
    except TransportError:
        return link


def _said(envelope: dict[str, Json]) -> list[Json]:
    return [envelope["headers"], envelope["body"]]


def _holds(value: Json, text: str) -> bool:
    match value:
        case dict():
            return any(_holds(one, text) for one in value.values())
        case list():
            return any(_holds(one, text) for one in value)
    return bool(value == text)


def _replaced(value: Json, text: str, by: str) -> Any:
    match value:
        case dict():
            return {name: _replaced(one, text, by) for name, one in value.items()}
        case list():
            return [_replaced(one, text, by) for one in value]
    return by if value == text else value
