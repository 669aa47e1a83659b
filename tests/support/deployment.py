"""The handlers as they are deployed, but for their neighbours: fakeredis, moto, and a provider that is written down."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handlers import enqueue, process, reconcile
from shared import wiring
from shared.queue import client
from tests.support.api_events import Context, Event, rest
from tests.support.backend import Backend
from tests.support.simulator import EXAMPLE, JOB, Simulator

FILES: dict[str, Any] = {
    "example": EXAMPLE, "job": JOB, "coin": EXAMPLE | {"polling": {"minDelay": 0, "multiplier": 1, "maxErrors": 1000}},
    "impatient": JOB | {"firstAnswer": 0.2}, "accepting": EXAMPLE | {"firstAnswer": 0},
}  # fmt: skip
"""Every provider that is deployed."""


class Answered:
    """What API Gateway makes of a handler's answer; everything in it has the type that API Gateway wants."""

    def __init__(self, raw: dict[str, Any]) -> None:
        several = raw.get("multiValueHeaders") or {}
        headers = {**raw.get("headers", {}), **{name: values[-1] for name, values in several.items()}}
        assert type(raw["statusCode"]) is int
        assert type(raw["body"]) is str
        assert raw["isBase64Encoded"] is False
        assert all(type(value) is str for value in headers.values())
        self.status: int = raw["statusCode"]
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body: dict[str, Any] = json.loads(raw["body"])


@dataclass(repr=False)
class Deployment(Backend):
    """Three functions, warm; `shape` makes the events of API Gateway."""

    simulator: Simulator
    shape: Callable[..., Event] = rest

    def enqueue(self, event: Event, seconds: float = 25) -> Answered:
        return Answered(enqueue.handler(event, Context(seconds)))  # type: ignore[arg-type]

    def call(self, method: str, target: str, *body_and_headers: Any, seconds: float = 25, **how: Any) -> Answered:
        """One HTTP request, its event made here."""
        return self.enqueue(self.shape(method, target, *body_and_headers, **how), seconds)

    def process(self, event: Any = None, seconds: float = 80) -> dict[str, dict[str, int]]:
        """One tick; what counted above 0."""
        return above_0(process.handler(event, Context(seconds)))  # type: ignore[arg-type]

    def reconcile(self, event: Any = None, seconds: float = 60) -> dict[str, dict[str, int]]:
        """One run of reconcile; what counted above 0."""
        return above_0(reconcile.handler(event, Context(seconds)))  # type: ignore[arg-type]


def deploy(patch: pytest.MonkeyPatch, folder: Path, backend: Backend, simulator: Simulator) -> Deployment:
    """Everything in place: settings, provider files, the clients of Redis and DynamoDB."""
    for name, file in FILES.items():
        (folder / f"{name}.json").write_text(simulator.file(file), encoding="utf-8")
    patch.setenv("PROVIDERS_DIR", str(folder))
    patch.setenv("IDLE_SECONDS", "0")  # a tick ends as soon as nothing is due
    patch.setattr(client, "client_of", lambda _: backend.redis_client)
    patch.setattr(wiring, "dynamodb", lambda: backend.dynamodb_client)
    patch.setattr(wiring, "clock", backend.clock)
    return Deployment(**vars(backend), simulator=simulator)


def above_0(tally: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    json.dumps(tally)  # as Lambda does with what a handler returns
    counted = {name: {word: count for word, count in counts.items() if count} for name, counts in tally.items()}
    return {name: counts for name, counts in counted.items() if counts}
