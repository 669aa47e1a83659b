"""The network of a replay: servers on this machine that answer for every host name; https is spoken without TLS."""

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.poolmanager import SSL_KEYWORDS
from urllib3.response import HTTPResponse

from shared.provider.wire.connection import Adapter, Watchdog, WatchedConnectionHTTP

SCHEMES = ("http", "https")
SOMEWHERE_PUBLIC = "8.8.8.8"
"""The address of every name: the client decides from it whether it may connect."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that arrived."""

    method: str
    url: str
    headers: Message
    body: bytes


Reply: TypeAlias = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""
Answer: TypeAlias = Callable[[Request], Reply | OSError]
"""What answers requests. For an error nothing is sent: it is raised where the client would read the answer."""
_Errors: TypeAlias = dict[tuple[str, int], OSError]
"""By the client's address, which tells connections apart."""


@contextmanager
def network(answer: Answer) -> Iterator[type[Adapter]]:
    """The adapter of a client all of whose requests are answered here."""
    errors: _Errors = {}
    servers = {scheme: _Server(("127.0.0.1", 0), _handler(scheme, answer, errors)) for scheme in SCHEMES}
    try:
        for server in servers.values():
            threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
        yield _adapter({scheme: server.server_port for scheme, server in servers.items()}, errors)
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _handler(scheme: str, answer: Answer, errors: _Errors) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body leave in one packet

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = f"{scheme}://{self.headers['Host']}{self.path}"
            reply = answer(Request(self.command, url, self.headers, body))
            if isinstance(reply, OSError):
                errors[self.client_address] = reply
                self.close_connection = True
                return
            status, headers, content = reply
            self.send_response_only(status)  # a Date of ours would be no part of the conversation
            for name, value in headers.items():
                self.send_header(name, value)
            bodiless = status in (204, 304)
            if not bodiless:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(b"" if bodiless else content)

        @override
        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: `answer` knows what was asked."""

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.respond)
    return Handler


def _adapter(ports: Mapping[str, int], errors: _Errors) -> type[Adapter]:
    def pool(scheme: str) -> type[HTTPConnectionPool]:
        class Connection(WatchedConnectionHTTP):
            default_port: ClassVar[int] = {"http": 80, "https": 443}[scheme]  # type: ignore[misc]

            @override
            def _new_conn(self) -> socket.socket:
                made = super()._new_conn()
                self.address = _address(self.host)
                return made

            @override
            def dial(self, host: str, port: int, seconds: float) -> socket.socket:
                Watchdog.current().check(host, port, [_address(host)])
                return socket.create_connection(("127.0.0.1", ports[scheme]), seconds)

            @override
            def getresponse(self) -> HTTPResponse:  # type: ignore[override]
                here = self.sock.getsockname()
                try:
                    return super().getresponse()
                except OSError as error:
                    raise errors.pop(here, error) from None

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{name: options[name] for name in options if name not in SSL_KEYWORDS})
                self.scheme = scheme

        return Pool

    class NetworkAdapter(Adapter):
        @override
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            self.poolmanager.pool_classes_by_scheme = {scheme: pool(scheme) for scheme in SCHEMES}

    return NetworkAdapter


def _address(host: str) -> str:
    """The address of a host: its own where it is one."""
    host = host.strip("[]")
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return SOMEWHERE_PUBLIC
