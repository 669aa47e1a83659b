"""Connections that end in time and lead where they may: what urllib3 and a read timeout alone do not see to."""

import http.client
import io
import math
import re
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException, HTTPResponse, RemoteDisconnected, parse_headers
from socket import AF_UNSPEC, SHUT_RDWR, SOCK_STREAM, fromfd, getaddrinfo, socket
from typing import Any, Self

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HeaderParsingError
from urllib3.util.connection import create_connection
from urllib3.util.response import assert_header_parsing

from shared.provider.wire.deadlines import DEADLINES, Deadline
from shared.provider.wire.origin import is_public

MAX_INTERIM = 16
MAX_WIRE_BYTES = 20_000_000  # what is read from the wire for one reply, at most, however it is framed
MAX_HEADERS = 1000
MAX_LINE_BYTES = 262_144
MAX_HEAD_BYTES = 500_000  # of all headers together, those of interim replies too
_LENGTH = re.compile("[0-9]{1,18}")

vars(http.client).update(_MAXHEADERS=MAX_HEADERS, _MAXLINE=MAX_LINE_BYTES)
"""It refuses more than 100 headers, and lines of more than 65,536 bytes; MAX_WIRE_BYTES bounds what we read anyway."""


class Watchdog:
    """Watches over one exchange of this thread.

    When its time is over the sockets are shut: a read timeout starts anew with every byte. Connections to addresses
    that are not public are refused, but to the (host, port) pairs in `allowed`. No more than MAX_WIRE_BYTES are read.
    `answered`: the request was sent, and what goes wrong from here on is the reply's fault.
    """

    _current = threading.local()

    def __init__(self, seconds: float, allowed: Collection[tuple[str, int]]) -> None:
        self.seconds = seconds
        self.allowed = allowed
        self.fired = self.refused = self.oversized = self.answered = False
        self._bytes_left = MAX_WIRE_BYTES
        self._sockets: list[socket] = []
        self._lock = threading.Lock()
        self._deadline: Deadline | None = None

    def __enter__(self) -> Self:
        Watchdog._current.watchdog = self
        self._deadline = DEADLINES.after(self.seconds, self._fire)
        return self

    def __exit__(self, *_: object) -> None:
        del Watchdog._current.watchdog
        if self._deadline:
            self._deadline.cancel()
        with self._lock:  # from here on the connections may serve another exchange
            for held in self._sockets:
                held.close()
            self._sockets = []

    @staticmethod
    def current() -> "Watchdog":
        """The watchdog over this thread's exchange; without one no connection is used."""
        watchdog: Watchdog = Watchdog._current.watchdog
        return watchdog

    def hold(self, used: socket) -> None:
        """Watch over a socket that this thread is about to use.

        A duplicate is kept: the socket itself changes hands, to TLS or, where the reply ends with the connection, to
        the reply.
        """
        with self._lock:
            held = fromfd(used.fileno(), used.family, used.type)
            self._sockets.append(held)
            if self.fired:
                _shut(held)

    def check(self, host: str, port: int, addresses: Collection[str]) -> None:
        """Raise OSError if one of a host's addresses may not be reached."""
        named = host.lower().rstrip(".").strip("[]")
        if (named, port) not in self.allowed and not all(is_public(address) for address in addresses):
            self.refused = True
            raise OSError("the address is neither public nor a server of the provider's file")

    def count(self, size: int) -> None:
        """Count bytes that were read. Raises OSError when they are too many."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            self.oversized = True
            raise OSError("more bytes than a reply may have")

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            for held in self._sockets:
                _shut(held)


def _shut(held: socket) -> None:
    with suppress(OSError):
        held.shutdown(SHUT_RDWR)


class _Metered(io.RawIOBase):
    """A socket's bytes, counted by the watchdog; `ended` when there are no more. `most`: of a head."""

    def __init__(self, raw: io.RawIOBase, watchdog: Watchdog) -> None:
        self._raw = raw
        self._watchdog = watchdog
        self.ended = False
        self.most: float = MAX_HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        size = self._raw.readinto(buffer)
        self._watchdog.count(size or 0)
        self.most -= size or 0
        if self.most < 0:
            raise HTTPException("headers that are too many together")
        self.ended = size == 0
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """A reply that is counted while it is read, even where the framing lies, and whose head is whole."""

    def begin(self) -> None:
        watchdog = Watchdog.current()
        watchdog.answered = True
        metered = _Metered(self.fp.detach(), watchdog)
        self.fp = io.BufferedReader(metered)
        super().begin()
        metered.most = math.inf
        if metered.ended:
            raise RemoteDisconnected("the connection ended within the headers")
        try:
            assert_header_parsing(self.headers)
        except HeaderParsingError:  # the lines after the broken one, which may say how long the body is, are lost
            raise HTTPException("broken headers") from None
        self.frame()

    def frame(self) -> None:
        """See to it that the end of the body is known (RFC 9112, 6): half a body must not pass for a whole one."""
        codings = {one.strip().lower() for one in ",".join(self.headers.get_all("Transfer-Encoding", [])).split(",")}
        codings -= {"", "identity"}
        if codings - {"chunked"} or (codings and not self.chunked):
            raise HTTPException("a transfer coding for which nobody asked")
        lengths = {one.strip() for one in ",".join(self.headers.get_all("Content-Length", [])).split(",")} - {""}
        if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise HTTPException("no one length of the body")
        if codings or not lengths:
            return
        [length] = lengths
        if self.length is None:  # the same twice, or a comma too many; urllib3 counts by the header
            del self.headers["Content-Length"]
            self.headers["Content-Length"] = length
            self.length, self.will_close = int(length), self._check_close()  # type: ignore[attr-defined]

    def _read_status(self) -> tuple[str, int, str]:
        """The final status: interim replies (1xx) are read over, else the next request would get this one's reply."""
        for _ in range(MAX_INTERIM):
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 100 <= status < 200:
                return version, status, reason
            parse_headers(self.fp)
        raise HTTPException("interim replies without end")


