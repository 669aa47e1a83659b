"""Origins and addresses: where credentials may go, and where no request may go."""

import ipaddress
import re
from typing import TypeAlias
from urllib.parse import urljoin, urlsplit

from shared.errors import TransportError
from shared.reasons import Reason

Origin: TypeAlias = tuple[str, str, int]  # scheme, host and port of a URL (RFC 6454)

_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Leads to the IPv4 address in its last 32 bits (RFC 6052)."""
_TUNNELLED = ipaddress.IPv6Network("2002::/16")  # 6to4: leads to the IPv4 address within (RFC 3056)
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that IANA gives out; what lies outside is special, or out of use


def origin_of(url: str) -> Origin:
    """The origin of an absolute http(s) URL. Raises TransportError for any other."""
    try:
        parts = urlsplit(url)
        default = _PORTS[parts.scheme]
        port = parts.port or default
    except (ValueError, KeyError) as error:
        raise TransportError("not an http or https URL", reason=Reason.INVALID_REQUEST) from error
    host = (parts.hostname or "").lower().rstrip(".")
    if not host or parts.username is not None:
        raise TransportError("a URL without a host, or with a user in it", reason=Reason.INVALID_REQUEST)
    return parts.scheme, host, port


def has_origin(url: str) -> bool:
    """Whether a text is an absolute http(s) URL."""
    try:
        origin_of(url)
    except TransportError:
        return False
    return True


def joined(base: str, link: str) -> str:
    """The absolute URL that a link means beside `base` (RFC 3986, 5). Raises TransportError if it is not one.

    A `%` that begins no triplet is encoded: else requests and urllib3 take the whole URL for one that is not encoded.
    """
    try:
        return _LONE_PERCENT.sub("%25", urljoin(base, link.strip()))
    except ValueError as error:
        raise TransportError("not a URL", reason=Reason.INVALID_REQUEST) from error


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet: not private, loopback, link-local or otherwise special."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        if inner is None:
            return ip in _UNICAST and ip not in _TUNNELLED and ip.is_global
        ip = inner
    return ip.is_global and not ip.is_multicast
