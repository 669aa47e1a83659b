"""Operations: one HTTP request of a provider file, its placeholders not yet filled."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.expression import Expression
from shared.provider.language.placeholder import placeholders
from shared.provider.language.reader import Reader

Decoding: TypeAlias = Literal["auto", "json", "jsonl", "csv", "text", "url"]
ContentType: TypeAlias = Literal["application/json", "application/x-www-form-urlencoded", "text/plain", "text/csv"]

DEFAULT_TIMEOUT_SECONDS = 20.0
WITH_PLACEHOLDERS = ("url", "query", "headers", "body")
"""The parts of an operation that may hold placeholders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request, and how to read its reply. `outputs` are taken from the reply and kept."""

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

    def placed(self) -> list[tuple[str, Expression]]:
        """The expressions of its placeholders, each with the part that it stands in."""
        return [(part, one.expression) for part in WITH_PLACEHOLDERS for one in placeholders(getattr(self, part))]


def read_operation(reader: Reader) -> Operation:
    """An operation of a provider file; faults are noted in the reader."""
    operation = Operation(
        method=reader.one_of("method", "GET", "POST", "PUT", "PATCH", "DELETE", default="GET"),
        url=reader.get("url", str),
        query=reader.get("query", dict, {}),
        headers=reader.named_texts("headers"),
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
            name: reader.compiled(f"outputs.{name}", text) for name, text in reader.named_texts("outputs").items()
        },
        decode=reader.one_of("decode", "auto", "json", "jsonl", "csv", "text", "url", default="auto"),
        next=reader.expression("next") if "next" in reader else None,
        optional=reader.get("optional", bool, False),
        timeout_seconds=reader.number("timeout", DEFAULT_TIMEOUT_SECONDS, beyond=True),
    )
    reader.done()
    for part in WITH_PLACEHOLDERS:
        try:
            for one in placeholders(getattr(operation, part)):
                _refuse_unknown_name(reader, part, one.expression)
        except ProviderFileError as error:
            reader.fault(part, f"in ${{…}} {error}")
    return operation


def _refuse_unknown_name(reader: Reader, part: str, expression: Expression) -> None:
    """A placeholder that can never have a value: it reads a name that there is not."""
    for name, field in sorted(expression.references, key=str):
        if name not in ("input", "outputs", "task", "callback", "response"):
            reason = f"reads {name!r}; there are input (input.{name}?), outputs, task, callback and response"
            reader.fault(part, f"${{{expression.text}}} {reason}")
        elif name == "callback" and field not in ("url", None):
            reader.fault(part, f"${{{expression.text}}} reads {field!r} of the callback; it has url")
        elif name == "task" and field not in ("id", "name", "provider", None):
            reader.fault(part, f"${{{expression.text}}} reads {field!r} of the task; it has id, name and provider")
