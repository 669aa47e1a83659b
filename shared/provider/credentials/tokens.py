"""OAuth 2.0 tokens: fetched once for all threads and kept; what the token endpoint refuses is remembered, too."""

import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, urlsplit

from shared.codec import Json, loads
from shared.errors import TransportError
from shared.logs import log
from shared.provider.credentials.attachment import basic
from shared.provider.credentials.mask import Mask
from shared.provider.language.hint import LONGEST_HINT_SECONDS, told
from shared.provider.language.security import OAuth2
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.origin import origin_of
from shared.reasons import Reason

if TYPE_CHECKING:
    from shared.provider.wire.transport import Transport

EXPIRY_MARGIN_SECONDS = 30  # a token is renewed this long before it expires, a short one at half of its life
DEFAULT_EXPIRY_SECONDS = 3600.0
LONGEST_EXPIRY_SECONDS = 86_400.0
SHARED_SECONDS = 1.0  # how long a failure is every thread's where the endpoint does not say when to come back
CODE_CHARACTERS = 64  # what is told of an `error` code
REMEMBERED = 4  # values of a secret that are hidden: the newest, and those before; of one with tokens twice as many
_TYPES = ("bearer", "bearertoken")  # RFC 6750, and what Apigee calls the same


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    fetched_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there is no token, for everybody until `until`; `hinted`: the endpoint says so."""

    at: float
    until: float
    detail: str
    hinted: bool

    def error(self, now: float) -> TransportError:
        return TransportError(self.detail, reason=Reason.TOKEN, hint_seconds=self.until - now if self.hinted else None)


@dataclass(slots=True, eq=False, repr=False)
class Tokens:
    """The token of one scheme. Safe to use from many threads: one asks for all of them.

    `secret` reads the client's secret, anew if `fresh`.
    """

    scheme: OAuth2
    secret: Callable[..., str]
    transport: "Transport"
    clock: Callable[[], float]
    hidden: tuple[str, ...] = ()
    """The client's secrets and the tokens that are known here, in the forms in which they are sent."""
    _fetching: threading.Lock = field(default_factory=threading.Lock, init=False)
    _hiding: threading.Lock = field(default_factory=threading.Lock, init=False)
    _token: _Token | None = field(default=None, init=False)
    _failure: _Failure | None = field(default=None, init=False)

    def value(self, seconds: float, since: float) -> str:
        """A token, within `seconds`: the one that is kept, unless it has expired or is no younger than `since`.

        Raises TransportError: for a reason of its own where the secret cannot be read, else `token`. Then nobody asks
        again until the endpoint's hint is over, but for LONGEST_HINT_SECONDS; without a hint for SHARED_SECONDS.
        """
        end = time.monotonic() + seconds
        if not self._fetching.acquire(timeout=seconds):
            raise TransportError(f"{self._name}: no token in time", reason=Reason.TOKEN)
        try:
            now, token = self.clock(), self._token
            if token is None or now >= token.expires_at or 0 < token.fetched_at <= since:
                token = self._token = self._fetched(now, end, fresh=since > 0)
            return token.value
        finally:
            self._fetching.release()

    def refused(self, header: str | None) -> None:
        """The provider refused this `Authorization`: if it is the token that is kept, it is not used again."""
        token = self._token
        if token and header == f"Bearer {token.value}":
            self._token = None

    def known_secret(self, *, fresh: bool = False) -> str:
        """The client's secret, hidden from now on. Raises TransportError."""
        secret = self.secret(fresh=fresh)
        encoded = quote_plus(secret)
        self._hide(secret, encoded, f"{quote_plus(self.scheme.client_id)}:{encoded}")
        return secret

    @property
    def _name(self) -> str:
        """The endpoint, without what may be secret in its URL."""
        return f"the token endpoint {urlsplit(self.scheme.token_url).netloc}"

    def _fetched(self, now: float, end: float, *, fresh: bool) -> _Token:
        if end <= time.monotonic():  # no failure of the endpoint: others may have the time
            raise TransportError(f"{self._name}: no token in time", reason=Reason.TOKEN)
        failure = self._failure
        if failure and failure.at <= now < failure.until:
            raise failure.error(now)
        secret = self.known_secret(fresh=fresh)
        try:
            reply = self._asked(secret, end)
            hint = self._hint(reply)
            if hint is None and not fresh and _is_refusal(reply) and (anew := self._rotated(secret)):
                secret, reply = anew, self._asked(anew, end)
                hint = self._hint(reply)
        except TransportError as error:
            if error.reason in (Reason.INVALID_REQUEST, Reason.REFUSED_TARGET):
                raise
            raise self._failed(f"{self._name}: {error}", None) from None
        value = _usable(reply)
        if value is None:
            raise self._failed(self._said(reply, secret), hint)
        self._failure = None
        self._hide(value)
        return _Token(value, now, now + _kept_seconds(_fields(reply).get("expires_in")))

    def _hint(self, reply: Reply) -> float | None:
        return told({"statusCode": reply.status, "headers": reply.headers}, self.clock())

    def _asked(self, secret: str, end: float) -> Reply:
        call = _call(self.scheme, secret)
        allowed = frozenset({origin_of(self.scheme.token_url)})  # the file names it, so it may be private
        return self.transport.send(call, end - time.monotonic(), allowed=allowed, stay=lambda _: True)  # has the secret

    def _rotated(self, secret: str) -> str | None:
        """Another secret than this, which was refused, if there is one now."""
        with suppress(TransportError):
            anew = self.known_secret(fresh=True)
            return anew if anew != secret else None
        return None

    def _failed(self, detail: str, hint: float | None) -> TransportError:
        """The error, kept from now on for all threads; to be raised."""
        now = self.clock()
        most = SHARED_SECONDS if hint is None else min(hint, LONGEST_HINT_SECONDS)
        self._failure = _Failure(now, now + most, detail, hint is not None)
        log.warning("no token", extra={"reason": detail, "again_seconds": most})
        return self._failure.error(now)

    def _said(self, reply: Reply, secret: str) -> str:
        """What is told of a reply without a usable token: its status, and its `error` code (RFC 6749, 5.2)."""
        code = _fields(reply).get("error")
        mask = Mask()
        for known in (*self.hidden, secret):
            mask.learn(known)
        code = re.sub(r'[^ -~]|["\\]', "", mask.text(code))[:CODE_CHARACTERS] if isinstance(code, str) else ""
        said = f" ({code})" if code else ", without a token that can be used" if reply.status == 200 else ""
        return f"{self._name} replied {reply.status}{said}"

    def _hide(self, *values: str) -> None:
        """Remember these as the newest."""
        with self._hiding:
            others = (value for value in self.hidden if value not in values)
            self.hidden = (*others, *dict.fromkeys(values))[-2 * REMEMBERED :]


