"""How often a provider is asked: exponential delays, capped, with full jitter, and when it is enough."""

from random import Random
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from shared.provider.language.hint import Hint
from shared.provider.language.part import Count, Factor, Part, Positive, Seconds, says

Jitter: TypeAlias = Literal["full", "none"]


class Polling(Part, frozen=True):
    """Spans are in seconds."""

    initial_delay: Annotated[Seconds | UnsetType, says("after the submit; absent: `minDelay`")] = UNSET
    min_delay: Annotated[Seconds, says("the shortest delay; hints are raised to it")] = 2.0
    max_delay: Annotated[Seconds, says("the longest computed delay; hints are not shortened to it")] = 120.0
    multiplier: Annotated[Factor, says("how delays grow")] = 2.0
    jitter: Annotated[Jitter, says("`full`: drawn from `minDelay` to the computed delay")] = "full"
    hints: Annotated[tuple[Hint, ...], says("where replies say when to ask again, before Retry-After")] = ()
    max_wait_time: Annotated[Positive, says("from the first submit until the task fails with `timeout`")] = 86400
    max_errors: Annotated[Count, says("retry outcomes in a row; one more ends the task")] = 10
    max_resubmits: Annotated[Count, says("new jobs after lost ones")] = 1
    not_found_grace: Annotated[Seconds, says("after the submit, while a 404 of a poll is tried again")] = 30

    @property
    def first_delay(self) -> float:
        """Seconds to wait after the submit."""
        return self.min_delay if self.initial_delay is UNSET else self.initial_delay

    def after_pending(self, number: int, random: Random) -> float:
        """Seconds to wait after the `number`-th pending reply (1 is the submit's)."""
        return self._jittered(self.first_delay, random) if number <= 1 else self._grown(number, random)

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
