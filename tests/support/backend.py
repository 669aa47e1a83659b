"""What stands behind the functions in a test: a store, a queue, a clock, and neighbours that a test may take away."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shared.queue import Hold, Queue
from shared.store import Store
from tests.support.clock import Clock
from tests.support.keys import PROVIDER, Bench
from tests.support.outage import DynamoDBOutage, RedisOutage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from redis import Redis


@dataclass(repr=False)
class Backend:
    """Everything of a test's own; modules add to it what they test."""

    store: Store
    queue: Queue
    clock: Clock
    bench: Bench
    redis_client: "Redis"
    dynamodb_client: "DynamoDBClient"

    @cached_property
    def redis(self) -> RedisOutage:
        """Takes Redis away, and lists its calls from now on."""
        return RedisOutage(self.redis_client)

    @cached_property
    def dynamodb(self) -> DynamoDBOutage:
        """Takes operations of DynamoDB away, and lists its calls from now on."""
        return DynamoDBOutage(self.dynamodb_client)

    def state(self, provider: str = PROVIDER) -> dict[str, tuple[str, int]]:
        """Where the tasks are, and their generations."""
        return self.bench.state(provider)

    def seed(self, name: str, **how: Any) -> Hold:
        """Put a task into the queue (see Bench.seed)."""
        return self.bench.seed(name, **how)

    def pass_(self, seconds: float) -> None:
        """Let time pass, here and in Redis."""
        self.clock.advance(seconds)
        self.bench.rewind(seconds)
