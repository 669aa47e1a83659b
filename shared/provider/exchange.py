"""Operations sent: placeholders filled, credentials attached where they may go, replies decoded without them."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from shared.codec import Json
from shared.errors import TransportError
from shared.provider.credentials.attachment import Attachment
from shared.provider.credentials.credentials import Credentials
from shared.provider.envelope import Decoded, enveloped
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.expression import Expression
from shared.provider.language.operation import WITH_PLACEHOLDERS, Operation
from shared.provider.language.placeholder import (
    fill,
    fill_url,
    names_its_host,
    placeholders,
    stays_on_the_server,
    text_of,
    with_stand_ins,
)
from shared.provider.links import REPLIED, based, followed, is_foreign, is_link
from shared.provider.weight import weight
from shared.provider.wire.link import abroad
from shared.provider.wire.message import Call, Reply, are_headers
from shared.provider.wire.origin import Origin, joined, origin_of
from shared.provider.wire.room import ROOM
from shared.reasons import Reason

if TYPE_CHECKING:
    from shared.provider.wire.transport import Transport


@dataclass(frozen=True, slots=True)
class Way:
    """Where a call goes: the origins that the file names, others being foreign; whether a reply `gave` its URL."""

    known: frozenset[Origin]
    gave: bool


@dataclass(slots=True)
class Exchange:
    """Sends the operations of one attempt, all before `end`, with a token younger than `unauthorized_at` (epoch ms).

    `hidden`: what is masked in replies beside the credentials.
    """

    servers: Sequence[str]
    transport: "Transport"
    credentials: Credentials
    links: Sequence[Expression] = ()
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    end: float = 0
    unauthorized_at: int | None = None
    hidden: tuple[str, ...] = ()

    def begin(self, seconds: float, unauthorized_at: int | None, hidden: tuple[str, ...] = ()) -> "Exchange":
        """The exchange of an attempt that ends in `seconds`."""
        return dataclasses.replace(self, end=self.clock() + seconds, unauthorized_at=unauthorized_at, hidden=hidden)

    @property
    def allowed(self) -> frozenset[Origin]:
        """Where credentials go, and requests even if the address is private."""
        return frozenset(map(origin_of, self.servers))

    def seconds_left(self, most: float = math.inf) -> float:
        """What is left of the attempt's time, but not more than `most`."""
        return min(most, max(0.0, self.end - self.clock()))

    def send(
        self, operation: Operation, context: dict[str, Json], acceptors: Sequence[Acceptor] = ()
    ) -> Decoded | None:
        """The reply to an operation; None when its URL has no value. A status that an acceptor names is not followed.

        Raises TransportError.
        """
        with self._blaming(operation, context):
            return self._asked(operation, context, acceptors)

    def can_send(self, operation: Operation, context: dict[str, Json]) -> bool:
        """Whether these values make a request."""
        with suppress(TransportError):
            return bool(self._url(operation, context)) and are_headers(_headers(operation, context))
        return False

    def sendable(
        self, operations: Sequence[Operation], context: dict[str, Json], outputs: dict[str, Json]
    ) -> dict[str, Json]:
        """The outputs, but those of before instead of any with which a request could no longer be sent."""
        before = context["outputs"]
        others = [name for name in before.keys() & outputs.keys() if outputs[name] != before[name]]
        able = [one for one in operations if self.can_send(one, context)] if others else []
        kept = {}
        for name in others:
            changed = context | {"outputs": before | {name: outputs[name]}}
            if not all(self.can_send(one, changed) for one in able):
                kept[name] = before[name]
        return outputs | kept

    @contextmanager
    def _blaming(self, operation: Operation, context: dict[str, Json]) -> Iterator[None]:
        """A reply is at fault if with another value of it a request could be sent that cannot be sent with this."""
        try:
            yield
        except TransportError as error:
            if error.reason is Reason.INVALID_REQUEST:
                parts = {part: with_stand_ins(getattr(operation, part), REPLIED) for part in WITH_PLACEHOLDERS}
                other = structs.replace(operation, **parts)
                error.passes = other != operation and self.can_send(other, context)
            raise

    def _asked(self, operation: Operation, context: dict[str, Json], acceptors: Sequence[Acceptor]) -> Decoded | None:
        url = self._url(operation, context)
        if not url:
            return None
        if operation.decode == "url":
            return enveloped(Reply(200, {}, b"", url), operation, context)
        home = self._home(operation, url)
        asked = operation.query if origin_of(url) in home else _literal(operation.query)
        query = {name: value for name, value in fill(asked, context).items() if value is not None}
        headers, body = _headers(operation, context), fill(operation.body, context)
        call = Call(operation.method, url, query, headers, body, operation.content_type, _filled(operation))
        gave = is_link(operation.url)
        way = Way(home if gave else home | {origin_of(url)}, gave)
        return self._decoded(_leaving(home, call), operation, context, way, acceptors)

    def page(self, url: str, operation: Operation, context: dict[str, Json], before: dict[str, Json]) -> Decoded:
        """The reply behind a link that an earlier one gave, whose envelope is `before`. Raises TransportError."""
        home = self._home(operation, self._url(operation, context) or "")
        call = Call("GET", url, {}, _headers(operation, context), filled=_filled(operation))
        with self._blaming(operation, context):
            return self._decoded(_leaving(home, call), operation, before, Way(home, gave=True))

    def _url(self, operation: Operation, context: dict[str, Json]) -> str | None:
        try:
            url = fill_url(operation.url, context)
        except ValueError as error:
            raise TransportError(str(error), reason=Reason.INVALID_REQUEST) from error
        if not url:
            return None
        if is_link(operation.url):
            return followed(based(context.get("response"), url, self.servers[0]), url)
        url = joined(self.servers[0], url)
        if stays_on_the_server(operation.url) and origin_of(url) != origin_of(self.servers[0]):
            raise TransportError("a value leads to another host", reason=Reason.INVALID_REQUEST)
        return url

    def _home(self, operation: Operation, url: str) -> frozenset[Origin]:
        """The origins that the file itself names, for an operation that is sent to this URL: others are foreign."""
        return self.allowed | ({origin_of(url)} if names_its_host(operation.url) else set())

    def _decoded(
        self, call: Call, operation: Operation, context: dict[str, Json], way: Way, acceptors: Sequence[Acceptor] = ()
    ) -> Decoded:
        """The reply; after a 401 with cached secrets, once more with secrets read anew, if those are others."""
        since = (self.unauthorized_at or 0) / 1000
        attachment = self._attachment(operation, fresh=since > 0, since=since)
        reply = self._sent(attachment, call, operation, way, acceptors)
        refused = reply.status == 401 and reply.authorised
        if refused:
            self.credentials.refused(attachment)
            if not self.credentials.renewable:
                fresh = self._attachment(operation, fresh=True)
                if (fresh.headers, fresh.query) != (attachment.headers, attachment.query):
                    attachment, reply = fresh, self._sent(fresh, call, operation, way, acceptors)
        ROOM.take(weight(reply, operation.decode), self.seconds_left())
        found = enveloped(reply, operation, context, attachment, self.links)
        foreign = is_foreign(reply.url, way.known)
        return dataclasses.replace(found, refused=refused, foreign=foreign, linked=way.gave)

    def _attachment(self, operation: Operation, *, fresh: bool, since: float = 0) -> Attachment:
        return self._hiding(self.credentials.attach(self.seconds_left(operation.timeout), fresh=fresh, since=since))

    def hiding(self) -> Attachment:
        """What hides secrets in a payload that came by itself."""
        return self._hiding(self.credentials.hiding())

    def _hiding(self, attachment: Attachment) -> Attachment:
        for text in self.hidden:
            attachment.learn(text)
        return attachment

    def _sent(
        self, attachment: Attachment, call: Call, operation: Operation, way: Way, acceptors: Sequence[Acceptor]
    ) -> Reply:
        """The reply. Raises TransportError.

        What went wrong where none of the known origins is, is the link's own; so is a private address, unless the file
        or a caller has named it.
        """
        try:
            return self.transport.send(
                call,
                self.seconds_left(operation.timeout),  # attaching may have taken some of it
                allowed=self.allowed,
                attach=attachment.to,
                hide=attachment.text,
                stay=lambda status: any(one.names(status) for one in acceptors),
            )
        except TransportError as error:
            fails = error.reason in (Reason.TRANSPORT, Reason.DEADLINE, Reason.INVALID_REQUEST)
            strays = error.reason is Reason.REFUSED_TARGET and (way.gave or error.url != call.url)
            if strays or (fails and is_foreign(error.url, way.known)):
                raise TransportError(str(error), reason=Reason.EXPIRED_LINK) from error
            raise


def _headers(operation: Operation, context: dict[str, Json]) -> dict[str, str]:
    return {name: text_of(value) for name, value in fill(operation.headers, context).items() if value is not None}


def _leaving(home: frozenset[Origin], call: Call) -> Call:
    return call if origin_of(call.url) in home else abroad(call)


def _filled(operation: Operation) -> frozenset[str]:
    """The names of the headers with a placeholder."""
    return frozenset(operation.headers.keys() - _literal(operation.headers).keys())


def _literal(given: Mapping[str, Json]) -> dict[str, Json]:
    """The headers or parameters without a placeholder: what the file itself says, to anybody."""
    return {name: value for name, value in given.items() if not any(placeholders(value))}
