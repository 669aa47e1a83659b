"""A provider file, read: how to submit and poll, which answers mean what, the pace."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from shared.acceptor import Acceptor
from shared.backoff import Backoff
from shared.codec import Json
from shared.errors import ProviderFileError
from shared.template import Expression, expressions

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One HTTP request, its placeholders not yet filled. `outputs` are read from the answer and kept."""

    method: str
    url: str
    query: dict[str, Json]
    headers: dict[str, str]
    body: Json
    outputs: dict[str, Expression]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A whole provider file. Spans are seconds."""

    servers: tuple[str, ...]
    submit: Operation
    poll: Operation | None
    cancel: Operation | None
    acceptors: tuple[Acceptor, ...]
    data: Expression
    partial: Expression
    progress: Expression | None
    error: Expression
    backoff: Backoff
    max_wait_seconds: float
    max_errors: int
    max_resubmits: int
    not_found_grace_seconds: float
    freshness_seconds: float
    freshness_failed_seconds: float
    first_answer_seconds: float | None

    @classmethod
    def load(cls, path: Path, server: str | None = None) -> Self:
        """The file at `path`, its first server replaced by `server`. Raises ProviderFileError naming file and place."""
        try:
            rules = cls.from_json(json.loads(path.read_text(encoding="utf-8")), server)
        except (OSError, ValueError, ProviderFileError) as error:
            raise ProviderFileError(f"{path.name}: {error}") from error
        return rules

    @classmethod
    def from_json(cls, value: Json, server: str | None = None) -> Self:
        """The rules that a decoded file states. Raises ProviderFileError naming the place."""
        top = _Reader(value)
        top.skip("$schema", "description")
        servers = top.list_of("servers", str)
        status, data = top.get("status", str, "body.status"), top.get("data", str, "body")
        rules = cls(
            servers=(server or servers[0], *servers[1:]),
            submit=_operation(top.reader("submit")),
            poll=_operation(top.reader("poll")) if "poll" in top else None,
            cancel=_operation(top.reader("cancel")) if "cancel" in top else None,
            acceptors=tuple(_acceptor(reader, status) for reader in top.readers("acceptors")),
            data=top.expression("data", data),
            partial=top.expression("partial", top.get("partial", str, data)),
            progress=top.expression("progress", top.get("progress", str)) if "progress" in top else None,
            error=top.expression("error", top.get("error", str, "body.error")),
            **_polling(top.reader("polling", {})),
            freshness_seconds=top.number("freshness", 3600),
            freshness_failed_seconds=top.number("freshnessFailed", 60),
            first_answer_seconds=top.number("firstAnswer") if "firstAnswer" in top else None,
        )
        top.done()
        return rules


def _operation(reader: "_Reader") -> Operation:
    operation = Operation(
        method=reader.get("method", str, "GET"),
        url=reader.get("url", str),
        query=reader.get("query", dict, {}),
        headers=reader.get("headers", dict, {}),
        body=reader.get("body", object, None),
        outputs={
            name: reader.expression(f"outputs.{name}", text) for name, text in reader.get("outputs", dict, {}).items()
        },
    )
    reader.done()
    for template in (operation.url, operation.query, operation.headers, operation.body):
        for text in expressions(template):
            reader.expression(f"${{{text}}}", text)
    return operation


def _acceptor(reader: "_Reader", status: str) -> Acceptor:
    expected = reader.get("expected", object)
    argument = reader.get("argument", str, status)
    acceptor = Acceptor(
        state=reader.one_of("state", "pending", "success", "failure", "retry", "resubmit"),
        matcher=reader.one_of("matcher", "path", "pathAny", "pathAll", "status", default="path"),
        argument=reader.expression("argument", argument),
        expected=tuple(expected) if isinstance(expected, list) else (expected,),
        on=frozenset(reader.list_of("on", str, ["poll"])),
        message=reader.expression("message", reader.get("message", str)) if "message" in reader else None,
    )
    reader.done()
    return acceptor


def _polling(reader: "_Reader") -> dict[str, Any]:
    min_delay = reader.number("minDelay", 2)
    polling = {
        "backoff": Backoff(
            initial_delay=reader.number("initialDelay", min_delay),
            min_delay=min_delay,
            max_delay=reader.number("maxDelay", 120),
            multiplier=reader.number("multiplier", 2),
            jitter=reader.one_of("jitter", "full", "none", default="full"),
        ),
        "max_wait_seconds": reader.number("maxWaitTime", 86400),
        "max_errors": int(reader.number("maxErrors", 10)),
        "max_resubmits": int(reader.number("maxResubmits", 1)),
        "not_found_grace_seconds": reader.number("notFoundGrace", 30),
    }
    reader.done()
    return polling


_MISSING: Any = object()


@dataclass(slots=True)
class _Reader:
    """Reads one object of a provider file; every fault names its place, and an unread key is a fault."""

    value: Mapping[str, Json]
    place: str = "$"
    read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise ProviderFileError(f"{self.place}: must be an object")

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def skip(self, *keys: str) -> None:
        self.read.update(keys)

    def get(self, key: str, kind: type[T], default: Any = _MISSING) -> Any:
        self.read.add(key)
        if key not in self.value and default is not _MISSING:
            return default
        value = self.value.get(key, _MISSING)
        if value is _MISSING:
            raise ProviderFileError(f"{self.place}.{key}: is missing")
        if not isinstance(value, kind):
            raise ProviderFileError(f"{self.place}.{key}: must be of type {kind.__name__}")
        return value

    def number(self, key: str, default: Any = _MISSING) -> float:
        value = self.get(key, (int, float), default)  # type: ignore[arg-type]
        if isinstance(value, bool) or value < 0:
            raise ProviderFileError(f"{self.place}.{key}: must be a number from 0 on")
        return float(value)

    def one_of(self, key: str, *choices: str, default: Any = _MISSING) -> Any:
        value = self.get(key, str, default)
        if value not in choices:
            raise ProviderFileError(f"{self.place}.{key}: must be one of {', '.join(choices)}")
        return value

    def list_of(self, key: str, kind: type[T], default: Any = _MISSING) -> list[T]:
        values: list[T] = self.get(key, list, default)
        if not values or not all(isinstance(value, kind) for value in values):
            raise ProviderFileError(f"{self.place}.{key}: must be a list of {kind.__name__}, not empty")
        return values

    def reader(self, key: str, default: Any = _MISSING) -> "_Reader":
        return _Reader(self.get(key, dict, default), f"{self.place}.{key}")

    def readers(self, key: str) -> list["_Reader"]:
        return [_Reader(value, f"{self.place}.{key}[{i}]") for i, value in enumerate(self.list_of(key, dict))]

    def expression(self, key: str, text: str) -> Expression:
        try:
            return Expression(text)
        except ProviderFileError as error:
            raise ProviderFileError(f"{self.place}.{key}: {error}") from error

    def done(self) -> None:
        unknown = sorted(set(self.value) - self.read)
        if unknown:
            raise ProviderFileError(f"{self.place}.{unknown[0]}: is not supported")
