"""HTTP to providers, with an end: a deadline over everything, whatever the other side drips, and a cap on size."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from socket import SHUT_RDWR, socket
from typing import Any, Self

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from shared.codec import Json
from shared.errors import TransportError

MAX_RESPONSE_BYTES = 10_000_000
MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
USER_AGENT = "meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, ready to send. `json` is sent as the body unless None."""

    method: str
    url: str
    query: dict[str, str]
    headers: dict[str, str]
    json: Json


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, its body undecoded. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str


class Transport:
    """Sends calls from many threads over one pool of connections; keeps no cookie, reads no proxy or netrc setting."""

    def __init__(self, connections: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.max_redirects = MAX_REDIRECTS
        self._session.headers["User-Agent"] = USER_AGENT
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = _Adapter(pool_maxsize=connections)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def send(self, call: Call, seconds: float) -> Reply:
        """The answer, whole, within `seconds`. Raises TransportError: no connection, a broken one, late, too large."""
        if seconds <= 0:
            raise TransportError("no time is left for the request")
        with _Watchdog(seconds) as watchdog:
            try:
                return self._exchange(call, seconds)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                if watchdog.fired or isinstance(error, requests.Timeout):
                    raise TransportError(f"no whole answer within {seconds:g} s") from error
                raise TransportError(f"no answer: {type(error).__name__}") from error

    def _exchange(self, call: Call, seconds: float) -> Reply:
        with self._session.request(
            call.method,
            call.url,
            params=call.query or None,
            headers=call.headers,
            json=call.json,
            stream=True,
            timeout=(min(seconds, CONNECT_SECONDS), seconds),
        ) as response:
            body = bytearray()
            for chunk in response.iter_content(65536):
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    raise TransportError(f"the answer is larger than {MAX_RESPONSE_BYTES} bytes")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status_code, headers, bytes(body), response.url)


class _Watchdog:
    """Shuts the sockets of one exchange when its time is over: a read timeout alone starts anew with every byte."""

    _current = threading.local()
    _lock = threading.Lock()

    def __init__(self, seconds: float) -> None:
        self.fired = False
        self.connections: list[_Watched] = []
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._current.watchdog = self
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._current.watchdog = None

    @classmethod
    def hold(cls, connection: "_Watched") -> None:
        """Watch over a connection that this thread is about to use."""
        watchdog: _Watchdog | None = getattr(cls._current, "watchdog", None)
        with cls._lock:
            connection.watchdog = watchdog
            if watchdog:
                watchdog.connections.append(connection)
                if watchdog.fired:
                    connection.shut()

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            for connection in self.connections:
                if connection.watchdog is self:  # else it is back in the pool and serves another exchange
                    connection.shut()


class _Watched:
    """A connection that can be shut from another thread, in a TLS handshake too: it keeps a duplicate of its socket."""

    watchdog: _Watchdog | None = None
    duplicate: socket | None = None

    def shut(self) -> None:
        if self.duplicate:
            with suppress(OSError):
                self.duplicate.shutdown(SHUT_RDWR)

    def _new_conn(self) -> socket:
        made: socket = super()._new_conn()  # type: ignore[misc]
        self.duplicate = made.dup()
        _Watchdog.hold(self)
        return made

    def request(self, *arguments: Any, **options: Any) -> None:
        _Watchdog.hold(self)
        super().request(*arguments, **options)  # type: ignore[misc]

    def close(self) -> None:
        duplicate, self.duplicate = self.duplicate, None
        if duplicate:
            duplicate.close()
        super().close()  # type: ignore[misc]


class _WatchedHTTP(_Watched, HTTPConnection):
    pass


class _WatchedHTTPS(_Watched, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _WatchedHTTP


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedHTTPS


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
