"""How soon a caller that waits hears of the end, and what its wait costs: `python -m benchmarks.waiting`.

In virtual time: the real waiter and the real scripts, on fakeredis. Each request waits for a task that a worker
completes at any moment of the wait. What the network takes is assumed, in the names below; API Gateway's own time and
a cold start come on top.
"""

import argparse
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fakeredis import FakeRedis, FakeServer
from fakeredis.commands_mixins import server_mixin

from benchmarks.virtual_time import Clock
from shared.api.preference import LONGEST_WAIT_SECONDS, Preferences
from shared.api.wait import Waiter
from shared.logs import log
from shared.queue import Add, Hold, Queue, Settle
from shared.settings import Settings
from shared.store import Item, Store
from shared.task import Task
from shared.work.parts import Parts

# What is assumed.
TRIP_SECONDS = 0.001  # to Redis and back
READ_SECONDS = 0.005  # to read the item
SETTLE_SECONDS = 0.010  # from when the data is stored until Redis has forgotten the task

FUNCTION_SECONDS = 28.0  # status' Timeout in the template
APART_SECONDS = 60.0  # from one wait to the next: none meets another
EPOCH = 1_800_000_000
BAR = 1.0
COLUMNS = ("after, p50 s", "after, p99 s", "looks a wait", "reads a wait", "paid s a wait")


@dataclass(slots=True)
class Found:
    """What came of one simulation; `after` holds the seconds from stored to answered, in order once it is over."""

    after: list[float] = field(default_factory=list)
    looks: int = 0
    reads: int = 0
    paid_seconds: float = 0

    def after_by(self, share: float) -> float:
        """No more than this share of the answers came later."""
        return self.after[math.ceil(share * len(self.after)) - 1]


class Items(Store):
    """The items, each of which takes its time to be read."""

    def __init__(self, read: Callable[[], None]) -> None:
        self.items: dict[Task, Item] = {}
        self._read = read

    def get(self, task: Task, now: int) -> Item:  # noqa: ARG002
        self._read()
        return self.items[task]

    def opened(self, item: Item, now: int) -> Item:  # noqa: ARG002
        return item


class Redis(FakeRedis):
    """A connection to the server, on which each call takes its time."""

    trip: Callable[[], None]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.trip()
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class Cloud:
    """Callers that wait, one after the other, and a worker that completes what they wait for."""

    def __init__(self, waits: int, seed: int, *, without_redis: bool) -> None:
        self.clock, self.random, self.found, self.waits = Clock(), Random(seed), Found(), waits
        self.store = Items(self.read)
        of_worker, of_waiter = FakeServer(), FakeServer()
        of_waiter.connected = not without_redis
        self.of_worker = Queue(FakeRedis(server=of_worker), "queue")
        redis = Redis(server=of_waiter if without_redis else of_worker)
        redis.trip = self.trip
        settings = Settings(provider_servers={}, status_wait_seconds=LONGEST_WAIT_SECONDS)
        parts = Parts(self.store, Queue(redis, "queue"), {}, settings, self.now_ms)
        self.waiter = Waiter(parts, self.clock.time, self.clock.sleep)
        for number in range(waits):
            self.clock.at(number * APART_SECONDS, partial(self.begin, Task("slow", f"t{number}")))

    def now_ms(self) -> int:
        return int((EPOCH + self.clock.now) * 1000)

    def trip(self) -> None:
        self.found.looks += 1
        self.clock.sleep(TRIP_SECONDS)

    def read(self) -> None:
        self.found.reads += 1
        self.clock.sleep(READ_SECONDS)

    def begin(self, task: Task) -> None:
        """A worker has the task and will complete it; a caller waits for that."""
        now = self.now_ms()
        begun: dict[str, Any] = {"status": "pending", "generation": 1, "created_at": now, "updated_at": now}
        self.store.items[task] = Item(task=task, input_digest="", **begun)
        self.of_worker.add([Add(task, 1, "{}")], token="w", lease_seconds=APART_SECONDS)
        stored = self.clock.now + self.random.uniform(0.1, LONGEST_WAIT_SECONDS - 5)
        self.clock.at(stored, partial(self.store_data, task))
        self.clock.at(stored + SETTLE_SECONDS, partial(self.settle, task))
        self.clock.begin(partial(self.wait, task, stored))

    def store_data(self, task: Task) -> None:
        self.store.items[task] = replace(self.store.items[task], status="completed", completed_at=self.now_ms())

    def settle(self, task: Task) -> None:
        self.of_worker.settle([Settle(Hold(task, 1, "w", 1), "completed")])

    def wait(self, task: Task, stored: float) -> None:
        """One request, as status serves it."""
        began = self.clock.now
        prefers = Preferences(wait_seconds=LONGEST_WAIT_SECONDS)
        answer = self.waiter.answer(task, prefers, lambda _: None, lambda: began + FUNCTION_SECONDS - self.clock.now)
        assert answer.body["status"] == "completed"
        self.found.after.append(self.clock.now - stored)
        self.found.paid_seconds += self.clock.now - began

    def is_over(self) -> bool:
        return len(self.found.after) == self.waits


def simulate(waits: int, seed: int, *, without_redis: bool) -> Found:
    """So many waits."""
    log.setLevel(logging.CRITICAL)
    cloud = Cloud(waits, seed, without_redis=without_redis)
    with patch.object(server_mixin, "time", SimpleNamespace(time=lambda: EPOCH + cloud.clock.now)):
        cloud.clock.run(cloud.is_over)
    cloud.found.after.sort()
    return cloud.found


def row(name: str, cells: Sequence[str]) -> None:
    """One line."""
    print(f"{name:<20}" + "".join(f"{cell:<20}" for cell in cells).rstrip(), flush=True)


def main() -> None:
    """Prints the table, in a few seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (%(default)s)")
    parser.add_argument("--waits", type=int, default=300, help="how many there are (%(default)s)")
    chosen = parser.parse_args()
    row("", COLUMNS)
    for name, without_redis in (("for the end", False), ("without Redis", True)):
        found = simulate(chosen.waits, chosen.seed, without_redis=without_redis)
        half = found.after_by(0.5)
        verdict = "" if without_redis else f" \u2264 {BAR:g} {'ok' if half <= BAR else 'MISSED'}"
        sums = (found.looks, found.reads, found.paid_seconds)
        each = [f"{one / chosen.waits:.2f}" for one in sums]
        row(name, (f"{half:.2f}{verdict}", f"{found.after_by(0.99):.2f}", *each))


if __name__ == "__main__":
    main()
