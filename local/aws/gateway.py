"""The local API Gateway: an HTTP server that calls functions with the events that API Gateway would make."""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from typing_extensions import override

from local import ROOT
from local.aws.function import Function, ThrottledError
from local.aws.http_api import HttpApi
from local.aws.message import Event, MalformedAnswerError, Reply, Request, Shape
from local.aws.rest_api import RestApi
from local.aws.sandbox import FunctionError
from local.sam_template import Route, routes

MAX_BODY_BYTES = 10 * 1024 * 1024
INTEGRATION_SECONDS = 29.0

REST: Shape = RestApi()
HTTP: Shape = HttpApi()


class Gateway:
    """Serves the template's routes on loopback in one shape; `port` 0 takes a free one. A context manager."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        shape: Shape = REST,
        port: int = 0,
        integration_seconds: float = INTEGRATION_SECONDS,
    ) -> None:
        self._functions = functions
        self._shape = shape
        self._seconds = integration_seconds
        self._samples = {route: sample(shape, route) for route in routes()}
        self._server = _Server(port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: Request) -> Reply:
        """What API Gateway would reply. It waits 29 seconds at most; the function itself goes on after that."""
        found = find_route(self._samples, request.method, request.path)
        if found is None:
            return self._shape.no_route
        route, parameters = found
        event = self._shape.event(self._samples[route], route, replace(request, parameters=parameters))
        call = self._functions[route.function].start(event)
        try:
            return self._shape.reply(call.result(self._seconds))
        except TimeoutError:
            return self._shape.timed_out
        except ThrottledError:
            return self._shape.no_room
        except (FunctionError, MalformedAnswerError):
            return self._shape.failed

    def too_large(self) -> Reply:
        """The reply to a body beyond 10 MB."""
        return self._shape.too_large

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def find_route(known: Iterable[Route], method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The route of a request with its path parameters, still encoded; fixed paths come before open ones."""
    for route in sorted(known, key=lambda route: route.path.count("{")):
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path))
        if route.method == method and (match := re.fullmatch(pattern, path)):
            return route, match.groupdict()
    return None


def sample(shape: Shape, route: Route) -> Event:
    """The event from events/ that shows this route. LookupError where there is none."""
    for path in sorted((ROOT / "events").glob("*.json")):
        event: Event = json.loads(path.read_text(encoding="utf-8"))
        if shape.is_sample_of(event, route):
            return event
    raise LookupError(f"events/ has no {type(shape).__name__} sample of {route.method} {route.path}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, gateway: Gateway) -> None:
        self.gateway = gateway
        super().__init__(("127.0.0.1", port), _Handler)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closes its connection is not an error."""


class _Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        self.close_connection = True
        size = int(self.headers.get("Content-Length") or 0)
        if size > MAX_BODY_BYTES:
            while size > 0 and (chunk := self.rfile.read(min(size, 65536))):
                size -= len(chunk)
            self._send(self.server.gateway.too_large())
            return
        headers = [(name, str(value)) for name, value in self.headers.items()]
        request = Request(self.command, self.path, headers, self.rfile.read(size), self.client_address[0])
        self._send(self.server.gateway.answer(request))

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method is asked for a route, whatever it is called; http.server looks for `do_METHOD`."""
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self.do_GET

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    @override
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: the functions log what they do."""
