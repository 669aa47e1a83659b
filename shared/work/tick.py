"""A tick: one run of the process handler. Claims due tasks, works on them in parallel, settles them as they finish.

No barrier: a finished attempt is replaced at once. Tasks that came back from an expired lease may have ended their
worker: those that came back once are worked on together, beside no other; one that came back more often alone, so that
a crash affects no other task. Ticks may overlap: no two claim the same task.

A tick ends when its window is over and its attempts are finished; before that when none is under way and nothing falls
due within IDLE_SECONDS, or at hand where wake-ups start the next one; at the latest just before the function's time is
over, when it leaves attempts to their leases. A settling that failed is tried again until then.
"""

import math
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeAlias

from shared.errors import StoreUnavailable
from shared.limits import UNLIMITED
from shared.logs import log
from shared.queue import Which
from shared.work.hands import WAIT_SECONDS, Hands
from shared.work.parts import Parts
from shared.work.settle import Settlement, report_dropped
from shared.work.tick_queue import REST_SECONDS, Tally, TickQueue, run_of
from shared.work.worker import Worker

Invite: TypeAlias = Callable[[int], None]  # starts so many further ticks; raises nothing

SETTLE_SECONDS = 5.0  # kept back at the end of the function's time for storing and settling
AT_HAND_SECONDS = 1.0  # where wake-ups start ticks, one waits for no more than this, and looks so often
GATHER_SECONDS = 0.02  # while threads find work ahead, what has finished meanwhile is settled together


