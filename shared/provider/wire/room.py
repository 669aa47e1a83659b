"""Room in memory: what many large answers may take together, and one that is larger beside them.

JSON takes up to forty times its size once it is decoded: twenty attempts with the largest answer would need more than
a function has. Counted is what an answer takes, as it is read from the wire and as it is decoded. What is small is
free; what is larger shares SHARED_BYTES, and where those are taken one attempt at a time goes on.
"""

import threading

from shared.errors import TransportError
from shared.reasons import Reason

SMALL_BYTES = 500_000
"""What an attempt may hold, all its replies together, whatever others do."""
SHARED_BYTES = 16_000_000
"""What all attempts may hold together that hold more."""


class Room:
    """For all threads of a process. Whoever has taken of it must leave it when its data are stored."""

    def __init__(self, small: int = SMALL_BYTES, shared: int = SHARED_BYTES) -> None:
        self._small = small
        self._free = shared
        self._is_taken = False
        self._changed = threading.Condition()
        self._own = _Own()

    def take(self, size: int, seconds: float) -> None:
        """Count bytes that this thread holds; where they are many, wait for up to `seconds` until there is room.

        Raises TransportError, for the reason no-room.
        """
        own = self._own
        held = own.held + size
        if held <= self._small or own.is_in:
            own.held = held
            return
        with self._changed:
            more = held - own.shared
            if not self._changed.wait_for(lambda: more <= self._free or not self._is_taken, max(0.0, seconds)):
                raise TransportError("other large answers were decoded and stored all the time", reason=Reason.NO_ROOM)
            if more <= self._free:
                self._free -= more
                own.shared = held
            else:
                self._is_taken = own.is_in = True
                self._give_back()
        own.held = held

    def leave(self) -> None:
        """This thread holds nothing any more."""
        with self._changed:
            self._is_taken = self._is_taken and not self._own.is_in
            self._give_back()
        self._own.held, self._own.is_in = 0, False

    def _give_back(self) -> None:
        self._free += self._own.shared
        self._own.shared = 0
        self._changed.notify_all()


class _Own(threading.local):
    """What one thread holds, how much of that is shared, and whether it is the one that goes on."""

    held = 0
    shared = 0
    is_in = False


ROOM = Room()
"""That of this process."""
