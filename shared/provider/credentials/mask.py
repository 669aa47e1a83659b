"""Hides secrets in replies, and in whatever is shown or written down, in each spelling that they have on their way."""

import base64
import math
import re
from copy import deepcopy
from functools import lru_cache
from html.entities import html5

from shared.codec import Json

MASKED = "MASKED"  # in place of a secret. It looks the same inside a URL
SHORTEST_CORE = 8  # characters of base64 that are taken for a secret: fewer may stand in data by chance

_ESCAPED_LETTER = re.compile(
    rb"\\u00(?:3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa])"
)  # in JSON even a letter or digit may be escaped
_OTHER_CHARSET = re.compile(r"(?i)charset=[\"' ]*+(?!utf-?8|(?:us-)?ascii|iso-8859|latin|windows-125)")

_NAMES: dict[str, list[str]] = {}  # what HTML calls a character
for _name, _character in html5.items():
    _NAMES.setdefault(_character, []).append(_name.rstrip(";"))


class Mask:
    """What has been learned, `known`, is replaced wherever it turns up: in texts, URLs, bodies.

    In base64 too, plain or URL-safe, with or without padding, and wherever it stands in what was encoded.
    """

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self._longest_first: list[str] = []
        self._shortest: float = math.inf

    def learn(self, secret: str, stand_in: str = MASKED) -> None:
        """Hide this text from now on."""
        if secret:
            self.known[secret] = stand_in
            self._longest_first = sorted(self.known, key=len, reverse=True)
            self._shortest = min(self._shortest, *map(len, _written(secret)))

    def text(self, text: str) -> str:
        """The text without secrets."""
        if len(text) < self._shortest:  # most are, in a table
            return text
        for secret in self._longest_first:
            if any(trace in text for trace in _traces(secret)):
                text = _spelled(secret).sub(self.known[secret].replace("\\", r"\\"), text)
        return text

    def value(self, value: Json) -> Json:
        """A JSON value whose texts hold no secrets."""
        return self.hide(deepcopy(value))

    def hide(self, value: Json) -> Json:
        """The same; objects and lists are changed themselves, for a copy of a large value takes much memory."""
        match value:
            case str():
                return self.text(value)
            case int() | float() if str(value) in self.known:
                return self.known[str(value)]
            case dict():
                for name, one in value.items():
                    value[name] = self.hide(one)
                if any(self.text(name) != name for name in value):
                    named = {self.text(name): one for name, one in value.items()}
                    value.clear()
                    value.update(named)
            case list():
                for i, one in enumerate(value):
                    value[i] = self.hide(one)
        return value

    def may_be_in(self, body: bytes, content_type: str = "") -> bool:
        """Whether a secret may stand in an encoded body; false only where none does. Far cheaper than to look."""
        if not self.known:
            return False
        if _OTHER_CHARSET.search(content_type) or _ESCAPED_LETTER.search(body):
            return True
        return any(trace.encode() in body for secret in self.known for trace in _traces(secret))


def spellings(text: str) -> str:
    """A regular expression for a text as it is, percent-encoded, quoted-printable, escaped as in JSON and as in HTML.

    Each character for itself.
    """
    return "".join(map(_spellings, text))


@lru_cache(maxsize=512)
def _spelled(secret: str) -> re.Pattern[str]:
    any_digit, padding = f"(?:[0-9A-Za-z]|{_in_base64('+')}|{_in_base64('/')})", f"(?:{spellings('=')})"
    cores = [f"{_in_base64(core)}{any_digit}?{padding}{{0,2}}" for core in _cores(secret)]
    return re.compile("|".join([spellings(secret), *(cores or [spellings(_base64(secret))])]))


@lru_cache(maxsize=512)
def _traces(secret: str) -> tuple[str, ...]:
    """Texts, one of which is in every text that `_spelled` finds the secret in: what is spelled in one way only."""
    return tuple(max(re.split("[^0-9A-Za-z]", text), key=len) for text in _written(secret))


@lru_cache(maxsize=512)
def _written(secret: str) -> tuple[str, ...]:
    """The shortest forms of a secret: as it is, and in base64."""
    return (secret, *(_cores(secret) or [_base64(secret)]))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogatepass")).decode()


def _cores(text: str) -> list[str]:
    """What base64 makes of a text for certain, whatever stood before and behind it: for each of three alignments.

    The digits at its edges hold bits of its neighbours. None for a text so short that this might stand anywhere.
    """
    plain, cores = text.encode(errors="surrogatepass"), []
    for before, first in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(bytes(before) + plain).decode()
        cores.append(encoded[first : (before + len(plain)) * 8 // 6])
    return [core for core in cores if len(core) >= SHORTEST_CORE]


def _in_base64(core: str) -> str:
    """A regular expression for digits of base64, in either alphabet (RFC 4648, 4 and 5)."""
    other = {"+": "-", "/": "_"}
    return "".join(f"(?:{_spellings(one)}|{other[one]})" if one in other else one for one in core)


def _spellings(character: str) -> str:
    """Encoders differ in what they escape, and some texts are escaped twice; only letters and digits stay."""
    if character.isascii() and character.isalnum():
        return character
    plain_bytes = character.encode(errors="surrogatepass")
    percent = "".join(f"%(?:25){{0,2}}{byte:02x}" for byte in plain_bytes)
    printable = "".join(f"={byte:02x}" for byte in plain_bytes)
    named = "".join(f"|{name}" for name in _NAMES.get(character, ()))
    entity = f"&(?:amp;)?(?:#0{{0,5}}{ord(character)}|#x0{{0,5}}{ord(character):x}{named});"
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    escaped = "".join(rf"\\{{1,4}}u{units[i : i + 4]}" for i in range(0, len(units), 4))
    plus = r"|\+" if character == " " else ""
    plain = r"\\{1,2}" if character == "\\" else rf"\\{{0,4}}+{re.escape(character)}"  # no way back: linear
    coded = f"{percent}|{printable}|{escaped}|{entity}"
    return rf"(?:(?i:{coded})|{plain}{plus})"  # the longest first: `%25` is more than `%`
