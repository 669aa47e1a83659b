"""Whether a callback is from the provider: judged by secrets that are read anew where its signature does not fit."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shared.errors import SecretUnavailable
from shared.logs import log
from shared.provider.credentials.credentials import ReadSecret
from shared.provider.credentials.tokens import is_line
from shared.provider.language.signature import Signature

REREAD_SECONDS = 60  # forgers may send without end, and each read is paid for


@dataclass(frozen=True, slots=True)
class _Tried:
    """A read that is not repeated for a while: one that was `fresh`, or that failed."""

    at: int
    fresh: bool
    failure: str = ""


@dataclass(slots=True, eq=False, repr=False)
class Verifier:
    """Judges signatures; one for each environment, safe to use from many threads. `clock` tells epoch milliseconds."""

    read_secret: ReadSecret
    clock: Callable[[], int]
    _tried: dict[str, _Tried] = field(default_factory=dict, init=False)
    _reading: threading.Lock = field(default_factory=threading.Lock, init=False)

    def refusal(self, signature: Signature, headers: Mapping[str, str], bodies: set[bytes], url: str) -> str | None:
        """Why it is from somebody else, in a word; None: one of the bodies was signed by the provider, and just now.

        A secret that does not fit may have been replaced since it was read, so it is read anew and tried again, once a
        minute at most. Raises SecretUnavailable when a secret that may fit cannot be had, or not now: the one that was
        read anew for a forger a moment ago may have been replaced since.
        """
        if signature.timestamp:
            signed_at = signature.signed_at(headers)
            if signed_at is None or abs(self.clock() - signed_at) > signature.timestamp.tolerance * 1000:
                return "timestamp"
        failed: SecretUnavailable | None = None
        for fresh in (False, True):
            for reference in signature.secret:
                try:
                    key = self._secret(reference, fresh=fresh)
                    if fresh and key is None:
                        failed = SecretUnavailable(f"{reference}: does not fit, and was read anew a moment ago")
                    if key and any(signature.fits(headers, body, key, url) for body in bodies):
                        return None
                except SecretUnavailable as error:
                    failed = error
                except ValueError:
                    failed = _unusable(reference, "is not base64, as the file says")
        if failed:
            raise failed
        return "signature"

    def _secret(self, reference: str, *, fresh: bool) -> str | None:
        """The secret; None where it was read anew less than a minute ago. What failed then fails until that is over."""
        with self._reading:
            tried = self._tried.get(reference)
            if tried and abs(self.clock() - tried.at) < REREAD_SECONDS * 1000 and (fresh or not tried.fresh):
                if tried.failure:
                    raise SecretUnavailable(tried.failure)
                return None
            try:
                secret, failure = self.read_secret(reference, fresh=fresh), None
            except SecretUnavailable as error:
                secret, failure = "", error
            if not failure and not is_line(secret):
                failure = _unusable(reference, "is empty, or no single line of text")
            if fresh or failure:
                self._tried[reference] = _Tried(self.clock(), fresh, str(failure or ""))
            if failure:
                raise failure
            return secret


def _unusable(reference: str, reason: str) -> SecretUnavailable:
    log.warning("secret unavailable", extra={"reference": reference, "reason": reason})
    return SecretUnavailable(f"{reference}: {reason}")
