"""The URLs that providers call back: made and verified by a token that nobody else can make."""

import base64
import hmac
from dataclasses import dataclass

from shared.codec import canonical, dumps, loads
from shared.errors import SecretUnavailable
from shared.provider.credentials.credentials import ReadSecret
from shared.task import Task


@dataclass(frozen=True, slots=True)
class CallbackUrls:
    """URLs under `base`, each good for one submit of one generation of one task. `secret` refers to what signs them."""

    base: str
    secret: str
    read_secret: ReadSecret

    def url(self, task: Task, generation: int, resubmits: int) -> str:
        """`${callback.url}`: the same for every try of one submit, as the key is. Raises SecretUnavailable."""
        return f"{self.base.rstrip('/')}/callbacks/{task.provider}/{self._token(task, generation, resubmits)}"

    def find(self, provider: str, token: str) -> tuple[Task, int, int] | None:
        """Task, generation and resubmits of a token; None if it was not made here. Raises SecretUnavailable."""
        try:
            packed = token.partition(".")[0]
            name, generation, resubmits = loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
            found = Task(provider, str(name)), int(generation), int(resubmits)
            return found if hmac.compare_digest(self._token(*found).encode(), token.encode()) else None
        except (ValueError, TypeError, OverflowError):
            return None

    def _token(self, task: Task, generation: int, resubmits: int) -> str:
        key = self.read_secret(self.secret, fresh=False)
        if not key:
            raise SecretUnavailable(f"{self.secret}: is empty")
        job = [task.name, generation, resubmits]
        signed = hmac.digest(key.encode(), canonical([task.provider, *job]).encode(), "sha256")
        return f"{_packed(dumps(job).encode())}.{_packed(signed)}"


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
