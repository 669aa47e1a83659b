"""How late tasks are asked, and what the runs that ask cost: `python -m benchmarks.lateness`.

In virtual time: the real tick and the real scripts, on fakeredis; runs overlap as they would. Each task's first attempt
is made by its request; it waits for 2 s, is asked by a run, waits for 30 s, is asked again and completes. Each wait is
told to callers: by the answer to the request, and at any moment of a wait; `told p99` is how far `next_attempt_at` and
`Retry-After` were from when the task was asked, whichever was farther (by schedule: how far that was after what they
said, for there they say by when). What AWS, the network and the provider take is assumed, in the names below.
"""

import argparse
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fakeredis import FakeRedis, FakeServer
from fakeredis.commands_mixins import server_mixin

from benchmarks.results import Row
from benchmarks.table import Table, add_keep
from benchmarks.virtual_time import Clock, Pool
from shared.api import view
from shared.limits import UNKNOWN, UNLIMITED
from shared.logs import log
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.queue import Add, Claimed, Hold, Place, Queue, Settle, new_token
from shared.queue import queue as queue_module
from shared.settings import SCHEDULE_SECONDS, Settings
from shared.store import Item, Store
from shared.task import Task
from shared.work import tick as tick_module
from shared.work.parts import Parts
from shared.work.settle import Settlement
from shared.work.tick import Tick
from shared.work.turn import Instant
from shared.work.wakeups import WakeUps
from shared.work.worker import Worker

# What is assumed.
ATTEMPT_SECONDS = 0.3  # what the provider takes, the worker's writes with it
SPREAD = (0.7, 1.3)  # from one attempt to another, times that
POLL_SECONDS = (2.0, 30.0)  # a task waits so long before the first and the second poll
WARM_SECONDS = 0.15  # from the event to a run's first claim, paid
COLD_SECONDS = 1.0  # the same where no environment is idle, paid
IDLE_SECONDS = 300.0  # for so long an environment that nobody uses is kept
TRIP_SECONDS = 0.001  # to Redis and back, from a run
SEND_SECONDS = 0.015  # to send a message
DELIVERIES = (0.2, 1.0)  # from the end of a message's delay to the event

FUNCTION_SECONDS = 80.0  # process' Timeout in the template
RECEIVED = 10  # messages that one run gets at the most, as the template says
LOADS = {1: 200.0, 60: 12.0, 1000: 2.0}  # tasks a minute, and for how many minutes they come
LATE_BARS = (0.6, 1.5)
PAID_BARS = {1: 1.2, 60: 0.77}
TOLD_BAR = 2.0
RULES = {"servers": ["http://127.0.0.1"], "submit": {"url": "/"}, "acceptors": [{"state": "success", "expected": ""}]}
COLUMNS = (
    "late p50, s", "late p99, s", "told p99, s", "paid, s a task", "messages, a task", "runs a task", "at once",
)  # fmt: skip


@dataclass(slots=True)
class Found:
    """What came of one simulation.

    `late` holds how late each poll was, and `told` how far from it what a caller was told; in order once it is over.
    """

    tasks: int = 0
    late: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    runs: int = 0
    colds: int = 0
    most_at_once: int = 0
    paid_seconds: float = 0
    messages: int = 0
    calls: int = 0  # of Redis, by runs

    def late_by(self, share: float) -> float:
        """No more than this share of the polls were later."""
        return within(self.late, share)


def within(seconds: list[float], share: float) -> float:
    """So large a share of them is no more than this."""
    return seconds[math.ceil(share * len(seconds)) - 1]


class HasTime(Store):
    """A store that is only asked for the time."""

    def __init__(self) -> None:
        """It has nothing to keep."""

    def know_time(self) -> None:
        """It is known."""

    def opened(self, item: Item, now: int) -> Item:  # noqa: ARG002
        """There is nothing elsewhere."""
        return item


