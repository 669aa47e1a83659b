"""A clock that stands still until it is told to move."""

from email.utils import formatdate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

START_MS = 1_750_000_000_000


class Clock:
    """Called, it tells epoch milliseconds; `monotonic` tells seconds; `sleep` moves it on."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    sleep = advance

    def told_by(self, client: "DynamoDBClient") -> None:
        """From now on each reply that this client gets says that it was made by this clock."""

        def tell(parsed: Any, **_: object) -> None:
            parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(self.now_ms // 1000, usegmt=True)

        client.meta.events.register("after-call.dynamodb", tell)
