"""Servers on loopback that do as a test tells them, byte for byte, and an internet whose names lead to them."""

import io
import json
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.client import parse_headers
from typing import Any, Self, TypeAlias

import pytest

from shared.provider.wire import connection

GUARD_SECONDS = 60
"""How long a test waits for what must happen; no test passes because of it."""
PUBLIC = "93.184.216.34"
ELSEWHERE = "198.35.26.96"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came over the wire; `peer` tells one connection from another."""

    method: str
    target: str
    headers: Message
    body: bytes
    peer: int

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


class Peer:
    """The server's end of one connection."""

    def __init__(self, made: socket.socket, number: int, cut: threading.Event) -> None:
        self.socket = made
        self.number = number
        self._cut = cut
        self.reader: io.BufferedReader = made.makefile("rb")

    def request(self) -> Seen | None:
        """The next request; None when the client has gone."""
        line = self.reader.readline()
        if not line:
            return None
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers = parse_headers(self.reader)
        body = self.reader.read(int(headers.get("Content-Length") or 0))
        return Seen(method, target, headers, body, self.number)

    def send(self, text: bytes) -> None:
        self.socket.sendall(text)

    def drip(self, text: bytes = b"x") -> None:
        """Send this again and again, slowly, until the client shuts the connection: without that, for ever."""
        with suppress(OSError):
            while not self.gone(0.02):
                self.send(text)
        self._cut.set()

    def flood(self, text: bytes) -> None:
        """Send this again and again, as fast as it goes, until the client shuts the connection."""
        with suppress(OSError):
            while True:
                self.send(text)
        self._cut.set()

    def wait(self) -> None:
        """Say nothing until the client shuts the connection."""
        while not self.gone(GUARD_SECONDS):
            pass
        self._cut.set()

    def gone(self, seconds: float) -> bool:
        readable, _, _ = select.select([self.socket], [], [], seconds)
        try:
            return bool(readable) and self.socket.recv(65536) == b""
        except OSError:
            return True


Script: TypeAlias = Callable[[Peer], object]


class Wire:
    """A TCP server: each connection is played by `script`. `cut` is set when a client has shut one in mid-answer.

    With a context in `tls` it speaks TLS.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or Peer.wait
        self.tls: ssl.SSLContext | None = None
        self.cut = threading.Event()
        self.connections = 0
        self.faults: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        wire = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                wire._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for made in self._open:
                with suppress(OSError):
                    made.shutdown(socket.SHUT_RDWR)
        if exception[0] is None:
            assert self.faults == []

    def was_cut(self) -> bool:
        """Whether a client shut the connection while it was being answered."""
        return self.cut.wait(GUARD_SECONDS)

    def _serve(self, made: socket.socket) -> None:
        try:
            if self.tls:
                made = self.tls.wrap_socket(made, server_side=True)
            with self._lock:
                self.connections += 1
                self._open.add(made)
                peer = Peer(made, self.connections, self.cut)
            with peer.reader:
                self.script(peer)
        except OSError:
            pass  # the client has gone
        except Exception as error:  # noqa: BLE001 (the test ends with it)
            self.faults.append(error)
        finally:
            with self._lock:
                self._open.discard(made)
            made.close()


@dataclass(frozen=True, slots=True)
class Says:
    """An answer: a text or bytes go out as they are, anything else as JSON."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        body = self.body
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = dict(self.headers)
        if not any(name.lower() in ("content-length", "transfer-encoding") for name in headers):
            headers["Content-Length"] = str(len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status} Some\r\n{lines}\r\n".encode("latin-1") + body


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer that ends with the connection, wherever that is."""

    text: bytes = b""

    def raw(self) -> bytes:
        return self.text


Answering: TypeAlias = Callable[[Seen], Says | Cut | bytes]


class Site(Wire):
    """An HTTP server: `answer` tells what to say to a request, bytes as they are. `calls` is what came.

    Each answer takes so many seconds of the server's own clock.
    """

    def __init__(self, answer: Answering | Says | None = None, *, seconds: float = 0) -> None:
        super().__init__(self._play)
        self.seconds = seconds
        fixed = answer or Says()
        self.answer: Answering = (lambda _: fixed) if isinstance(fixed, Says) else fixed
        self.calls: list[Seen] = []

    @property
    def paths(self) -> list[str]:
        return [call.path for call in self.calls]

    def clock(self) -> float:
        return len(self.calls) * self.seconds

    def _play(self, peer: Peer) -> None:
        while seen := peer.request():
            self.calls.append(seen)
            said = self.answer(seen)
            peer.send(said if isinstance(said, bytes) else said.raw())
            if isinstance(said, Cut):
                peer.socket.shutdown(socket.SHUT_RDWR)
                return


def redirects(routes: Mapping[str, str | tuple[int, str]], last: Says | None = None) -> Callable[[Seen], Says]:
    """An answer for a site: paths that lead on (302, or the status given) and `last` for every other path."""

    def answer(seen: Seen) -> Says:
        route = routes.get(seen.path)
        if route is None:
            return last or Says(200, {"status": "completed"})
        status, location = (302, route) if isinstance(route, str) else route
        return Says(status, b"", {"Location": location})

    return answer


@dataclass
class Internet:
    """Names, the addresses (`1.2.3.4,5.6.7.8`) they resolve to and the servers there; what was asked and reached."""

    hosts: Mapping[str, tuple[str, Wire]]
    asked: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)

    def lookup(self, host: str, port: int, *_: object) -> list[Any]:
        host = host.lower().rstrip(".")
        self.asked.append(host)
        if host not in self.hosts:
            raise socket.gaierror(f"no such name: {host}")
        addresses = self.hosts[host][0].split(",")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    def connect(self, where: tuple[str, int], timeout: float | None = None, **options: Any) -> socket.socket:
        address = where[0]
        self.reached.append(address)
        for known, wire in self.hosts.values():
            if address in known.split(","):
                return socket.create_connection(("127.0.0.1", wire.port), timeout)
        raise OSError(f"nobody answers at {address}")


@contextmanager
def internet(hosts: Mapping[str, tuple[str, Wire]]) -> Iterator[Internet]:
    """Names that resolve, and addresses that lead to servers here, whatever the port."""
    made = Internet(hosts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "getaddrinfo", made.lookup)
        patch.setattr(connection, "create_connection", made.connect)
        yield made
