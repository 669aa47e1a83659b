"""A task's record: what one generation has learned so far, kept in Redis beside its slot in the queue.

The scripts never look into it. The fields that must survive a loss of Redis (`outputs`, `partial`, `submitted_at`,
`resubmits`) stand in the DynamoDB item as well; `saved` tells whether the item has them.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from shared.codec import OWN_DEPTH, Json, canonical, dumps, loads
from shared.errors import RecordError

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One generation's progress. Instants are epoch milliseconds.

    `outputs` is None until the provider has taken the job, then what is needed to poll it. `submitted_at` is the first
    submit, `job_at` the one that the provider took, `asked_at` the last attempt. `polls` counts the job's pending
    replies, `errors` the errors since the last good reply, `attempts` every attempt. `unauthorized_at` is when the last
    reply was a 401 that a new token may mend. `news` counts what the item had been told by callbacks when it was last
    read.
    """

    generation: int
    created_at: int
    input: Json
    group: str = ""
    outputs: dict[str, Json] | None = None
    partial: Json = None
    progress: Json = None
    submitted_at: int | None = None
    job_at: int | None = None
    asked_at: int | None = None
    resubmits: int = 0
    news: int = 0
    polls: int = 0
    errors: int = 0
    attempts: int = 0
    reason: str | None = None
    unauthorized_at: int | None = None
    saved: str | None = None
    confirmed_at: int = 0
    result: str | None = None

    @property
    def digest(self) -> str:
        """A digest of what the item must hold; differs from `saved` when the item is behind."""
        durable = canonical([self.outputs, self.partial, self.submitted_at, self.resubmits])
        return hashlib.sha256(durable.encode()).hexdigest()[:16]

    def confirmed(self, now: int) -> Self:
        """The record, knowing that the item holds just this at `now`."""
        return replace(self, saved=self.digest, confirmed_at=now)

    def to_text(self) -> str:
        """The record as Redis keeps it."""
        return dumps({"version": VERSION} | {name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_text(cls, text: bytes | str | None) -> Self:
        """The record that `to_text` wrote. Raises RecordError for anything else."""
        try:
            fields = loads(text or "", max_depth=OWN_DEPTH)
            version = fields.pop("version")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise RecordError("the record is missing or is not one of ours") from error
        if isinstance(version, int) and version > VERSION:
            raise RecordError(f"the record has version {version}, this code knows {VERSION}", newer=True)
        if unknown := fields.keys() - set(cls.__slots__):
            raise RecordError(f"the record has other fields than its version says: {min(unknown)}")
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise RecordError(f"the record's fields are of other types than its version says: {error}") from error
