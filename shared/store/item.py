"""The DynamoDB item of a task: its attributes, how JSON values are written there, and how large each may be.

The attributes one by one: docs/architecture.md, "What stands in DynamoDB".
"""

import gzip
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from msgspec import Meta

from shared.bounds import BOUNDS
from shared.codec import Json, canonical, carried, dumps
from shared.errors import StoreTooLarge
from shared.record import Count, Generation, Instant
from shared.task import Task

Status: TypeAlias = Literal["pending", "completed", "failed", "cancelled"]

SHARDS = 16
GZIP_ABOVE_BYTES = 4096
MAX_VALUE_BYTES = {name: BOUNDS[name].most for name in ("input", "outputs", "partial", "error")} | {"data": 256_000}
"""Bytes that each value may take in the item, data compressed; with all the rest they are below DynamoDB's 400 KB."""
MAX_TEXT_BYTES = 64_000_000  # of a JSON text that is stored compressed: no more is unpacked
LINK_ABOVE_BYTES = BOUNDS["data"].most  # larger data is given as a link: the rest needs room in Lambda's 6 MB
ZIPPED_ABOVE_BYTES = 65_536  # data whose text is longer stay compressed until they are shown
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


@dataclass(frozen=True, slots=True)
class Zipped:
    """Stored data as they stand in the item: many such items may be read at once, and few of them be answered.

    `size` is what their text takes, as gzip says (RFC 1952), in bytes.
    """

    body: bytes

    @property
    def size(self) -> int:
        return int.from_bytes(self.body[-4:], "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is known of a task. Values that the item lacks are None; `data` may be Spilled or Zipped.

    `turn` and `holder` are of the last holder that wrote, `finished` is the last turn whose attempt is known to have
    ended, `crashes` counts the turns in a row that ended their workers, `news` how often a callback told something,
    `told_at` is when the last such was signed, `replied_at` when an attempt last saved what it learned.
    `erased_at`: since then nothing is left of what the task held.
    """

    task: Task
    status: Status
    generation: Generation
    created_at: Instant
    updated_at: Instant
    completed_at: Instant | None = None
    expires_at: Instant | None = None
    erased_at: Instant | None = None
    submitted_at: Instant | None = None
    resubmits: Count = 0
    replied_at: Instant | None = None
    turn: Count = 0
    holder: str = ""
    finished: Count | None = None
    crashes: Count = 0
    news: Count = 0
    told_at: Instant | None = None
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
    def room_bytes(self) -> int:
        """What data that are still to be read take of an answer, at the least; 0 if they have been, or are a link."""
        match self.data:
            case Spilled(needs_link=False, in_answer=size) | Zipped(size=size):
                return size
        return 0

    @property
    def refused(self) -> bool:
        """Whether the provider refused it in the request's own attempt; such a failure is not a dead letter."""
        return bool(self.status == "failed" and self.error and self.error.get("refused"))

    def is_pending(self, generation: int) -> bool:
        """Whether it is this generation that is open."""
        return self.status == "pending" and self.generation == generation

    def is_news(self, told_at: int | None) -> bool:
        """Whether what was signed then (None: without an instant) is later than all that is known here."""
        return told_at is not None and told_at > max(self.told_at or 0, self.replied_at or 0)

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
    replied_at: NotRequired[Instant]


def packed(value: Json, name: str) -> str | bytes:
    """A JSON value as attribute `name` holds it. Raises StoreTooLarge above its limits."""
    text = checked(value, name)
    body = compressed(text)
    if len(body) > MAX_VALUE_BYTES[name]:
        raise StoreTooLarge(f"{name} takes {len(body)} bytes, the limit is {MAX_VALUE_BYTES[name]}")
    return text.decode() if body is text else body


def checked(value: Json, name: str) -> bytes:
    """A value's JSON text. Raises StoreTooLarge above the bound of that name, before any costly work."""
    text = dumps(value)
    size = carried(text) if name.startswith("data") else len(text.encode())
    if size > BOUNDS[name].most:
        raise StoreTooLarge(f"{name} takes {size} bytes uncompressed, the limit is {BOUNDS[name].most}")
    return text.encode()


def compressed(text: bytes) -> bytes:
    """A JSON text as it is stored: compressed above 4 KB, which makes every such text smaller."""
    return text if len(text) <= GZIP_ABOVE_BYTES else gzip.compress(text, compresslevel=6, mtime=0)


def digest(value: Json) -> str:
    """What tells one input from another, whatever the order of its keys."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def open_key(task: Task) -> str:
    """The index key of an open item: one of 16 per provider, so that no partition is hot."""
    return f"{task.provider}#{zlib.crc32(task.name.encode()) % SHARDS}"


def open_keys(provider: str) -> list[str]:
    """Every index key of a provider."""
    return [f"{provider}#{shard}" for shard in range(SHARDS)]
