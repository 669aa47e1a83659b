"""Plain values for an HTTP request, its reply and an event: the two shapes of API Gateway convert between them."""

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from local.sam_template import Route

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """As it arrived: target and parameters percent-encoded, headers in their order and case."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    client: str
    parameters: dict[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: float = field(default_factory=time.time)

    @property
    def path(self) -> str:
        """The path, still encoded."""
        return urlsplit(self.target).path or "/"

    @property
    def query(self) -> str:
        """The query string, still encoded."""
        return urlsplit(self.target).query

    def header(self, name: str) -> str:
        """The first value of a header, whatever its case; empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    def forwarded(self) -> list[tuple[str, str]]:
        """The headers that a function gets: without those of the connection, with those that API Gateway adds."""
        _host, _, port = self.header("Host").partition(":")
        return [
            *((name, value) for name, value in self.headers if name.lower() not in {"connection", "keep-alive"}),
            ("X-Amzn-Trace-Id", f"Root=1-{int(self.at):08x}-{self.id.replace('-', '')[:24]}"),
            ("X-Forwarded-For", self.client),
            ("X-Forwarded-Port", port or "80"),
            ("X-Forwarded-Proto", "http"),
        ]

    def time(self) -> str:
        """When it arrived, as both shapes write it."""
        return time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(self.at))


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back to the client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @classmethod
    def message(cls, status: int, text: str, *headers: tuple[str, str]) -> "Reply":
        """One of API Gateway's own answers."""
        body = json.dumps({"message": text}, separators=(",", ":")).encode()
        return cls(status, [("Content-Type", "application/json"), *headers], body)


class MalformedAnswerError(ValueError):
    """The function's answer does not have the form that API Gateway needs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A function's answer, checked: what both shapes have."""

    status: int
    headers: list[tuple[str, str]]
    body: str
    rest: dict[str, Any]

    @classmethod
    def parsed(cls, answer: object) -> "Answer":
        """The answer. Raises MalformedAnswerError where API Gateway would refuse it."""
        rest = answer if isinstance(answer, dict) else {}
        status, body, headers = rest.get("statusCode"), rest.get("body"), rest.get("headers")
        if not str(status).isdecimal():
            raise MalformedAnswerError("the answer is not an object with a numeric statusCode")
        if not isinstance(body, str | None) or not isinstance(headers, dict | None):
            raise MalformedAnswerError("the body is not a text or the headers are not an object")
        return cls(int(str(status)), [(name, str(value)) for name, value in (headers or {}).items()], body or "", rest)


class Shape(Protocol):
    """One kind of API: how a request becomes an event, and an answer or an error becomes a reply to the client."""

    no_route: Reply
    too_large: Reply
    failed: Reply
    timed_out: Reply

    @property
    def no_room(self) -> Reply:
        """Where the function has no room for a request."""

    def is_sample_of(self, event: Event, route: Route) -> bool:
        """Whether an event from events/ shows this route in this shape."""

    def event(self, sample: Event, route: Route, request: Request) -> Event:
        """The event for a request: the sample, with every part that depends on the request replaced."""

    def reply(self, answer: object) -> Reply:
        """The reply for a function's answer. Raises MalformedAnswerError where API Gateway would refuse it."""
