"""A provider whose answers are written down beforehand: real sockets, real requests, a list of what it was asked."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from shared.provider import Provider
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from tests.support.asking import provider
from tests.support.servers import Peer, Says, Seen, Wire

Json = Any

EXAMPLE: Json = {
    "servers": ["http://127.0.0.1:1"], "submit": {"url": "/example", "query": {"task-name": "${task.name}"}},
    "acceptors": [
        {"state": "pending", "expected": "async processing in progress"}, {"state": "success", "expected": "completed"},
        {"state": "retry", "matcher": "status", "expected": 300}, {"state": "failure", "expected": "refused"},
    ],
    "data": "body.data",
    "polling": {"initialDelay": 2, "minDelay": 2, "maxDelay": 30, "jitter": "none", "maxErrors": 5},
}  # fmt: skip
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
    return Said(status, json.dumps(body).encode(), tuple((n.replace("_", "-"), v) for n, v in headers.items()))


def pending(data: Json = None, **more: Json) -> Said:
    """Still at work, with partial data."""
    return says(200, {"data": data, "status": "async processing in progress", **more})


def completed(data: Json) -> Said:
    return says(200, {"data": data, "status": "completed"})


def refused(error: Json = "no such customer") -> Said:
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
    return provider(Rules.from_json(file, url), transport=Transport(8))


class Simulator(Wire):
    """Serves in threads of this process; a context manager."""

    def __init__(self) -> None:
        super().__init__(self._play)
        self.asked: list[Asked] = []
        self._scripts: dict[str, list[Said]] = {}

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

    def _play(self, peer: Peer) -> None:
        while seen := peer.request():
            said = self.take(_asked(seen))
            if said.before:
                said.before()
            if said.hangs_up:
                return
            length = {"Content-Length": "1000000"} if said.drips else {}
            peer.send(Says(said.status, said.body, dict(said.headers) | length).raw())
            if said.drips:
                peer.drip(b" ")


def _asked(seen: Seen) -> Asked:
    body = json.loads(seen.body) if seen.body else None
    name = dict(parse_qsl(seen.query)).get("task-name") or (body or {}).get("name", "")
    return Asked(seen.method, seen.path, name, {name.lower(): value for name, value in seen.headers.items()}, body)