@dataclass(slots=True)
class Tick:
    """One tick over all providers, or those that it was started for; `remaining` tells the function's seconds left.

    `monotonic` tells seconds, `make_pool` makes a pool of so many threads. `gives_way`: it leaves alone what another
    tick serves in time.
    """

    parts: Parts
    worker: Worker
    remaining: Callable[[], float]
    invite: Invite | None = None
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    make_pool: Callable[[int], Executor] = ThreadPoolExecutor
    providers: Collection[str] | None = None
    gives_way: bool = False
    queue: TickQueue = field(init=False)
    hands: Hands = field(init=False)
    came_back: dict[Which, list[str]] = field(default_factory=lambda: {"once": [], "often": []})
    plenty: set[str] = field(default_factory=set)
    alone: bool = False
    window_seconds: float = 0
    began: float = 0
    look_for_help_at: float = 0

    def run(self) -> Tally:
        """Work until the tick ends."""
        settings = self.parts.settings
        self.window_seconds = min(settings.window_seconds, self.remaining() - settings.attempt_seconds - SETTLE_SECONDS)
        self.began = self.monotonic()
        self.look_for_help_at = settings.tick_seconds
        self.queue = TickQueue(
            self.parts,
            self.monotonic,
            [name for name in self.parts.providers if self.providers is None or name in self.providers],
            run_of(settings, gives_way=self.gives_way),
        )
        pool = self.make_pool(settings.parallel_tasks)
        self.hands = Hands(self.worker, pool, settings.parallel_tasks, self.monotonic)
        try:
            if self.knows_time():
                self.loop()
            self.leave()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return self.queue.tally

    def knows_time(self) -> bool:
        """Whether deadlines can be judged; without DynamoDB nothing is claimed that could not be stored."""
        try:
            self.parts.store.know_time()
        except StoreUnavailable as error:
            log.error("store unavailable", extra={"reason": str(error)})
            return False
        return True

    def loop(self) -> None:
        while True:
            is_open = self.elapsed() < self.window_seconds
            if not is_open or self.hands.is_late:
                self.take_back()
            wait_seconds = self.refill() if is_open else math.inf
            if not is_open:
                self.queue.rest(self.remaining(), may_stay=False)
            if self.hands.in_flight:
                self.call_for_help()
                self.queue.keep_alive()
                self.collect(wait_seconds)
                if self.hands.in_flight and self.remaining() < SETTLE_SECONDS / 2:  # they are left to their leases
                    for provider, count in self.hands.going().items():
                        self.queue.tally[provider]["abandoned"] += count
                    log.error("attempts abandoned", extra={"count": len(self.hands.in_flight)})
                    return
            elif self.queue.unsettled and self.remaining() > SETTLE_SECONDS:
                self.sleep(min(wait_seconds, REST_SECONDS, self.remaining() - SETTLE_SECONDS))
            else:
                if wait_seconds > min(self.idle_seconds, self.window_seconds - self.elapsed()):
                    wait_seconds = self.queue.rest(self.remaining(), may_stay=is_open)
                    if wait_seconds == math.inf:
                        return
                self.sleep(min(wait_seconds, self.look_seconds))
            self.queue.settle_again()

    def leave(self) -> None:
        """Say in the items of what could not be settled that its attempt has ended: it was no crash."""
        words = []
        for provider, settlements in self.queue.unsettled:
            self.queue.tally[provider]["unsettled"] += len(settlements)
            waiting = [one for one in settlements if one.becomes == "waiting"]
            for one in waiting:
                report_dropped(one, "Redis could not be told")
            words += [self.hands.pool.submit(self.worker.say_finished, one) for one in waiting]
        if words:
            wait(words, timeout=max(0.0, self.remaining() - SETTLE_SECONDS / 2))

    @property
    def idle_seconds(self) -> float:
        """For how long it waits for something to fall due, or for Redis or DynamoDB to answer again."""
        is_woken = self.parts.queue.wakes and self.queue.rest_seconds <= 0
        return AT_HAND_SECONDS if is_woken else self.parts.settings.idle_seconds

    @property
    def look_seconds(self) -> float:
        """How often it looks for what is new: while it is there nobody plans another."""
        tick_seconds = self.parts.settings.tick_seconds
        return min(tick_seconds, AT_HAND_SECONDS) if self.queue.run.name else tick_seconds

    def elapsed(self) -> float:
        return self.monotonic() - self.began

    def refill(self) -> float:
        """Start attempts in the free slots; the seconds until there may be more to start, infinite if never."""
        if self.alone:
            return math.inf
        if (rest_seconds := self.queue.rest_seconds) > 0:
            return rest_seconds
        goes_first = any(self.came_back.values()) and self.elapsed() >= self.window_seconds * 2 / 3
        wait_seconds = math.inf if goes_first else self.start_ordinary()
        if any(self.came_back.values()) and not self.hands.in_flight:
            wait_seconds = min(wait_seconds, self.start_again())
            if goes_first and not self.alone:
                wait_seconds = min(wait_seconds, self.start_ordinary())
        return wait_seconds

    def start_ordinary(self) -> float:
        """Share the free slots among the providers that have due tasks; the seconds until the next falls due.

        The one with the fewest attempts under way comes first, then the one that has had the fewest: they take turns.
        One for which Redis has not answered comes last, once. Where none has limits, a few tasks are handed ahead.
        """
        going, tally = self.hands.going(), self.queue.tally
        last, self.queue.silent = self.queue.silent, ""
        waits = self.queue.quiet_seconds() if going else {}
        serves = [provider for provider in tally if provider not in self.queue.left and provider not in waits]
        hungry = sorted(serves, key=lambda one: (one == last, going[one], tally[one]["claimed"]))
        limited = any(self.parts.providers[provider].rules.limits != UNLIMITED for provider in hungry)
        ahead = 0 if limited else self.hands.room_ahead
        while hungry and self.hands.free + ahead > 0:
            share = math.ceil((self.hands.free + ahead) / len(hungry))
            for provider in tuple(hungry):
                if (room := self.hands.free + ahead) <= 0:
                    return 0
                limit = min(share, room)
                taken, waits[provider] = self.start(provider, limit)
                (self.plenty.add if taken == limit else self.plenty.discard)(provider)
                if taken < limit:
                    hungry.remove(provider)
        return min(waits.values(), default=math.inf)

    def start_again(self) -> float:
        """With nothing else under way, start what came back: all that did once, of every provider, or else one task.

        The seconds until there may be more to start. Providers take turns.
        """
        wait_seconds = math.inf
        for which, providers in self.came_back.items():
            for provider in tuple(providers):
                is_ours = provider not in self.queue.left
                if is_ours and self.hands.free > 0 and not (which == "often" and self.alone):
                    providers.remove(provider)
                    taken, seconds = self.start(provider, self.hands.free, which)
                    self.alone = self.alone or taken > 0
                    wait_seconds = min(wait_seconds, seconds)
        return math.inf if self.alone else wait_seconds

    def start(self, provider: str, limit: int, which: Which = "ordinary") -> tuple[int, float]:
        """Claim and start; how many, and the seconds until the provider's next task falls due."""
        since = self.worker.instant()
        claim = self.queue.claim(provider, limit, which)
        if claim is None:
            return 0, self.queue.wait_seconds
        due: dict[Which, bool] = {"once": claim.once, "often": claim.often}
        for back, providers in self.came_back.items():
            if due[back] and provider not in providers:
                providers.append(provider)
        if self.elapsed() >= self.window_seconds:  # the reply came too late to start anything
            self.queue.settle(provider, [Settlement(claimed.hold) for claimed in claim.tasks])
            return 0, math.inf
        for claimed in claim.tasks:
            self.hands.begin(claimed, since)
        return len(claim.tasks), math.inf if claim.wait_seconds is None else claim.wait_seconds

    def collect(self, wait_seconds: float) -> None:
        """Wait until an attempt finishes or it is time to look again, then settle what has finished."""
        look = math.inf if self.alone or self.hands.free <= 0 else min(wait_seconds, self.look_seconds)
        if self.queue.unsettled:
            look = min(look, REST_SECONDS)
        if self.elapsed() < self.window_seconds:  # then it leaves
            look = min(look, self.window_seconds - self.elapsed(), self.parts.settings.tick_seconds)
        timeout = max(0.0, min(look, self.remaining() - SETTLE_SECONDS / 2))
        if self.hands.has_ahead:
            timeout = min(timeout, WAIT_SECONDS)
            self.sleep(min(GATHER_SECONDS, timeout))
        done, _ = wait(self.hands.in_flight, timeout=timeout, return_when=FIRST_COMPLETED)
        finished = self.hands.collect(done)
        self.alone = self.alone and bool(self.hands.in_flight)
        for provider, settlements in finished.items():
            self.queue.settle(provider, settlements)
            if self.hands.learn(provider, settlements):
                self.take_back()

    def take_back(self) -> None:
        """Give back what was handed ahead and nobody has begun."""
        for provider, settlements in self.hands.take_back().items():
            self.queue.settle(provider, settlements)

    def call_for_help(self) -> None:
        """Invite further ticks, once, if at its speed so far this one cannot attempt all that is due.

        Counts providers with plenty (one that gave less has no more, or is paused or at a limit), and runs they have.
        """
        elapsed = self.elapsed()
        taken = sum(counted["claimed"] - counted["released"] for counted in self.queue.tally.values())
        finished = taken - len(self.hands.in_flight)
        if self.invite is None or self.hands.free > 0 or not finished or elapsed < self.look_for_help_at:
            return
        self.look_for_help_at = elapsed + self.parts.settings.tick_seconds
        due, runs = self.queue.backlog(self.plenty)
        askable = finished / elapsed * max(self.window_seconds - elapsed, 0)
        further = min(self.parts.settings.max_workers, math.ceil(due / max(askable, 1))) - runs
        if further > 0:
            log.info("invited", extra={"ticks": further, "due": due})
            self.invite(further)
            self.invite = None
