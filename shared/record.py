"""A task's record: what one generation has learned so far, kept in Redis beside its slot in the queue.

The scripts never look into it. The fields that must survive a loss of Redis (`outputs`, `partial`, `submitted_at`,
`resubmits`) stand in the DynamoDB item as well; `saved` tells whether the item has them.
"""

import hashlib
from contextlib import suppress
from typing import Annotated, Self, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from shared.codec import OWN_DEPTH, Json, canonical, dumps, is_flat, loads
from shared.errors import RecordError
from shared.sink import Kept

Instant: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]  # epoch ms, to the end of the year 9999
Generation: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]  # the scripts count with doubles
Count: TypeAlias = Annotated[int, Meta(ge=0, le=10**12)]  # the scripts write what they have counted with 14 digits

VERSION = 1


class Pages(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The pages of a result that are kept (`sink.py`), and the URL of the `next`; empty: begin at the first.

    `count` and `size` (bytes) are of their replies, `starts` marks the URLs at which attempts went on, `most` is the
    largest count ever.
    """

    next: str = ""
    kept: tuple[Kept, ...] = ()
    count: Count = 0
    size: Count = 0
    starts: tuple[str, ...] = ()
    most: Count = 0


class Record(
    Struct, frozen=True, kw_only=True, tag_field="version", tag=VERSION, omit_defaults=True, forbid_unknown_fields=True
):
    """One generation's progress. Instants are epoch milliseconds.

    `outputs` is None until the provider has taken the job, then what is needed to poll it. `submitted_at` is the first
    submit, `job_at` the one that the provider took, `asked_at` the last attempt. `polls` counts the job's pending
    replies, `errors` the errors since the last good reply, `attempts` every attempt. `unauthorized_at` is when the last
    reply was a 401 that a new token may mend. `news` counts what the item had been told by callbacks when it was last
    read. `result` is the JSON text of a result in hand that could not be stored, `pages` what is kept of one in pages.
    """

    generation: Generation
    created_at: Instant
    input: Json
    group: str = ""
    outputs: dict[str, Json] | None = None
    partial: Json = None
    progress: Json = None
    submitted_at: Instant | None = None
    job_at: Instant | None = None
    asked_at: Instant | None = None
    resubmits: Count = 0
    news: Count = 0
    polls: Count = 0
    errors: Count = 0
    attempts: Count = 0
    reason: str | None = None
    unauthorized_at: Instant | None = None
    saved: str | None = None
    confirmed_at: Instant = 0
    result: str | None = None
    pages: Pages | None = None

    @property
    def digest(self) -> str:
        """A digest of what the item must hold; differs from `saved` when the item is behind."""
        durable = canonical([self.outputs, self.partial, self.submitted_at, self.resubmits])
        return hashlib.sha256(durable.encode()).hexdigest()[:16]

    def confirmed(self, now: int) -> Self:
        """The record, knowing that the item holds just this at `now`."""
        return replace(self, saved=self.digest, confirmed_at=now)

    def to_text(self) -> str:
        """The record as Redis keeps it: without what has its default value."""
        return dumps(msgspec.to_builtins(self))

    @classmethod
    def from_text(cls, text: bytes | str | None) -> "Record":
        """The record that `to_text` wrote. Raises RecordError for anything else."""
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        with suppress(ValueError, RecursionError):  # as all of msgspec's errors are
            if text and text.startswith(_BEGINS) and is_flat(text):
                return _DECODER.decode(text)
        return cls._from_rare(text)

    @classmethod
    def _from_rare(cls, text: str | None) -> "Record":
        """The record in a text that is deep or holds a lone surrogate, which msgspec does not read, or the error."""
        try:
            fields_ = loads(text or "", max_depth=OWN_DEPTH)
            version = fields_["version"]
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise RecordError("the record is missing or is not one of ours") from error
        if isinstance(version, int) and version > VERSION:
            raise RecordError(f"the record has version {version}, this code knows {VERSION}", newer=True)
        if unknown := fields_.keys() - {"version", *cls.__struct_fields__}:
            raise RecordError(f"the record has other fields than its version says: {min(unknown)}")
        try:
            return msgspec.convert(fields_, cls)
        except msgspec.ValidationError as error:
            raise RecordError(f"the record's fields are of other types than its version says: {error}") from error


_BEGINS = f'{{"version":{VERSION},'  # the decoder alone would take a text without its version
_DECODER = msgspec.json.Decoder(Record)  # exact: integers of any length, floats, the last of two equal keys
