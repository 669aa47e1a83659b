"""How a provider signs its callbacks: a keyed digest of the body in a header, and whether one fits."""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shared.provider.language.reader import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The header that holds the signature, `prefix` before it; `secret` is a reference."""

    header: str
    secret: str
    algorithm: Literal["hmac-sha256", "hmac-sha1", "hmac-sha512"]
    encoding: Literal["hex", "base64"]
    prefix: str

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


def read_signature(callback: Reader) -> Signature | None:
    """The signature that the `callback` of a provider file tells of; None: it tells of none, payloads are hints."""
    signature = None
    if "signature" in callback:
        reader = callback.reader("signature")
        signature = Signature(
            header=reader.get("header", str),
            secret=reader.reference("secret"),
            algorithm=reader.one_of("algorithm", "hmac-sha256", "hmac-sha1", "hmac-sha512", default="hmac-sha256"),
            encoding=reader.one_of("encoding", "hex", "base64", default="hex"),
            prefix=reader.get("prefix", str, ""),
        )
        reader.done()
    callback.done()
    return signature
