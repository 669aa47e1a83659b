"""The pages of one result: asked for one after the other, and kept where an attempt ends amid them."""

import hashlib
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec.structs import replace

from shared.bounds import fits
from shared.codec import Json
from shared.errors import DataUnavailable, StoreTooLarge, StoreUnavailable, TransportError
from shared.logs import log
from shared.outcome import Completed, Failed
from shared.provider.delays import Delays, Finding
from shared.provider.envelope import Decoded
from shared.provider.exchange import Exchange
from shared.provider.language.acceptor import Acceptor, Stage, Verdict
from shared.provider.language.operation import Operation
from shared.provider.language.rules import Rules
from shared.provider.links import followed
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.reasons import Reason, Trait
from shared.record import Pages, Record
from shared.sink import Kept, Sink
from shared.task import Task

MAX_PAGES = 1000


@dataclass(slots=True)
class Cursor:
    """Where an attempt is: the URL of the page under way, how many came before, their bytes, marks of their URLs."""

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

        Where nothing can be kept it is as it was.
        """
        before, cursor = self.pages, self.cursor
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


class Asking(Protocol):
    """The attempt, as far as its pages are concerned."""

    rules: Rules
    delays: Delays
    exchange: Exchange
    record: Record
    now: int
    shelf: Shelf | None

    def keep(self, reply: Decoded) -> None: ...
    def judged(self, reply: Decoded, stage: Stage) -> tuple[Verdict, Acceptor | None]: ...
    def concluded(self, verdict: Verdict, acceptor: Acceptor | None, reply: Decoded, stage: Stage) -> Finding: ...
    def completed(self, reply: Decoded, data: Json) -> Finding: ...
    def retry(self, reason: Reason, reply: Decoded) -> Finding: ...
    def broken(self, error: TransportError) -> Finding: ...


def gathered(attempt: Asking, operation: Operation, context: dict[str, Json], reply: Decoded | None) -> Finding:
    """The data of all pages, joined: from this reply on, or from the page at which an earlier attempt stopped."""
    found = Gathered(attempt.shelf, attempt.record)
    try:
        if ended := _gather(
            attempt, found, pages(attempt.exchange, operation, context, reply, attempt.keep, found.cursor)
        ):
            return ended
    except TransportError as error:
        if Trait.HOPELESS not in error.reason.traits:
            before, attempt.record = attempt.record, found.kept(attempt.record)
            if error.reason is Reason.DEADLINE and attempt.record.pages is not before.pages:
                return attempt.delays.retry(attempt.record, attempt.now, Reason.MORE_PAGES)
        return attempt.broken(error)
    try:
        data = found.whole(attempt.exchange.seconds_left)
        if data is None:
            return attempt.delays.retry(attempt.record, attempt.now, Reason.MORE_PAGES)
        return Finding(Completed(data), attempt.record)
    except DataUnavailable:
        attempt.record = anew(attempt.record)
        return attempt.delays.retry(attempt.record, attempt.now, Reason.LOST_PAGES)


def pages(
    exchange: Exchange,
    operation: Operation,
    context: dict[str, Json],
    page: Decoded | None,
    keep: Callable[[Decoded], None],
    cursor: Cursor,
) -> Generator[Decoded, bool | None]:
    """This reply to the operation, then the replies behind its `next` links, together no larger than one may be.

    Without a reply it begins at the cursor, which goes along. What is sent true is asked for again. Each but the first
    reply goes to `keep`, whatever it is. Raises TransportError.
    """
    before = context
    if page:
        cursor.url, cursor.seen = page.url, {mark(page.url)}
    while True:
        if page is None:
            page = exchange.page(cursor.url, operation, context, before)
            keep(page)
            if cursor.size + page.size > MAX_RESPONSE_BYTES:
                raise TransportError("the pages together are too large", reason=Reason.TOO_LARGE)
            if page.says_nothing:
                raise TransportError(f"a page: {page.undecodable}", reason=Reason.UNDECODABLE)
        if (yield page):
            page = None
            continue
        cursor.count, cursor.size = cursor.count + 1, cursor.size + page.size
        link = _next(operation, page)
        if not isinstance(link, str) or not link:  # false, say: `has_more && next`
            return
        url = followed(page.url, link)
        if mark(url) in cursor.seen or cursor.count >= MAX_PAGES:
            raise TransportError("the pages do not end", reason=Reason.PAGES_WITHOUT_END)
        cursor.seen.add(mark(url))
        cursor.url, before, page = url, page.envelope, None


def _gather(attempt: Asking, found: Gathered, asked: Generator[Decoded, bool | None]) -> Finding | None:
    """Take one page after the other; what it means that one is no page. Raises TransportError."""
    page = next(asked)
    with suppress(StopIteration):
        while True:
            verdict, acceptor = attempt.judged(page, "result")
            if verdict == "retry" and _waited(attempt, page):
                page = asked.send(True)
                continue
            renews = page.refused and acceptor is None  # the next attempt comes with another token
            if verdict == "failure" and acceptor is None and found.is_stuck and not renews:  # its link may have expired
                attempt.record = anew(attempt.record)
                return attempt.retry(Reason.LOST_PAGES, page)
            if verdict in ("retry", "pending") or renews:
                attempt.record = found.kept(attempt.record)
            if verdict != "success":
                return attempt.concluded(verdict, acceptor, page, "result")
            data = attempt.rules.data.of(page.envelope)
            if page.undecodable or not attempt.rules.satisfied(page.envelope, data):
                attempt.record = found.kept(attempt.record)
                return attempt.completed(page, data)
            if not isinstance(data, list | None):
                return Finding(Failed(Reason.NOT_A_LIST, "a page's data is not a list"), attempt.record)
            found.take(data or [])
            page = asked.send(False)
    return None


def _waited(attempt: Asking, page: Decoded) -> bool:
    """Whether a page asked for a wait that the attempt has time for, which is over now."""
    hint = attempt.rules.polling.hinted(page.envelope, attempt.now)
    if page.status not in (429, 503) or hint is None or hint >= attempt.exchange.seconds_left():
        return False
    attempt.exchange.sleep(hint)
    return True


def _next(operation: Operation, page: Decoded) -> Json:
    """What the file finds as the next link. Raises TransportError."""
    try:
        return operation.next.of(page.envelope)
    except ValueError as error:
        raise TransportError(str(error), reason=Reason.INVALID_REQUEST) from error