class WatchedConnectionHTTP(HTTPConnection):
    """A connection under a watchdog. `address` is where it leads, as long as it is open."""

    response_class = _Response
    address = ""

    def _new_conn(self) -> socket:
        """A socket to an address that was checked: the name is not resolved a second time."""
        made = self.dial(self._dns_host, self.port, self.timeout)  # type: ignore[arg-type]  # Transport sets one
        self.address = made.getpeername()[0]
        Watchdog.current().hold(made)
        return made

    def dial(self, host: str, port: int, seconds: float) -> socket:
        """Connect to a host within `seconds`, if its addresses may be reached."""
        end = time.monotonic() + seconds
        addresses = _resolve(host, port, seconds)
        Watchdog.current().check(host, port, addresses)
        return _connect(addresses, port, end, self.socket_options)

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock:  # from the pool: it may have been made for a provider that names this host
            Watchdog.current().check(self.host, self.port, [self.address])
            Watchdog.current().hold(self.sock)
        super().request(*arguments, **options)


def _resolve(host: str, port: int, seconds: float) -> list[str]:
    """The addresses of a host, within `seconds`: the resolver itself knows no deadline, so it runs beside us."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="resolve")
    try:
        found = pool.submit(getaddrinfo, host, port, AF_UNSPEC, SOCK_STREAM).result(timeout=seconds)
    finally:
        pool.shutdown(wait=False)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _connect(addresses: list[str], port: int, end: float, options: Any) -> socket:
    """The first connection that an address takes before `end` (monotonic); each gets its share of the time."""
    failure: OSError = OSError("the name has no address")
    for i, address in enumerate(addresses):
        share = (end - time.monotonic()) / (len(addresses) - i)
        try:
            return create_connection((address, port), max(share, 0.001), socket_options=options)
        except OSError as error:
            failure = error
    raise failure


class WatchedConnectionHTTPS(WatchedConnectionHTTP, HTTPSConnection):
    """The same under TLS."""


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = WatchedConnectionHTTP


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = WatchedConnectionHTTPS


class Adapter(HTTPAdapter):
    """requests' adapter over watched connections."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
