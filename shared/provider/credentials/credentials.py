"""Credentials at work: secrets read by reference, tokens fetched and kept, headers and queries to send.

A secret's value stays in this process: it is never logged, never in an error text, never stored.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from shared.errors import SecretUnavailable, TransportError
from shared.provider.credentials.attachment import Attachment
from shared.provider.credentials.tokens import REMEMBERED, Tokens, is_line
from shared.provider.language.security import OAuth2, Scheme
from shared.reasons import Reason

if TYPE_CHECKING:
    from shared.provider.wire.transport import Transport


class ReadSecret(Protocol):
    """Reads the value that a reference names, from a cache unless `fresh`. Raises SecretUnavailable."""

    def __call__(self, reference: str, *, fresh: bool) -> str: ...


@dataclass(slots=True, eq=False, repr=False)
class Credentials:
    """One provider's credentials. Safe to use from many threads; a token is fetched once for all of them."""

    schemes: Sequence[Scheme]
    read_secret: ReadSecret
    transport: "Transport"
    clock: Callable[[], float] = time.time
    _tokens: dict[int, Tokens] = field(default_factory=dict, init=False)
    _read: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)  # the last values of each reference

    def __post_init__(self) -> None:
        """Each OAuth 2.0 scheme has a token of its own."""
        for number, scheme in enumerate(self.schemes):
            if isinstance(scheme, OAuth2):
                secret = partial(self._secret, scheme.client_secret)
                self._tokens[number] = Tokens(scheme, secret, self.transport, self.clock)

    @property
    def renewable(self) -> bool:
        """Whether a 401 may mean no more than that a token has expired."""
        return bool(self._tokens)

    def attach(self, seconds: float, *, fresh: bool = False, since: float = 0) -> Attachment:
        """What to send, within `seconds`. `fresh`: read secrets again; a token no younger than `since` is renewed.

        Raises TransportError when a secret or a token cannot be had.
        """
        attachment = Attachment()
        for number, scheme in enumerate(self.schemes):
            if isinstance(scheme, OAuth2):
                attachment.add(scheme, self._tokens[number].value(seconds, since))
            else:
                attachment.add(scheme, self._secret(scheme.secret, fresh=fresh))
        return self._hiding(attachment)

    def hiding(self) -> Attachment:
        """What hides these secrets in what came by itself, as far as this environment has used them: none is read."""
        return self._hiding(Attachment())

    def _hiding(self, attachment: Attachment) -> Attachment:
        """The same, which hides what was sent before, too: a job may tell what it was begun with."""
        for tokens in self._tokens.values():
            for value in tokens.hidden:
                attachment.learn(value)
        for values in list(self._read.values()):
            for value in values:
                attachment.learn(value)
                attachment.learn(value.partition(":")[2])  # a password behind a user
        return attachment

    def refused(self, attachment: Attachment) -> None:
        """The provider refused what was attached: its token is not used again."""
        for tokens in self._tokens.values():
            tokens.refused(attachment.headers.get("Authorization"))

    def _secret(self, reference: str, *, fresh: bool) -> str:
        try:
            value = self.read_secret(reference, fresh=fresh)
        except SecretUnavailable as error:
            raise TransportError(str(error), reason=Reason.SECRET) from error
        if not is_line(value):
            raise TransportError(f"{reference}: is empty, or no single line of text", reason=Reason.SECRET)
        known = self._read.get(reference, ())
        if value not in known:
            self._read[reference] = (*known, value)[-REMEMBERED:]
        return value