class Redis(FakeRedis):
    """A connection to the server, on which each call takes its time."""

    pass_: Callable[[float], None]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.pass_(TRIP_SECONDS)
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class Cloud(Worker):
    """Requests, the schedule, the queue of wake-ups, the environments of process, and the provider that is asked."""

    def __init__(
        self,
        per_minute: float,
        minutes: float,
        delivery_seconds: float | None,
        seed: int,
        *,
        providers: int = 1,
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.random = Random(seed)
        self.found = Found()
        self.delivery_seconds = delivery_seconds
        wake_queue_url = "" if delivery_seconds is None else "https://queue"
        self.settings = Settings(provider_servers={}, wake_queue_url=wake_queue_url, **settings)
        self.polls: dict[str, int] = {}  # task -> how many of it were asked
        self.due: dict[str, float] = {}
        self.told: dict[str, list[tuple[float, float]]] = {}  # task -> between when and when, for each caller
        self.idle: list[float] = []  # since when each environment is
        self.alive = self.by_messages = 0
        self.undelivered: list[str] = []  # whom each message names
        server = FakeServer()
        rules, transport = Rules.from_json(RULES), Transport(1)
        credentials = Credentials(rules.security, lambda *_, **__: "", transport)
        provider = Provider(rules, transport, credentials, Random(seed))
        self.of_requests = self.queue(FakeRedis(server=server, decode_responses=True), lambda _: None)
        redis = Redis(server=server, decode_responses=True)
        redis.pass_ = self.trip
        queue = self.queue(redis, self.clock.sleep)
        self.names = [f"slow-{number}" for number in range(providers)]
        super().__init__(Parts(HasTime(), queue, dict.fromkeys(self.names, provider), self.settings, self.now_ms))
        self.desk = replace(self.parts, queue=self.of_requests)
        when = 0.0
        while (when := when + self.random.expovariate(per_minute / 60)) < minutes * 60:
            self.clock.at(when, partial(self.request, f"task-{self.found.tasks:06d}"))
            self.found.tasks += 1
        self.clock.at(self.random.uniform(0, SCHEDULE_SECONDS), self.schedule)

    def now_ms(self) -> int:
        return int(self.clock.now * 1000)

    def queue(self, redis: Any, pass_: Callable[[float], None]) -> Queue:
        """The queue, over its own connection and with its own client of SQS; `pass_` lets a call's time pass."""

        def send_message(*, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> None:  # noqa: ARG001, N803
            pass_(SEND_SECONDS)
            self.found.messages += 1
            comes_at = self.clock.now + DelaySeconds + (self.delivery_seconds or 0)
            self.clock.at(comes_at, partial(self.deliver, MessageBody))

        client = SimpleNamespace(send_message=send_message)
        wake_ups = WakeUps("", lambda: client, self.clock.time)
        return Queue(redis, "queue", None if self.delivery_seconds is None else wake_ups)

    def trip(self, seconds: float) -> None:
        """A run calls Redis."""
        self.found.calls += 1
        self.clock.sleep(seconds)

    # --- requests

    def takes(self) -> float:
        """The seconds of one attempt."""
        return ATTEMPT_SECONDS * self.random.uniform(*SPREAD)

    def request(self, name: str) -> None:
        """A request comes, and makes its task's first attempt."""
        task, token = Task(self.random.choice(self.names), name), new_token()
        self.of_requests.add([Add(task, 1, "{}")], token=token, lease_seconds=self.settings.lease_seconds)
        self.clock.at(self.clock.now + self.takes(), lambda: self.answer(Hold(task, 1, token, 1)))

    def answer(self, hold: Hold) -> None:
        """The first attempt is over: not ready."""
        self.polls[hold.task.name] = 0
        settled = [Settle(hold, "waiting", POLL_SECONDS[0], "{}")]
        [(_, place)] = self.of_requests.settle_and_look(settled, UNKNOWN, UNLIMITED)
        self.wait(hold.task, POLL_SECONDS[0])
        self.tell(hold.task, place)

    # --- what callers are told

    def wait(self, task: Task, seconds: float) -> None:
        """A task waits from now on; somebody looks meanwhile."""
        self.due[task.name], self.told[task.name] = self.clock.now + seconds, []
        self.clock.at(self.clock.now + self.random.uniform(0, seconds), partial(self.look, task, self.due[task.name]))

    def look(self, task: Task, due: float) -> None:
        """A caller asks again, unless it has not waited so long."""
        if self.due.get(task.name) == due:
            self.tell(task, self.of_requests.look([task], limits=UNLIMITED)[0])

    def tell(self, task: Task, place: Place) -> None:
        """A caller is told when the task will be asked."""
        answer = view.accepted(self.desk, item_of(task, self.now_ms()), place)
        at, by = (
            datetime.fromisoformat(str(answer.body[field])).timestamp() if field in answer.body else None
            for field in ("next_attempt_at", "next_attempt_by")
        )
        again = self.clock.now + (answer.retry_after_seconds or 0)
        if at is not None:
            self.told[task.name] += [(at, by or at), (at if by else again, again)]

    # --- runs

    def schedule(self) -> None:
        """The minute's run begins."""
        self.clock.at(self.clock.now + SCHEDULE_SECONDS, self.schedule)
        self.start(invite=self.invite, gives_way=True)

    def invite(self, further: int) -> None:
        """Runs that another has invited begin."""
        for _ in range(further):
            self.clock.at(self.clock.now, self.start)

    def deliver(self, provider: str) -> None:
        """A message can be received: a run gets it, with others, unless as many as may be are at work on some."""
        self.undelivered.append(provider)
        self.receive()

    def receive(self) -> None:
        if self.undelivered and self.by_messages < max(2, self.settings.max_workers):
            named, self.undelivered = set(self.undelivered[:RECEIVED]), self.undelivered[RECEIVED:]
            self.by_messages += 1
            self.start(self.done, providers=named, invite=self.invite)

    def done(self) -> None:
        """The run of some messages is over."""
        self.by_messages -= 1
        self.clock.at(self.clock.now, self.receive)

    def start(self, then: Callable[[], None] = lambda: None, **how: Any) -> None:
        """A run of process begins, in an environment that is idle or a new one."""
        self.clock.begin(lambda: self.run(then, how))

    def run(self, then: Callable[[], None], how: dict[str, Any]) -> None:
        began, found = self.clock.now, self.found
        self.idle = [since for since in self.idle if since > began - IDLE_SECONDS]
        is_warm, self.alive = bool(self.idle), self.alive + 1
        found.runs, found.colds = found.runs + 1, found.colds + (not is_warm)
        found.most_at_once = max(found.most_at_once, self.alive)
        if is_warm:
            self.idle.pop()
        self.clock.sleep(WARM_SECONDS if is_warm else COLD_SECONDS)
        ends = self.clock.now + FUNCTION_SECONDS
        tick = Tick(self.parts, self, lambda: ends - self.clock.now, monotonic=self.clock.time, **how)
        tick.sleep, tick.make_pool = self.clock.sleep, lambda threads: Pool(self.clock, threads, self.begin)
        tick.run()
        found.paid_seconds += self.clock.now - began
        self.alive -= 1
        self.idle.append(self.clock.now)
        then()

    # --- what a run asks

    def instant(self) -> Instant:
        return Instant(self.now_ms(), self.clock.now)

    def begin(self, claimed: Claimed, *_: Any) -> float:
        """An attempt begins; the seconds that it takes."""
        task, now = claimed.hold.task, self.clock.now
        self.found.late.append(now - self.due[task.name])
        self.found.told += [max(0.0, at - now, now - by) for at, by in self.told.pop(task.name)]
        return self.takes()

    def work(self, claimed: Claimed, since: Instant) -> Settlement:  # noqa: ARG002
        """An attempt ends: not ready after the first poll, and complete after the second."""
        name = claimed.hold.task.name
        self.polls[name] += 1
        if self.polls[name] == len(POLL_SECONDS):
            del self.polls[name]
            return Settlement(claimed.hold, "completed", "completed")
        seconds = POLL_SECONDS[self.polls[name]]
        self.wait(claimed.hold.task, seconds)
        return Settlement(claimed.hold, "waiting", "snoozed", delay_seconds=seconds, attempted=True)

    def is_over(self) -> bool:
        """Whether every poll was made and every run has ended."""
        return not self.alive and len(self.found.late) == len(POLL_SECONDS) * self.found.tasks


def item_of(task: Task, now: int) -> Item:
    """What the store would have of a task."""
    return Item(task=task, status="pending", generation=1, created_at=now, updated_at=now, input_digest="")


@contextmanager
def time_of(cloud: Cloud) -> Iterator[None]:
    """Let whoever asks the server or this host for the time be told the clock's, and whoever waits wait by it."""

    def wait(futures: Any, timeout: float, return_when: str) -> Any:  # noqa: ARG001
        return cloud.clock.wait(futures, timeout)

    epoch = 1_800_000_000
    with (
        patch.object(server_mixin, "time", SimpleNamespace(time=lambda: epoch + cloud.clock.now)),
        patch.object(queue_module, "time", SimpleNamespace(time_ns=lambda: int((epoch + cloud.clock.now) * 1e9))),
        patch.object(tick_module, "wait", wait),
    ):
        yield


def simulate(per_minute: float, minutes: float, delivery_seconds: float | None, seed: int, **how: Any) -> Found:
    """So many tasks a minute, for so long; without a delivery delay there are no wake-ups.

    `how` may say for how many `providers` they are, and other settings than the defaults.
    """
    cloud, level = Cloud(per_minute, minutes, delivery_seconds, seed, **how), log.level
    log.setLevel(logging.CRITICAL)
    try:
        with time_of(cloud):
            cloud.clock.run(cloud.is_over)
    finally:
        log.setLevel(level)
    cloud.found.late.sort()
    cloud.found.told.sort()
    return cloud.found


def say(table: Table, name: str, found: Found, bars: Sequence[float | None]) -> None:
    """One line of the table; each figure that has a bar has that and a verdict beside it."""
    figures = [found.late_by(0.5), found.late_by(0.99), within(found.told, 0.99)]
    figures += [found.paid_seconds / found.tasks, found.messages / found.tasks]
    beside = [f"{figure:.2f}{verdict(figure, bar)}" for figure, bar in zip(figures, bars, strict=True)]
    for what, figure, bar in zip(COLUMNS, figures, bars, strict=False):
        kind, _, unit = what.partition(", ")
        table.add(Row(f"{name}: {kind}", figure, unit, bar))
    row(name, *beside, f"{found.runs / found.tasks:.2f}", f"{found.most_at_once}")


def row(name: str, *cells: str) -> None:
    """One line."""
    print(f"{name:<32}" + "".join(f"{cell:<20}" for cell in cells).rstrip(), flush=True)


def verdict(figure: float, bar: float | None) -> str:
    """The bar, and whether the figure is as low."""
    return "" if bar is None else f" \u2264 {bar:<5g}{'ok' if figure <= bar else 'MISSED'}"


def main() -> None:
    """Prints the table, in two minutes on two processors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lateness", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (%(default)s)")
    parser.add_argument("--scale", type=float, default=1, help="times as many tasks (%(default)s)")
    add_keep(parser)
    chosen = parser.parse_args()
    row("", *COLUMNS)
    with ProcessPoolExecutor() as pool, Table("lateness", "Lateness, in virtual time", keep=chosen.keep) as table:
        under_way = {
            (per_minute, delivery): pool.submit(simulate, per_minute, minutes * chosen.scale, delivery, chosen.seed)
            for per_minute, minutes in reversed(LOADS.items())  # the longest first
            for delivery in (None, *DELIVERIES)
        }
        for per_minute, delivery in sorted(under_way, key=lambda load: (load[0], load[1] or 0)):
            how = "by schedule" if delivery is None else f"delivery {delivery:g} s"
            bars: tuple[float | None, ...] = (None,) * 5
            if delivery is None:
                bars = (None, None, TOLD_BAR, None, None)
            elif delivery == DELIVERIES[0]:
                bars = (*LATE_BARS, TOLD_BAR, PAID_BARS.get(per_minute), None)
            say(table, f"{per_minute:,} a minute, {how}", under_way[per_minute, delivery].result(), bars)


if __name__ == "__main__":
    main()
