"""One thread for the deadlines of all exchanges: a `threading.Timer` each would be a thread for each attempt."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from shared.logs import log


class Deadline:
    """What is called when its time comes, unless it is cancelled before."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Call nothing. A call that is just being made is not waited for."""
        self._call = None

    def come(self) -> None:
        """Make the call, once."""
        call, self._call = self._call, None
        if call:
            try:
                call()
            except Exception:  # the others are not to wait for ever
                log.exception("deadline broke")


class _Entry(NamedTuple):
    at: float
    number: int  # deadlines do not compare
    deadline: Deadline


class Deadlines:
    """Deadlines, each called by one thread that starts with the first of them; calls must be short and raise nothing.

    `monotonic` tells seconds. A cancelled deadline stays listed until its time: that costs less than to look for it.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._entries: list[_Entry] = []
        self._numbers = itertools.count()
        self._sooner = threading.Condition()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], object]) -> Deadline:
        """A deadline in so many seconds."""
        entry = _Entry(self._monotonic() + seconds, next(self._numbers), Deadline(call))
        with self._sooner:
            heapq.heappush(self._entries, entry)
            if self._thread is None or not self._thread.is_alive():
                self._entries[:] = [entry]  # in a process that was forked the others are its parent's
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            elif self._entries[0] is entry:
                self._sooner.notify()
        return entry.deadline

    def _watch(self) -> None:
        while True:
            self._next().come()

    def _next(self) -> Deadline:
        """The next deadline, when its time has come."""
        with self._sooner:
            while not self._entries or (seconds := self._entries[0].at - self._monotonic()) > 0:
                self._sooner.wait(seconds if self._entries else None)
            return heapq.heappop(self._entries).deadline


DEADLINES = Deadlines()
"""Those of this process."""
