"""A provider file, read: how to submit and poll, which answers mean what, the pace, the credentials.

The language is described in docs/providers.md and by `providers/schema/config.schema.json`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from shared.acceptor import Acceptor
from shared.backoff import Backoff
from shared.codec import Json
from shared.errors import ProviderFileError
from shared.hint import Hint
from shared.reader import Reader
from shared.security import Scheme, read_scheme
from shared.template import Expression, expressions

Decoding: TypeAlias = Literal["auto", "json", "jsonl", "csv", "text", "url"]
ContentType: TypeAlias = Literal["application/json", "application/x-www-form-urlencoded", "text/plain", "text/csv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One HTTP request, its placeholders not yet filled. `outputs` are read from the answer and kept."""

    method: str
    url: str
    query: dict[str, Json]
    headers: dict[str, str]
    body: Json
    content_type: ContentType
    outputs: dict[str, Expression]
    decode: Decoding
    next: Expression | None
    optional: bool
    timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A whole provider file. Spans are seconds."""

    servers: tuple[str, ...]
    security: tuple[Scheme, ...]
    submit: tuple[Operation, ...]
    poll: Operation | None
    result: tuple[Operation, ...]
    cancel: Operation | None
    status: Expression
    acceptors: tuple[Acceptor, ...]
    data: Expression
    partial: Expression
    progress: Expression | None
    error: Expression
    backoff: Backoff
    hints: tuple[Hint, ...]
    max_wait_seconds: float
    max_errors: int
    max_resubmits: int
    not_found_grace_seconds: float
    freshness_seconds: float
    freshness_failed_seconds: float
    first_answer_seconds: float | None

    @property
    def asks_again(self) -> Operation:
        """The operation that asks after a job: poll, or the last submit operation where the file has no poll."""
        return self.poll or self.submit[-1]

    @classmethod
    def load(cls, path: Path, server: str | None = None) -> Self:
        """The file at `path`, its first server replaced by `server`. Raises ProviderFileError naming file and place."""
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")), server)
        except (OSError, ValueError, ProviderFileError) as error:
            raise ProviderFileError(f"{path.name}: {error}") from error

    @classmethod
    def from_json(cls, value: Json, server: str | None = None) -> Self:
        """The rules that a decoded file states. Raises ProviderFileError naming the place."""
        top = Reader(value)
        top.skip("$schema", "description")
        servers = top.list_of("servers", str)
        for i, url in enumerate(servers):
            if not url.startswith(("http://", "https://")):
                raise ProviderFileError(f"$.servers[{i}]: must begin with http:// or https://")
        status, data = top.get("status", str, "body.status"), top.get("data", str, "body")
        result = tuple(_operation(reader) for reader in top.one_or_many("result")) if "result" in top else ()
        rules = cls(
            servers=(server or servers[0], *servers[1:]),
            security=tuple(read_scheme(reader) for reader in top.readers("security", [])),
            submit=tuple(_operation(reader) for reader in top.one_or_many("submit")),
            poll=_operation(top.reader("poll")) if "poll" in top else None,
            result=result,
            cancel=_operation(top.reader("cancel")) if "cancel" in top else None,
            status=top.expression("status", status),
            acceptors=tuple(_acceptor(reader, status) for reader in top.readers("acceptors")),
            data=top.expression("data", data),
            partial=top.expression("partial", top.get("partial", str, "null" if result else data)),
            progress=top.expression("progress", top.get("progress", str)) if "progress" in top else None,
            error=top.expression("error", top.get("error", str, "body.error")),
            **_polling(top.reader("polling", {})),
            freshness_seconds=top.number("freshness", 3600),
            freshness_failed_seconds=top.number("freshnessFailed", 60),
            first_answer_seconds=top.number("firstAnswer") if "firstAnswer" in top else None,
        )
        top.done()
        _refuse_lost_answers(rules)
        return rules


def _operation(reader: Reader) -> Operation:
    operation = Operation(
        method=reader.one_of("method", "GET", "POST", "PUT", "PATCH", "DELETE", default="GET"),
        url=reader.get("url", str),
        query=reader.get("query", dict, {}),
        headers=reader.get("headers", dict, {}),
        body=reader.get("body", object, None),
        content_type=reader.one_of(
            "contentType",
            "application/json",
            "application/x-www-form-urlencoded",
            "text/plain",
            "text/csv",
            default="application/json",
        ),
        outputs={
            name: reader.expression(f"outputs.{name}", text) for name, text in reader.get("outputs", dict, {}).items()
        },
        decode=reader.one_of("decode", "auto", "json", "jsonl", "csv", "text", "url", default="auto"),
        next=reader.expression("next", reader.get("next", str)) if "next" in reader else None,
        optional=reader.get("optional", bool, False),
        timeout_seconds=reader.number("timeout", 20),
    )
    reader.done()
    for part in ("url", "query", "headers", "body"):
        for text in expressions(getattr(operation, part)):
            reader.expression(part, text)
            _refuse_unknown_name(reader, part, text)
    return operation


def _acceptor(reader: Reader, status: str) -> Acceptor:
    expected = reader.get("expected", object)
    acceptor = Acceptor(
        state=reader.one_of("state", "pending", "success", "failure", "retry", "resubmit"),
        matcher=reader.one_of("matcher", "path", "pathAny", "pathAll", "status", default="path"),
        argument=reader.expression("argument", reader.get("argument", str, status)),
        expected=tuple(expected) if isinstance(expected, list) else (expected,),
        on=frozenset(reader.list_of("on", str, ["poll"])),
        message=reader.expression("message", reader.get("message", str)) if "message" in reader else None,
    )
    unknown = acceptor.on - {"submit", "poll", "result"}
    if unknown:
        raise ProviderFileError(f"{reader.place}.on: {min(unknown)!r} is none of submit, poll, result")
    reader.done()
    return acceptor


def _polling(reader: Reader) -> dict[str, Any]:
    min_delay = reader.number("minDelay", 2)
    polling = {
        "backoff": Backoff(
            initial_delay=reader.number("initialDelay", min_delay),
            min_delay=min_delay,
            max_delay=reader.number("maxDelay", 120),
            multiplier=reader.number("multiplier", 2),
            jitter=reader.one_of("jitter", "full", "none", default="full"),
        ),
        "hints": tuple(_hint(one) for one in reader.readers("hints", [])),
        "max_wait_seconds": reader.number("maxWaitTime", 86400),
        "max_errors": int(reader.number("maxErrors", 10)),
        "max_resubmits": int(reader.number("maxResubmits", 1)),
        "not_found_grace_seconds": reader.number("notFoundGrace", 30),
    }
    reader.done()
    return polling


def _hint(reader: Reader) -> Hint:
    hint = Hint(
        argument=reader.expression("argument", reader.get("argument", str)),
        unit=reader.one_of("unit", "s", "ms", "epoch", "http-date", default="s"),
    )
    reader.done()
    return hint


def _refuse_unknown_name(reader: Reader, part: str, text: str) -> None:
    """A placeholder that can never have a value: it begins with a name that templates do not have."""
    name = text.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0].strip()
    if name.isidentifier() and "(" not in text and name not in ("input", "outputs", "task", "response", "callback"):
        raise ProviderFileError(f"{reader.place}.{part}: ${{{text}}} names none of input, outputs, task, response")


def _refuse_lost_answers(rules: Rules) -> None:
    """poll and cancel happen in another invocation than the answer that `response` would mean."""
    for name, operation in (("poll", rules.poll), ("cancel", rules.cancel)):
        for part in ("url", "query", "headers", "body") if operation else ():
            for text in expressions(getattr(operation, part)):
                if "response" in text.replace("[", ".").split("."):
                    raise ProviderFileError(f"$.{name}.{part}: ${{{text}}} uses response; keep it in outputs instead")
