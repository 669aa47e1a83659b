"""Ticks over real servers, in which attempts take time that only the test's clock knows."""

import math
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from concurrent.futures._base import DoneAndNotDoneFutures
from functools import partial
from typing import Any

from shared import wiring
from shared.queue import Claimed
from shared.work import tick
from shared.work.settle import Settlement
from shared.work.tick import Tick
from shared.work.tick_queue import Tally
from tests.faults.world import World

FUNCTION_SECONDS = 80
BETWEEN_TICKS_SECONDS = 60


class VirtualTime(Executor):
    """Asks where a thread begins an attempt, for real: done after `takes(provider)` seconds of the world's time."""

    def __init__(self, world: World, takes: Callable[[str], float] = lambda _: 0.5) -> None:
        self.world = world
        self._takes = takes
        self._threads = 0
        self._waiting: deque[tuple[Future[Settlement], Claimed, Callable[[], Settlement]]] = deque()
        self._under_way: dict[Future[Settlement], tuple[float, Settlement]] = {}
        world.patch.setattr(tick, "wait", self._wait)
        monotonic = world.clock.monotonic
        self._outside = (monotonic, world.pass_, self._of_threads)

    def tick(self, times: int = 1) -> None:
        """So many ticks; after each, time passes until the schedule fires again."""
        for _ in range(times):
            begun = self.world.clock.monotonic()
            self.run(lambda begun=begun: begun + FUNCTION_SECONDS - self.world.clock.monotonic())  # type: ignore[misc]
            self.world.pass_(max(0, begun + BETWEEN_TICKS_SECONDS - self.world.clock.monotonic()))

    def run(self, remaining: Callable[[], float]) -> Tally:
        """One tick of a function that has so many seconds left."""
        return Tick(wiring.parts(), wiring.worker(), remaining, None, *self._outside).run()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, args[0], partial(fn, *args, **kwargs)))
        self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing runs on its own."""

    def _of_threads(self, threads: int) -> "VirtualTime":
        self._threads = threads
        return self

    def _begin(self) -> None:
        """Each free thread begins what waits, the oldest first."""
        while self._waiting and len(self._under_way) < self._threads:
            future, claimed, attempt = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                done_at = self.world.clock.monotonic() + self._takes(claimed.hold.task.provider)
                self._under_way[future] = done_at, attempt()

    def _wait(
        self, futures: Collection[Future[Settlement]], timeout: float, return_when: str
    ) -> DoneAndNotDoneFutures[Settlement]:
        now = self.world.clock.monotonic()
        left = min(self._under_way[future][0] for future in futures if future in self._under_way) - now
        self.world.pass_(max(min(left, timeout), 0.001))  # time does not stand still while somebody waits for nothing
        now = self.world.clock.monotonic()
        done = {future for future in futures if self._under_way.get(future, (math.inf,))[0] <= now + 0.001}
        for future in done:
            future.set_result(self._under_way.pop(future)[1])
        self._begin()
        return DoneAndNotDoneFutures(done, set(futures) - done)
