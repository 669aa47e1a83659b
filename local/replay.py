"""Plays a conversation with a provider against the real client: real sockets, scripted answers, every request checked.

A conversation (a vector) is a provider file, an input and steps; a step names the requests to expect, the answers to
give and the outcome. Names of hosts lead to a server here, and https is spoken without TLS.
"""

import base64
import json
import random
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from shared.codec import Json
from shared.connection import Adapter, WatchedConnection
from shared.credentials import Credentials
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider import Provider
from shared.record import Record
from shared.rules import Rules
from shared.security import ApiKey, Http, OAuth2
from shared.task import Task
from shared.transport import Transport

TLS_OPTIONS = (
    "key_file",
    "cert_file",
    "cert_reqs",
    "ca_certs",
    "ca_cert_dir",
    "ca_cert_data",
    "ssl_version",
    "key_password",
)


def replay(vector: Mapping[str, Any], seconds: float = 20) -> str | None:
    """Play one vector; None if all went as it says, else the first difference."""
    rules = Rules.from_json(vector["config"])
    with _Theatre(rules).playing() as theatre:
        provider = theatre.provider()
        start = vector["start_epoch"] * 1000
        record = Record(generation=1, created_at=start, input=vector["input"])
        for i, step in enumerate(vector["steps"]):
            theatre.expect(step["exchanges"])
            now = start + round(step["at"] * 1000)
            finding = provider.ask(Task("vector", "vector"), record, now=now, seconds=seconds)
            record = Record.from_text(finding.record.to_text())  # as Redis would have it
            difference = theatre.difference() or _compare(step["expect"], finding.outcome, record)
            if difference:
                return f"step {i} at {step['at']} s: {difference}"
    return None


def described(outcome: Outcome, record: Record) -> dict[str, Json]:
    """An outcome in the words of the vectors."""
    match outcome:
        case Pending(delay, partial, progress):
            return {"state": "in_progress", "delay": delay, "partial": partial, "progress": progress}
        case Completed(data):
            return {"state": "completed", "data": data}
        case Retry(delay, reason, action):
            return {"state": "retry", "delay": delay, "reason": reason, "action": action}
        case Failed(reason, error):
            return {"state": "failed", "reason": reason, "error": error, "partial": record.partial}


def _compare(expected: Mapping[str, Json], outcome: Outcome, record: Record) -> str | None:
    found = described(outcome, record)
    unsaid = {"reason": found.get("reason")} if found["state"] == "retry" else {}
    wanted = dict.fromkeys(found) | unsaid | dict(expected)
    return None if wanted == found else f"expected {json.dumps(wanted)}, found {json.dumps(found)}"


