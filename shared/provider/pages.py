"""The pages of one result: asked for one after the other, and kept where an attempt ends amid them."""

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Protocol

from shared.codec import Json
from shared.errors import DataUnavailable, TransportError
from shared.outcome import Completed
from shared.provider.delays import Delays, Finding
from shared.provider.envelope import Decoded
from shared.provider.exchange import Exchange
from shared.provider.language.acceptor import Acceptor, Stage, Verdict
from shared.provider.language.hint import says_when
from shared.provider.language.operation import Operation
from shared.provider.language.rules import Rules
from shared.provider.links import followed
from shared.provider.patience import EXPIRED
from shared.provider.shelf import Cursor, Gathered, Shelf, anew, mark
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.reasons import Reason
from shared.record import Record

MAX_PAGES = 1000
MAX_WAITS = 5  # for one page, in one attempt
LEAST_WAIT_SECONDS = 1.0  # some say 0 as long as they are busy


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
        if not error.is_hopeless:
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
                passes = not 200 <= page.status <= 299
                raise TransportError("the pages together are too large", reason=Reason.TOO_LARGE, passes=passes)
            if page.says_nothing:
                raise TransportError(f"a page: {page.undecodable}", reason=Reason.UNDECODABLE)
        if (yield page):
            page = None
            continue
        cursor.url, cursor.count, cursor.size = "", cursor.count + 1, cursor.size + page.size
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
    page, waits = next(asked), 0
    with suppress(StopIteration):
        while True:
            verdict, acceptor = attempt.judged(page, "result")
            if verdict == "retry" and waits < MAX_WAITS and _waited(attempt, page):
                page, waits = asked.send(True), waits + 1
                continue
            renews = page.refused and acceptor is None  # the next attempt comes with another token
            if verdict == "failure" and acceptor is None and found.is_stuck and not renews:  # its link may have expired
                attempt.record = anew(attempt.record)
                return attempt.retry(Reason.LOST_PAGES, page)
            is_gone = acceptor is None and (page.foreign or page.status in EXPIRED)
            if verdict in ("retry", "pending") or renews or is_gone:
                attempt.record = found.kept(attempt.record)
            if verdict != "success":
                return attempt.concluded(verdict, acceptor, page, "result")
            data = attempt.rules.data.of(page.envelope)
            if page.undecodable or not attempt.rules.satisfied(page.envelope, data):
                attempt.record = found.kept(attempt.record)
                return attempt.completed(page, data)
            if not isinstance(data, list | None):
                attempt.record = found.kept(attempt.record)
                return attempt.retry(Reason.NOT_A_LIST, page)
            found.take(data or [])
            page, waits = asked.send(False), 0
    return None


def _waited(attempt: Asking, page: Decoded) -> bool:
    """Whether a page asked for a wait that the attempt has time for, which is over now."""
    hint = attempt.rules.polling.hinted(page.envelope, attempt.now)
    is_told = page.status in (429, 503) or (not page.foreign and says_when(page.envelope, attempt.now / 1000))
    wait = max(LEAST_WAIT_SECONDS, hint or 0)
    if not is_told or hint is None or wait >= attempt.exchange.seconds_left():
        return False
    attempt.exchange.sleep(wait)
    return True


def _next(operation: Operation, page: Decoded) -> Json:
    """What the file finds as the next link. Raises TransportError."""
    try:
        return operation.next.of(page.envelope)
    except ValueError as error:
        is_given = any(root != "input" for root, _ in operation.next.references)
        raise TransportError(str(error), reason=Reason.INVALID_REQUEST, passes=is_given) from error
