"""HTTP to providers that cannot be abused: a deadline over everything, a cap on size, and targets that are allowed."""

import dataclasses
import logging
import time
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy

import requests
import urllib3
from urllib3 import HTTPHeaderDict

from shared.codec import Json, dumps
from shared.errors import TransportError
from shared.provider.wire.coding import unpacked
from shared.provider.wire.connection import Adapter, Watchdog
from shared.provider.wire.link import abroad
from shared.provider.wire.message import MAX_RESPONSE_BYTES, Call, Reply, are_headers
from shared.provider.wire.origin import Origin, joined, origin_of
from shared.provider.wire.room import ROOM, SMALL_BYTES
from shared.reasons import Reason

_TOO_LARGE = f"the reply is larger than {MAX_RESPONSE_BYTES} bytes"
_HEADERS = {  # a call's own win, however they are spelled
    "User-Agent": "meanwhile",
    "Accept-Encoding": "gzip, deflate",
    "Accept": "*/*",
    "Connection": "keep-alive",
}
_HEADER_COPIES = 8  # of each header, on its way from the wire to the expressions of a file
MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
_REDIRECTS = (301, 302, 303, 307, 308)
_UNSENDABLE = (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError)

for _name in (
    "urllib3.connection",
    "urllib3.connectionpool",
    "urllib3.response",
):  # they write whole URLs, and a key may stand in one
    logging.getLogger(_name).disabled = True


