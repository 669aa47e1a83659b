"""The store's clock: what several machines compare (deadlines, ages, expiry) is told by one clock, DynamoDB's.

Hosts' clocks may be minutes apart. Each reply of DynamoDB says what time it is there, in whole seconds; a host that is
right to within TOLERANCE_MS is taken at its word, any other is corrected by the difference.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz

from shared.logs import log

TOLERANCE_MS = 2000  # a reply's whole second and its way here make at most 1.5 s of difference
LONGEST_MS = 2000  # a call that took longer, as in an environment that was frozen meanwhile, says nothing


def host_clock() -> int:
    """This machine's clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Clock:
    """Called, it tells now in epoch milliseconds: the `host`'s clock, corrected. Safe to use from many threads."""

    host: Callable[[], int] = host_clock
    ahead_ms: int = field(default=0, init=False)
    is_set: bool = field(default=False, init=False)

    def __call__(self) -> int:
        return self.host() - self.ahead_ms

    def hear(self, headers: Mapping[str, str], sent_at: int) -> None:
        """Take in when a reply was made; the call was sent at `sent_at` of the host's clock."""
        now, told = self.host(), parsedate_tz(headers.get("date"))
        if told is None or not 0 <= now - sent_at <= LONGEST_MS:
            return
        try:
            ahead_ms = (sent_at + now) // 2 - (mktime_tz(told) * 1000 + 500)
        except (ValueError, OverflowError):  # no day of the calendar
            return
        self.is_set = True
        if abs(ahead_ms - self.ahead_ms) > TOLERANCE_MS:
            self.ahead_ms = ahead_ms if abs(ahead_ms) > TOLERANCE_MS else 0
            log.warning("host clock corrected", extra={"ahead_seconds": round(self.ahead_ms / 1000)})
