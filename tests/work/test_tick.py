"""A tick keeps every slot busy, leaves nobody waiting for the slowest, and is back before its time is over."""

import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec import structs
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import QueueUnavailable, QueueUnreachable
from shared.limits import Health, Limits
from shared.outcome import Pending, Retry
from shared.provider import Provider
from shared.queue import Add, Claim, Claimed, End, Settle
from shared.reasons import Reason
from shared.record import Record
from shared.settings import Settings
from shared.store import Item, Store
from shared.task import Task
from shared.work.keeper import record_of
from shared.work.settle import Settlement
from shared.work.tick import SETTLE_SECONDS, Tick
from shared.work.tick_queue import REST_SECONDS, run_of
from shared.work.turn import Instant
from shared.work.worker import Worker
from tests.support import asking
from tests.support.backend import Backend, QueueBackend
from tests.support.clock import Clock
from tests.support.keys import key_of
from tests.support.parts import parts_of
from tests.support.redis_servers import SERVERS
from tests.support.simulator import BROKEN, DRIPPING, EXAMPLE, Simulator, completed, pending, says
from tests.support.ticking import Trusting
from tests.support.waker import Waker

Work = Callable[[Claimed], object]
PROVIDER = asking.provider(asking.rules("http://127.0.0.1:1"))

WAIT_SECONDS = 30
"""How long a thread of a test waits for what must come; only a failing test waits so long."""


class Doing(Worker):
    """A worker that does as the test says; whatever that returns, unless a settlement, means completed."""

    def __init__(self, work: Work = lambda _: None) -> None:
        self._does = work
        self._lock = threading.Lock()
        self.begun: list[str] = []
        self.told: list[str] = []

    def instant(self) -> Instant:
        return Instant(0, 0)

    def say_finished(self, settlement: Settlement) -> None:
        self.told.append(settlement.hold.task.provider)

    def work(self, claimed: Claimed, since: Instant) -> Settlement:
        with self._lock:
            self.begun.append(claimed.hold.task.name)
        done = self._does(claimed)
        completed = Settlement(claimed.hold, "completed", "completed", attempted=True)
        return done if isinstance(done, Settlement) else completed


def snoozed(claimed: Claimed, seconds: float = 0) -> Settlement:
    return Settlement(claimed.hold, counts_as="snoozed", delay_seconds=seconds, attempted=True)


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


