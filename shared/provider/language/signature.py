"""How a provider signs its callbacks: keyed digests of what it sends, in a header, and whether one fits.

One shape for all of them: `signed` is the text that a digest is made of, `header` and `prefix` say where digests stand,
`timestamp` where the instant of signing does. A scheme is what a file need not say of a known form: Standard Webhooks
(standardwebhooks.com, svix), Stripe's (also Mux, Calendly) and Slack's (also Zoom).
"""

import base64
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr, replace

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.part import Part, Positive, References, says
from shared.provider.language.placeholder import fill, placeholders, text_of

Algorithm: TypeAlias = Literal["hmac-sha256", "hmac-sha1", "hmac-sha512"]
BODY = "${body}"
_MS_FROM = 10**11  # an epoch number from here on counts milliseconds: in seconds it would be the year 5138


class Timestamp(Part, frozen=True):
    """When a callback was signed: seconds or milliseconds since 1970, or as in RFC 3339."""

    header: Annotated[str, says("which header holds it; absent: that of the signature")] = ""
    prefix: Annotated[str, says("what stands before it, such as `t=`")] = ""
    tolerance: Annotated[Positive, says("seconds by which it may differ from our clock, either way")] = 300


class Signature(Part, frozen=True, kw_only=True):
    """Keyed digests of what is sent, in a header."""

    scheme: Annotated[
        Literal["plain", "standard", "stripe", "slack"],
        says("a known form, the rest of which may be left out; `standard`: Standard Webhooks; `plain`: as said here"),
    ] = "plain"
    secret: Annotated[References, says("a reference to the key, never the key; a list while keys are exchanged")]
    header: Annotated[str, says("which header holds the digests, in any case; needed with `plain`")] = ""
    prefix: Annotated[str, says("what stands before each digest, such as `sha256=`")] = ""
    algorithm: Annotated[Algorithm, says("the digest")] = "hmac-sha256"
    encoding: Annotated[
        Literal["hex", "base64"] | UnsetType, says("how a digest is written; absent: `hex`, with `standard` `base64`")
    ] = UNSET
    key: Annotated[
        Literal["text", "base64"] | UnsetType,
        says("how the secret is written; `base64`: perhaps after `whsec_`; absent: `text`, with `standard` `base64`"),
    ] = UNSET
    signed: Annotated[
        str, says("what the digest is made of, with `${body}`, `${timestamp}` and such; absent: the body")
    ] = ""
    timestamp: Annotated[Timestamp | UnsetType, says("when it was signed; absent: as the scheme says, or untold")] = (
        UNSET
    )

    def __post_init__(self) -> None:
        """Put in what the scheme knows where the file says nothing."""
        for name, known in (_PLAIN | _SCHEMES[self.scheme]).items():
            if not getattr(self, name):
                force_setattr(self, name, known)
            elif isinstance(known, Timestamp) and self.timestamp:
                mine = self.timestamp
                header, prefix = mine.header or known.header, mine.prefix or known.prefix
                force_setattr(self, "timestamp", replace(mine, header=header, prefix=prefix))

    def read(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers, names in lower case, as `signed` reads them: Standard Webhooks may begin with `svix-`, too."""
        if self.scheme != "standard":
            return dict(headers)
        return {re.sub("^svix-", "webhook-", name): value for name, value in headers.items()} | {
            name: value for name, value in headers.items() if name.startswith("webhook-")
        }

    def signed_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Those of the headers of which the digest is made: nobody else can have written them."""
        references = (place for one in placeholders(self.signed) for place in one.expression.references)
        names = {name for root, name in references if root == "headers" and name}
        if self.timestamp:
            names.add(self.timestamp.header.lower())
        return {name: value for name, value in headers.items() if name in names}

    def signed_at(self, headers: Mapping[str, str]) -> int | None:
        """When it says that it was signed, in epoch ms; None: it does not, or says two instants."""
        text = self._timestamp(headers)
        if re.fullmatch(r"\d{1,15}", text):
            return int(text) * (1 if int(text) >= _MS_FROM else 1000)
        try:
            told = datetime.fromisoformat(text)
        except ValueError:
            return None
        return int((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp() * 1000)

    def fits(self, headers: Mapping[str, str], body: bytes, key: str, url: str = "") -> bool:
        """Whether one of the digests in the headers is what `key` gives of just these bytes; `url` was called back.

        Raises ValueError for a key that is not written as the file says.
        """
        secret = _from_base64(key.removeprefix("whsec_")) if self.key == "base64" else key.encode()
        digest = hmac.digest(secret, self._message(headers, body, url), self.algorithm.removeprefix("hmac-"))
        given = _values(headers.get(self.header.lower(), ""), self.prefix)
        if self.encoding == "base64":
            return any(hmac.compare_digest(one, base64.b64encode(digest).decode()) for one in given)
        return any(hmac.compare_digest(one.lower(), digest.hex()) for one in given)

    def fault(self) -> str | None:
        """Why no callback can be judged by it."""
        if not self.header:
            return "header is missing; a scheme other than plain knows it"
        if BODY not in self.signed:
            return f"signed must hold {BODY}: what is not signed is not believed"
        try:
            read = {place for one in placeholders(self.signed.replace(BODY, "")) for place in one.expression.references}
        except ProviderFileError as error:
            return f"in ${{…}} of signed {error}"
        for root, name in sorted(read, key=str):
            is_header = root == "headers" and name is not None and name == name.lower()
            if not is_header and (root, name) not in (("timestamp", None), ("callback", "url")):
                known = 'body, timestamp, callback.url and headers in lower case, such as headers."x-id"'
                return f"signed reads {root if name is None else f'{root}.{name}'}; there are {known}"
        if bool(self.timestamp) != (("timestamp", None) in read):
            return "timestamp and ${timestamp} in signed need each other: one that is not signed tells nothing"
        return None

    def _message(self, headers: Mapping[str, str], body: bytes, url: str) -> bytes:
        context: Json = {"timestamp": self._timestamp(headers), "headers": headers, "callback": {"url": url}}
        pieces = [text_of(fill(piece, context)) for piece in self.signed.split(BODY)]
        return body.join(piece.encode(errors="replace") for piece in pieces)

    def _timestamp(self, headers: Mapping[str, str]) -> str:
        """The text of the instant, empty if there is not just one."""
        if not self.timestamp:
            return ""
        given = _values(headers.get((self.timestamp.header or self.header).lower(), ""), self.timestamp.prefix)
        return given[0] if len(set(given)) == 1 else ""


_PLAIN: dict[str, Any] = {"encoding": "hex", "key": "text", "signed": BODY}
_SCHEMES: dict[str, dict[str, Any]] = {
    "plain": {},
    "standard": {
        "header": "webhook-signature",
        "prefix": "v1,",
        "encoding": "base64",
        "key": "base64",
        "signed": f'${{headers."webhook-id"}}.${{timestamp}}.{BODY}',
        "timestamp": Timestamp(header="webhook-timestamp"),
    },
    "stripe": {
        "header": "Stripe-Signature",
        "prefix": "v1=",
        "signed": f"${{timestamp}}.{BODY}",
        "timestamp": Timestamp(prefix="t="),
    },
    "slack": {
        "header": "X-Slack-Signature",
        "prefix": "v0=",
        "signed": f"v0:${{timestamp}}:{BODY}",
        "timestamp": Timestamp(header="X-Slack-Request-Timestamp"),
    },
}


class Callback(Part, frozen=True):
    """What the provider sends to `${callback.url}`, which a submit tells it."""

    signature: Annotated[Signature | UnsetType, says("absent: no payload is believed, its task is due at once")] = UNSET


def _from_base64(text: str) -> bytes:
    """A key's bytes, whether its text is padded or not. Raises ValueError."""
    key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    if not key:
        raise ValueError("an empty key")
    return key


def _values(text: str, prefix: str) -> list[str]:
    """What stands behind each prefix in a header: between spaces, commas and semicolons there may be several."""
    return re.findall(rf"(?<![^\s,;]){re.escape(prefix)}([\w+/=:.-]+)(?![^\s,;])", text, re.ASCII)
