"""A task's identity: which provider is asked, and the name under which the user asks for it."""

import re
import unicodedata
from typing import Self

from msgspec import Struct

from shared.bounds import BOUNDS
from shared.errors import BadRequest

MAX_NAME_BYTES = BOUNDS["name"].most
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
        """The task that a request names: the name in NFC, 1 to 256 bytes of printable UTF-8, not `.` or `..`.

        Raises BadRequest with the field at fault.
        """
        if not is_provider_name(provider):
            raise BadRequest("a provider name is 1 to 64 of a-z, 0-9, '_' and '-'", field="provider")
        name = unicodedata.normalize("NFC", name)
        if not name:
            raise BadRequest("the name is empty", field="name")
        if not name.isprintable():  # lone surrogates are not printable either, so encode() below cannot fail
            raise BadRequest("the name holds a character that is not printable", field="name")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise BadRequest(f"the name is longer than {MAX_NAME_BYTES} bytes", field="name")
        if name in (".", ".."):
            raise BadRequest("a name cannot be '.' or '..'", field="name")
        return cls(provider, name)

    @classmethod
    def from_id(cls, task_id: str) -> Self:
        """The task whose `id` this is. Raises BadRequest where no request could name one so."""
        provider, _, name = task_id.partition("/")
        task = cls.named(provider, name)
        if task.id != task_id:
            raise BadRequest("the name is not in NFC", field="name")
        return task


def is_provider_name(text: str) -> bool:
    """Whether `text` may name a provider: it becomes a Redis key, a URL segment and a file name."""
    return re.fullmatch(PROVIDER_NAME, text) is not None
