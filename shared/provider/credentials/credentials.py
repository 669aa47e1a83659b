"""Credentials at work: secrets read by reference, tokens fetched and kept, headers and queries to send.

A secret's value stays in this process: it is never logged, never in an error text, never stored.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from shared.codec import Json, loads
from shared.errors import SecretUnavailable, TransportError
from shared.provider.credentials.attachment import Attachment, basic
from shared.provider.language.security import OAuth2, Scheme
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.origin import origin_of
from shared.reasons import Reason

if TYPE_CHECKING:
    from shared.provider.wire.transport import Transport

EXPIRY_MARGIN_SECONDS = 30  # a token is renewed this long before it expires
DEFAULT_EXPIRY_SECONDS = 3600


class ReadSecret(Protocol):
    """Reads the value that a reference names, from a cache unless `fresh`. Raises SecretUnavailable."""

    def __call__(self, reference: str, *, fresh: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    fetched_at: float
    expires_at: float


@dataclass(slots=True, eq=False, repr=False)
class Credentials:
    """One provider's credentials. Safe to use from many threads; a token is fetched once for all of them."""

    schemes: Sequence[Scheme]
    read_secret: ReadSecret
    transport: "Transport"
    clock: Callable[[], float] = time.time
    _fetching: threading.Lock = field(default_factory=threading.Lock, init=False)
    _token: _Token | None = field(default=None, init=False)

    @property
    def renewable(self) -> bool:
        """Whether a 401 may mean no more than that a token has expired."""
        return any(isinstance(scheme, OAuth2) for scheme in self.schemes)

    def attach(self, seconds: float, *, fresh: bool = False, since: float = 0) -> Attachment:
        """What to send, within `seconds`. `fresh`: read secrets again; a token no younger than `since` is renewed.

        Raises TransportError when a secret or a token cannot be had.
        """
        attachment = Attachment()
        for scheme in self.schemes:
            if isinstance(scheme, OAuth2):
                attachment.add(scheme, self._access_token(scheme, seconds, since))
            else:
                attachment.add(scheme, self._secret(scheme.secret, fresh=fresh))
        return attachment

    def refused(self, attachment: Attachment) -> None:
        """The provider refused what was attached: its token is not used again."""
        token = self._token
        if token and attachment.headers.get("Authorization") == f"Bearer {token.value}":
            self._token = None

    def _secret(self, reference: str, *, fresh: bool) -> str:
        try:
            value = self.read_secret(reference, fresh=fresh)
        except SecretUnavailable as error:
            raise TransportError(str(error), reason=Reason.SECRET) from error
        if not _is_line(value):
            raise TransportError(f"{reference}: is empty, or no single line of text", reason=Reason.SECRET)
        return value

    def _access_token(self, scheme: OAuth2, seconds: float, since: float) -> str:
        end = time.monotonic() + seconds
        if not self._fetching.acquire(timeout=seconds):
            raise TransportError("no token in time", reason=Reason.DEADLINE)
        try:
            now = self.clock()
            token = self._token
            if token is None or now >= token.expires_at or 0 < token.fetched_at <= since:
                call = _token_call(scheme, self._secret(scheme.client_secret, fresh=since > 0))
                allowed = frozenset({origin_of(scheme.token_url)})  # the file names it, so it may be private
                left = end - time.monotonic()
                reply = self.transport.send(call, left, allowed=allowed, stay=lambda _: True)  # it has the secret
                token = self._token = _token(reply, now)
            return token.value
        finally:
            self._fetching.release()


def _token_call(scheme: OAuth2, secret: str) -> Call:
    form: dict[str, Json] = {"grant_type": "client_credentials", **scheme.params}
    headers = {"Accept": "application/json"}
    if scheme.scopes:
        form["scope"] = " ".join(scheme.scopes)
    if scheme.client_auth == "basic":
        headers["Authorization"] = basic(f"{scheme.client_id}:{secret}")
    else:
        form |= {"client_id": scheme.client_id, "client_secret": secret}
    content_type = "application/x-www-form-urlencoded"
    return Call(method="POST", url=scheme.token_url, query={}, headers=headers, body=form, content_type=content_type)


def _token(reply: Reply, now: float) -> _Token:
    if reply.status != 200:
        raise TransportError(f"the token endpoint replied {reply.status}", reason=Reason.TOKEN)
    try:
        fields = loads(reply.body)
        value, seconds = fields["access_token"], float(fields.get("expires_in") or DEFAULT_EXPIRY_SECONDS)
    except (ValueError, ArithmeticError, TypeError, KeyError, AttributeError):
        value, seconds = None, 0.0
    if not isinstance(value, str) or not value.isascii() or not _is_line(value):
        raise TransportError("the token endpoint gave no token", reason=Reason.TOKEN)
    return _Token(value, now, now + max(1, seconds - EXPIRY_MARGIN_SECONDS))


def _is_line(text: str) -> bool:
    return text != "" and text.isprintable() and text == text.strip()
