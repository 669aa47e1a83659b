"""Operations sent: templates filled, credentials attached where they may go, answers decoded."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_plus

from shared.acceptor import Acceptor
from shared.codec import Json
from shared.credentials import Attached, Credentials
from shared.decode import decode
from shared.errors import TransportError
from shared.operation import Decoding, Operation
from shared.origin import Origin, joined, origin_of
from shared.template import fill, fill_url, text_of
from shared.transport import MAX_RESPONSE_BYTES, Call, Reply, Transport

MAX_PAGES = 1000


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: the envelope that expressions see, whether its body could not be decoded, and its size in bytes."""

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
        transport: Transport,
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
    ) -> Answered | None:
        """The answer to an operation; None when its URL has no value. A status that an acceptor names is not followed.

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

        return enveloped(self._sent(call, operation.timeout_seconds, stay), operation.decode, context)

    def pages(self, operation: Operation, context: dict[str, Json], page: Answered) -> Iterator[Answered]:
        """This answer to the operation, then the answers behind its `next` links, together no larger than one may be.

        Raises TransportError.
        """
        seen = {page.url}
        size = page.size
        headers = self._headers(operation, context)
        while True:
            yield page
            link = operation.next.of(page.envelope) if operation.next else None
            if link is None or link == "":
                return
            url = joined(page.url, link) if isinstance(link, str) else ""
            if not url or url in seen or len(seen) >= MAX_PAGES:
                raise TransportError("the pages do not end", reason="pages-without-end")
            seen.add(url)
            call = Call(method="GET", url=url, query={}, headers=headers)
            reply = self._sent(call, operation.timeout_seconds, lambda _: False)
            page = enveloped(reply, operation.decode, page.envelope)
            size += page.size
            if size > MAX_RESPONSE_BYTES:
                raise TransportError("the pages together are too large", reason="too-large")
            if page.undecodable and 200 <= page.status <= 299:
                raise TransportError("a page cannot be decoded", reason="undecodable")

    def _url(self, operation: Operation, context: dict[str, Json]) -> str | None:
        try:
            url = fill_url(operation.url, context)
        except ValueError as error:
            raise TransportError(str(error), reason="invalid-request") from error
        return joined(self._servers[0], url) if url else None

    def _headers(self, operation: Operation, context: dict[str, Json]) -> dict[str, str]:
        filled = fill(operation.headers, context).items()
        return {name: text_of(value) for name, value in filled if value is not None}

    def _sent(self, call: Call, timeout_seconds: float, stay: Callable[[int], bool]) -> Reply:
        """The reply; after a 401 with cached secrets, once more with secrets read anew, if those are others."""
        since = (self._unauthorized_at or 0) / 1000
        attached = self._attached(timeout_seconds, fresh=since > 0, since=since)
        reply = self._sent_with(attached, call, timeout_seconds, stay)
        if reply.status != 401:
            return reply
        self._credentials.refused(attached)
        if self.renewable:
            return reply
        fresh = self._attached(timeout_seconds, fresh=True)
        return reply if fresh == attached else self._sent_with(fresh, call, timeout_seconds, stay)

    def _attached(self, timeout_seconds: float, *, fresh: bool, since: float = 0) -> Attached:
        seconds = min(timeout_seconds, self.seconds_left())
        return self._credentials.attach(seconds, allowed=self.allowed, fresh=fresh, since=since)

    def _sent_with(self, attached: Attached, call: Call, timeout_seconds: float, stay: Callable[[int], bool]) -> Reply:
        seconds = min(timeout_seconds, self.seconds_left())  # attaching may have taken some of it
        return self._transport.send(call, seconds, allowed=self.allowed, attach=_attacher(attached), stay=stay)


def enveloped(reply: Reply, decoding: Decoding, context: dict[str, Json]) -> Answered:
    """A reply, whether it was asked for or came by itself, as expressions see it."""
    try:
        body, undecodable = decode(reply, decoding), False
    except ValueError:
        body, undecodable = None, True
    envelope = {
        "statusCode": reply.status,
        "headers": reply.headers,
        "body": body,
        "url": reply.url or None,
        "input": context["input"],
        "outputs": context["outputs"],
    }
    return Answered(reply.status, reply.url, envelope, undecodable, len(reply.body))


def _attacher(attached: Attached) -> Callable[[Call], Call]:
    def attach(call: Call) -> Call:
        return dataclasses.replace(
            call,
            url=_without(call.url, attached.query),  # a link of the provider's own may have the key already
            headers=call.headers | attached.headers,
            query=call.query | dict[str, Json](attached.query),
        )

    return attach


def _without(url: str, names: Collection[str]) -> str:
    """The URL, its query without these names."""
    base, mark, query = url.partition("?")
    if not names or not mark:
        return url
    kept = [pair for pair in query.split("&") if unquote_plus(pair.partition("=")[0]) not in names]
    return f"{base}?{'&'.join(kept)}" if kept else base
