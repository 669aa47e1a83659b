"""A provider whose answers are written down beforehand: real sockets, real requests, a list of what it was asked."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import override

from shared.errors import SecretUnavailable
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport

Json = Any

EXAMPLE: Json = {
    "servers": ["http://127.0.0.1:1"],
    "submit": {"url": "/example", "query": {"task-name": "${task.name}"}},
    "acceptors": [
        {"state": "pending", "expected": "async processing in progress"},
        {"state": "success", "expected": "completed"},
        {"state": "retry", "matcher": "status", "expected": 300},
        {"state": "failure", "expected": "refused"},
    ],
    "data": "body.data",
    "polling": {"initialDelay": 2, "minDelay": 2, "maxDelay": 30, "jitter": "none", "maxErrors": 5},
}
"""An API without jobs: the same request again and again."""

JOB: Json = EXAMPLE | {
    "submit": {
        "method": "POST",
        "url": "/jobs",
        "headers": {"Idempotency-Key": "${task.id}"},
        "body": {"name": "${task.name}", "input": "${input}"},
        "outputs": {"id": "body.id"},
    },
    "poll": {"url": "/jobs/${outputs.id}", "query": {"task-name": "${task.name}"}},
    "cancel": {"method": "DELETE", "url": "/jobs/${outputs.id}", "query": {"task-name": "${task.name}"}},
    "acceptors": [*EXAMPLE["acceptors"], {"state": "resubmit", "expected": "lost"}],
}
"""An API with a job of its own: submitted once, then asked after, and cancelled."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that arrived."""

    method: str
    path: str
    name: str
    headers: dict[str, str]
    body: Json


@dataclass(frozen=True, slots=True)
class Said:
    """One answer. `before` runs first, in the thread that serves the request."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    before: Callable[[], object] | None = None
    hangs_up: bool = False
    drips: bool = False

    def after(self, before: Callable[[], object]) -> "Said":
        """The same answer, once `before` has returned."""
        return replace(self, before=before)


def says(status: int, body: Json, **headers: str) -> Said:
    """That status with that JSON."""
    return Said(status, json.dumps(body).encode(), tuple((n.replace("_", "-"), v) for n, v in headers.items()))


def pending(data: Json = None, **more: Json) -> Said:
    """Still at work, with partial data."""
    return says(200, {"data": data, "status": "async processing in progress", **more})


def completed(data: Json) -> Said:
    """Done, with the whole data."""
    return says(200, {"data": data, "status": "completed"})


def refused(error: Json = "no such customer") -> Said:
    """Never."""
    return says(200, {"status": "refused", "error": error})


PARTIAL = {"city": "Ghent"}
WHOLE = {"city": "Ghent", "rating": 4.5}
PENDING = pending(PARTIAL, id="j-1")
DONE = completed(WHOLE)
BROKEN = Said(hangs_up=True)
"""The connection ends without an answer."""

DRIPPING = Said(drips=True)
"""An answer whose bytes arrive one by one, without end."""


def provider_at(url: str, file: Json = EXAMPLE) -> Provider:
    """A provider as the file says, its server at that URL."""
    rules, transport = Rules.from_json(file, url), Transport(8)
    return Provider(rules, transport, Credentials(rules.security, _no_secret, transport), Random(1))


def _no_secret(reference: str, *, fresh: bool = False) -> str:
    raise SecretUnavailable(reference)


class Simulator:
    """Serves in threads of this process; a context manager."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.closing = threading.Event()
        self._scripts: dict[str, list[Said]] = {}
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def say(self, *answers: Said, to: str = "") -> None:
        """Answer requests about the task `to` (else about any) with these in turn, the last again and again."""
        with self._lock:
            self._scripts[to] = list(answers)

    def calls(self, name: str | None = None) -> list[str]:
        """`METHOD /path` of what arrived, about one task or about all."""
        with self._lock:
            return [f"{one.method} {one.path}" for one in self.asked if name in (None, one.name)]

    def provider(self, file: Json = EXAMPLE, **changes: Json) -> Provider:
        """A provider at work on this server as the file says, with changes at its top level."""
        return provider_at(self.url, file | changes)

    def file(self, file: Json = EXAMPLE, **changes: Json) -> str:
        """The text of such a file."""
        return json.dumps(file | changes | {"servers": [self.url]})

    def take(self, asked: Asked) -> Said:
        """Note a request; what to say to it."""
        with self._lock:
            self.asked.append(asked)
            script = self._scripts[asked.name if asked.name in self._scripts else ""]
            return script.pop(0) if len(script) > 1 else script[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        super().__init__(("127.0.0.1", 0), _Handler)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def answer(self) -> None:
        said = self.server.simulator.take(self._asked())
        if said.before:
            said.before()
        if said.hangs_up:
            self.close_connection = True
            return
        self.send_response(said.status)
        for name, value in said.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "1000000" if said.drips else str(len(said.body)))
        self.end_headers()
        self.wfile.write(said.body)
        if said.drips:
            self._drip()

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 (http.server's names)

    def _asked(self) -> Asked:
        url = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw) if raw else None
        name = dict(parse_qsl(url.query)).get("task-name") or (body or {}).get("name", "")
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Asked(self.command, url.path, name, headers, body)

    def _drip(self) -> None:
        with suppress(OSError):
            while not self.server.simulator.closing.wait(0.01):
                self.wfile.write(b" ")
                self.wfile.flush()
        self.close_connection = True

    @override
    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet: `asked` tells."""