class Inline(Executor):
    """Does the work where it is handed in: one after the other, no threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class OneByOne(Executor):
    """Keeps `slots` attempts going: with the last of them handed in, the oldest is done; with `total`, all are."""

    def __init__(self, slots: int, total: int) -> None:
        self._slots = slots
        self._left = total
        self._going: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._going.append((future, lambda: fn(*args, **kwargs)))
        self._left -= 1
        while self._going and (len(self._going) == self._slots or self._left == 0):
            oldest, work = self._going.pop(0)
            oldest.set_result(work())
        return future


class Together(Executor):
    """All attempts go on until the tick waits for one; then all are done."""

    def __init__(self) -> None:
        self._going: dict[Future[Any], Callable[[], Any]] = {}
        self._names: set[str] = set()
        self.together: list[set[str]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._going[future] = lambda: fn(*args, **kwargs)
        self._names.add(args[0].hold.task.name)
        return future

    def wait(self, futures: Any, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
        self.together.append(self._names)
        self._names = set()
        for future in futures:
            future.set_result(self._going.pop(future)())
        return set(futures), set()


@dataclass(repr=False)
class Bed(QueueBackend):
    """Ticks over a queue, in time that only sleeping and working move."""

    def __post_init__(self) -> None:
        self.slept: list[float] = []
        self.ends_at = self.clock.monotonic() + 80

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_(seconds)

    def fill(self, count: int, name: str = "task {}", **how: Any) -> None:
        """Put so many tasks into the queue."""
        for i in range(count):
            self.seed(name.format(i), **how)

    def remaining(self) -> float:
        return self.ends_at - self.clock.monotonic()

    def tick(
        self,
        worker: Worker,
        *,
        providers: tuple[str, ...] | dict[str, Provider] = ("example",),
        pool: Callable[[int], Executor] = lambda _: Inline(),
        remaining: Callable[[], float] | None = None,
        invite: Callable[[int], None] | None = None,
        woken: dict[str, Any] | None = None,
        **settings: float | str,
    ) -> dict[str, dict[str, int]]:
        """One tick; what counted above 0, for each provider."""
        of = providers if isinstance(providers, dict) else dict.fromkeys(providers, PROVIDER)
        parts = parts_of(cast(Store, Trusting()), self.queue, of, self.clock, **settings)
        outside = (self.clock.monotonic, self.sleep, pool)
        tally = Tick(parts, worker, remaining or self.remaining, invite, *outside, **woken or {}).run()
        return {provider: dict(+counter) for provider, counter in tally.items()}


@pytest.fixture
def bed(queue_backend: QueueBackend) -> Bed:
    return Bed(**vars(queue_backend))


class Woken:
    """Ticks over a queue that wakes: what it asked for, as provider and whole seconds."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.wakes = bed, list[tuple[str, int]]()
        bed.queue._wake = Waker(lambda provider, seconds: self.wakes.append((provider, math.ceil(seconds))))

    def tick(self, worker: Worker, **options: Any) -> dict[str, dict[str, int]]:
        return self.bed.tick(worker, wake_queue_url="https://sqs/wake", **options)

    def attempt_for_three_looks(self, name: str) -> list[float]:
        """A due task, whose attempt is over when the tick has waited for it three times; how long each may last."""
        held, waits = self.bed.seed(name), list[float]()

        def wait(futures: Any, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
            waits.append(timeout)
            self.bed.pass_(min(timeout, 10))
            if len(waits) < 3:
                return set(), set(futures)
            for future in futures:
                future.set_result(Settlement(structs.replace(held, token="lost")))
            return set(futures), set()

        self.bed.patch.setattr("shared.work.tick.wait", wait)
        return waits


@pytest.fixture
def woken(bed: Bed) -> Woken:
    return Woken(bed)


# --- what is taken, and how often it is looked for


def test_a_due_task_is_worked_on_and_settled(bed: Bed) -> None:
    bed.seed("a", due_seconds=-1)
    worker = Doing()
    assert bed.tick(worker) == {"example": {"claimed": 1, "completed": 1}}
    assert worker.begun == ["a"]
    assert bed.state() == {}


def test_a_tasks_score_is_0_while_it_is_processed(bed: Bed) -> None:
    bed.seed("a")
    scores: list[float | None] = []
    bed.tick(Doing(lambda claimed: scores.append(bed.bench.score("a"))))
    assert scores == [0]


def test_only_scores_above_0_and_not_in_the_future_are_taken(bed: Bed) -> None:
    bed.seed("due")
    bed.seed("later", due_seconds=3600)
    bed.seed("taken", lease_seconds=20)
    worker = Doing()
    bed.tick(worker)
    assert worker.begun == ["due"]
    assert bed.state() == {"later": ("waiting", 1), "taken": ("processing", 1)}


def test_a_quiet_queue_costs_one_round_trip_per_provider_and_no_waiting(bed: Bed) -> None:
    bed.tick(Doing(), providers=("coin", "example"))  # loads the script
    bed.redis.calls.clear()
    assert bed.tick(Doing(), providers=("coin", "example")) == {"coin": {}, "example": {}}
    assert bed.redis.calls == ["EVALSHA"] * 2
    assert bed.slept == []


def test_it_looks_every_five_seconds_and_when_the_next_task_falls_due(bed: Bed) -> None:
    bed.seed("a", due_seconds=12)
    worker = Doing()
    bed.tick(worker)
    assert [round(seconds) for seconds in bed.slept] == [5, 5, 2]
    assert worker.begun == ["a"]


def test_it_ends_as_soon_as_nothing_falls_due_within_idle_seconds(bed: Bed) -> None:
    bed.seed("a", due_seconds=16)
    assert bed.tick(Doing()) == {"example": {}}
    assert bed.slept == []
    assert bed.tick(Doing(), idle_seconds=17) == {"example": {"claimed": 1, "completed": 1}}


def test_it_does_not_wait_for_what_falls_due_only_after_the_window(bed: Bed) -> None:
    bed.seed("a", due_seconds=8)
    assert bed.tick(Doing(), window_seconds=7) == {"example": {}}
    assert bed.slept == []


def test_a_snoozed_task_is_asked_about_again_in_the_same_tick(bed: Bed) -> None:
    bed.seed("a")
    delays = iter([10, 10])
    worker = Doing(lambda claimed: snoozed(claimed, seconds) if (seconds := next(delays, 0)) else None)
    assert bed.tick(worker) == {"example": {"claimed": 3, "snoozed": 2, "completed": 1}}
    assert [round(seconds) for seconds in bed.slept] == [5, 5, 5, 5]


# --- in parallel, without a barrier


def test_attempts_run_in_parallel_and_never_more_than_parallel_tasks(bed: Bed) -> None:
    bed.fill(9)
    together, lock, running, most = threading.Barrier(3), threading.Lock(), set[str](), 0

    def work(claimed: Claimed) -> None:
        nonlocal most
        with lock:
            running.add(claimed.hold.task.name)
            most = max(most, len(running))
        together.wait(WAIT_SECONDS)  # breaks unless three of them are here at once
        with lock:
            running.discard(claimed.hold.task.name)

    tally = bed.tick(Doing(work), pool=ThreadPoolExecutor, parallel_tasks=3)
    assert tally == {"example": {"claimed": 9, "completed": 9}}
    assert most == 3


def test_a_finished_attempt_is_replaced_while_the_slowest_still_runs(bed: Bed) -> None:
    bed.seed("slow", due_seconds=-9)
    bed.fill(6, "quick {}")
    quick, all_quick_done = threading.Semaphore(0), list[bool]()

    def work(claimed: Claimed) -> None:
        if claimed.hold.task.name != "slow":
            quick.release()
            return
        all_quick_done.extend(quick.acquire(timeout=WAIT_SECONDS) for _ in range(6))

    assert bed.tick(Doing(work), pool=ThreadPoolExecutor, parallel_tasks=2)["example"]["completed"] == 7
    assert all_quick_done == [True] * 6


def test_no_more_is_claimed_than_there_are_free_slots(bed: Bed) -> None:
    bed.fill(5)
    seen: list[Counter[str]] = []
    together = threading.Barrier(2)

    def work(claimed: Claimed) -> None:
        if together.wait(WAIT_SECONDS) == 0:
            seen.append(Counter(where for where, _ in bed.state().values()))
        together.wait(WAIT_SECONDS)

    bed.seed("task 5")
    bed.tick(Doing(work), pool=ThreadPoolExecutor, parallel_tasks=2)
    assert seen[0] == Counter(processing=2, waiting=4)
    assert all(counts["processing"] <= 2 for counts in seen)


@pytest.mark.promise("turns", "providers with due tasks share the slots")
def test_providers_with_due_tasks_share_the_slots_at_every_moment(bed: Bed) -> None:
    for provider in ("a", "b"):
        for i in range(20):
            bed.seed(f"{provider} {i}", provider=provider)
    worker = Doing()
    bed.tick(worker, providers=("a", "b"), pool=lambda slots: OneByOne(slots, 40), parallel_tasks=4)
    lead = 0
    for name in worker.begun[:-4]:
        lead += 1 if name.startswith("a") else -1
        assert abs(lead) <= 2
    assert len(worker.begun) == 40


def test_a_single_slot_is_shared_too(bed: Bed) -> None:
    for provider in ("a", "b", "c"):
        for i in range(5):
            bed.seed(f"{provider} {i}", provider=provider)
    worker = Doing()
    bed.tick(worker, providers=("a", "b", "c"), parallel_tasks=1)
    assert [name[0] for name in worker.begun] == ["a", "b", "c"] * 5


def test_a_provider_alone_gets_every_slot(bed: Bed) -> None:
    bed.fill(4, "task {}", provider="b")
    together = threading.Barrier(4)
    worker = Doing(lambda _: together.wait(WAIT_SECONDS))
    tally = bed.tick(worker, providers=("a", "b", "c"), pool=ThreadPoolExecutor, parallel_tasks=4)
    assert tally["b"] == {"claimed": 4, "completed": 4}


# --- the window and the deadline


def test_attempts_start_until_the_window_ends(bed: Bed) -> None:
    bed.seed("a")
    began = bed.clock.monotonic()
    starts: list[float] = []

    def work(claimed: Claimed) -> Settlement:
        starts.append(bed.clock.monotonic() - began)
        bed.pass_(12)
        return snoozed(claimed)

    bed.tick(Doing(work), window_seconds=50)
    assert starts == [0, 12, 24, 36, 48]
    assert bed.state() == {"a": ("waiting", 1)}


@pytest.mark.promise("faults", "two ticks at once, and a tick with little time left")
def test_a_function_with_less_time_starts_nothing_that_it_could_not_end(bed: Bed) -> None:
    bed.seed("a")

    def work(claimed: Claimed) -> Settlement:
        bed.pass_(4)
        return snoozed(claimed)

    worker = Doing(work)
    bed.ends_at = bed.clock.monotonic() + 20 + SETTLE_SECONDS + 10
    bed.tick(worker)
    assert len(worker.begun) == 3  # after 0, 4 and 8 seconds of the 10


@pytest.mark.parametrize("seconds", [0, 1, 20 + SETTLE_SECONDS])
def test_without_time_for_an_attempt_nothing_is_claimed(bed: Bed, seconds: float) -> None:
    bed.seed("a")
    bed.redis.calls.clear()
    assert bed.tick(Doing(), remaining=lambda: seconds) == {"example": {}}
    assert bed.redis.calls == []


def test_what_was_claimed_too_late_to_be_started_is_released(bed: Bed) -> None:
    bed.fill(3)
    bed.meanwhile(bed.queue, "claim", after=lambda: bed.clock.advance(51))
    worker = Doing()
    assert bed.tick(worker) == {"example": {"claimed": 3, "released": 3}}
    assert worker.begun == []
    assert set(bed.state().values()) == {("waiting", 1)}


def test_a_hung_attempt_is_abandoned_to_its_lease_and_the_others_are_settled(bed: Bed) -> None:
    bed.seed("hung")
    bed.seed("sound")
    over, left = threading.Event(), iter(range(40, -1, -1))
    try:
        tally = bed.tick(
            Doing(lambda claimed: over.wait(WAIT_SECONDS) if claimed.hold.task.name == "hung" else None),
            pool=ThreadPoolExecutor,
            remaining=lambda: next(left),
            attempt_seconds=1,
            tick_seconds=0.01,
        )
    finally:
        over.set()
    assert tally == {"example": {"claimed": 2, "completed": 1, "abandoned": 1}}
    assert next(left) > 0
    assert bed.state() == {"hung": ("processing", 1)}


def test_it_waits_for_a_hung_attempt_only_while_time_to_settle_is_left(bed: Bed) -> None:
    bed.seed("hung")
    over = threading.Event()

    def waits(futures: Any, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
        bed.clock.advance(max(timeout, 0.1))
        return set(), set(futures)

    bed.patch.setattr("shared.work.tick.wait", waits)
    try:
        tally = bed.tick(Doing(lambda _: over.wait(WAIT_SECONDS)), pool=ThreadPoolExecutor, parallel_tasks=1)
    finally:
        over.set()
    assert tally == {"example": {"claimed": 1, "abandoned": 1}}
    assert 0 < SETTLE_SECONDS / 2 - bed.remaining() < 1


def test_a_run_whose_last_attempt_took_all_the_time_abandons_nothing(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.seed("a")
    assert bed.tick(Doing(lambda _: bed.clock.advance(79))) == {"example": {"claimed": 1, "completed": 1}}
    assert "abandoned" not in caplog.text


# --- tasks that came back

came_back = pytest.mark.parametrize("came_back", [1, 2], ids=["once", "more often"])


@came_back
def test_what_came_back_waits_until_nothing_else_is_due_and_then_runs_alone(bed: Bed, came_back: int) -> None:
    bed.seed("back", due_seconds=-9, came_back=came_back)
    bed.seed("before 1")
    bed.seed("before 2")
    lock, running, beside = threading.Lock(), set[str](), list[str]()

    def work(claimed: Claimed) -> None:
        name = claimed.hold.task.name
        with lock:
            running.add(name)
        if name == "back":
            bed.seed("after 1")
            bed.seed("after 2")
            beside.extend(running)
        with lock:
            running.discard(name)

    worker = Doing(work)
    assert bed.tick(worker, pool=ThreadPoolExecutor, parallel_tasks=2)["example"]["completed"] == 5
    assert beside == ["back"]
    assert [name.split()[0] for name in worker.begun] == ["before", "before", "back", "after", "after"]


@came_back
def test_nothing_is_claimed_beside_what_came_back(bed: Bed, came_back: int) -> None:
    bed.seed("back", came_back=came_back)
    begun, over = threading.Event(), threading.Event()

    def work(claimed: Claimed) -> None:
        if claimed.hold.task.name == "back":
            begun.set()
            over.wait(WAIT_SECONDS)

    worker = Doing(work)
    ticking = threading.Thread(target=lambda: bed.tick(worker, pool=ThreadPoolExecutor, tick_seconds=0.01))
    ticking.start()
    assert begun.wait(WAIT_SECONDS)
    bed.seed("neighbour", due_seconds=-1)
    bed.seed("another", due_seconds=-1, came_back=1)
    before = bed.redis.calls.count("EVALSHA")
    assert not over.wait(0.05)  # several times tick_seconds: it would have looked
    assert (bed.redis.calls.count("EVALSHA"), worker.begun) == (before, ["back"])
    over.set()
    ticking.join(WAIT_SECONDS)
    assert worker.begun == ["back", "neighbour", "another"]


@came_back
def test_what_came_back_gets_no_company_even_when_the_time_is_nearly_over(bed: Bed, came_back: int) -> None:
    bed.seed("back", came_back=came_back)
    left, over, running, beside = [60, 2.5, 2.6], threading.Event(), set[str](), dict[str, set[str]]()

    def remaining() -> float:
        if not left:
            over.set()
            return 60
        if len(left) == 1:
            bed.seed("neighbour", due_seconds=-1)
        return left.pop(0)

    def work(claimed: Claimed) -> None:
        name = claimed.hold.task.name
        beside[name] = set(running)
        running.add(name)
        over.wait(WAIT_SECONDS)
        running.discard(name)

    bed.tick(Doing(work), pool=ThreadPoolExecutor, remaining=remaining)
    assert beside == {"back": set(), "neighbour": set()}


def test_in_the_last_third_what_came_back_goes_first_however_much_is_due(bed: Bed) -> None:
    bed.seed("once", came_back=1)
    bed.seed("often", came_back=2)
    bed.seed("ordinary")
    began, starts = bed.clock.monotonic(), list[tuple[str, float]]()

    def work(claimed: Claimed) -> Settlement | None:
        starts.append((claimed.hold.task.name, bed.clock.monotonic() - began))
        bed.pass_(3)
        return snoozed(claimed) if claimed.hold.task.name == "ordinary" else None

    bed.tick(Doing(work), window_seconds=30)
    ordinary = [("ordinary", at) for at in range(0, 20, 3)]
    assert starts == [*ordinary, ("once", 21), ("often", 24), ("ordinary", 27)]


@came_back
def test_in_the_last_third_it_waits_for_what_still_runs_and_nothing_new_is_begun(bed: Bed, came_back: int) -> None:
    bed.seed("back", due_seconds=-9, came_back=came_back)
    for i, name in enumerate(("slow", "quick", "more")):
        bed.seed(name, due_seconds=i - 5)
    began, looks, looked_often, running, beside = bed.clock.monotonic(), 0, threading.Event(), set[str](), list[str]()

    def remaining() -> float:
        nonlocal looks
        looks += bed.clock.monotonic() >= began + 20
        if looks > 5:
            looked_often.set()
        return 60

    def work(claimed: Claimed) -> None:
        name = claimed.hold.task.name
        running.add(name)
        if name == "slow":
            looked_often.wait(WAIT_SECONDS)
        elif name == "quick":
            bed.clock.advance(21)
        elif name == "back":
            beside.extend(running)
        running.discard(name)

    worker = Doing(work)
    bed.tick(
        worker, pool=ThreadPoolExecutor, remaining=remaining, parallel_tasks=2, window_seconds=30, tick_seconds=0.01
    )
    assert beside == ["back"]
    assert worker.begun[2:] == ["back", "more"]


def test_in_the_last_third_what_came_back_and_may_not_begin_holds_nobody_up(bed: Bed) -> None:
    bed.seed("ordinary", provider="a")
    bed.seed("back", provider="b", came_back=1)
    bed.queue.add([Add(Task("b", "held"), 1, "{}")], token="t")
    (held,) = bed.queue.claim("b", limit=1, lease_seconds=300, token="u").tasks
    bed.queue.settle([Settle(held.hold, "completed")], Health(pause_seconds=500))

    def work(claimed: Claimed) -> Settlement:
        bed.pass_(3)
        return snoozed(claimed)

    worker = Doing(work)
    bed.tick(worker, providers=("a", "b"), window_seconds=30)
    assert worker.begun == ["ordinary"] * 10


def test_what_came_back_once_of_every_provider_runs_together_beside_no_ordinary_task(bed: Bed) -> None:
    for provider in ("a", "b"):
        for number in range(2):
            bed.seed(f"{provider} {number}", provider=provider, came_back=1)
        bed.seed("ordinary", provider=provider, due_seconds=-1)
    together, lock, running, beside = threading.Barrier(4), threading.Lock(), set[str](), list[set[str]]()

    def work(claimed: Claimed) -> None:
        name = claimed.hold.task.name
        with lock:
            running.add(name)
        if name != "ordinary":
            together.wait(WAIT_SECONDS)  # breaks unless all four are here at once
            with lock:
                beside.append(set(running))
            together.wait(WAIT_SECONDS)
        with lock:
            running.discard(name)

    tally = bed.tick(Doing(work), providers=("a", "b"), pool=ThreadPoolExecutor)
    assert tally == {"a": {"claimed": 3, "completed": 3}, "b": {"claimed": 3, "completed": 3}}
    assert beside == [{"a 0", "a 1", "b 0", "b 1"}] * 4


def test_what_came_back_more_often_runs_alone_and_providers_take_turns(bed: Bed) -> None:
    for provider in ("a", "b"):
        for i in range(2):
            bed.seed(f"{provider} {i}", provider=provider, came_back=2 + i)
        bed.seed(f"{provider} once", provider=provider, came_back=1)
    pool = Together()
    bed.patch.setattr("shared.work.tick.wait", pool.wait)
    tally = bed.tick(Doing(), providers=("a", "b"), pool=lambda _: pool)
    assert tally == {"a": {"claimed": 3, "completed": 3}, "b": {"claimed": 3, "completed": 3}}
    assert pool.together == [{"a once", "b once"}, {"a 0"}, {"b 0"}, {"a 1"}, {"b 1"}]


@came_back
def test_what_somebody_else_took_meanwhile_holds_nobody_up(bed: Bed, came_back: int) -> None:
    bed.seed("back", came_back=came_back)
    claim = bed.queue.claim

    def beaten(provider: str, **options: Any) -> Claim:
        if options["which"] != "ordinary":
            claim(provider, **(options | {"token": "somebody else", "limit": 1}))
        return claim(provider, **options)

    bed.patch.setattr(bed.queue, "claim", beaten)
    assert bed.tick(Doing()) == {"example": {}}


@came_back
def test_what_came_back_to_a_paused_provider_is_not_looked_for_again_and_again(bed: Bed, came_back: int) -> None:
    bed.seed("back", came_back=came_back)
    bed.seed("held")
    (held,) = bed.queue.claim("example", limit=1, lease_seconds=300, token="u").tasks
    bed.queue.settle([Settle(held.hold, "completed")], Health(pause_seconds=12))
    bed.redis.calls.clear()
    assert bed.tick(Doing()) == {"example": {"claimed": 1, "completed": 1}}
    assert bed.redis.calls.count("EVALSHA") <= 2 * 4 + 3  # twice every five seconds, and once it may begin


# --- what goes wrong


PROVIDERS = ("a", "b", "c", "d", "e", "f")
READ_SECONDS = 2.0  # how long a call waits for a Redis that accepts and never answers


class Hung:
    """Redis accepts and never answers, from `hang` until it is back."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.asked_at = bed, list[float]()
        bed.redis.fails = self.fails

    def hang(self) -> None:
        self.bed.redis.away = True

    def fails(self) -> RedisTimeoutError:
        self.asked_at.append(self.bed.clock.monotonic())
        self.bed.clock.advance(READ_SECONDS)
        return RedisTimeoutError("Timeout reading from socket")

    @property
    def rests(self) -> list[float]:
        """The seconds between the end of each call and the next."""
        return [after - before - READ_SECONDS for before, after in itertools.pairwise(self.asked_at)]


@pytest.fixture
def hung(bed: Bed) -> Hung:
    return Hung(bed)


def in_trouble(claimed: Claimed) -> Settlement:
    """What an attempt gives that met an error of the provider's."""
    record = Record(generation=1, created_at=0, input={}, errors=1, reason="http")
    return Settlement(
        claimed.hold, counts_as="retried", outcome=Retry(5, Reason.HTTP), record=record, delay_seconds=5, attempted=True
    )


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "hangs"])
def test_redis_away_is_met_once_in_a_while_and_no_error(
    bed: Bed, hung: Hung, caplog: pytest.LogCaptureFixture, refuses: bool
) -> None:
    """C10."""
    bed.seed("a", provider="a")
    if refuses:
        bed.redis.fails = lambda: RedisConnectionError("Connection refused")
    hung.hang()
    tally = bed.tick(Doing(), providers=PROVIDERS)
    assert tally == {name: {"unreachable": 1} if name in ("a", "b") else {} for name in PROVIDERS}
    assert len(bed.redis.calls) == 2
    assert bed.slept == [REST_SECONDS]
    said = [(line.message, vars(line)["rest_seconds"]) for line in caplog.records]
    assert said == [("queue unavailable", REST_SECONDS)] * 2
    bed.redis.away = False
    assert bed.tick(Doing(), providers=PROVIDERS)["a"]["completed"] == 1


def test_redis_that_hangs_is_asked_once_in_a_while_however_many_providers_wait(bed: Bed, hung: Hung) -> None:
    """C10: one timeout, a rest, one timeout: not one for each provider in each round."""
    for provider in PROVIDERS:
        bed.fill(2, provider=provider)

    def work(claimed: Claimed) -> Settlement | None:
        if len(worker.begun) < 12:
            return None
        hung.hang()
        return in_trouble(claimed)

    worker = Doing(work)
    bed.patch.setattr(bed, "sleep", bed.clock.advance)
    tally = bed.tick(worker, providers=PROVIDERS)
    assert sum(counts["claimed"] for counts in tally.values()) == 12
    assert {name: counts["unsettled"] for name, counts in tally.items()} == dict.fromkeys(PROVIDERS, 2)
    assert sum(counts.get("unreachable", 0) for counts in tally.values()) == len(hung.asked_at)
    assert 8 < len(hung.asked_at) < 80 / (READ_SECONDS + REST_SECONDS) + 1
    assert all(rest >= REST_SECONDS for rest in hung.rests)
    assert worker.told == ["f"]  # of what is completed, the item says so
    assert 0 < bed.remaining() <= SETTLE_SECONDS
    bed.redis.away = False


def test_what_could_not_be_settled_is_settled_once_redis_is_back_with_its_own_health(bed: Bed, hung: Hung) -> None:
    bed.fill(3)
    began = bed.clock.monotonic()

    def sleep(seconds: float) -> None:
        bed.pass_(seconds)
        if bed.clock.monotonic() >= began + 12:
            bed.redis.away = False

    def work(claimed: Claimed) -> Settlement:
        if len(worker.begun) == 3:
            hung.hang()
        return in_trouble(claimed)

    worker = Doing(work)
    bed.patch.setattr(bed, "sleep", sleep)
    tally = bed.tick(worker, idle_seconds=0)
    assert tally["example"] == {"claimed": 3, "retried": 3, "unreachable": len(hung.asked_at)}
    assert len(hung.asked_at) == 2
    assert bed.bench.parts()["gate"] == {"troubles": "3"}
    assert {where for where, _ in bed.state().values()} == {"waiting"}


def test_batches_that_could_not_be_settled_keep_their_health_apart(bed: Bed) -> None:
    bed.seed("first", due_seconds=-9)
    bed.seed("second")
    settle, fails = bed.queue.settle, iter([True] * 3)

    def failing(*arguments: Any) -> Any:
        if next(fails, False):
            raise QueueUnavailable("Redis: out of memory")
        heard.append(arguments[1])
        return settle(*arguments)

    heard: list[Health] = []
    bed.patch.setattr(bed.queue, "settle", failing)
    well = Record(generation=1, created_at=0, input={})
    worker = Doing(
        lambda claimed: (
            in_trouble(claimed)
            if claimed.hold.task.name == "first"
            else structs.replace(in_trouble(claimed), outcome=Pending(5), record=well)
        )
    )
    assert bed.tick(worker, parallel_tasks=1, idle_seconds=0)["example"]["retried"] == 2
    assert [(health.errors, health.well) for health in heard] == [(1, frozenset()), (0, frozenset({"second"}))]


def test_settling_is_tried_again_while_every_slot_is_taken(bed: Bed) -> None:
    for i, name in enumerate(("slow", "quick", "next")):
        bed.seed(name, due_seconds=i - 5)
    for module in ("tick", "tick_queue"):
        bed.patch.setattr(f"shared.work.{module}.REST_SECONDS", 0.01)
    settle, settled, waited = bed.queue.settle, threading.Event(), list[bool]()
    begun = threading.Event()

    def once_without(rows: Any, health: Health, limits: Limits) -> Any:
        if not begun.is_set():
            raise QueueUnavailable("Redis: out of memory")
        settled.set()
        return settle(rows, health, limits)

    def work(claimed: Claimed) -> None:
        if claimed.hold.task.name == "next":
            begun.set()
        if claimed.hold.task.name != "quick":
            waited.append(settled.wait(WAIT_SECONDS))

    bed.patch.setattr(bed.queue, "settle", once_without)
    tally = bed.tick(Doing(work), pool=ThreadPoolExecutor, parallel_tasks=2)
    assert tally["example"]["completed"] == 3
    assert waited == [True, True]


def test_the_words_of_what_could_not_be_settled_take_no_longer_than_there_is_time(bed: Bed, hung: Hung) -> None:
    bed.seed("a")
    waits = list[tuple[float, float]]()

    def work(claimed: Claimed) -> Settlement:
        hung.hang()
        return in_trouble(claimed)

    bed.patch.setattr(bed, "sleep", bed.clock.advance)

    def wait(futures: Any, timeout: float, return_when: str = "") -> tuple[set[Any], set[Any]]:
        waits.append((timeout, bed.remaining()))
        return set(futures), set()

    bed.patch.setattr("shared.work.tick.wait", wait)
    assert bed.tick(Doing(work))["example"]["unsettled"] == 1
    timeout, remaining = waits[-1]
    assert timeout == max(0, remaining - SETTLE_SECONDS / 2)
    bed.redis.away = False


def test_a_result_in_hand_that_redis_could_not_be_told_of_is_said_to_be_dropped(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.seed("a")
    record = Record(generation=1, created_at=0, input={}, result='"SECRET"')

    def work(claimed: Claimed) -> Settlement:
        bed.redis.away = True
        return Settlement(claimed.hold, record=record)

    assert bed.tick(Doing(work))["example"]["unsettled"] == 1
    bed.redis.away = False
    assert [line.message for line in caplog.records].count("result dropped") == 1  # C39
    assert "SECRET" not in caplog.text


def test_redis_away_at_the_end_leaves_the_task_to_its_lease(bed: Bed) -> None:
    bed.seed("a")
    tally = bed.tick(Doing(lambda _: setattr(bed.redis, "away", True)))
    assert tally["example"].keys() == {"claimed", "unreachable", "unsettled"}
    bed.redis.away = False
    bed.ends_at += 80
    assert bed.tick(Doing())["example"] == {"claimed": 1, "expired": 1, "completed": 1}


@pytest.mark.junk
def test_an_error_of_one_providers_keys_makes_no_other_wait(bed: Bed) -> None:
    bed.redis_client.set("{queue:a}", "no sorted set")
    for provider in PROVIDERS[1:]:
        bed.seed("task", provider=provider)
    began = bed.clock.monotonic()
    tally = bed.tick(Doing(), providers=PROVIDERS)
    assert tally.pop("a").keys() == {"unreachable"}
    assert tally == {name: {"claimed": 1, "completed": 1} for name in PROVIDERS[1:]}
    assert bed.clock.monotonic() == began


@pytest.mark.parametrize("slots", [1, 9])
def test_one_silent_node_of_a_cluster_leaves_the_others_providers_served(bed: Bed, slots: int) -> None:
    bed.fill(3, provider="b")
    claim = bed.queue.claim

    def silent(provider: str, **options: Any) -> Claim:
        if provider == "a":
            raise QueueUnreachable("Redis: Timeout reading from socket")
        return claim(provider, **options)

    bed.patch.setattr(bed.queue, "claim", silent)
    assert bed.tick(Doing(), providers=("a", "b"), parallel_tasks=slots)["b"]["completed"] == 3


def test_a_claim_without_a_reply_is_named_by_the_next_which_gets_its_tasks_again(bed: Bed) -> None:
    bed.fill(2, provider="b")
    bed.seed("later", provider="a", due_seconds=12)
    claim, came_back, named = bed.queue.claim, list[int](), list[tuple[str, str]]()

    def unheard(provider: str, **options: Any) -> Claim:
        claimed = claim(provider, **options)
        if provider == "b":
            named.append((options["lost_token"], options["token"]))
        if len(named) in (1, 2) and provider == "b":
            raise QueueUnreachable("Redis: Timeout reading from socket")
        return claimed

    bed.patch.setattr(bed.queue, "claim", unheard)
    tally = bed.tick(Doing(lambda claimed: came_back.append(claimed.came_back)), providers=("a", "b"))
    assert tally["b"] == {"claimed": 2, "completed": 2, "unreachable": 2}
    assert came_back == [0, 0, 0]
    (own, first), (lost, second), (again, _), (last, _), *more = named
    assert (own, lost, again, last) == (first, first, first, second)
    assert all(lost == token for lost, token in more)  # should the client repeat it


def test_claims_rest_while_dynamodb_does_not_answer(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    """C10."""
    bed.fill(2, provider="a")
    bed.fill(9, provider="b")
    began, asked = bed.clock.monotonic(), list[float]()

    def away(claimed: Claimed) -> Settlement:
        asked.append(bed.clock.monotonic() - began)
        return Settlement(claimed.hold, delay_seconds=10, store_away=len(asked) <= 2)

    bed.tick(Doing(away), providers=("a", "b"), parallel_tasks=2, window_seconds=9)
    assert asked == [0, 0, *[REST_SECONDS] * 9]
    [line] = [one for one in caplog.records if one.message == "claims rest"]
    assert vars(line)["rest_seconds"] == REST_SECONDS


def test_lost_tasks_are_counted(bed: Bed) -> None:
    bed.seed("a")
    tally = bed.tick(Doing(lambda claimed: bed.queue.end([End(claimed.hold.task, 1, "dropped")])))
    assert tally["example"] == {"claimed": 1, "lost": 1}


@pytest.mark.promise("once", "a due task is given to one worker")
@pytest.mark.server
@pytest.mark.parametrize("redis_kind", ["valkey", "redis"], indirect=True)
def test_two_ticks_at_once_ask_about_each_task_once(bed: Bed) -> None:
    bed.fill(20)
    start, workers, tallies = threading.Barrier(2), [Doing(), Doing()], list[Any]()

    def tick(worker: Worker) -> None:
        start.wait(WAIT_SECONDS)
        tallies.append(bed.tick(worker, pool=ThreadPoolExecutor, parallel_tasks=3))

    threads = [threading.Thread(target=tick, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert Counter(workers[0].begun + workers[1].begun) == Counter(f"task {i}" for i in range(20))
    assert sum(tally["example"].get("completed", 0) for tally in tallies) == 20
    assert bed.state() == {}


# --- with the real worker and a real provider


@dataclass(repr=False)
class RealBed(Bed, Backend):
    """Ticks with the real worker, over the simulator."""

    simulator: Simulator = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.provider = self.simulator.provider(EXAMPLE, polling={"minDelay": 2, "multiplier": 1, "jitter": "none"})
        self.worker = Worker(self.parts({"example": self.provider}))

    def begun(self, name: str) -> Item:
        """Begins a task and puts it into the queue, due now."""
        item = self.begin(Task("example", name))
        self.queue.add([Add(item.task, item.generation, record_of(item).to_text())], token="mine")
        return item


@pytest.fixture
def real(backend: Backend, simulator: Simulator) -> RealBed:
    return RealBed(**vars(backend), simulator=simulator)


@pytest.mark.promise("faults", "our own errors in some tasks of many")
@pytest.mark.promise("ends", "one failing task or provider harms no other")
def test_a_bad_task_and_a_broken_one_harm_no_other(real: RealBed) -> None:
    for i in range(10):
        real.begun(f"task {i}")
    real.simulator.say(completed({}))
    attempt, record = real.provider.attempt, real.worker._record
    real.patch.setattr(
        real.provider, "attempt", lambda one, *a, **k: 1 / 0 if one.name == "task 3" else attempt(one, *a, **k)
    )
    real.patch.setattr(
        real.worker, "_record", lambda one, *more: 1 / 0 if one.hold.task.name == "task 7" else record(one, *more)
    )
    tally = real.tick(real.worker, pool=ThreadPoolExecutor, idle_seconds=0)
    assert tally["example"] == {"claimed": 10, "completed": 8, "retried": 1, "released": 1}
    assert real.state().keys() == {"task 3", "task 7"}


@pytest.mark.promise("ends", "one failing task or provider harms no other")
def test_a_provider_that_fails_harms_no_other_provider(real: RealBed) -> None:
    real.begun("broken")
    real.begun("sound")
    real.simulator.say(BROKEN, to="broken")
    real.simulator.say(completed({}), to="sound")
    tally = real.tick(real.worker, idle_seconds=0)
    assert tally["example"] == {"claimed": 2, "completed": 1, "retried": 1}
    assert list(real.state()) == ["broken"]


class Died(BaseException):
    """What ends a worker: nothing after it happens."""


@pytest.mark.promise("faults", "a task that kills its workers")
@pytest.mark.promise("ends", "a task that kills its workers fails after `MAX_CRASHES`; no other task is affected")
def test_a_task_that_kills_its_worker_fails_and_its_neighbours_are_served(real: RealBed) -> None:
    for name in ("killer", "x", "y", "z"):
        real.begun(name)
    real.simulator.say(completed({}))
    ask, work, killed, came_back = real.provider.attempt, real.worker.work, list[str](), dict[str, int]()

    def kills(task: Task, *arguments: Any, **options: Any) -> Any:
        if task.name == "killer":
            killed.append(task.name)
            raise Died
        return ask(task, *arguments, **options)

    def noted(claimed: Claimed, since: Instant) -> Settlement:
        came_back[claimed.hold.task.name] = claimed.came_back
        return work(claimed, since)

    real.patch.setattr(real.provider, "attempt", kills)
    real.patch.setattr(real.worker, "work", noted)
    for _ in range(6):
        try:
            real.tick(real.worker)
        except Died:
            real.pass_(31)
            real.ends_at += 31
    assert len(killed) == 4
    assert all(came_back[name] <= 2 for name in ("x", "y", "z"))
    assert real.state() == {"killer": ("dead", real.state()["killer"][1])}
    item = real.item_of(Task("example", "killer"))
    assert (item.status, item.error["reason"]) == ("failed", "crashed")
    assert {real.item_of(Task("example", name)).status for name in ("x", "y", "z")} == {"completed"}


@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("errors", [0, 1, 9], ids=["the first", "the second", "the tenth"])
def test_tasks_that_fail_together_come_back_one_by_one(bed: Bed, simulator: Simulator, errors: int) -> None:
    least, most = 60, 600
    record = Record(generation=1, created_at=bed.clock(), input={}, errors=errors).to_text()
    bed.queue.add([Add(Task("example", f"{number}"), 1, record) for number in range(300)], token="mine")
    simulator.say(says(300, {}))  # an error for each task, and none that pauses the provider
    provider = simulator.provider(EXAMPLE, polling={"minDelay": least, "maxDelay": most, "maxErrors": 1000})
    worker = Worker(parts_of(cast(Store, Trusting()), None, {"example": provider}, bed.clock))
    began = bed.bench.keys.now()
    assert bed.tick(worker, pool=ThreadPoolExecutor)["example"] == {"claimed": 300, "retried": 300}
    ended = bed.bench.keys.now()
    delays = sorted(bed.bench.parts()["queue"].values())
    widest = min(most, least * 2 ** max(errors, 1)) * 1000
    assert began + least * 1000 <= delays[0]
    assert delays[-1] <= ended + widest
    tenths = Counter((delay - began - least * 1000) * 10 // (widest - least * 1000) for delay in delays)
    assert len(tenths) >= 10  # spread over the whole window
    assert max(tenths.values()) < 100


@pytest.mark.promise("faults", "a job that never ends, and unexpected words")
@pytest.mark.promise(
    "ends", "a provider that never finishes ends the task at `maxWaitTime`, with the last partial data"
)
def test_running_for_ever_ends_with_timeout_and_the_last_partial_data(real: RealBed) -> None:
    item = real.begun("a")
    real.simulator.say(pending({"rows": 1}))
    assert real.tick(real.worker, idle_seconds=0)["example"] == {"claimed": 1, "snoozed": 1}
    real.pass_(8 * 86400)
    real.ends_at = real.clock.monotonic() + 80
    assert real.tick(real.worker)["example"] == {"claimed": 1, "buried": 1}
    ended = real.item_of(item.task)
    assert (ended.status, ended.error["reason"], ended.partial) == ("failed", "timeout", {"rows": 1})
    calls = len(real.simulator.calls())
    real.pass_(3600)
    real.ends_at = real.clock.monotonic() + 80
    assert real.tick(real.worker) == {"example": {}}
    assert len(real.simulator.calls()) == calls


@pytest.mark.promise("ends", "an attempt ends at its deadline, however slowly the answer drips")
def test_a_dripping_answer_is_cut_at_the_attempts_deadline_and_the_task_comes_back(real: RealBed) -> None:
    item = real.begun("a")
    real.simulator.say(DRIPPING)  # would never end
    assert real.tick(real.worker, attempt_seconds=0.3, idle_seconds=0)["example"] == {"claimed": 1, "retried": 1}
    assert real.state() == {"a": ("waiting", item.generation)}


# --- further ticks


def taking(clock: Clock, seconds: float) -> Doing:
    """A worker whose attempts take so long, one after the other."""
    return Doing(lambda _: clock.advance(seconds))


@pytest.mark.parametrize(
    ("due", "max_workers", "invited"),
    [
        (20, 4, []), (82, 4, []),  # after 5 seconds 8 of 10 are settled: 72 more until the window ends
        (83, 4, [1]), (154, 4, [1]), (155, 4, [2]), (900, 4, [3]), (900, 9, [8]), (900, 1, []),
    ],
)  # fmt: skip
def test_further_ticks_are_invited_by_how_much_is_due_beyond_this_ones_pace(
    bed: Bed, due: int, max_workers: int, invited: list[int]
) -> None:
    bed.fill(due, "t{}")
    asked: list[int] = []
    bed.tick(taking(bed.clock, 0.5), invite=asked.append, parallel_tasks=2, max_workers=max_workers)
    assert asked == invited


def test_further_ticks_are_invited_once_and_not_before_the_pace_is_known(bed: Bed) -> None:
    bed.fill(300, "t{}")
    invited_at: list[float] = []
    began = bed.clock.monotonic()
    bed.tick(
        taking(bed.clock, 0.5), invite=lambda _: invited_at.append(bed.clock.monotonic() - began), parallel_tasks=2
    )
    assert invited_at == [5]


def test_what_falls_due_in_the_middle_of_the_window_is_seen_too(bed: Bed) -> None:
    bed.fill(60, "t{}")

    def work(_: Claimed) -> None:
        bed.clock.advance(0.5)
        if len(doing.begun) == 30:
            for i in range(300):
                bed.seed(f"u{i}")

    doing = Doing(work)
    asked: list[int] = []
    bed.tick(doing, invite=asked.append, parallel_tasks=2)
    assert asked == [3]


@pytest.mark.parametrize(("alive", "asked"), [(0, [3]), (1, [3]), (2, [2]), (3, [1]), (4, [])])
def test_who_serves_the_provider_already_need_not_be_invited(bed: Bed, alive: int, asked: list[int]) -> None:
    bed.fill(300, "t{}")
    bed.patch.setattr(bed.queue, "backlog", lambda _: (300, alive))
    invited: list[int] = []
    bed.tick(taking(bed.clock, 0.5), invite=invited.append, parallel_tasks=2)
    assert invited == asked


def test_what_is_given_back_says_nothing_of_how_fast_a_tick_is(bed: Bed) -> None:
    """Half of what it has claimed: it is half as fast as one that invites one other for as many."""
    bed.fill(83, "t{}")

    def work(claimed: Claimed) -> Settlement | None:
        bed.clock.advance(0.5)
        return Settlement(claimed.hold, delay_seconds=100) if len(doing.begun) % 2 else None

    doing, asked = Doing(work), list[int]()
    bed.tick(doing, invite=asked.append, parallel_tasks=2)
    assert asked == [2]


def test_nobody_is_invited_while_slots_are_free(bed: Bed) -> None:
    bed.patch.setattr(bed.queue, "backlog", lambda _: (1000, 0))  # what a provider's limits hold back, say
    for i in range(10):
        bed.seed(f"t{i}", due_seconds=2 * i)
    asked: list[int] = []
    bed.tick(Doing(), invite=asked.append, parallel_tasks=2)
    assert asked == []


def test_what_a_paused_provider_holds_back_invites_nobody(bed: Bed) -> None:
    bed.fill(60, "t{}")
    bed.queue.add([Add(Task("paused", f"p{i}"), 1, "{}") for i in range(200)], token="t")
    (held,) = bed.queue.claim("paused", limit=1, lease_seconds=30, token="u").tasks
    bed.queue.settle([Settle(held.hold, "waiting")], Health(pause_seconds=500))
    asked: list[int] = []
    bed.tick(taking(bed.clock, 0.5), providers=("example", "paused"), invite=asked.append, parallel_tasks=2)
    assert asked == []


def test_a_tick_that_may_not_invite_goes_on_by_itself(bed: Bed) -> None:
    bed.fill(300, "t{}")
    assert bed.tick(taking(bed.clock, 0.5), parallel_tasks=2)["example"]["completed"] == 100


def test_a_tick_that_cannot_see_how_much_is_due_goes_on_and_looks_again(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.fill(300, "t{}")
    backlog, looks = bed.queue.backlog, list[float]()

    def away_once(provider: str) -> tuple[int, int]:
        looks.append(bed.clock.monotonic())
        if len(looks) == 1:
            raise QueueUnavailable("Redis: away")
        return backlog(provider)

    bed.patch.setattr(bed.queue, "backlog", away_once)
    asked: list[int] = []
    assert bed.tick(taking(bed.clock, 0.5), invite=asked.append, parallel_tasks=2)["example"]["completed"] == 100
    assert asked == [3]
    assert looks[1] - looks[0] == 5
    assert "queue unavailable" in caplog.text


def test_the_stores_time_is_known_before_anything_is_claimed(bed: Bed) -> None:
    """C13: deadlines are judged by it; a cold start has heard no reply yet."""
    bed.seed("a")
    bed.redis.calls.clear()
    known: list[int] = []
    bed.patch.setattr(Trusting, "know_time", lambda _: known.append(len(bed.redis.calls)))
    assert bed.tick(Doing())["example"]["completed"] == 1
    assert known == [0]


# --- woken: it leaves as soon as nothing is at hand, and says when the next one must come


def test_a_woken_tick_ends_where_nothing_is_at_hand_and_plans_the_next(woken: Woken, bed: Bed) -> None:
    bed.seed("a")
    bed.seed("later", due_seconds=12)
    assert woken.tick(Doing()) == {"example": {"claimed": 1, "completed": 1}}
    assert (bed.slept, woken.wakes) == ([], [("example", 12)])


def test_it_waits_for_what_is_at_hand(woken: Woken, bed: Bed) -> None:
    bed.seed("a", due_seconds=0.6)
    assert woken.tick(Doing()) == {"example": {"claimed": 1, "completed": 1}}
    assert woken.wakes == []


def test_while_an_attempt_is_under_way_it_looks_each_second_for_what_is_new(woken: Woken, bed: Bed) -> None:
    waits = woken.attempt_for_three_looks("a")
    woken.tick(Doing(), pool=lambda _: Together())
    assert waits == [1, 1, 1]


def test_at_the_end_of_its_window_it_calls_the_next_at_once(woken: Woken, bed: Bed) -> None:
    bed.fill(40)
    slow = Doing(lambda _: bed.pass_(1))
    tally = woken.tick(slow, window_seconds=10, parallel_tasks=1)["example"]
    assert tally["claimed"] < 40
    assert woken.wakes == [("example", 0)]


def test_it_serves_those_that_it_was_started_for(woken: Woken, bed: Bed) -> None:
    bed.seed("a")
    bed.seed("b", provider="coin")
    only = {"providers": ["coin", "unknown"]}
    assert woken.tick(Doing(), providers=("coin", "example"), woken=only) == {"coin": {"claimed": 1, "completed": 1}}
    assert bed.state() == {"a": ("waiting", 1)}


def test_one_that_finds_nothing_due_calls_the_next_for_when_something_is(woken: Woken, bed: Bed) -> None:
    bed.seed("a", due_seconds=2)
    assert woken.tick(Doing()) == {"example": {}}
    assert woken.wakes == [("example", 2)]


def test_one_that_cannot_call_the_next_stays_for_what_falls_due_soon(woken: Woken, bed: Bed) -> None:
    """Else each task would wait for the schedule."""
    bed.queue._wake = Waker(lambda *_: None, works=False)
    bed.seed("a", due_seconds=2)
    assert woken.tick(Doing()) == {"example": {"claimed": 1, "completed": 1}}


@pytest.mark.parametrize(("workers", "way"), [(1, "always"), (2, "in time")])
def test_where_one_is_to_work_alone_a_tick_leaves_whatever_another_serves(workers: int, way: str) -> None:
    settings = Settings(max_workers=workers, wake_queue_url="https://sqs/wake")
    assert run_of(settings, gives_way=True).gives_way == way


def test_while_all_its_threads_are_at_work_it_says_that_it_is_still_there(woken: Woken, bed: Bed) -> None:
    """Else others would take it for dead, and another tick would come beside it."""
    held, alive = bed.seed("a"), list[float]()

    def wait(futures: Any, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
        (until,) = bed.bench.parts()["runs"].values()
        alive.append(until - bed.bench.keys.now())
        bed.pass_(timeout)
        if len(alive) < 4:
            return set(), set(futures)
        for future in futures:
            future.set_result(Settlement(structs.replace(held, token="lost")))
        return set(futures), set()

    bed.patch.setattr("shared.work.tick.wait", wait)
    woken.tick(Doing(), pool=lambda _: Together(), parallel_tasks=1, window_seconds=40)
    assert min(alive) > 6000


def test_the_schedules_tick_gives_way_to_another(woken: Woken, bed: Bed) -> None:
    bed.seed("a")
    bed.bench.keys.write(key_of("example", "runs"), "another", bed.bench.keys.now() + 60_000)
    assert woken.tick(Doing(), woken={"gives_way": True}) == {"example": {}}
    assert woken.tick(Doing()) == {"example": {"claimed": 1, "completed": 1}}


def test_a_provider_that_was_left_is_not_claimed_from_again(woken: Woken, bed: Bed) -> None:
    """Whoever adds to it meanwhile plans for itself."""
    bed.seed("later", provider="coin", due_seconds=20)
    bed.seed("a")

    def come() -> None:
        bed.seed("at hand", due_seconds=0.5)
        bed.meanwhile(bed, "sleep", before=lambda: bed.seed("new", provider="coin"))

    bed.meanwhile(bed.queue, "rest", before=come)
    tally = woken.tick(Doing(), providers=("coin", "example"))
    assert tally == {"coin": {}, "example": {"claimed": 2, "completed": 2}}
    assert woken.wakes == [("coin", 20)]


def test_without_redis_it_leaves_all_the_same(woken: Woken, bed: Bed) -> None:
    bed.seed("later", due_seconds=12)
    bed.patch.setattr(bed.queue, "rest", raising(QueueUnreachable("it is away")))
    assert woken.tick(Doing()) == {"example": {"unreachable": 1}}
    assert woken.wakes == []


def test_at_the_end_of_its_window_it_leaves_though_every_slot_is_taken(woken: Woken, bed: Bed) -> None:
    waits = woken.attempt_for_three_looks("a")
    bed.seed("due", due_seconds=8)
    woken.tick(Doing(), pool=lambda _: Together(), parallel_tasks=1, window_seconds=10)
    assert waits[:2] == [5, 5]
    assert ("example", 0) in woken.wakes


def test_while_dynamodb_rests_it_sleeps_and_does_not_ask_redis_again_and_again(woken: Woken, bed: Bed) -> None:
    bed.fill(3)
    away = iter([True])

    def work(claimed: Claimed) -> Settlement:
        bed.pass_(0.5)
        return Settlement(claimed.hold, delay_seconds=60, store_away=next(away, False))

    woken.tick(Doing(work), parallel_tasks=1, window_seconds=20)
    assert bed.slept
    assert min(bed.slept) > 0
    assert len(bed.redis.calls) < 60
    assert bed.clock.monotonic() > REST_SECONDS


def test_a_provider_that_was_left_gives_no_task_that_came_back(woken: Woken, bed: Bed) -> None:
    bed.seed("later", provider="coin", due_seconds=20)
    bed.seed("a")

    def come() -> None:
        bed.seed("at hand", due_seconds=0.5)
        bed.meanwhile(bed, "sleep", before=lambda: bed.seed("back", provider="coin", came_back=1))

    bed.meanwhile(bed.queue, "rest", before=come)
    assert woken.tick(Doing(), providers=("coin", "example"))["coin"] == {}
    assert bed.bench.parts("coin")["runs"] == {}


# --- work handed ahead


class Threads(Executor):
    """So many threads, in the time of a bed; an attempt takes `takes` seconds from when one of them begins it."""

    def __init__(self, bed: Bed, takes: float) -> None:
        self.bed, self.takes = bed, takes
        self.threads = self.most_in_hand = 0
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.going: dict[Future[Any], tuple[float, Any]] = {}
        bed.patch.setattr("shared.work.tick.wait", self.wait)

    def __call__(self, threads: int) -> Executor:
        self.threads = threads
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        self.begin()
        self.most_in_hand = max(self.most_in_hand, len(self.waiting) + len(self.going))
        return future

    def begin(self) -> None:
        while self.waiting and len(self.going) < self.threads:
            future, work = self.waiting.pop(0)
            if future.set_running_or_notify_cancel():
                found = work()
                self.going[future] = self.bed.clock.monotonic() + self.takes, found

    def wait(self, futures: Any, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
        now = self.bed.clock.monotonic()
        ends = min((at for at, _ in self.going.values()), default=math.inf)
        self.bed.pass_(max(0.0, min(ends - now, timeout)))
        done = {one for one, (at, _) in self.going.items() if at <= self.bed.clock.monotonic() + 0.001}
        for future in done:
            future.set_result(self.going.pop(future)[1])
        self.begin()
        return done, set(futures) - done


def provider_of(**limits: Any) -> Provider:
    return asking.provider(asking.rules("http://127.0.0.1:1", limits=limits))


def test_at_speed_a_few_tasks_are_handed_ahead_of_free_threads(bed: Bed) -> None:
    bed.fill(60)
    threads = Threads(bed, takes=0.1)
    assert bed.tick(Doing(), pool=threads, parallel_tasks=4) == {"example": {"claimed": 60, "completed": 60}}
    assert threads.most_in_hand == 4 + 4  # 40 a second, for a tenth of one


def test_nothing_is_handed_ahead_where_attempts_take_long(bed: Bed) -> None:
    bed.fill(12)
    threads = Threads(bed, takes=2)
    assert bed.tick(Doing(), pool=threads, parallel_tasks=4) == {"example": {"claimed": 12, "completed": 12}}
    assert threads.most_in_hand == 4


@pytest.mark.promise("limits", "what counts against a provider's limits is never handed ahead")
def test_nothing_is_handed_ahead_where_a_provider_has_limits(bed: Bed) -> None:
    bed.fill(60)
    threads = Threads(bed, takes=0.1)
    of = {"example": provider_of(parallel=100)}
    assert bed.tick(Doing(), pool=threads, parallel_tasks=4, providers=of)["example"]["completed"] == 60
    assert threads.most_in_hand == 4


def test_nothing_that_was_handed_ahead_is_left_in_hand_at_the_end_of_the_window(bed: Bed) -> None:
    bed.fill(200)
    worker, threads = Doing(), Threads(bed, takes=0.1)
    tally = bed.tick(worker, pool=threads, parallel_tasks=4, window_seconds=2.05)["example"]
    assert threads.most_in_hand > 4
    assert tally["released"] > 0
    assert len(worker.begun) == tally["completed"] <= 4 * 21
    assert bed.state() == dict.fromkeys(bed.state(), ("waiting", 1))
    assert tally["claimed"] == tally["completed"] + tally["released"]


def test_what_waits_for_a_thread_for_a_second_goes_back(bed: Bed) -> None:
    bed.fill(200)
    threads = Threads(bed, takes=0.1)

    def work(claimed: Claimed) -> None:
        threads.takes = 30 if len(worker.begun) == 40 else threads.takes

    worker = Doing(work)
    began = bed.clock.monotonic()
    taken_back: list[float] = []
    settle = bed.queue.settle

    def settled(rows: Any, *arguments: Any) -> Any:
        if any(not row.attempted and row.becomes == "waiting" for row in rows):
            taken_back.append(bed.clock.monotonic() - began)
        return settle(rows, *arguments)

    bed.patch.setattr(bed.queue, "settle", settled)
    bed.tick(worker, pool=threads, parallel_tasks=4, window_seconds=20)
    assert taken_back
    assert taken_back[0] == pytest.approx(1 + 1, abs=0.3)  # a second until all threads hang, and one more


def test_an_error_sends_back_what_was_handed_ahead_unasked(bed: Bed) -> None:
    bed.fill(120)
    record = Record(generation=1, created_at=0, input={})

    def work(claimed: Claimed) -> Settlement | None:
        threads.takes = 0.1
        if len(worker.begun) != 80:
            return None
        threads.takes = 0.001  # the others of its time go on
        outcome = Retry(30, Reason.HTTP, pause_seconds=30)
        return Settlement(claimed.hold, counts_as="retried", outcome=outcome, record=record, delay_seconds=30)

    worker, threads = Doing(work), Threads(bed, takes=0.1)
    tally = bed.tick(worker, pool=threads, parallel_tasks=4, idle_seconds=0)["example"]
    assert tally["released"] > 0
    assert len(worker.begun) == 80


def test_a_provider_without_due_tasks_is_not_claimed_at_each_refill(bed: Bed) -> None:
    bed.fill(40)
    claimed: Counter[str] = Counter()
    claim = bed.queue.claim

    def counted(provider: str, **options: Any) -> Claim:
        claimed[provider] += 1
        return claim(provider, **options)

    bed.patch.setattr(bed.queue, "claim", counted)
    bed.tick(Doing(), pool=Threads(bed, takes=0.1), providers=("example", "idle"), parallel_tasks=2)
    assert claimed["example"] >= 15
    assert claimed["idle"] <= 10  # in 2 seconds


def test_a_task_that_comes_meanwhile_is_claimed_in_half_a_second(bed: Bed) -> None:
    bed.fill(120)
    begun: dict[str, float] = {}

    def work(claimed: Claimed) -> None:
        begun[claimed.hold.task.name] = bed.clock.monotonic()
        if len(begun) == 30:
            bed.seed("new", provider="other")

    bed.tick(Doing(work), pool=Threads(bed, takes=0.1), providers=("example", "other"), parallel_tasks=2)
    came = list(begun.values())[29]
    assert begun["new"] - came <= 0.5 + 0.3  # of more than 4 seconds


def test_an_attempt_that_ends_makes_room_for_the_providers_next_one_at_once(bed: Bed) -> None:
    bed.fill(60)
    for number in range(6):
        bed.seed(f"limited {number}", provider="limited")
    begun: dict[str, float] = {}

    def work(claimed: Claimed) -> None:
        begun[claimed.hold.task.name] = bed.clock.monotonic()
        threads.takes = 0.1 if claimed.hold.task.provider == "limited" else 0.17

    threads = Threads(bed, takes=0)
    of = {"example": PROVIDER, "limited": provider_of(parallel=1)}
    began = bed.clock.monotonic()
    bed.tick(Doing(work), pool=threads, providers=of, parallel_tasks=4)
    assert max(at for name, at in begun.items() if name.startswith("limited")) - began <= 1  # not 5 times half a second
