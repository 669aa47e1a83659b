"""Spill: data too large for an item goes to S3, and comes back exactly or not at all.

An object is written before the item that points to it, and its name says whose it is and what is in it:
`<provider>/<SHA-256 of the task's name>/<generation>/data-<SHA-256 of the object>`; `pages-…` are those of a result
whose end has not come yet, to which the task's record points (`sink.py`). So a late worker overwrites
nothing, a repeated write changes nothing, and an object that no item points to (its writer came late, or died) is
harmless. We delete only what is to be erased, in that task's folder alone: the bucket's lifecycle removes each object
SPILL_DAYS after it was written, when its item has expired.
"""

import base64
import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.codec import OWN_DEPTH, Json, carried, loads
from shared.errors import DataUnavailable, ItemUnreadable, StoreUnavailable
from shared.logs import facts, log
from shared.sink import Kept
from shared.store.item import LINK_ABOVE_BYTES, Item, Spilled, checked, compressed, packed
from shared.store.rows import inflated, read_whole
from shared.task import Task

LINK_SECONDS = 900  # how long a link leads to its object
CALL_SECONDS = 5.0  # the longest that a call to S3 takes


@dataclass(frozen=True, slots=True)
class Link:
    """What stands for data that an answer cannot hold; without `url` the data cannot be given now."""

    url: str | None = None
    expires_at: int | None = None


