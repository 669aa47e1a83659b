"""Delay hints: what a reply says of when to ask again. A hint overrides the backoff and is never shortened."""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Annotated, Literal, TypeAlias

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.part import Part, says

_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
"""Python's own reading takes `1_0` and the digits of other scripts as well."""

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


def hinted_seconds(hints: Iterable[Hint], envelope: dict[str, Json], now: int) -> float | None:
    """The first usable hint of a reply at `now` (epoch ms), in seconds from now, the past as 0; None without one.

    The file's hints come first, then retry-after-ms, x-ms-retry-after-ms and Retry-After (RFC 9110, 10.2.3).
    """
    for hint in (*hints, *_BUILT_IN):
        with suppress(ValueError, OverflowError, TypeError, IndexError):
            seconds = _seconds(hint.argument.of(envelope), hint.unit, now / 1000)
            if math.isfinite(seconds):
                return max(0.0, seconds)
    return None


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
