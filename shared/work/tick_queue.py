"""The queue as one tick meets it: it rests when Redis or DynamoDB does not answer, and keeps what it could not settle.

What is shared by all providers is met once: after a call without an answer nobody asks again for REST_SECONDS.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from shared.errors import QueueUnavailable, QueueUnreachable
from shared.logs import log
from shared.queue import Claim, Run, Way, Which, new_token
from shared.settings import Settings
from shared.work.parts import Parts
from shared.work.settle import Settlement, settle

Tally: TypeAlias = dict[str, Counter[str]]
"""Provider -> what its tasks counted as: claimed, expired, completed, snoozed, retried, buried, forgotten, released,
lost, abandoned (still running when the time was over), unsettled (no settling went through), unreachable (Redis calls
that failed)."""

REST_SECONDS = 5.0  # how long a tick leaves Redis or DynamoDB alone that did not answer
QUIET_SECONDS = 0.5  # a provider that had no more due tasks is not claimed for so long while attempts are under way
STAY_SECONDS = 0.1  # the least before a run that stays claims again: the last claim gave it nothing
LEAVE_SECONDS = 7.0  # with less time than this left a run plans no more
ALIVE_SECONDS = 2.0  # how long a tick counts as alive, beyond TICK_SECONDS, after it has claimed
HOPES = 1  # how often in a row a tick with nothing in hand waits for a Redis that did not answer


def run_of(settings: Settings, *, gives_way: bool) -> Run:
    """A tick as others know it, where wake-ups start some. One that is to work alone leaves what another serves."""
    way: Way = "always" if settings.max_workers == 1 else "in time" if gives_way else "never"
    return Run(new_token() if settings.wake_queue_url else "", settings.tick_seconds + ALIVE_SECONDS, way)


@dataclass(slots=True)
class TickQueue:
    """The queue, for one tick. Its calls raise nothing: what fails is logged, and counts as unreachable in `tally`.

    `left` are the providers that are the next run's. `unsettled` is what could not be settled, in the batches that it
    came in; `lost_tokens` are those of claims without a reply, the oldest first, for each provider; `silent` is the
    provider of the last call without one, and `silences` how many there were in a row: in a cluster one node may be
    silent alone. `monotonic` tells seconds, `run` is this tick as others know it.
    """

    parts: Parts
    monotonic: Callable[[], float]
    providers: Collection[str]
    run: Run
    tally: Tally = field(init=False)
    unsettled: list[tuple[str, list[Settlement]]] = field(default_factory=list)
    lost_tokens: dict[str, list[str]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    claimed_at: dict[str, float] = field(default_factory=dict)
    silent: str = ""
    silences: int = 0
    quiet: dict[str, tuple[float, float]] = field(default_factory=dict)  # provider -> claimed when, next due when
    redis_rests_until: float = -math.inf
    store_rests_until: float = -math.inf

    def __post_init__(self) -> None:
        self.tally = {provider: Counter() for provider in self.providers}

    @property
    def is_resting(self) -> bool:
        """Whether Redis is left alone."""
        return self.monotonic() < self.redis_rests_until

    @property
    def rest_seconds(self) -> float:
        """How long nothing is claimed; 0 or less: not at all."""
        return max(self.redis_rests_until, self.store_rests_until) - self.monotonic()

    @property
    def wait_seconds(self) -> float:
        """How long to wait for after a claim without a reply; infinite if there is nothing to hope for."""
        return self.rest_seconds if 0 < self.silences <= HOPES else math.inf

    def claim(self, provider: str, limit: int, which: Which) -> Claim | None:
        """What a claim gives; None if there was no reply, or Redis rests. What the lost one took goes back first."""
        if self.is_resting:
            return None
        lost, token = self.lost_tokens.setdefault(provider, []), new_token()
        try:
            claim = self.parts.queue.claim(
                provider,
                limit=limit,
                lease_seconds=self.parts.settings.lease_seconds,
                token=token,
                which=which,
                lost_token=lost[0] if lost else token,  # its own, should the client repeat it over a new connection
                limits=self.parts.providers[provider].rules.limits,
                run=self.run,
            )
        except QueueUnavailable as error:
            if isinstance(error, QueueUnreachable):
                lost.append(token)
            self._failed(provider, error)
            return None
        del lost[:1]
        self.silences, self.claimed_at[provider] = 0, self.monotonic()
        if which == "ordinary" and len(claim.tasks) < limit:
            now = self.monotonic()
            self.quiet[provider] = now, math.inf if claim.wait_seconds is None else now + claim.wait_seconds
        self.tally[provider]["claimed"] += len(claim.tasks)
        self.tally[provider]["expired"] += claim.expired
        return claim

    def keep_alive(self) -> None:
        """Say that this run is still there, where it has claimed nothing for long since all its threads are at work."""
        long_ago = self.monotonic() - self.parts.settings.tick_seconds
        for provider, at in [*self.claimed_at.items()] if self.run.name else ():
            if at <= long_ago and provider not in self.left:
                self.claim(provider, 0, "ordinary")

    def quiet_seconds(self) -> dict[str, float]:
        """The providers that had no more due tasks just now, and in how many seconds the next is due.

        One whose attempt was settled since is none of them: it may have freed what a limit holds back.
        """
        now = self.monotonic()
        return {provider: due - now for provider, (at, due) in self.quiet.items() if now < min(due, at + QUIET_SECONDS)}

    def rest(self, remaining: float, *, may_stay: bool) -> float:
        """Leave all providers to the next run, but those for which it stays; the seconds for that, infinite: for none.

        `remaining` is what the function has left: planning takes time, and the schedule makes up for it.
        """
        stays, began = [math.inf], self.monotonic()
        for provider in [*self.tally] if self.run.name else ():
            if provider not in self.left and remaining - (self.monotonic() - began) > LEAVE_SECONDS:
                seconds = self._rest(provider, may_stay=may_stay)
                stays.append(math.inf if seconds is None else max(seconds, STAY_SECONDS))
                self.left |= {provider} if seconds is None else set()
        return min(stays)

    def _rest(self, provider: str, *, may_stay: bool) -> float | None:
        """Leave a provider to the next run, or stay: in so many seconds an attempt may begin. None: it was left."""
        if self.is_resting:
            return None
        try:
            return self.parts.queue.rest(
                provider,
                self.run,
                self.parts.providers[provider].rules.limits,
                may_stay=may_stay,
                least_seconds=0 if self.tally[provider]["claimed"] else self.parts.settings.tick_seconds,
            )
        except QueueUnavailable as error:  # the schedule's next run comes all the same
            self._failed(provider, error)
            return None

    def settle(self, provider: str, settlements: list[Settlement]) -> None:
        """Settle these, or keep them for later."""
        self.quiet.pop(provider, None)
        if any(one.store_away for one in settlements):
            if self.monotonic() >= self.store_rests_until:
                log.error("claims rest", extra={"reason": "DynamoDB did not answer", "rest_seconds": REST_SECONDS})
            self.store_rests_until = self.monotonic() + REST_SECONDS
        self._settle(provider, settlements)

    def settle_again(self) -> None:
        """Try once more what could not be settled."""
        kept, self.unsettled = self.unsettled, []
        for provider, settlements in kept:
            self._settle(provider, settlements)

    def backlog(self, providers: Iterable[str]) -> tuple[int, int]:
        """How many tasks of these providers are due, none if Redis does not tell; how many runs serve them already."""
        due, runs = 0, 1
        for provider in () if self.is_resting else providers:
            try:
                waiting, alive = self.parts.queue.backlog(provider)
            except QueueUnavailable as error:
                self._failed(provider, error)
                return 0, runs
            due, runs = due + waiting, max(runs, alive)
        return due, runs

    def _settle(self, provider: str, settlements: list[Settlement]) -> None:
        if not self.is_resting:
            try:
                self.tally[provider] += settle(self.parts.queue, self.parts.providers[provider], settlements)
            except QueueUnavailable as error:
                self._failed(provider, error)
            else:
                self.silences = 0
                return
        self.unsettled.append((provider, settlements))

    def _failed(self, provider: str, error: QueueUnavailable) -> None:
        """Redis did not serve a call: an error is this provider's alone, silence is everybody's."""
        self.tally[provider]["unreachable"] += 1
        said: dict[str, object] = {"provider": provider, "reason": str(error)}
        if isinstance(error, QueueUnreachable):
            self.silent, self.silences = provider, self.silences + 1
            self.redis_rests_until = self.monotonic() + REST_SECONDS
            said["rest_seconds"] = REST_SECONDS
        log.error("queue unavailable", extra=said)
