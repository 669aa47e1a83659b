"""Connections that end in time and lead where they may: what urllib3 and a read timeout alone do not see to."""

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from socket import AF_UNSPEC, SHUT_RDWR, SOCK_STREAM, getaddrinfo, socket
from typing import Any, Self

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.connection import create_connection

from shared.origin import is_public


class Watchdog:
    """Watches over one exchange of this thread.

    When its time is over the sockets are shut: a read timeout starts anew with every byte. Connections to addresses
    that are not public are refused, but to the (host, port) pairs in `allowed`.
    """

    _current = threading.local()
    _lock = threading.Lock()

    def __init__(self, seconds: float, allowed: Collection[tuple[str, int]]) -> None:
        self.seconds = seconds
        self.allowed = allowed
        self.fired = False
        self.refused = False
        self._connections: list[WatchedConnection] = []
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        Watchdog._current.watchdog = self
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        Watchdog._current.watchdog = None

    @staticmethod
    def current() -> "Watchdog | None":
        """The watchdog over this thread's exchange."""
        watchdog: Watchdog | None = getattr(Watchdog._current, "watchdog", None)
        return watchdog

    def hold(self, connection: "WatchedConnection") -> None:
        """Watch over a connection that this thread is about to use."""
        with self._lock:
            connection.watchdog = self
            self._connections.append(connection)
            if self.fired:
                connection.shut()

    def check(self, host: str, port: int, addresses: Collection[str]) -> None:
        """Raise OSError if one of a host's addresses may not be reached."""
        named = host.lower().rstrip(".").strip("[]")
        if (named, port) not in self.allowed and not all(is_public(address) for address in addresses):
            self.refused = True
            raise OSError("the address is not public and no server of the provider's file")

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            for connection in self._connections:
                if connection.watchdog is self:  # else it is back in the pool and serves another exchange
                    connection.shut()


class WatchedConnection:
    """A connection under a watchdog. It keeps a duplicate of its socket, to be shut in a TLS handshake too."""

    watchdog: Watchdog | None = None
    duplicate: socket | None = None
    address = ""

    def shut(self) -> None:
        if self.duplicate:
            with suppress(OSError):
                self.duplicate.shutdown(SHUT_RDWR)

    def _new_conn(self) -> socket:
        """A socket to an address that was checked: the name is not resolved a second time."""
        made = self.dial(self._dns_host, self.port, self.timeout)  # type: ignore[attr-defined]
        self.duplicate = made.dup()
        if watchdog := Watchdog.current():
            watchdog.hold(self)
        return made

    def dial(self, host: str, port: int, seconds: float | None) -> socket:
        """Connect to a host within `seconds`, if its addresses may be reached."""
        addresses = _resolve(host, port, seconds)
        if watchdog := Watchdog.current():
            watchdog.check(host, port, addresses)
        made = _connect(addresses, port, seconds, self.socket_options)  # type: ignore[attr-defined]
        self.address = made.getpeername()[0]
        return made

    def request(self, *arguments: Any, **options: Any) -> None:
        watchdog = Watchdog.current()
        if watchdog:
            if self.address:  # from the pool: it may have been made for a provider that names this host
                watchdog.check(self.host, self.port, [self.address])  # type: ignore[attr-defined]
            watchdog.hold(self)
        super().request(*arguments, **options)  # type: ignore[misc]

    def close(self) -> None:
        duplicate, self.duplicate, self.address = self.duplicate, None, ""
        if duplicate:
            duplicate.close()
        super().close()  # type: ignore[misc]


def _resolve(host: str, port: int, seconds: float | None) -> list[str]:
    """The addresses of a host, within `seconds`: the resolver itself knows no deadline, so it runs beside us."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="resolve")
    try:
        found = pool.submit(getaddrinfo, host, port, AF_UNSPEC, SOCK_STREAM).result(timeout=seconds)
    finally:
        pool.shutdown(wait=False)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _connect(addresses: list[str], port: int, seconds: float | None, options: Any) -> socket:
    """The first connection that an address takes; each gets its share of the time."""
    failure: OSError = OSError("the name has no address")
    for address in addresses:
        share = None if seconds is None else seconds / len(addresses)
        try:
            return create_connection((address, port), share, socket_options=options)
        except OSError as error:
            failure = error
    raise failure


class WatchedConnectionHTTP(WatchedConnection, HTTPConnection):
    pass


class WatchedConnectionHTTPS(WatchedConnection, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = WatchedConnectionHTTP


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = WatchedConnectionHTTPS


class Adapter(HTTPAdapter):
    """requests' adapter over watched connections."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
