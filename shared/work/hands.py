"""What a tick has in hand: the attempts under way, and a few tasks handed ahead, so that no thread waits for a claim.

How many are handed ahead follows from how many attempts finished in the last second: where they take long, none.
What no thread has begun goes back unasked when it has waited for WAIT_SECONDS, when the tick's window is over, and as
soon as an attempt found that something is wrong: what a pause forbids is not asked.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TypeAlias

from shared.outcome import Failed, Retry
from shared.queue import Claimed
from shared.reasons import Reason
from shared.work.settle import Settlement
from shared.work.turn import Instant
from shared.work.worker import Worker

AHEAD_SECONDS = 0.1  # for so long threads find work ahead, at the speed of the last second
PACE_SECONDS = 1.0  # the speed is that of so long; after an error nothing is handed ahead for so long
WAIT_SECONDS = 1.0  # the longest that a task waits for a thread; its attempt has so much less time

Settlements: TypeAlias = dict[str, list[Settlement]]
"""Provider -> what became of its tasks."""


@dataclass(slots=True)
class Hands:
    """A pool of so many threads, and what they have to do. `monotonic` tells seconds."""

    worker: Worker
    pool: Executor
    threads: int
    monotonic: Callable[[], float]
    in_flight: dict[Future[Settlement], Claimed] = field(default_factory=dict)
    _ahead: deque[tuple[float, Future[Settlement]]] = field(default_factory=deque)
    _finished: deque[tuple[float, int]] = field(default_factory=deque)
    _troubled: set[str] = field(default_factory=set)
    _rests_until: float = 0

    @property
    def free(self) -> int:
        """How many more attempts may run at once; below 0 so many are handed ahead."""
        return self.threads - len(self.in_flight)

    @property
    def room_ahead(self) -> int:
        """How many may be in hand beyond those for which there are threads."""
        now = self.monotonic()
        while self._finished and self._finished[0][0] <= now - PACE_SECONDS:
            self._finished.popleft()
        pace = sum(count for _, count in self._finished) / PACE_SECONDS
        return 0 if now < self._rests_until else int(pace * AHEAD_SECONDS)

    @property
    def has_ahead(self) -> bool:
        """Whether a task waits for a thread."""
        while self._ahead and (self._ahead[0][1].running() or self._ahead[0][1].done()):
            self._ahead.popleft()
        return bool(self._ahead)

    @property
    def is_late(self) -> bool:
        """Whether a task has waited for too long."""
        return self.has_ahead and self.monotonic() - self._ahead[0][0] >= WAIT_SECONDS

    def going(self) -> Counter[str]:
        """How many of each provider's tasks are in hand."""
        return Counter(claimed.hold.task.provider for claimed in self.in_flight.values())

    def begin(self, claimed: Claimed, since: Instant) -> None:
        """Hand a task to the pool, held since then."""
        is_ahead = self.free <= 0
        future = self.pool.submit(self._work, claimed, since, is_ahead)
        self.in_flight[future] = claimed
        if is_ahead:
            self._ahead.append((self.monotonic(), future))

    def take_back(self) -> Settlements:
        """What no thread has begun, to be given back unasked."""
        back: Settlements = {}
        for _, future in reversed(self._ahead):  # threads take the oldest first
            if future.cancel():
                hold = self.in_flight.pop(future).hold
                back.setdefault(hold.task.provider, []).append(Settlement(hold))
        self._ahead.clear()
        return back

    def collect(self, done: Iterable[Future[Settlement]]) -> Settlements:
        """What the attempts that are done have found."""
        finished: Settlements = {}
        for future in done:
            provider = self.in_flight.pop(future).hold.task.provider
            finished.setdefault(provider, []).append(future.result())
        return finished

    def learn(self, provider: str, settlements: Sequence[Settlement]) -> bool:
        """Learn the speed from attempts of a provider that were settled. Whether something was wrong with one."""
        now = self.monotonic()
        self._finished.append((now, len(settlements)))
        if not any(map(_is_wrong, settlements)):
            return False
        self._rests_until = now + PACE_SECONDS
        self._troubled.discard(provider)  # Redis knows
        return True

    def _work(self, claimed: Claimed, since: Instant, is_ahead: bool) -> Settlement:
        """An attempt, in a thread; none of what was handed ahead, once something is wrong."""
        provider = claimed.hold.task.provider
        if is_ahead and provider in self._troubled:
            return Settlement(claimed.hold)
        settlement = self.worker.work(claimed, since)
        if _is_wrong(settlement):
            self._troubled.add(provider)
        return settlement


def _is_wrong(settlement: Settlement) -> bool:
    """Whether an attempt met more than a job that goes its way: it may pause the provider."""
    match settlement.outcome:
        case Retry():
            return True
        case Failed(reason=reason):
            return reason != Reason.UPSTREAM
    return settlement.store_away
