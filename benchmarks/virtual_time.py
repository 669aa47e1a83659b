"""Virtual time for what runs at once: each program in a thread of its own, and the clock with whoever is due first."""

import heapq
import itertools
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from concurrent.futures._base import DoneAndNotDoneFutures
from typing import Any


class Later(Future[Any]):
    """What is done at its time, and has its result once somebody waits for it."""

    def __init__(self, at: float, call: Callable[[], Any]) -> None:
        super().__init__()
        self.at = at
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
        self.sleep(min(min(future.at for future in futures) - self.now, timeout))
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
    """Has as many threads as it is asked for; what is handed in is done after `takes()` seconds."""

    def __init__(self, clock: Clock, takes: Callable[[], float]) -> None:
        self._clock = clock
        self._takes = takes

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Later:
        return Later(self._clock.now + self._takes(), lambda: fn(*args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing runs on its own."""
