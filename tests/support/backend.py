"""What stands behind the functions in a test: a store, a queue, a clock, and neighbours that a test may take away."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from shared.codec import Json
from shared.provider import Provider
from shared.queue import Hold, Queue
from shared.store import Item, Store
from shared.task import Task
from shared.work.parts import Parts
from tests.support.clock import Clock
from tests.support.keys import PROVIDER, Bench
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from redis import Redis

Do = Callable[[], object]


def nothing() -> None: ...


@dataclass(repr=False)
class QueueBackend:
    """A queue of a test's own; modules add to it what they test."""

    queue: Queue
    clock: Clock
    bench: Bench
    redis_client: "Redis"
    redis: RedisOutage
    patch: pytest.MonkeyPatch

    def state(self, provider: str = PROVIDER) -> dict[str, tuple[str, int]]:
        """Where the tasks are, and their generations."""
        return self.bench.state(provider)

    def seed(self, name: str, **how: Any) -> Hold:
        """Put a task into the queue (see Bench.seed)."""
        return self.bench.seed(name, **how)

    def pass_(self, seconds: float) -> None:
        """Let time pass, here and in Redis."""
        self.clock.advance(seconds)
        with self.redis.unseen():
            self.bench.rewind(seconds)

    def meanwhile(self, owner: object, verb: str, *, before: Do = nothing, after: Do = nothing) -> None:
        """At the next call of that method, and at no later one, this happens just before it or just after."""
        call = getattr(owner, verb)

        def called(*arguments: Any, **options: Any) -> Any:
            self.patch.setattr(owner, verb, call)
            before()
            done = call(*arguments, **options)
            after()
            return done

        self.patch.setattr(owner, verb, called)


@dataclass(repr=False)
class Backend(QueueBackend):
    """A store beside it."""

    store: Store
    dynamodb_client: "DynamoDBClient"
    dynamodb: DynamoDBOutage

    def parts(self, providers: Mapping[str, Provider], **settings: object) -> Parts:
        return parts_of(self.store, self.queue, providers, self.clock, **settings)

    def begin(self, task: Task, input_: Json = None) -> Item:
        """The next generation of the task."""
        item = self.store.begin(task, self.store.get(task, self.clock()), input_ or {}, self.clock())
        assert item
        return item

    def item_of(self, task: Task) -> Item:
        item = self.store.get(task, self.clock())
        assert item
        return item
