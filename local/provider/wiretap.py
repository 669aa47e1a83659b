"""The real transport and the real acceptors, which tell listeners about every step."""

import socket
import ssl
from collections.abc import Callable, Sequence
from http.client import RemoteDisconnected

from msgspec import structs

from shared.codec import Json
from shared.errors import TransportError
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.origin import Origin
from shared.provider.wire.transport import Transport, url_of
from shared.reasons import Reason

_CAUSES: dict[type[Exception], str] = {
    ConnectionRefusedError: "the connection was refused",
    socket.gaierror: "there is no such name",
    ssl.SSLError: "TLS failed",
    RemoteDisconnected: "the connection was closed",
    ConnectionError: "the connection was closed",
}


def shown_url(call: Call) -> str:
    """The URL of a call, its query included; as it is written where it is none that can be sent."""
    try:
        return url_of(call)
    except ValueError:
        return call.url


class Listener:
    """Is told what happens, in this order."""

    def asked(self, call: Call, *, authorised: bool) -> None:
        """A request is sent; `authorised`: with credentials, which `call` does not show."""

    def answered(self, reply: Reply) -> None:
        """The whole reply has come."""

    def unanswered(self, error: TransportError) -> None:
        """No usable reply came."""

    def compared(self, number: int, acceptor: Acceptor, envelope: dict[str, Json], *, fits: bool) -> None:
        """An acceptor of the file was compared with this reply."""


class Wiretap(Transport):
    """The transport of production, which tells what it sends and gets; a redirect leads to a request of its own."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        super().__init__(4)
        self._listeners = listeners
        self._bare: Call | None = None
        self._cause: str | None = None

    def send(
        self,
        call: Call,
        seconds: float,
        *,
        allowed: frozenset[Origin] = frozenset(),
        attach: Callable[[Call], Call] | None = None,
        hide: Callable[[str], str] = str,
        stay: Callable[[int], bool] = lambda _: False,
    ) -> Reply:
        def noted(bare: Call) -> Call:
            assert attach is not None
            self._bare = bare
            return attach(bare)

        return super().send(call, seconds, allowed=allowed, attach=noted if attach else None, hide=hide, stay=stay)

    def once(self, call: Call, seconds: float, allowed: frozenset[Origin]) -> Reply:
        bare, self._bare, self._cause = self._bare, None, None
        for listener in self._listeners:
            listener.asked(bare or call, authorised=bare is not None and bare != call)
        try:
            reply = super().once(call, seconds, allowed)
        except TransportError as error:
            said = self._said(error)
            for listener in self._listeners:
                listener.unanswered(said)
            raise
        for listener in self._listeners:
            listener.answered(reply)
        return reply

    def _said(self, error: TransportError) -> TransportError:
        is_known = self._cause and error.reason == Reason.TRANSPORT
        return TransportError(f"no reply: {self._cause}") if is_known else error

    def _read(self, call: Call, seconds: float) -> Reply:
        try:
            return super()._read(call, seconds)
        except Exception as error:
            self._cause = cause(error)
            raise


def cause(error: BaseException | None) -> str | None:
    """What broke a connection, from the innermost error that tells it."""
    if error is None:
        return None
    said = next((said for kind, said in _CAUSES.items() if isinstance(error, kind)), None)
    return cause(error.__cause__ or error.__context__) or said


class _Noted(Acceptor, frozen=True, kw_only=True):
    number: int
    listeners: Sequence[Listener]

    def matches(self, envelope: dict[str, Json]) -> bool:
        found = Acceptor.matches(self, envelope)
        if "body" in envelope:  # without one, the question is only whether the acceptor names a redirect
            for listener in self.listeners:
                listener.compared(self.number, self, envelope, fits=found)
        return found


def tapped(rules: Rules, listeners: Sequence[Listener]) -> Rules:
    """The same rules, whose acceptors tell what they are compared with."""
    acceptors = []
    for number, one in enumerate(rules.acceptors):
        acceptors.append(_Noted(**structs.asdict(one), number=number, listeners=listeners))
    return structs.replace(rules, acceptors=tuple(acceptors))
