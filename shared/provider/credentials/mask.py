"""Hides secrets in replies, and in whatever is shown or written down, in each spelling that they have on their way."""

import base64
import re
from functools import lru_cache

from shared.codec import Json

MASKED = "MASKED"  # in place of a secret. It looks the same inside a URL


class Mask:
    """What has been learned, `known`, is replaced wherever it turns up: in texts, URLs, bodies."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def learn(self, secret: str, stand_in: str = MASKED) -> None:
        """Hide this text from now on."""
        if secret:
            self.known[secret] = stand_in

    def text(self, text: str) -> str:
        """The text without secrets."""
        for secret in sorted(self.known, key=len, reverse=True):
            text = _spelled(secret).sub(self.known[secret].replace("\\", r"\\"), text)
        return text

    def value(self, value: Json) -> Json:
        """A JSON value whose texts hold no secrets."""
        match value:
            case str():
                return self.text(value)
            case int() | float() if str(value) in self.known:
                return self.known[str(value)]
            case dict():
                return {self.text(name): self.value(one) for name, one in value.items()}
            case list():
                return [self.value(one) for one in value]
        return value

    def may_be_in(self, body: bytes) -> bool:
        """Whether a secret may stand in an encoded body; false only where none does. Far cheaper than to look."""
        return any(_trace(text).encode() in body for one in self.known for text in (one, _in_base64(one)))


def spellings(text: str) -> str:
    """A regular expression for a text as it is, percent-encoded and escaped as in JSON, each character for itself."""
    return "".join(map(_spellings, text))


@lru_cache(maxsize=64)
def _spelled(secret: str) -> re.Pattern[str]:
    return re.compile(f"{spellings(secret)}|{spellings(_in_base64(secret))}")


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogatepass")).decode()


def _trace(text: str) -> str:
    """The longest part of a text that is spelled in one way only."""
    return max(re.split("[^0-9A-Za-z]", text), key=len)


def _spellings(character: str) -> str:
    """Encoders differ in what they escape, and some texts are escaped twice; only letters and digits stay."""
    if character.isascii() and character.isalnum():
        return character
    percent = "".join(f"%(?:25){{0,2}}{byte:02x}" for byte in character.encode(errors="surrogatepass"))
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    escaped = "".join(rf"\\{{1,4}}u{units[i : i + 4]}" for i in range(0, len(units), 4))
    plus = r"|\+" if character == " " else ""
    plain = r"\\{1,2}" if character == "\\" else rf"\\{{0,4}}+{re.escape(character)}"  # no way back: linear
    return rf"(?:(?i:{percent}|{escaped})|{plain}{plus})"  # the longest first: `%25` is more than `%`
