"""Room in memory: one large answer at a time is read on, decoded and stored, whatever else goes on beside it.

JSON takes ten to fifteen times its size once it is decoded: twenty attempts with the largest answer would need more
than a function has. What is small needs no room.
"""

import threading

from shared.errors import TransportError
from shared.reasons import Reason

SMALL_BYTES = 500_000
"""What an attempt may have read, all its replies together, before it waits for room."""


class Room:
    """For all threads of a process. Whoever has taken it must leave it when its data are stored."""

    def __init__(self) -> None:
        self._free = threading.Lock()
        self._own = threading.local()

    def take(self, size: int, seconds: float) -> None:
        """Count bytes that this thread holds; where they are many, wait for up to `seconds` until there is room.

        Raises TransportError, for the reason no-room.
        """
        self._own.bytes = getattr(self._own, "bytes", 0) + size
        if self._own.bytes <= SMALL_BYTES or getattr(self._own, "is_in", False):
            return
        if not self._free.acquire(timeout=max(0.0, seconds)):
            raise TransportError("other large answers were decoded and stored all the time", reason=Reason.NO_ROOM)
        self._own.is_in = True

    def leave(self) -> None:
        """This thread holds nothing any more."""
        self._own.bytes = 0
        if getattr(self._own, "is_in", False):
            self._own.is_in = False
            self._free.release()


ROOM = Room()
"""That of this process."""
