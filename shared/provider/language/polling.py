"""How often a provider is asked: as a reply says, or exponential delays, capped and spread; and for how long."""

import math
import re
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import force_setattr

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.part import YEAR_SECONDS, Count, Part, Positive, Seconds, says

SPREAD = 1.2  # so far above its floor, at least, a delay is drawn: all who were told the same would come back together
DEFAULT_MIN_DELAY_SECONDS = 2.0
DEFAULT_MAX_WAIT_SECONDS = 86_400.0

Factor: TypeAlias = Annotated[float, Meta(ge=1, le=100)]
Jitter: TypeAlias = Literal["full", "none"]
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")  # Python takes `1_0` and digits of other scripts as well

Unit: TypeAlias = Literal["s", "ms", "epoch", "http-date"]


class Hint(Part, frozen=True):
    """Where a reply says when to ask again, and in which unit."""

    argument: Annotated[Expression, says("what finds the hint")]
    unit: Annotated[Unit, says("what it is given in; `epoch`: an instant in seconds since 1970")] = "s"


_BUILT_IN = (
    Hint(argument=Expression('headers."retry-after-ms"'), unit="ms"),
    Hint(argument=Expression('headers."x-ms-retry-after-ms"'), unit="ms"),
    Hint(argument=Expression('headers."retry-after"'), unit="s"),
    Hint(argument=Expression('headers."retry-after"'), unit="http-date"),
)


class Polling(Part, frozen=True):
    """Spans are in seconds. A default yields to what the file gives."""

    initial_delay: Annotated[Seconds | UnsetType, says("after the submit; absent: `minDelay`")] = UNSET
    min_delay: Annotated[Seconds, says("the shortest delay, but for `initialDelay`; hints are raised to it")] = (
        DEFAULT_MIN_DELAY_SECONDS
    )
    max_delay: Annotated[Seconds, says("the longest computed delay; hints are not shortened to it")] = 120.0
    multiplier: Annotated[Factor, says("how delays grow")] = 2.0
    jitter: Annotated[
        Jitter, says("`full`: drawn from `minDelay` to the computed delay; `none`: no delay is spread, for replays")
    ] = "full"
    hints: Annotated[tuple[Hint, ...], says("where replies say when to ask again, before Retry-After")] = ()
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
        """Seconds from `now` (epoch ms) until a reply asks to be asked again, at least `min_delay`; None: it does not.

        The file's hints come first, then retry-after-ms, x-ms-retry-after-ms and Retry-After (RFC 9110, 10.2.3). A hint
        overrides the backoff and is never shortened. An instant is read by the reply's own clock, its `Date`; by ours
        where that is missing or junk.
        """
        said_at = now / 1000
        with suppress(*_NO_HINT):
            said_at = _instant(envelope["headers"]["date"])
        for hint in (*self.hints, *_BUILT_IN):
            with suppress(*_NO_HINT):
                seconds = _seconds(hint.argument.of(envelope), hint.unit, said_at)
                if math.isfinite(seconds):
                    return max(seconds, self.min_delay)
        return None

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


_NO_HINT = (ValueError, OverflowError, TypeError, IndexError, KeyError)
"""What `_seconds` and `_instant` raise for what is none."""


def _seconds(value: Json, unit: Unit, said_at: float) -> float:
    """Seconds from `said_at` (epoch seconds)."""
    if unit == "http-date":
        return _instant(value) - said_at
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value.strip())):
        raise ValueError("no number")
    number = float(value)
    if unit == "epoch":
        return number - said_at
    if number < 0:
        raise ValueError("-1 is how some say that they do not know")
    return number / 1000 if unit == "ms" else number


def _instant(value: Json) -> float:
    """Epoch seconds of a date as HTTP writes it; one without a zone is in UTC."""
    date = parsedate_to_datetime(value if isinstance(value, str) else "")
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
