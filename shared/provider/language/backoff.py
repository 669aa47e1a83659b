"""How long to wait before asking again: exponential, capped, with full jitter."""

from dataclasses import dataclass
from random import Random
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A provider's delays, in seconds: `polling` of its file."""

    initial_delay: float = 2
    min_delay: float = 2
    max_delay: float = 120
    multiplier: float = 2
    jitter: Literal["full", "none"] = "full"

    def after_pending(self, number: int, random: Random) -> float:
        """Seconds to wait after the `number`-th pending reply (1 is the submit's)."""
        if number <= 1:
            return self._jittered(self.initial_delay, random)
        return self._grown(number, random)

    def after_error(self, number: int, random: Random) -> float:
        """Seconds to wait after the `number`-th error in a row (1 is the first)."""
        if self.jitter == "full":
            number = max(number, 2)  # the first delay would be the floor itself, and all would retry together
        return self._grown(number, random)

    def _grown(self, number: int, random: Random) -> float:
        try:
            delay = self.min_delay * self.multiplier ** (number - 1)
        except OverflowError:
            delay = self.max_delay
        return self._jittered(min(self.max_delay, delay), random)

    def _jittered(self, delay: float, random: Random) -> float:
        if self.jitter == "none" or delay <= self.min_delay:
            return delay
        return random.uniform(self.min_delay, delay)
