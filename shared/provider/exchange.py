"""Operations sent: placeholders filled, credentials attached where they may go, replies decoded without them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.codec import Json
from shared.errors import TransportError
from shared.provider.credentials.attachment import Attachment
from shared.provider.credentials.credentials import Attached, Credentials
from shared.provider.decode import decode
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.operation import Decoding, Operation
from shared.provider.language.placeholder import fill, fill_url, stays_on_the_server, text_of
from shared.provider.wire.message import MAX_RESPONSE_BYTES, Call, Reply
from shared.provider.wire.origin import Origin, joined, origin_of
from shared.reasons import Reason

if TYPE_CHECKING:
    from shared.provider.wire.transport import Transport

MAX_PAGES = 1000
BARE = Attachment(Attached())
"""What came by itself was attached nothing."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A reply as expressions see it, whether its body could not be decoded, and its size in bytes."""

    status: int
    url: str
    envelope: dict[str, Json]
    undecodable: bool
    size: int


class Exchange:
    """Sends the operations of one attempt, all within its time."""

    def __init__(
        self,
        servers: Sequence[str],
        transport: "Transport",
        credentials: Credentials,
        *,
        end: float = 0,
        unauthorized_at: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowed: frozenset[Origin] = frozenset(origin_of(url) for url in servers)
        self._servers = servers
        self._transport = transport
        self._credentials = credentials
        self._end = end
        self._unauthorized_at = unauthorized_at
        self._clock = clock

    def begin(self, seconds: float, unauthorized_at: int | None) -> "Exchange":
        """The exchange of one attempt: `seconds` from now, with a token younger than `unauthorized_at` (epoch ms)."""
        return Exchange(
            self._servers,
            self._transport,
            self._credentials,
            end=self._clock() + seconds,
            unauthorized_at=unauthorized_at,
            clock=self._clock,
        )

    @property
    def renewable(self) -> bool:
        """Whether a 401 may mean no more than that a token has expired."""
        return self._credentials.renewable

    def seconds_left(self) -> float:
        """What is left of the attempt's time."""
        return max(0.0, self._end - self._clock())

    def send(
        self, operation: Operation, context: dict[str, Json], acceptors: Sequence[Acceptor] = ()
    ) -> Decoded | None:
        """The reply to an operation; None when its URL has no value. A status that an acceptor names is not followed.

        Raises TransportError.
        """
        url = self._url(operation, context)
        if not url:
            return None
        if operation.decode == "url":
            return enveloped(Reply(200, {}, b"", url), operation.decode, context)
        call = Call(
            method=operation.method,
            url=url,
            query={name: value for name, value in fill(operation.query, context).items() if value is not None},
            headers=self._headers(operation, context),
            body=fill(operation.body, context),
            content_type=operation.content_type,
        )

        def stay(status: int) -> bool:
            return any(acceptor.names(status) for acceptor in acceptors)

        return self._decoded(call, operation, context, stay)

    def pages(
        self,
        operation: Operation,
        context: dict[str, Json],
        page: Decoded,
        keep: Callable[[Operation, Decoded], Decoded],
    ) -> Iterator[Decoded]:
        """This reply to the operation, then the replies behind its `next` links, together no larger than one may be.

        Each but the first goes through `keep`, which takes its outputs. Raises TransportError.
        """
        seen = {page.url}
        size = page.size
        headers = self._headers(operation, context)
        while True:
            yield page
            link = operation.next.of(page.envelope)
            if not isinstance(link, str) or not link:  # false, say: `has_more && next`
                return
            url = joined(page.url, link)
            if url in seen or len(seen) >= MAX_PAGES:
                raise TransportError("the pages do not end", reason=Reason.PAGES_WITHOUT_END)
            seen.add(url)
            call = Call(method="GET", url=url, query={}, headers=headers)
            page = keep(operation, self._decoded(call, operation, page.envelope, lambda _: False))
            size += page.size
            if size > MAX_RESPONSE_BYTES:
                raise TransportError("the pages together are too large", reason=Reason.TOO_LARGE)
            if page.undecodable and 200 <= page.status <= 299:
                raise TransportError("a page cannot be decoded", reason=Reason.UNDECODABLE)

    def _url(self, operation: Operation, context: dict[str, Json]) -> str | None:
        try:
            url = fill_url(operation.url, context)
        except ValueError as error:
            raise TransportError(str(error), reason=Reason.INVALID_REQUEST) from error
        if not url:
            return None
        server = self._servers[0]
        url = joined(server, url)
        if stays_on_the_server(operation.url) and origin_of(url) != origin_of(server):
            raise TransportError("a value leads to another host", reason=Reason.INVALID_REQUEST)
        return url

    def _headers(self, operation: Operation, context: dict[str, Json]) -> dict[str, str]:
        filled = fill(operation.headers, context).items()
        return {name: text_of(value) for name, value in filled if value is not None}

    def _decoded(
        self, call: Call, operation: Operation, context: dict[str, Json], stay: Callable[[int], bool]
    ) -> Decoded:
        """The reply; after a 401 with cached secrets, once more with secrets read anew, if those are others."""
        since = (self._unauthorized_at or 0) / 1000
        attached = self._attached(operation.timeout, fresh=since > 0, since=since)
        attachment = Attachment(attached)
        reply = self._sent(attachment, call, operation.timeout, stay)
        if reply.status == 401:
            self._credentials.refused(attached)
            fresh = attached if self.renewable else self._attached(operation.timeout, fresh=True)
            if fresh != attached:
                attachment = Attachment(fresh)
                reply = self._sent(attachment, call, operation.timeout, stay)
        return enveloped(reply, operation.decode, context, attachment)

    def _attached(self, timeout_seconds: float, *, fresh: bool, since: float = 0) -> Attached:
        seconds = min(timeout_seconds, self.seconds_left())
        return self._credentials.attach(seconds, fresh=fresh, since=since)

    def _sent(self, attachment: Attachment, call: Call, timeout_seconds: float, stay: Callable[[int], bool]) -> Reply:
        seconds = min(timeout_seconds, self.seconds_left())  # attaching may have taken some of it
        return self._transport.send(
            call, seconds, allowed=self.allowed, attach=attachment.to, hide=attachment.text, stay=stay
        )


def enveloped(reply: Reply, decoding: Decoding, context: dict[str, Json], attachment: Attachment = BARE) -> Decoded:
    """A reply, whether it was asked for or came by itself, as expressions see it: without what was attached."""
    try:
        body, undecodable = decode(reply, decoding), False
    except ValueError:
        body, undecodable = None, True
    if attachment.may_be_in(reply.body):
        body = attachment.value(body)
    url = attachment.text(reply.url)
    envelope = {
        "statusCode": reply.status,
        "headers": attachment.value(reply.headers),
        "body": body,
        "url": url or None,
        "input": context["input"],
        "outputs": context["outputs"],
    }
    return Decoded(reply.status, url, envelope, undecodable, len(reply.body))
