"""A turn: one holder's time with a task. It is counted from before the task was asked for."""

from typing import NamedTuple

from msgspec import Struct

from shared.queue import Hold
from shared.store import Holder


class Instant(NamedTuple):
    """An instant by two clocks: a worker that was stalled may find that one of them stood still, or jumped."""

    wall_ms: int
    monotonic: float


def holder_of(hold: Hold) -> Holder | None:
    """Who writes by this hold; None without a token."""
    return Holder(hold.turn, hold.holder) if hold.token else None


class Turn(Struct, frozen=True):
    """`since` when the task is held, and when its attempt `ends` (monotonic); `inline`: in the user's request."""

    hold: Hold
    since: Instant
    ends: float = 0
    inline: bool = False

    @property
    def by(self) -> Holder | None:
        """Who writes in this turn; None for one without a hold: a callback's."""
        return holder_of(self.hold)

    def is_late(self, now: Instant, lease_seconds: float) -> bool:
        """Whether the lease may be over, by either clock. It spares writes; only the item's turn proves anything."""
        wall_ms, monotonic = now.wall_ms - self.since.wall_ms, now.monotonic - self.since.monotonic
        return max(wall_ms / 1000, monotonic) >= lease_seconds

    def seconds_left(self, monotonic: float) -> float:
        """Of the attempt's time."""
        return self.ends - monotonic
