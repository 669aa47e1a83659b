"""The DynamoDB item of a task: its attributes, how JSON values are written there, and how large each may be.

The attributes one by one: docs/architecture.md, "What stands in DynamoDB".
"""

import gzip
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from msgspec import Meta

from shared.codec import Json, canonical, dumps
from shared.errors import StoreTooLarge
from shared.task import Task

Status: TypeAlias = Literal["pending", "completed", "failed", "cancelled"]
Instant: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]  # to the end of the year 9999
Generation: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]  # the scripts count with doubles
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]

SHARDS = 16
GZIP_ABOVE_BYTES = 4096
MAX_VALUE_BYTES = {"input": 48_000, "outputs": 16_000, "partial": 64_000, "data": 256_000, "error": 8_000}
"""Bytes that each value may take in the item; together with names and keys below DynamoDB's 400 KB."""
MAX_TEXT_BYTES = 64_000_000  # of a JSON text that is stored compressed: no more is unpacked
LINK_ABOVE_BYTES = 5_000_000  # larger data is given as a link: partial data and the like need room in Lambda's 6 MB
MAX_NOTIFY = 10  # workflows that may wait for one task; while they do there is no `error`, whose room they take


@dataclass(frozen=True, slots=True)
class Spilled:
    """What stands for data that is in S3 (`spill.py`): not JSON, so it is never shown or sent by mistake.

    `digest` (SHA-256) and `size` are the object's, `in_answer` the bytes that the text takes of an answer.
    """

    key: str
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size: Count
    in_answer: Count
    stored_at: Instant

    @property
    def needs_link(self) -> bool:
        """Whether an answer cannot hold the data themselves."""
        return self.in_answer > LINK_ABOVE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is known of a task. Values that the item lacks are None; `data` may be Spilled."""

    task: Task
    status: Status
    generation: Generation
    created_at: Instant
    updated_at: Instant
    completed_at: Instant | None = None
    expires_at: Instant | None = None
    submitted_at: Instant | None = None
    resubmits: Count = 0
    input_digest: str
    group: str = ""
    begun_by: str = field(default="", compare=False)
    input: Json = None
    outputs: dict[str, Json] | None = None
    partial: Json = None
    data: Json = None
    error: Json = None
    notify: frozenset[str] = frozenset()

    @property
    def refused(self) -> bool:
        """Whether the provider refused it in the request's own attempt; such a failure is not a dead letter."""
        return bool(self.status == "failed" and self.error and self.error.get("refused"))

    def is_pending(self, generation: int) -> bool:
        """Whether it is this generation that is open."""
        return self.status == "pending" and self.generation == generation

    def expired(self, now: int) -> bool:
        """Whether the TTL has passed at `now` (ms); DynamoDB deletes such items only hours or days later."""
        return self.expires_at is not None and self.expires_at <= now // 1000


class Failure(TypedDict):
    """What stands in `error`."""

    reason: str
    error: Json
    refused: NotRequired[bool]


class Attempt(TypedDict):
    """What stands in `attempt`."""

    submitted_at: NotRequired[Instant]
    resubmits: NotRequired[Count]


def packed(value: Json, name: str) -> str | bytes:
    """A JSON value as attribute `name` holds it. Raises StoreTooLarge above its limit."""
    text, body = encoded(value)
    if len(body) > MAX_VALUE_BYTES[name]:
        raise StoreTooLarge(f"{name} takes {len(body)} bytes, the limit is {MAX_VALUE_BYTES[name]}")
    return text.decode() if body is text else body


def encoded(value: Json) -> tuple[bytes, bytes]:
    """A JSON value's text, and the same as it is stored: compressed above 4 KB. Raises StoreTooLarge."""
    text = dumps(value).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise StoreTooLarge(f"the text takes {len(text)} bytes, the limit is {MAX_TEXT_BYTES}")
    return text, text if len(text) <= GZIP_ABOVE_BYTES else gzip.compress(text, compresslevel=6, mtime=0)


def digest(value: Json) -> str:
    """What tells one input from another, whatever the order of its keys."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def open_key(task: Task) -> str:
    """The index key of an open item: one of 16 per provider, so that no partition is hot."""
    return f"{task.provider}#{zlib.crc32(task.name.encode()) % SHARDS}"


def open_keys(provider: str) -> list[str]:
    """Every index key of a provider."""
    return [f"{provider}#{shard}" for shard in range(SHARDS)]
