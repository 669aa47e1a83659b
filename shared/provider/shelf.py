"""What is gathered of a result in pages: where an attempt is among them, and what it keeps of them for the next."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from shared.bounds import fits
from shared.codec import Json
from shared.errors import DataUnavailable, StoreTooLarge, StoreUnavailable
from shared.logs import log
from shared.record import Pages, Record
from shared.sink import Kept, Sink
from shared.task import Task


@dataclass(slots=True)
class Cursor:
    """Where an attempt is: the URL of the page under way, how many came before, their bytes, marks of their URLs.

    No URL: the last page does not say where the next one is.
    """

    url: str = ""
    count: int = 0
    size: int = 0
    seen: set[str] = field(default_factory=set)


def mark(url: str) -> str:
    """What tells a URL from others, in little room."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Shelf:
    """The sink, for one generation of a task."""

    sink: Sink
    task: Task
    generation: int

    def put(self, value: Json) -> Kept | None:
        """What was kept of it; None where nothing could be, which the log says."""
        try:
            return self.sink.put(self.task, self.generation, value)
        except (StoreUnavailable, StoreTooLarge) as error:
            about = {"provider": self.task.provider, "task": self.task.name, "generation": self.generation}
            log.warning("pages not kept", extra=about | {"reason": str(error)})
            return None

    def get(self, kept: Kept) -> list[Json]:
        """The items that were kept. Raises DataUnavailable."""
        items: list[Json] = self.sink.get(self.task, self.generation, kept)
        return items


@dataclass(slots=True)
class Gathered:
    """Items of this attempt, after those that the record says are kept; without a shelf no more are."""

    shelf: Shelf | None
    record: Record
    items: list[Json] = field(default_factory=list)
    cursor: Cursor = field(init=False)
    taken: int = 0

    def __post_init__(self) -> None:
        pages = self.pages
        self.cursor = Cursor(pages.next, pages.count, pages.size, set(pages.starts))

    @property
    def pages(self) -> Pages:
        """Those of earlier attempts."""
        return self.record.pages or Pages()

    @property
    def is_stuck(self) -> bool:
        """Whether the page at which an earlier attempt stopped is the one under way."""
        return self.taken == 0 and self.pages.next != ""

    def take(self, items: Iterable[Json]) -> None:
        """The items of one more page."""
        self.items += items
        self.taken += 1

    def kept(self, record: Record) -> Record:
        """The record that goes on at the page under way: no error counts, where more pages are kept than ever before.

        Where nothing can be kept it is as it was. After a page that does not say how to go on it begins anew.
        """
        before, cursor = self.pages, self.cursor
        if not cursor.url:
            return anew(record)
        kept = self.shelf.put(self.items) if self.shelf and self.taken else None
        if kept is None:
            return record
        pages = Pages(
            next=cursor.url,
            kept=(*before.kept, kept),
            count=cursor.count,
            size=cursor.size,
            starts=(*before.starts, mark(cursor.url)),
            most=max(before.most, cursor.count),
        )
        if not fits(msgspec.to_builtins(pages), "pages"):
            return record
        return replace(record, pages=pages, errors=0 if cursor.count > before.most else record.errors)

    def whole(self, seconds_left: Callable[[], float]) -> list[Json] | None:
        """All items, in order; None when there is no time to read the earlier ones. Raises DataUnavailable."""
        items: list[Json] = []
        for one in self.pages.kept:
            if self.shelf is None:
                raise DataUnavailable("S3: SPILL_BUCKET names no bucket any more")
            if seconds_left() <= 0:
                return None
            items += self.shelf.get(one)
        return items + self.items


def anew(record: Record) -> Record:
    """The record that begins at the first page; how far it came once is remembered."""
    return replace(record, pages=Pages(most=record.pages.most) if record.pages else None)
