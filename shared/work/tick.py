"""A tick: one run of the process handler. Claims due tasks, works on them in parallel, settles them as they finish.

No barrier: a finished attempt is replaced at once. Tasks that came back from an expired lease may have ended their
worker: those that came back once are worked on together, beside no other; one that came back more often alone, so that
a crash affects no other task. Ticks may overlap: no two claim the same task.

A tick ends when its window is over and its attempts are finished; before that when none is under way and nothing falls
due within IDLE_SECONDS; at the latest just before the function's time is over, when it leaves attempts to their leases.
A settling that failed is tried again until then. Redis or DynamoDB that does not answer is left alone for REST_SECONDS.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeAlias

from shared.errors import QueueUnavailable, QueueUnreachable, StoreUnavailable
from shared.logs import log
from shared.queue import Claimed, Which, new_token, without_redis
from shared.work.parts import Parts
from shared.work.settle import Settlement, settle
from shared.work.worker import Worker

Tally: TypeAlias = dict[str, Counter[str]]
"""Provider -> what its tasks counted as: claimed, expired, completed, snoozed, retried, buried, forgotten, released,
lost, abandoned (still running when the time was over), unsettled (no settling went through), unreachable (Redis calls
that failed)."""

Invite: TypeAlias = Callable[[int], None]  # starts so many further ticks; raises nothing

SETTLE_SECONDS = 5.0  # kept back at the end of the function's time for storing and settling
REST_SECONDS = 5.0  # how long a tick leaves Redis or DynamoDB alone that did not answer


@dataclass(slots=True)
class Tick:
    """One tick over all providers; `remaining` tells the seconds that the function has left.

    `monotonic` tells seconds, `make_pool` makes a pool of so many threads.
    """

    parts: Parts
    worker: Worker
    remaining: Callable[[], float]
    invite: Invite | None = None
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    make_pool: Callable[[int], Executor] = ThreadPoolExecutor
    tally: Tally = field(init=False)
    pool: Executor = field(init=False)
    in_flight: dict[Future[Settlement], Claimed] = field(default_factory=dict)
    unsettled: dict[str, list[Settlement]] = field(default_factory=dict)
    came_back: dict[Which, set[str]] = field(default_factory=lambda: {"once": set(), "often": set()})
    lost_tokens: dict[str, str] = field(default_factory=dict)
    plenty: set[str] = field(default_factory=set)
    alone: bool = False
    window_seconds: float = 0
    began: float = 0
    look_for_help_at: float = 0
    redis_rests_until: float = 0
    claims_rest_until: float = 0

    def run(self) -> Tally:
        """Work until the tick ends."""
        settings = self.parts.settings
        self.window_seconds = min(settings.window_seconds, self.remaining() - settings.attempt_seconds - SETTLE_SECONDS)
        self.tally = {provider: Counter() for provider in self.parts.providers}
        self.began = self.monotonic()
        self.look_for_help_at = settings.tick_seconds
        self.pool = self.make_pool(settings.parallel_tasks)
        try:
            if self.knows_time():
                self.loop()
            self.leave()
        finally:
            self.pool.shutdown(wait=False, cancel_futures=True)
        return self.tally

    def knows_time(self) -> bool:
        """Whether deadlines can be judged; without DynamoDB nothing is claimed that could not be stored."""
        try:
            self.parts.store.know_time()
        except StoreUnavailable as error:
            log.error("store unavailable", extra={"reason": str(error)})
            return False
        return True

    def leave(self) -> None:
        """Say in the items of what could not be settled that its attempt has ended: it was no crash."""
        kept = [one for settlements in self.unsettled.values() for one in settlements]
        for one in kept:
            self.tally[one.hold.task.provider]["unsettled"] += 1
        words = [self.pool.submit(self.worker.say_finished, one) for one in kept if one.becomes == "waiting"]
        wait(words, timeout=max(0.0, self.remaining() - SETTLE_SECONDS / 2))

    def loop(self) -> None:
        while True:
            wait_seconds = self.refill() if self.elapsed() < self.window_seconds else math.inf
            if self.in_flight:
                self.call_for_help()
                self.collect(wait_seconds)
                if self.in_flight and self.remaining() < SETTLE_SECONDS / 2:  # what still runs is left to its lease
                    for claimed in self.in_flight.values():
                        self.tally[claimed.hold.task.provider]["abandoned"] += 1
                    log.error("attempts abandoned", extra={"count": len(self.in_flight)})
                    return
            elif self.unsettled and self.remaining() > SETTLE_SECONDS:
                self.sleep(max(0.0, min(REST_SECONDS, self.remaining() - SETTLE_SECONDS)))
            elif wait_seconds > min(self.parts.settings.idle_seconds, self.window_seconds - self.elapsed()):
                return
            else:
                self.sleep(min(wait_seconds, self.parts.settings.tick_seconds))
            self.settle_again()

    @property
    def free(self) -> int:
        """How many more attempts may run at once."""
        return self.parts.settings.parallel_tasks - len(self.in_flight)

    def elapsed(self) -> float:
        return self.monotonic() - self.began

    def refill(self) -> float:
        """Start attempts in the free slots; the seconds until there may be more to start, infinite if never."""
        if self.alone:
            return math.inf
        if (rest_seconds := max(self.redis_rests_until, self.claims_rest_until) - self.elapsed()) > 0:
            return rest_seconds if self.in_flight or self.unsettled else math.inf
        last_third = self.elapsed() >= self.window_seconds * 2 / 3
        wait_seconds = math.inf if any(self.came_back.values()) and last_third else self.start_ordinary()
        if any(self.came_back.values()) and not self.in_flight:
            return math.inf if self.start_again("once") or self.start_again("often") else 0
        return wait_seconds

    def call_for_help(self) -> None:
        """Invite further ticks, once, if at its speed so far this one cannot attempt all that is due.

        Counts providers with plenty: one that gave less than was asked of it has no more, or is paused or at a limit.
        """
        elapsed = self.elapsed()
        finished = sum(tally["claimed"] for tally in self.tally.values()) - len(self.in_flight)
        if self.invite is None or self.free > 0 or not finished or elapsed < self.look_for_help_at:
            return
        if elapsed < self.redis_rests_until:
            return
        self.look_for_help_at = elapsed + self.parts.settings.tick_seconds
        with without_redis(then="no further ticks are invited"):
            due = sum(self.parts.queue.backlog(provider) for provider in self.plenty)
            askable = finished / elapsed * max(self.window_seconds - elapsed, 0)
            further = min(self.parts.settings.max_workers, math.ceil(due / max(askable, 1))) - 1
            if further > 0:
                log.info("invited", extra={"ticks": further, "due": due})
                self.invite(further)
                self.invite = None

    def start_ordinary(self) -> float:
        """Share the free slots among the providers that have due tasks; the seconds until the next falls due.

        The one with the fewest attempts under way comes first, then the one that has had the fewest: they take turns.
        """
        going = Counter(claimed.hold.task.provider for claimed in self.in_flight.values())
        hungry = sorted(self.parts.providers, key=lambda provider: (going[provider], self.tally[provider]["claimed"]))
        waits: dict[str, float] = {}
        while hungry and self.free > 0:
            share = math.ceil(self.free / len(hungry))
            for provider in tuple(hungry):
                if self.free <= 0:
                    return 0
                limit = min(share, self.free)
                taken, waits[provider] = self.claim(provider, limit)
                (self.plenty.add if taken == limit else self.plenty.discard)(provider)
                if taken < limit:
                    hungry.remove(provider)
        return min(waits.values(), default=math.inf)

    def start_again(self, which: Which) -> bool:
        """Take tasks that came back, with nothing else beside them; False when there were none."""
        for provider in sorted(self.came_back[which]):
            if self.free > 0 and not (which == "often" and self.alone):
                taken, _ = self.claim(provider, self.free, which)
                self.alone = self.alone or taken > 0
                if not taken:
                    self.came_back[which].discard(provider)
        return self.alone

    def claim(self, provider: str, limit: int, which: Which = "ordinary") -> tuple[int, float]:
        """Claim and start; how many, and the seconds until the provider's next task falls due."""
        tally, lease_seconds, token = self.tally[provider], self.parts.settings.lease_seconds, new_token()
        limits, lost_token = self.parts.providers[provider].rules.limits, self.lost_tokens.get(provider, "")
        if self.elapsed() < self.redis_rests_until:
            return 0, math.inf
        since = self.worker.keeper.instant()
        try:
            claim = self.parts.queue.claim(
                provider,
                limit=limit,
                lease_seconds=lease_seconds,
                token=token,
                which=which,
                lost_token=lost_token,
                limits=limits,
            )
        except QueueUnavailable as error:
            self.lost_tokens[provider] = token
            self.report_away(provider, error)
            return 0, math.inf
        self.lost_tokens.pop(provider, None)
        tally["claimed"] += len(claim.tasks)
        tally["expired"] += claim.expired
        if claim.once:
            self.came_back["once"].add(provider)
        if claim.often:
            self.came_back["often"].add(provider)
        if self.elapsed() >= self.window_seconds:  # the reply came too late to start anything
            self.settle(provider, [Settlement(claimed.hold) for claimed in claim.tasks])
            return 0, math.inf
        for claimed in claim.tasks:
            self.in_flight[self.pool.submit(self.worker.work, claimed, since)] = claimed
        return len(claim.tasks), math.inf if claim.wait_seconds is None else claim.wait_seconds

    def collect(self, wait_seconds: float) -> None:
        """Wait until an attempt finishes or it is time to look again, then settle what has finished."""
        look = math.inf if self.alone or self.free <= 0 else min(wait_seconds, self.parts.settings.tick_seconds)
        timeout = max(0.0, min(look, self.remaining() - SETTLE_SECONDS / 2))
        done, _ = wait(self.in_flight, timeout=timeout, return_when=FIRST_COMPLETED)
        finished: dict[str, list[Settlement]] = {}
        for future in done:
            provider = self.in_flight.pop(future).hold.task.provider
            finished.setdefault(provider, []).append(future.result())
        self.alone = self.alone and bool(self.in_flight)
        for provider, settlements in finished.items():
            self.settle(provider, settlements)

    def settle(self, provider: str, settlements: list[Settlement]) -> None:
        """Settle, or keep it for later."""
        if any(one.store_away for one in settlements):
            self.claims_rest_until = self.elapsed() + REST_SECONDS
        if self.elapsed() >= self.redis_rests_until:
            try:
                self.tally[provider] += settle(self.parts.queue, self.parts.providers[provider], settlements)
            except QueueUnavailable as error:
                self.report_away(provider, error)
            else:
                return
        self.unsettled.setdefault(provider, []).extend(settlements)

    def settle_again(self) -> None:
        """Try once more what could not be settled, unless Redis rests."""
        if self.elapsed() >= self.redis_rests_until:
            kept, self.unsettled = self.unsettled, {}
            for provider, settlements in kept.items():
                self.settle(provider, settlements)

    def report_away(self, provider: str, error: QueueUnavailable) -> None:
        self.tally[provider]["unreachable"] += 1
        said = {"provider": provider, "reason": str(error)}
        if isinstance(error, QueueUnreachable):
            self.redis_rests_until = self.elapsed() + REST_SECONDS
            said["rest_seconds"] = str(REST_SECONDS)
        log.error("queue unavailable", extra=said)
