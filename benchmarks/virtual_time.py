"""Virtual time for what runs at once: each program in a thread of its own, and the clock with whoever is due first."""

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from concurrent.futures._base import DoneAndNotDoneFutures
from typing import Any

LEAST_SECONDS = 1e-6
"""That time passes where somebody waits for less than a float can add to it; a real clock goes on by itself."""


class Later(Future[Any]):
    """What is done at its time, if a thread has begun it, and has its result once somebody waits for it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self.at = math.inf
        self.call = call


class Clock:
    """Calls what was handed in, at its time. Of programs that run at once only one is going: nothing races."""

    def __init__(self) -> None:
        self.now = 0.0
        self._turn = threading.Lock()
        self._turn.acquire()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._own: dict[threading.Thread, threading.Lock] = {}
        self._failure: BaseException | None = None

    def time(self) -> float:
        """The seconds so far."""
        return self.now

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do it then; it takes no time."""
        heapq.heappush(self._agenda, (when, next(self._order), do))

    def begin(self, program: Callable[[], None]) -> None:
        """Start a program now: what may `sleep`."""
        own = threading.Lock()
        own.acquire()

        def run() -> None:
            own.acquire()
            try:
                program()
            except BaseException as error:  # noqa: BLE001 (it is raised where the clock is)
                self._failure = error
            del self._own[thread]
            self._turn.release()

        thread = threading.Thread(target=run, daemon=True)
        self._own[thread] = own
        thread.start()
        self._hand_to(own)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the program that calls this."""
        until = self.now + max(0.0, seconds)
        if self._agenda and self._agenda[0][0] <= until:
            own = self._own[threading.current_thread()]
            self.at(until, lambda: self._hand_to(own))
            self._turn.release()
            own.acquire()
        else:
            self.now = until

    def wait(self, futures: Collection[Later], timeout: float) -> DoneAndNotDoneFutures[Any]:
        """Until the first of them is done, or the time is over."""
        self.sleep(min(min(future.at for future in futures) - self.now, max(timeout, LEAST_SECONDS)))
        done = {future for future in futures if future.at <= self.now}
        for future in done:
            future.set_result(future.call())
        return DoneAndNotDoneFutures(set[Future[Any]](done), set[Future[Any]](set(futures) - done))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let time pass until then."""
        while not is_over():
            self.now, _, do = heapq.heappop(self._agenda)
            do()

    def _hand_to(self, own: threading.Lock) -> None:
        own.release()
        self._turn.acquire()
        if self._failure:
            raise self._failure


class Pool(Executor):
    """So many threads; what one of them begins is done after as many seconds as `begin` says of its arguments."""

    def __init__(self, clock: Clock, threads: int, begin: Callable[..., float]) -> None:
        self._clock = clock
        self._free = threads
        self._begin = begin
        self._waiting: deque[tuple[Later, tuple[Any, ...]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Later:
        later = Later(lambda: fn(*args, **kwargs))
        self._waiting.append((later, args))
        self._go_on()
        return later

    def _go_on(self) -> None:
        while self._waiting and self._free:
            later, args = self._waiting.popleft()
            if later.set_running_or_notify_cancel():
                self._free -= 1
                later.at = self._clock.now + self._begin(*args)
                self._clock.at(later.at, self._done)

    def _done(self) -> None:
        self._free += 1
        self._go_on()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing runs on its own."""
