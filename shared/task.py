"""A task's identity: which provider is asked, and the name under which the user asks for it."""

import re
import unicodedata
from typing import Self

from msgspec import Struct

from shared.bounds import BOUNDS
from shared.errors import BadRequest

MAX_NAME_BYTES = BOUNDS["name"].most
MAX_RAW_BYTES = 3 * MAX_NAME_BYTES  # NFC makes no text of more than that so short, and takes long for a far longer one
JOINERS = "\u200c\u200d"  # Persian and the languages of India spell with them, and emoji are put together
_NO_JOINERS = dict.fromkeys(map(ord, JOINERS))
PROVIDER_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"


class Task(Struct, frozen=True, order=True):
    """`provider` + `name`: our unit of work. Two requests with the same pair mean the same task."""

    provider: str
    name: str

    @property
    def id(self) -> str:
        """`<provider>/<name>`, the key of the DynamoDB item."""
        return f"{self.provider}/{self.name}"

    @classmethod
    def named(cls, provider: str, name: str) -> Self:
        """The task that a request names: the name in NFC, 1 to 256 bytes of `is_plain` text, neither `.` nor `..`.

        Raises BadRequest with the field at fault.
        """
        task = cls._read(provider, name)
        if is_blank(task.name):
            raise BadRequest("the name is nothing but spaces", field="name")
        return task

    @classmethod
    def from_id(cls, task_id: str) -> Self:
        """The task whose `id` this is. Raises BadRequest where no request could ever name one so.

        One of nothing but spaces could, up to release 0.2.
        """
        provider, _, name = task_id.partition("/")
        task = cls._read(provider, name)
        if task.id != task_id:
            raise BadRequest("the name is not in NFC", field="name")
        return task

    @classmethod
    def _read(cls, provider: str, name: str) -> Self:
        if not is_provider_name(provider):
            raise BadRequest("a provider name is 1 to 64 of a-z, 0-9, '_' and '-'", field="provider")
        if not name:
            raise BadRequest("the name is empty", field="name")
        too_long = BadRequest(f"the name is longer than {MAX_NAME_BYTES} bytes", field="name")
        if len(name) > MAX_RAW_BYTES or len(name.encode(errors="surrogatepass")) > MAX_RAW_BYTES:
            raise too_long
        name = unicodedata.normalize("NFC", name)
        if not is_plain(name):  # lone surrogates are not plain either, so encode() below cannot fail
            raise BadRequest("the name holds a character that is not printable", field="name")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise too_long
        if name in (".", ".."):
            raise BadRequest("a name cannot be '.' or '..'", field="name")
        return cls(provider, name)


def is_provider_name(text: str) -> bool:
    """Whether `text` may name a provider: it becomes a Redis key, a URL segment and a file name."""
    return re.fullmatch(PROVIDER_NAME, text) is not None


def is_plain(text: str) -> bool:
    """Whether every character is one that a person may write in a name, and that no log or terminal acts on.

    Letters, marks, digits, punctuation, symbols, spaces of any width, and the two JOINERS. Not control characters, line
    separators, lone surrogates, nor what has no shape of its own or turns others round (category Cf); nor what Unicode
    has not assigned or leaves to each system, for nobody knows its normal form or what it shows.
    """
    return text.isprintable() or all(
        one.isprintable() or one in JOINERS or unicodedata.category(one) == "Zs" for one in text
    )


def is_blank(text: str) -> bool:
    """Whether a plain text shows nothing."""
    return not text.translate(_NO_JOINERS).strip()
