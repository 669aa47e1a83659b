"""How a provider signs its callbacks: a keyed digest of the body in a header, and whether one fits."""

import base64
import hmac
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from shared.provider.language.part import Part, Reference, says

Algorithm: TypeAlias = Literal["hmac-sha256", "hmac-sha1", "hmac-sha512"]


class Signature(Part, frozen=True):
    """A keyed digest of the body's bytes, in a header."""

    header: Annotated[str, says("which header holds it, in any case")]
    secret: Annotated[Reference, says("a reference to the key, never the key")]
    algorithm: Annotated[Algorithm, says("the digest, over the bytes of the body")] = "hmac-sha256"
    encoding: Annotated[Literal["hex", "base64"], says("how the digest is written")] = "hex"
    prefix: Annotated[str, says("what stands before it, such as `sha256=`")] = ""

    def fits(self, headers: Mapping[str, str], body: bytes, key: str) -> bool:
        """Whether the headers, their names in lower case, hold the signature that `key` gives to just these bytes."""
        given = headers.get(self.header.lower(), "").strip()
        if not given.startswith(self.prefix):
            return False
        given = given.removeprefix(self.prefix)
        digest = hmac.digest(key.encode(), body, self.algorithm.removeprefix("hmac-"))
        if self.encoding == "base64":
            expected = base64.b64encode(digest)
        else:
            expected, given = digest.hex().encode(), given.lower()
        return hmac.compare_digest(given.encode(errors="replace"), expected)


class Callback(Part, frozen=True):
    """What the provider sends to `${callback.url}`, which a submit tells it."""

    signature: Annotated[Signature | UnsetType, says("absent: no payload is believed, its task is due at once")] = UNSET