@dataclass
class _Theatre:
    """The scripted servers of one conversation."""

    rules: Rules
    script: list[dict[str, Any]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    tokens: int = 0
    ports: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def playing(self) -> Iterator["_Theatre"]:
        servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, scheme)) for scheme in ("http", "https")]
        try:
            for scheme, server in zip(("http", "https"), servers, strict=True):
                self.ports[scheme] = server.server_address[1]
                threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            yield self
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()

    def provider(self) -> Provider:
        transport = Transport(4, adapter=_adapter(self.ports))
        credentials = Credentials(self.rules.security, _secret, transport)
        return Provider(self.rules, transport, credentials, random.Random(1), key=lambda *_: "task-1")

    def expect(self, exchanges: list[dict[str, Any]]) -> None:
        self.script = list(exchanges)

    def difference(self) -> str | None:
        if not self.differences and self.script:
            request = self.script[0]["request"]
            return f"expected {request['method']} {request['url']}, which never came"
        return self.differences[0] if self.differences else None

    def answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """What the script answers to a request; what differs from the script is noted."""
        if any(isinstance(one, OAuth2) and one.token_url == url for one in self.rules.security) and method == "POST":
            self.tokens += 1
            return 200, {}, json.dumps({"access_token": f"token-{self.tokens}", "expires_in": 3600}).encode()
        if not self.script:
            self.differences.append(f"unexpected {method} {url}")
            return 500, {}, b""
        exchange = self.script.pop(0)
        self.differences += self._faults(exchange["request"], method, url, headers, body)
        response = exchange["response"]
        content = response.get("body")
        text = content if isinstance(content, str) else json.dumps(content)
        return response["statusCode"], response.get("headers", {}), text.encode()

    def _faults(
        self, request: dict[str, Any], method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Iterator[str]:
        bare = self._without_keys(url)
        if (method, bare) != (request["method"], request["url"]):
            yield f"expected {request['method']} {request['url']}, found {method} {bare}"
        if "auth" in request and self._authorised(url, headers) != request["auth"]:
            yield f"{method} {bare}: credentials {'missing' if request['auth'] else 'sent'}"
        for name, value in request.get("headers", {}).items():
            if headers.get(name) != value:
                yield f"{method} {bare}: header {name} is {headers.get(name)!r}, not {value!r}"
        if "body" in request and _body(body, headers) != request["body"]:
            yield f"{method} {bare}: body is {body.decode()}, not {json.dumps(request['body'])}"

    def _authorised(self, url: str, headers: Mapping[str, str]) -> bool:
        return bool(self.rules.security) and all(self._carries(scheme, url, headers) for scheme in self.rules.security)

    def _carries(self, scheme: object, url: str, headers: Mapping[str, str]) -> bool:
        sent = headers.get("Authorization")
        match scheme:
            case Http(scheme="bearer", secret=secret):
                return sent == f"Bearer {_secret(secret)}"
            case Http(secret=secret):
                return sent == "Basic " + base64.b64encode(_secret(secret).encode()).decode()
            case ApiKey(place="header", name=name, prefix=prefix, secret=secret):
                return headers.get(name) == prefix + _secret(secret)
            case ApiKey(name=name, prefix=prefix, secret=secret):
                return f"{name}={prefix + _secret(secret)}" in urlsplit(url).query.split("&")
        return sent == f"Bearer token-{self.tokens}"

    def _without_keys(self, url: str) -> str:
        names = {
            scheme.name for scheme in self.rules.security if isinstance(scheme, ApiKey) and scheme.place == "query"
        }
        base, _, query = url.partition("?")
        kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in names]
        return f"{base}?{'&'.join(kept)}" if kept else base


def _secret(reference: str, *, fresh: bool = False) -> str:  # noqa: ARG001 (a fresh one is the same)
    return "secret-of-" + reference.replace("/", "-").replace(":", "-").replace("#", "-")


def _body(body: bytes, headers: Mapping[str, str]) -> Json:
    if "json" in (headers.get("Content-Type") or ""):
        return json.loads(body)
    return body.decode()


def _handler(theatre: _Theatre, scheme: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = f"{scheme}://{self.headers['Host']}{self.path}"
            status, headers, content = theatre.answer(self.command, url, self.headers, body)  # type: ignore[arg-type]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.respond)
    return Handler


def _adapter(ports: Mapping[str, int]) -> type[Adapter]:
    """An adapter whose connections all lead to the servers here, and which speaks https without TLS."""

    def pool(scheme: str) -> type[HTTPConnectionPool]:
        class Connection(WatchedConnection, HTTPConnection):
            default_port: ClassVar[int] = {"http": 80, "https": 443}[scheme]  # type: ignore[misc]

            def dial(self, _host: str, _port: int, seconds: float | None) -> socket.socket:
                return socket.create_connection(("127.0.0.1", ports[scheme]), seconds)

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{name: options[name] for name in options if name not in TLS_OPTIONS})
                self.scheme = scheme

        return Pool

    class Stage(Adapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            self.poolmanager.pool_classes_by_scheme = {"http": pool("http"), "https": pool("https")}

    return Stage
