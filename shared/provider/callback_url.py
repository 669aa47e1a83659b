"""The URLs that providers call back: made and verified by a token that nobody else can make."""

import base64
import hmac

from shared.codec import canonical, dumps, loads
from shared.errors import SecretUnavailable
from shared.provider.credentials.credentials import ReadSecret
from shared.task import Task


class CallbackUrls:
    """URLs under `base`, each good for one submit of one generation of one task."""

    def __init__(self, base: str, secret: str, read_secret: ReadSecret) -> None:
        self._base = base.rstrip("/")
        self._secret = secret
        self._read_secret = read_secret

    def url(self, task: Task, generation: int, resubmits: int) -> str:
        """`${callback.url}`: the same for every try of one submit, as the key is. Raises SecretUnavailable."""
        return f"{self._base}/callbacks/{task.provider}/{self._token(task, generation, resubmits)}"

    def find(self, provider: str, token: str) -> tuple[Task, int, int] | None:
        """Task, generation and resubmits of a token; None if it was not made here. Raises SecretUnavailable."""
        try:
            name, generation, resubmits = loads(_unpacked(token.partition(".")[0]))
            found = Task(provider, str(name)), int(generation), int(resubmits)
            if hmac.compare_digest(self._token(*found).encode(), token.encode()):
                return found
        except (ValueError, TypeError, OverflowError):
            return None
        return None

    def _token(self, task: Task, generation: int, resubmits: int) -> str:
        key = self._read_secret(self._secret, fresh=False)
        if not key:
            raise SecretUnavailable(f"{self._secret}: is empty")
        job = [task.name, generation, resubmits]
        signed = hmac.digest(key.encode(), canonical([task.provider, *job]).encode(), "sha256")
        return f"{_packed(dumps(job).encode())}.{_packed(signed)}"


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
