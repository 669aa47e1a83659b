"""How often a provider is asked: as a reply says, or exponential delays, capped and spread; and for how long."""

from random import Random
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import force_setattr

from shared.codec import Json
from shared.provider.language.hint import LONGEST_HINT_SECONDS, Hint, told
from shared.provider.language.part import YEAR_SECONDS, Count, Part, Positive, Seconds, says

SPREAD = 1.2  # so far above its floor, at least, a delay is drawn: all who were told the same would come back together
DEFAULT_MIN_DELAY_SECONDS = 2.0
DEFAULT_MAX_WAIT_SECONDS = 86_400.0

Factor: TypeAlias = Annotated[float, Meta(ge=1, le=100)]
Jitter: TypeAlias = Literal["full", "none"]


class Polling(Part, frozen=True):
    """Spans are in seconds. A default yields to what the file gives."""

    initial_delay: Annotated[Seconds | UnsetType, says("after the submit; absent: `minDelay`")] = UNSET
    min_delay: Annotated[Seconds, says("the shortest delay, but for `initialDelay`; hints are raised to it")] = (
        DEFAULT_MIN_DELAY_SECONDS
    )
    max_delay: Annotated[Seconds, says("the longest computed delay; of a hint an hour counts even so")] = 120.0
    multiplier: Annotated[Factor, says("how delays grow")] = 2.0
    jitter: Annotated[
        Jitter, says("`full`: drawn from `minDelay` to the computed delay; `none`: no delay is spread, for replays")
    ] = "full"
    hints: Annotated[tuple[Hint, ...], says("where replies say when to ask again, beside Retry-After")] = ()
    max_wait_time: Annotated[Positive, says("from the first submit until the task fails with `timeout`")] = (
        DEFAULT_MAX_WAIT_SECONDS
    )
    max_errors: Annotated[Count, says("retry outcomes in a row; one more ends the task")] = 10
    max_resubmits: Annotated[Count, says("new jobs after lost ones")] = 1
    not_found_grace: Annotated[Seconds, says("after the submit, while a 404 of a poll is tried again")] = 30

    def __post_init__(self) -> None:
        """Hold the floor that is given against a longest delay that is not, and the other way round."""
        if self.min_delay == DEFAULT_MIN_DELAY_SECONDS:
            force_setattr(self, "min_delay", min(self.min_delay, self.max_delay, self.max_wait_time))
        force_setattr(self, "max_delay", min(max(self.min_delay, self.max_delay), self.max_wait_time))

    @property
    def first_delay(self) -> float:
        """Seconds to wait after the submit."""
        return self.min_delay if self.initial_delay is UNSET else self.initial_delay

    def hinted(self, envelope: dict[str, Json], now: int) -> float | None:
        """Seconds from `now` (epoch ms) until a reply asks to be asked again (`told`); None: it does not.

        A hint overrides the backoff. It is raised to `min_delay`, and never beyond the longest delay and an hour.
        """
        seconds = told(envelope, now / 1000, self.hints)
        return None if seconds is None else self.bounded(seconds)

    def bounded(self, seconds: float) -> float:
        """How much of a hint counts for a task."""
        return max(self.min_delay, min(seconds, max(LONGEST_HINT_SECONDS, self.max_delay)))

    def after_pending(self, number: int, random: Random, left: float = YEAR_SECONDS) -> float | None:
        """Seconds to wait after the `number`-th pending reply (1 is the submit's), as `drawn` does."""
        delay = self.first_delay if number <= 1 else self._grown(number)
        return self.drawn(min(self.min_delay, delay), delay, random, left)

    def after_error(self, number: int, random: Random, left: float = YEAR_SECONDS) -> float | None:
        """Seconds to wait after the `number`-th error in a row (1 is the first), as `drawn` does."""
        if self.jitter == "full":
            number = max(number, 2)  # the first delay would be the floor itself, with little room above it
        return self.drawn(self.min_delay, self._grown(number), random, left)

    def drawn(self, low: float, high: float, random: Random, left: float = YEAR_SECONDS) -> float | None:
        """Seconds from `low`, evenly up to `high` and at least a fifth further than `low`; without jitter just `high`.

        Never more than are `left` until the deadline: what would be later is drawn from the last `min_delay` before it
        (the default's for none), so that there is one last poll; None when that would be too soon.
        """
        low, high = (high, high) if self.jitter == "none" else (low, max(high, low * SPREAD))
        if low > left:
            if left <= 0 or left < self.min_delay:
                return None
            last = self.min_delay or DEFAULT_MIN_DELAY_SECONDS
            low = left if self.jitter == "none" else max(left - last, self.min_delay)
        return min(random.uniform(low, min(high, left)), left)

    def _grown(self, number: int) -> float:
        try:
            return min(self.max_delay, self.min_delay * self.multiplier ** (number - 1))
        except OverflowError:
            return self.max_delay
