"""The DynamoDB item of a task: its attributes, how JSON values stand in them, and how large each may be.

| attribute                          | type   | holds                                                            |
|------------------------------------|--------|------------------------------------------------------------------|
| `task_id`                          | S      | `<provider>/<name>`, the key                                     |
| `status`                           | S      | pending, completed, failed or cancelled                          |
| `generation`                       | N      | which run of the task this is                                    |
| `created_at` `updated_at` `completed_at` | N | epoch milliseconds                                              |
| `expires_at`                       | N      | DynamoDB's TTL, epoch seconds; on finished items only            |
| `attempt`                          | M      | `submitted_at` (ms), `resubmits`                                 |
| `open`                             | S      | only while pending: the key of the sparse index `open`           |
| `group`                            | S      | whose task it is, for fairness; empty if no request has said     |
| `notify`                           | SS     | only while pending: workflows to tell of the end, `<kind>:<token>` |
| `begun_by`                         | S      | which call began this generation: a repeated one knows its own   |
| `input_digest`                     | S      | SHA-256 of the input's canonical JSON                            |
| `input` `outputs` `partial` `data` `error` | S or B | JSON text, gzip above 4 KB: exact for every number and nesting |
| … large `data` instead             | M      | where in S3 it is, its digest and sizes, since when (`Spilled`)  |
"""

import gzip
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from shared.codec import OWN_DEPTH, Json, canonical, dumps, loads
from shared.errors import StoreTooLarge
from shared.task import Task

Status: TypeAlias = Literal["pending", "completed", "failed", "cancelled"]

SHARDS = 16
GZIP_ABOVE_BYTES = 4096
MAX_VALUE_BYTES = {"input": 48_000, "outputs": 16_000, "partial": 64_000, "data": 256_000, "error": 8_000}
"""Bytes that each value may take in the item; together with names and keys below DynamoDB's 400 KB."""
LINK_ABOVE_BYTES = 5_000_000
"""Data that takes more of an answer is given as a link; the rest of Lambda's 6 MB is for partial data and the like."""
MAX_NOTIFY = 10
"""How many workflows may wait for one task; while they do there is no `error`, whose room and more they take."""


@dataclass(frozen=True, slots=True)
class Spilled:
    """What stands for data that is in S3 (`spill.py`): no JSON, so it is never shown or sent by mistake.

    `digest` (SHA-256) and `size` are the object's, `in_answer` the bytes that the text takes of an answer.
    """

    key: str
    digest: str
    size: int
    in_answer: int
    stored_at: int

    @property
    def needs_link(self) -> bool:
        """Whether an answer cannot hold the data themselves."""
        return self.in_answer > LINK_ABOVE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is known of a task. Values that the item lacks are None; `data` may be Spilled."""

    task: Task
    status: Status
    generation: int
    created_at: int
    updated_at: int
    completed_at: int | None
    expires_at: int | None
    submitted_at: int | None
    resubmits: int
    input_digest: str
    group: str
    begun_by: str = field(default="", compare=False)
    input: Json
    outputs: dict[str, Json] | None
    partial: Json
    data: Json
    error: Json
    notify: frozenset[str] = frozenset()

    @property
    def refused(self) -> bool:
        """Whether the provider refused it in the request's own attempt; such a failure is no dead letter."""
        return bool(self.status == "failed" and self.error and self.error.get("refused"))

    def expired(self, now: int) -> bool:
        """Whether the TTL has passed at `now` (ms); DynamoDB deletes such items only hours or days later."""
        return self.expires_at is not None and self.expires_at <= now // 1000


def parse(attributes: Any) -> Item | None:
    """The item in DynamoDB's wire form, or None for none."""
    if not attributes:
        return None
    attempt = attributes.get("attempt", {"M": {}})["M"]
    return Item(
        task=Task.from_id(attributes["task_id"]["S"]),
        status=attributes["status"]["S"],
        generation=int(attributes["generation"]["N"]),
        created_at=int(attributes["created_at"]["N"]),
        updated_at=int(attributes["updated_at"]["N"]),
        completed_at=_integer(attributes.get("completed_at")),
        expires_at=_integer(attributes.get("expires_at")),
        submitted_at=_integer(attempt.get("submitted_at")),
        resubmits=_integer(attempt.get("resubmits")) or 0,
        input_digest=attributes["input_digest"]["S"],
        group=attributes.get("group", {"S": ""})["S"],
        notify=frozenset(attributes.get("notify", {"SS": []})["SS"]),
        begun_by=attributes.get("begun_by", {"S": ""})["S"],
        **{name: _unpacked(attributes.get(name)) for name in MAX_VALUE_BYTES},
    )


def packed(value: Json, name: str) -> dict[str, Any]:
    """A JSON value as attribute `name` holds it. Raises StoreTooLarge above its limit."""
    text, body = encoded(value)
    if len(body) > MAX_VALUE_BYTES[name]:
        raise StoreTooLarge(f"{name} takes {len(body)} bytes, the limit is {MAX_VALUE_BYTES[name]}")
    return attribute(text, body)


def encoded(value: Json) -> tuple[bytes, bytes]:
    """A JSON value's text, and the same as it is stored: compressed above 4 KB."""
    text = dumps(value).encode()
    return text, text if len(text) <= GZIP_ABOVE_BYTES else gzip.compress(text, compresslevel=6, mtime=0)


def attribute(text: bytes, body: bytes) -> dict[str, Any]:
    """What `encoded` gave, in DynamoDB's wire form."""
    return {"S": text.decode()} if body is text else {"B": body}


def pointer(spilled: Spilled) -> dict[str, Any]:
    """Where data is, in DynamoDB's wire form."""
    sizes = {name: number(getattr(spilled, name)) for name in ("size", "in_answer", "stored_at")}
    return {"M": {"key": {"S": spilled.key}, "digest": {"S": spilled.digest}, **sizes}}


def number(value: int) -> dict[str, str]:
    """A number in DynamoDB's wire form."""
    return {"N": str(value)}


def attempt_map(submitted_at: int | None, resubmits: int) -> dict[str, Any]:
    """The `attempt` attribute."""
    fields = {"resubmits": number(resubmits)}
    if submitted_at is not None:
        fields["submitted_at"] = number(submitted_at)
    return {"M": fields}


def digest(value: Json) -> str:
    """What tells one input from another, whatever the order of its keys."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def open_key(task: Task) -> str:
    """The index key of an open item: one of 16 per provider, so that no partition is hot."""
    return f"{task.provider}#{zlib.crc32(task.name.encode()) % SHARDS}"


def open_keys(provider: str) -> list[str]:
    """Every index key of a provider."""
    return [f"{provider}#{shard}" for shard in range(SHARDS)]


def _unpacked(attribute: Any) -> Json:
    if attribute is None:
        return None
    if "M" in attribute:
        fields: dict[str, Any] = {name: value.get("S") or int(value["N"]) for name, value in attribute["M"].items()}
        return Spilled(**fields)
    text = gzip.decompress(attribute["B"]) if "B" in attribute else attribute["S"]
    return loads(text, max_depth=OWN_DEPTH)


def _integer(attribute: Any) -> int | None:
    return None if attribute is None else int(attribute["N"])
