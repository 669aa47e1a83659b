"""A queue and its keys at one desk: what the queue's own tests do to both, for one provider and one worker."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import Add, Becomes, Claim, End, Hold, Queue, Settle
from shared.task import Task
from tests.support.keys import PROVIDER, Bench, Keys, key_of

LEASE_SECONDS = 3000.0
"""Far longer than a test takes on a server, whose own time goes on: only `rewind` lets it pass."""
SETTLING: tuple[Becomes, ...] = get_args(Becomes)


def task(name: str = "a") -> Task:
    return Task(PROVIDER, name)


def names(claimed: Claim) -> list[str]:
    return [one.hold.task.name for one in claimed.tasks]


class Desk(Bench):
    """The bench with its queue."""

    def __init__(self, queue: Queue, keys: Keys) -> None:
        super().__init__(keys)
        self.queue = queue

    def add(self, name: str = "a", generation: int = 1, **options: Any) -> str:
        return self.put([name], generation, **options)[0]

    def put(
        self,
        names: Sequence[str],
        generation: int = 1,
        *,
        token: str = "adder",
        record: str = "{}",
        delay: float = 0,
        group: str = "",
        has_job: bool = False,
        turn: int = 0,
        came_back: bool = False,
        **options: Any,
    ) -> list[str]:
        """Add these tasks; one text names a task with each letter."""
        adds = [Add(task(name), generation, record, delay, group, has_job, turn, came_back) for name in names]
        return list(self.queue.add(adds, token=token, **options))

    def begin(self, names: Sequence[str], limits: Limits = UNLIMITED, *, token: str = "adder") -> list[str]:
        """Add these tasks, and take them at once."""
        return self.put(names, token=token, limits=limits, lease_seconds=LEASE_SECONDS)

    def claim(self, limits: Limits = UNLIMITED, *, limit: int = 10, token: str = "worker", **more: Any) -> Claim:
        return self.queue.claim(PROVIDER, limit=limit, lease_seconds=LEASE_SECONDS, token=token, limits=limits, **more)

    def take(self, limits: Limits = UNLIMITED, **options: Any) -> list[str]:
        """The names of what a claim gives."""
        return names(self.claim(limits, **options))

    def hold(self, limits: Limits = UNLIMITED, **options: Any) -> list[Hold]:
        return [one.hold for one in self.claim(limits, **options).tasks]

    def settle(
        self,
        becomes: Becomes,
        *holds: Hold,
        health: Health = UNKNOWN,
        delay: float = 5000,
        record: str | None = None,
        has_job: bool = True,
        attempted: bool = True,
        turn: int = 0,
    ) -> list[bool]:
        """Settle these in one call, all alike."""
        rows = [Settle(hold, becomes, delay, record, has_job, attempted, turn) for hold in holds]
        return self.queue.settle(rows, health)

    def end(self, becomes: Any, *names: str, generation: int = 1) -> list[bool]:
        """End these tasks in one call, all alike."""
        return self.queue.end([End(task(name), generation, becomes) for name in names])

    def has_lost(self, hold: Hold) -> bool:
        """Whether its holder can no longer move the task."""
        return [self.settle(becomes, hold) for becomes in SETTLING] == [[False]] * len(SETTLING)

    def write(self, part: str, member: str, value: float | str) -> None:
        """Touch one of the provider's keys."""
        self.keys.write(key_of(PROVIDER, part), member, value)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What is done meanwhile changes no key."""
        before = self.parts()
        yield
        assert self.parts() == before