class Transport:
    """Sends calls from many threads over one pool of connections; keeps no cookie, reads no proxy or netrc setting."""

    def __init__(
        self, connections: int, *, adapter: type[Adapter] = Adapter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._session = _Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter(pool_maxsize=connections))

    def send(
        self,
        call: Call,
        seconds: float,
        *,
        allowed: frozenset[Origin] = frozenset(),
        attach: Callable[[Call], Call] | None = None,
        hide: Callable[[str], str] = str,
        stay: Callable[[int], bool] = lambda _: False,
    ) -> Reply:
        """The whole reply within `seconds`, at most 5 redirects away.

        `allowed` origins may be private addresses, and they alone get what `attach` adds; nobody gets it after a
        redirect to another origin: `hide` takes it out of that URL, and the call goes on as it does `abroad`. A
        redirect with a status for which `stay` is true is the reply.
        Raises TransportError: no connection, a broken one, late, too large, or a target that is not allowed.
        """
        end = self._clock() + seconds
        first = origin_of(call.url)
        trusted = first in allowed
        for _ in range(MAX_REDIRECTS + 1):
            trusted = trusted and origin_of(call.url) == first
            sent = attach(call) if attach and trusted else call
            try:
                reply = self.once(sent, end - self._clock(), allowed)
            except TransportError as error:
                error.url = call.url
                raise
            reply = dataclasses.replace(reply, authorised=sent is not call)
            if (sent.url, sent.query) != (call.url, call.query):  # without a key that was attached to its query
                reply = dataclasses.replace(reply, url=url_of(call))
            location = reply.headers.get("location")
            if reply.status not in _REDIRECTS or location is None or stay(reply.status):
                return reply
            call = _redirected(call, reply, location, hide, allowed)
        raise TransportError(f"more than {MAX_REDIRECTS} redirects", reason=Reason.REDIRECTS)

    def once(self, call: Call, seconds: float, allowed: frozenset[Origin]) -> Reply:
        """The whole reply to one request within `seconds`, redirects not followed. Raises TransportError."""
        if seconds <= 0:
            raise TransportError("no time is left for the request", reason=Reason.DEADLINE)
        end = self._clock() + seconds
        with Watchdog(seconds, {(host, port) for _, host, port in allowed}) as watchdog:
            try:
                reply = self._read(call, seconds)
                if not watchdog.fired:  # else the reply may have ended where the connection was cut
                    return reply
                failure = _failure(TimeoutError(), watchdog, is_late=True)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                is_late = watchdog.fired or isinstance(error, requests.Timeout) or self._clock() >= end
                failure = _failure(error, watchdog, is_late=is_late)
        raise failure  # neither from theirs nor in its context: their texts hold URLs and headers, and so secrets

    def _read(self, call: Call, seconds: float) -> Reply:
        end = self._clock() + seconds
        headers, body = _encoded(call)
        if not are_headers(headers):
            raise TransportError("a header cannot be sent", reason=Reason.INVALID_REQUEST)
        request = requests.PreparedRequest()  # the session would merge each with settings that it does not have
        request.prepare(call.method, call.url, headers=_HEADERS | headers, data=body, params=_query(call.query))
        timeout = (min(seconds, CONNECT_SECONDS), seconds)
        with self._session.send(request, stream=True, allow_redirects=False, timeout=timeout, proxies={}) as response:
            headers = _headers(response.raw.headers)
            ROOM.take(_HEADER_COPIES * sum(map(len, headers.values())), end - self._clock())
            coding, content = headers.get("content-encoding", ""), bytearray()
            is_error = not 200 <= response.status_code <= 299
            for chunk in response.raw.stream(65536, decode_content=False):
                ROOM.take(len(chunk), end - self._clock())
                content += chunk
                if len(content) > MAX_RESPONSE_BYTES and not coding:  # else the watchdog counts
                    raise TransportError(_TOO_LARGE, reason=Reason.TOO_LARGE, passes=is_error)
            try:
                body, unreadable = unpacked(bytes(content), coding, SMALL_BYTES), ""
                if coding and len(body) > SMALL_BYTES:
                    ROOM.take(MAX_RESPONSE_BYTES, end - self._clock())
                    body = unpacked(bytes(content), coding, MAX_RESPONSE_BYTES)
            except ValueError as error:
                body, unreadable = b"", str(error)
            if len(body) > MAX_RESPONSE_BYTES:
                raise TransportError(_TOO_LARGE, reason=Reason.TOO_LARGE, passes=is_error)
            return Reply(response.status_code, headers, body, response.url, unreadable=unreadable)


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: redirects are followed here; requests would read the whole body of one before anybody looks."""


def _failure(error: Exception, watchdog: Watchdog, *, is_late: bool) -> TransportError:
    """What it means that there is no reply."""
    if watchdog.refused:
        return TransportError("the target's address is not allowed", reason=Reason.REFUSED_TARGET)
    if watchdog.oversized:
        return TransportError(_TOO_LARGE, reason=Reason.TOO_LARGE)
    if isinstance(error, _UNSENDABLE) and not watchdog.answered:  # later the same errors are about what the reply says
        return TransportError("the request cannot be sent", reason=Reason.INVALID_REQUEST)
    if is_late:
        return TransportError("no whole reply in time", reason=Reason.DEADLINE)
    return TransportError(f"no reply: {type(error).__name__}")


def url_of(call: Call) -> str:
    """The URL of a call that was or could be sent, its query included."""
    prepared = requests.PreparedRequest()
    prepared.prepare_url(call.url, _query(call.query))
    return prepared.url or call.url


def _redirected(
    call: Call, reply: Reply, location: str, hide: Callable[[str], str], allowed: frozenset[Origin]
) -> Call:
    """The next call of a redirect (RFC 9110, 15.4): 303, and 301 or 302 of a POST, ask again with GET.

    A body goes to the same origin or an allowed one alone. Raises TransportError for what cannot be followed.
    """
    try:
        url = joined(reply.url, location)
        origin = origin_of(url)
    except TransportError as error:
        raise TransportError("a redirect leads to no http or https URL", reason=Reason.REDIRECTS) from error
    if reply.status == 303 or (reply.status in (301, 302) and call.method == "POST"):
        call = dataclasses.replace(call, method="GET", body=None)
    if origin != origin_of(reply.url):
        if call.body is not None and origin not in allowed:
            raise TransportError("a redirect would take a body to another origin", reason=Reason.REDIRECTS)
        url, call = hide(url), abroad(call)
    return dataclasses.replace(call, url=url, query={})


def _headers(sent: HTTPHeaderDict) -> dict[str, str]:
    """The headers by name in lower case: what stands twice in one (RFC 9110, 5.3), but equal lines are one.

    Proxies add what is there already, and `Location: /a, /a` would be another URL.
    """
    return {name.lower(): _as_utf8(", ".join(dict.fromkeys(sent.getlist(name)))) for name in sent}


def _as_utf8(header: str) -> str:
    """A header's text, which came as Latin-1, in UTF-8 where it is that (RFC 9110, 5.5 leaves it open)."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _query(query: dict[str, Json]) -> list[tuple[str, str]]:
    """Pairs of a query or a form: a list's values one by one, non-text values as JSON, null not at all."""
    return [
        (name, one if isinstance(one, str) else dumps(one))
        for name, value in query.items()
        for one in (value if isinstance(value, list) else [value])
        if one is not None
    ]


def _encoded(call: Call) -> tuple[dict[str, str], bytes | list[tuple[str, str]] | None]:
    """Headers and body as they go over the wire."""
    if call.body is None:
        return call.headers, None
    headers = {"Content-Type": call.content_type} | call.headers
    if isinstance(call.body, str) and call.content_type != "application/json":
        return headers, call.body.encode()
    if call.content_type == "application/x-www-form-urlencoded" and isinstance(call.body, dict):
        return headers, _query(call.body)
    return headers, dumps(call.body).encode()
