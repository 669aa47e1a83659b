"""What no request can carry, whatever its values are: hosts, URLs and headers that cannot be sent."""

import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from local.provider.parts import operations
from shared.errors import TransportError
from shared.provider.language.placeholder import literals
from shared.provider.language.rules import Rules
from shared.provider.language.security import ApiKey, OAuth2
from shared.provider.wire.message import Call
from shared.provider.wire.origin import joined, origin_of
from shared.provider.wire.transport import url_of

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_LABELS = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)


def unsendable(rules: Rules) -> Iterator[str]:
    """Each with its location."""
    for i, server in enumerate(rules.servers):
        if "${" in server:
            yield f"$.servers[{i}]: a server takes no placeholders; write the whole URL in each operation"
        elif reason := _url(server):
            yield f"$.servers[{i}]: {reason}"
    yield from _credentials(rules)
    if signed := rules.callback.signature:
        yield from _header("$.callback.signature.header", signed.header)
        if signed.timestamp and signed.timestamp.header:
            yield from _header("$.callback.signature.timestamp.header", signed.timestamp.header)
    for location, operation in operations(rules):
        if not operation.url.startswith("${") and (reason := _url("1".join(literals(operation.url)), rules.servers[0])):
            yield f"{location}.url: {reason}"
        for name, value in operation.headers.items():
            there = f"{location}.headers.{name}"
            yield from _header(there, name, there, "".join(literals(value)))


def _credentials(rules: Rules) -> Iterator[str]:
    for i, scheme in enumerate(rules.security):
        location = f"$.security[{i}]"
        if isinstance(scheme, OAuth2) and (reason := _url(scheme.token_url)):
            yield f"{location}.tokenUrl: {reason}"
        if isinstance(scheme, ApiKey) and scheme.where == "header":
            yield from _header(f"{location}.name", scheme.name, f"{location}.prefix", scheme.prefix)
        elif isinstance(scheme, ApiKey) and not scheme.name:
            yield f"{location}.name: must not be empty"


def _url(url: str, server: str = "") -> str | None:
    """Why nothing can be sent to a URL."""
    try:
        url = joined(server, url) if server else url
        host = origin_of(url)[1]
        url_of(Call(method="GET", url=url, query={}, headers={}))
    except (TransportError, ValueError) as error:
        return f"cannot be sent: {error if isinstance(error, TransportError) else 'not a URL'}"
    if urlsplit(url).port == 0:
        return "cannot be sent: there is no port 0"
    return None if _is_host(host) else f"cannot be sent: there is no host {host!r}"


def _is_host(host: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    try:
        return _LABELS.fullmatch(host.encode("idna").decode()) is not None
    except UnicodeError:
        return False


def _header(location: str, name: str, at_value: str = "", value: str = "") -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{location}: {name!r} is not the name of a header"
    if found := _NOT_IN_VALUE.search(value):
        yield f"{at_value}: a header cannot hold {found[0]!r}; it takes one line of Latin-1"
