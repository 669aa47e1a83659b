"""How often a provider is asked: as a reply says, or exponential delays, capped, with full jitter; and how long."""

import math
import re
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.part import Count, Factor, Part, Positive, Seconds, says

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

    def hinted(self, envelope: dict[str, Json], now: int) -> float | None:
        """Seconds from `now` (epoch ms) until a reply asks to be asked again, at least `min_delay`; None: it does not.

        The file's hints come first, then retry-after-ms, x-ms-retry-after-ms and Retry-After (RFC 9110, 10.2.3). A hint
        overrides the backoff and is never shortened.
        """
        for hint in (*self.hints, *_BUILT_IN):
            with suppress(ValueError, OverflowError, TypeError, IndexError):
                seconds = _seconds(hint.argument.of(envelope), hint.unit, now / 1000)
                if math.isfinite(seconds):
                    return max(seconds, self.min_delay)
        return None

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


def _seconds(value: Json, unit: Unit, now_seconds: float) -> float:
    """Seconds from now. Raises one of several errors for what is no hint."""
    if unit == "http-date":
        date = parsedate_to_datetime(value if isinstance(value, str) else "")
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_seconds
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value.strip())):
        raise ValueError("no number")
    number = float(value)
    if unit == "epoch":
        return number - now_seconds
    if number < 0:
        raise ValueError("-1 is how some say that they do not know")
    return number / 1000 if unit == "ms" else number