@dataclass(slots=True)
class Spill:
    """The bucket; without one every value stays in its item.

    `make` makes a client of S3, once, when first needed: most processes never do. `days` is the bucket's lifecycle.
    """

    make: Callable[[], Any] | None = None
    bucket: str = ""
    spill_bytes: int = 0
    days: int = 1
    made: Any = field(default=None, init=False)
    lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def keep(self, task: Task, generation: int, data: Json, now: int) -> Any:
        """Data as the item holds it: itself, or where in S3 it is by now. Raises StoreTooLarge, StoreUnavailable."""
        if not self.bucket:
            return packed(data, "data")
        text = checked(data, "data in S3")
        body, in_answer = compressed(text), carried(text.decode())
        if len(body) <= self.spill_bytes and in_answer <= LINK_ABOVE_BYTES:
            return text.decode() if body is text else body
        digest = hashlib.sha256(body).hexdigest()
        spilled = Spilled(_key(task, generation, f"data-{digest}"), digest, len(body), in_answer, now)
        self._write(spilled.key, body, digest)
        return asdict(spilled)

    def put(self, task: Task, generation: int, value: Json) -> Kept:
        """Keep a value for the generation's next attempt (`sink.py`). Raises StoreTooLarge, StoreUnavailable."""
        body = gzip.compress(checked(value, "data in S3"), 6, mtime=0)
        kept = Kept(hashlib.sha256(body).hexdigest(), len(body))
        self._write(_key(task, generation, f"pages-{kept.digest}"), body, kept.digest)
        return kept

    def get(self, task: Task, generation: int, kept: Kept) -> Json:
        """The value that was kept. Raises DataUnavailable."""
        return self._read(_key(task, generation, f"pages-{kept.digest}"), kept.digest, kept.size)

    def opened(self, item: Item, now: int) -> Item:
        """The item with its data, or a Link where an answer could not hold it. Raises ItemUnreadable.

        Data that cannot be read, or is not what was written, raises DataUnavailable where it is what the item is for;
        stored data of an earlier generation is left out. Such data is also absent once its object may be gone.
        """
        spilled = item.data
        if not isinstance(spilled, Spilled):
            return _whole(item)
        keeps_ms = (self.days - 1) * 86_400_000  # a day before the lifecycle, whose clock is another
        if self.bucket and item.status != "completed" and now - spilled.stored_at >= keeps_ms:
            return replace(item, data=None)
        try:
            is_link, key = spilled.needs_link, spilled.key
            data = self._link(spilled, now) if is_link else self._read(key, spilled.digest, spilled.size)
        except DataUnavailable as error:
            if item.status == "completed":
                raise
            log.error("data unavailable", extra=facts(item) | {"reason": str(error)})
            data = Link()
        return replace(item, data=data)

    def erase(self, task: Task, generation: int) -> None:
        """Delete every object of a task that is of this generation or an earlier one. Raises StoreUnavailable.

        One that is written later is of a worker that came late: no item points to it.
        """
        folder, start = _folder(task), dict[str, str]()
        while self.bucket:
            with _told_as(StoreUnavailable):
                page = self._client().list_objects_v2(Bucket=self.bucket, Prefix=folder, **start)
                keys = [one["Key"] for one in page.get("Contents", [])]
                old = [{"Key": key} for key in keys if not _is_later(key.removeprefix(folder), generation)]
                if old:
                    reply = self._client().delete_objects(Bucket=self.bucket, Delete={"Objects": old, "Quiet": True})
                    for error in reply.get("Errors", []):
                        raise StoreUnavailable(f"S3: {error['Code']}")
            if not page["IsTruncated"]:
                return
            start = {"StartAfter": keys[-1]}

    def _write(self, key: str, body: bytes, digest: str) -> None:
        with _told_as(StoreUnavailable):
            self._client().put_object(
                Bucket=self.bucket,
                Key=key,
                Body=body,
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=_checksum(digest),
                ContentType="application/json",
                ContentEncoding="gzip",
            )

    def _read(self, key: str, digest: str, size: int) -> Json:
        with _told_as(DataUnavailable):
            reply = self._client().get_object(Bucket=self.bucket, Key=key)
            with closing(reply["Body"]) as stream:
                body = stream.read() if reply["ContentLength"] == size else b""
        with suppress(ValueError):
            if hashlib.sha256(body).hexdigest() == digest:
                return loads(inflated(body), max_depth=OWN_DEPTH)
        raise DataUnavailable(f"S3: {key} is not what was written")

    def _link(self, spilled: Spilled, now: int) -> Link:
        """A link to the object, which is there and is what was written."""
        place = {"Bucket": self.bucket, "Key": spilled.key}
        with _told_as(DataUnavailable):
            found = self._client().head_object(**place, ChecksumMode="ENABLED")
            if (found["ContentLength"], found.get("ChecksumSHA256")) != (spilled.size, _checksum(spilled.digest)):
                raise DataUnavailable(f"S3: {spilled.key} is not what was written")
            url = self._client().generate_presigned_url("get_object", Params=place, ExpiresIn=LINK_SECONDS)
        return Link(url, now + LINK_SECONDS * 1000)

    def _client(self) -> Any:
        with self.lock:
            if self.make is None or not self.bucket:
                raise DataUnavailable("S3: SPILL_BUCKET names no bucket")
            self.made = self.made or self.make()
            return self.made


def _whole(item: Item) -> Item:
    """The item with its data; where they are damaged and not what it is for, without."""
    try:
        return read_whole(item)
    except ItemUnreadable as error:
        if item.status == "completed":
            raise
        log.error("item unreadable", extra=error.facts)
        return replace(item, data=None)


def _folder(task: Task) -> str:
    """Where all objects of a task are, and no other's."""
    return f"{task.provider}/{hashlib.sha256(task.name.encode()).hexdigest()}/"


def _is_later(name: str, generation: int) -> bool:
    """Whether an object, by its name within the folder, is of a later generation."""
    own = name.partition("/")[0]
    return own.isdecimal() and int(own) > generation


def _key(task: Task, generation: int, name: str) -> str:
    return f"{_folder(task)}{generation}/{name}"


def _checksum(digest: str) -> str:
    """The digest as S3 has it."""
    return base64.b64encode(bytes.fromhex(digest)).decode()


@contextmanager
def _told_as(ours: type[StoreUnavailable]) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise ours(f"S3: {error.response['Error']['Code']}") from error
    except BotoCoreError as error:
        raise ours(f"S3: {type(error).__name__}: {error}") from error