def _call(scheme: OAuth2, secret: str) -> Call:
    """The request for a token (RFC 6749, 4.4.2). In a header id and secret are form-encoded first (2.3.1)."""
    form: dict[str, Json] = {"grant_type": "client_credentials", **scheme.params}
    headers = {"Accept": "application/json"}
    if scheme.scopes:
        form["scope"] = " ".join(scheme.scopes)
    if scheme.client_auth == "basic":
        headers["Authorization"] = basic(f"{quote_plus(scheme.client_id)}:{quote_plus(secret)}")
    else:
        form |= {"client_id": scheme.client_id, "client_secret": secret}
    content_type = "application/x-www-form-urlencoded"
    return Call(method="POST", url=scheme.token_url, query={}, headers=headers, body=form, content_type=content_type)


def _fields(reply: Reply) -> dict[str, Json]:
    try:
        fields = loads(reply.body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _is_refusal(reply: Reply) -> bool:
    """Whether it may be the secret that is refused (RFC 6749, 5.2), not the request as such."""
    return reply.status == 401 or _fields(reply).get("error") in ("invalid_client", "invalid_grant")


def _usable(reply: Reply) -> str | None:
    """The bearer token in a reply, which stands in a header as it is; None where there is none."""
    fields = _fields(reply) if reply.status == 200 else {}
    value, kind = fields.get("access_token"), fields.get("token_type")
    if kind is not None and not (isinstance(kind, str) and kind.strip().lower() in _TYPES):
        return None
    return value if isinstance(value, str) and value.isascii() and is_line(value) else None


def _kept_seconds(expires_in: Json) -> float:
    """How long a token is used whose lifetime is told so (RFC 6749, 5.1); a 401 renews it sooner."""
    try:
        seconds = DEFAULT_EXPIRY_SECONDS if isinstance(expires_in, bool) else float(expires_in)
    except OverflowError:
        seconds = LONGEST_EXPIRY_SECONDS
    except (TypeError, ValueError):
        seconds = DEFAULT_EXPIRY_SECONDS
    if math.isnan(seconds) or seconds <= 0:  # 0 and -1 are how some say that it does not expire
        seconds = DEFAULT_EXPIRY_SECONDS
    seconds = min(seconds, LONGEST_EXPIRY_SECONDS)
    return max(1.0, seconds - min(EXPIRY_MARGIN_SECONDS, seconds / 2))


def is_line(text: str) -> bool:
    """Whether a text is one line that can stand in a header."""
    return text != "" and text.isprintable() and text == text.strip()
