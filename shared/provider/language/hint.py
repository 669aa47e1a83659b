"""Hints: when a reply asks to be asked again. A span, an instant and a date are told apart by what they can mean."""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Literal, TypeAlias

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.part import Part, says

LONGEST_HINT_SECONDS = 3600.0  # nothing that one reply says keeps a task, or pauses a provider, for longer
Unit: TypeAlias = Literal["s", "ms", "epoch", "http-date"]


class Hint(Part, frozen=True):
    """Where a reply says when to ask again."""

    argument: Annotated[Expression, says("what finds the hint")]
    unit: Annotated[Unit, says("`ms`: a bare span is in milliseconds, else in seconds; instants need no unit")] = "s"


_IN_MS = ("retry-after-ms", "x-ms-retry-after-ms")
_RESETS = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")
_LEFT = ("ratelimit-remaining", "x-ratelimit-remaining", "x-rate-limit-remaining")
_REFUSALS = (429, 503)

_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")  # Python takes `1_0` and digits of other scripts as well
_AMOUNT = r"([0-9]+(?:\.[0-9]+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)"
_SPAN = re.compile(rf"(?i)(?:pt)?(?:{_AMOUNT} ?)+")  # `30s`, `1m30s`, `2 minutes`, `PT30S` (ISO 8601)
_UNIT_SECONDS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "s": 1.0, "h": 3600.0, "d": 86400.0}
_COMMA = re.compile(r"(?i)(?<!mon|tue|wed|thu|fri|sat|sun|day),")  # between two values, not within a date
_LONGEST_TEXT = 200  # characters that are looked at
_NO_HINT = (ValueError, OverflowError, TypeError, IndexError, KeyError, AttributeError)
"""What is raised on the way to a hint where there is none."""


def told(envelope: dict[str, Json], now: float, hints: Iterable[Hint] = ()) -> float | None:
    """Seconds from `now` (epoch seconds) until a reply asks to be asked again, the longest that it says; None: nothing.

    Read are these hints, Retry-After (RFC 9110, 10.2.3) and its forms in ms, and when a limit that refused this request
    is reset. Instants are read by the reply's own `Date`, by `now` where that is missing or junk; past ones are none.
    """
    given = envelope.get("headers")
    headers = given if isinstance(given, dict) else {}
    said_at = now
    with suppress(*_NO_HINT):
        said_at = _http_date(headers["date"])
    found = [seconds for one in hints for seconds in _read(one.argument.of(envelope), one.unit, said_at)]
    exact = [seconds for name in _IN_MS for seconds in _read(headers.get(name), "ms", said_at)]
    whole = [*_read(headers.get("retry-after"), "s", said_at)]
    found += exact + [one for one in whole if not any(0 <= one - ms < 1 for ms in exact)]  # the same, rounded up
    if _is_at_limit(envelope.get("statusCode"), headers, said_at):
        found += [seconds for name in _RESETS for seconds in _read(headers.get(name), "s", said_at)]
    return max(found, default=None)


def says_when(envelope: dict[str, Json], now: float) -> bool:
    """Whether a 4xx says itself that it passes: its limit is used up, or it says when to come back."""
    status = envelope["statusCode"]
    is_ours = isinstance(status, int) and 400 <= status <= 499
    return is_ours and (told(envelope, now) is not None or _is_at_limit(status, envelope["headers"], now))


def is_for_all(envelope: dict[str, Json], now: float) -> bool:
    """Whether a reply that says when to come back means everybody, and not one job."""
    return envelope["statusCode"] in _REFUSALS or _is_at_limit(envelope["statusCode"], envelope["headers"], now)


def _is_at_limit(status: Json, headers: dict[str, Json], said_at: float) -> bool:
    """Whether this reply refuses for a limit that is used up: many tell the reset of one that is not in every reply."""
    if not isinstance(status, int) or status < 400:
        return False
    left = [number for name in _LEFT for number in _read(headers.get(name), "s", said_at)]
    return min(left) <= 0 if left else status in _REFUSALS


def _read(value: Json, unit: Unit, said_at: float) -> Iterator[float]:
    """The spans in seconds that a value means, none below 0; several where one header came several times."""
    for part in _COMMA.split(value[:_LONGEST_TEXT]) if isinstance(value, str) else [value]:
        with suppress(*_NO_HINT):
            seconds = _seconds(part, unit, said_at)
            if 0 <= seconds < math.inf:  # below 0: a past instant, or -1, which is how some say that they do not know
                yield seconds


def _seconds(value: Json, unit: Unit, said_at: float) -> float:
    """Seconds from `said_at` (epoch seconds). Raises one of _NO_HINT for what is none."""
    if isinstance(value, str):
        value = value.strip()
        if _SPAN.fullmatch(value):
            return sum(float(number) * _unit_seconds(name) for number, name in re.findall(f"(?i){_AMOUNT}", value))
        if not _NUMBER.fullmatch(value):
            return _date(value) - said_at
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    number = float(value)
    for scale in (1, 1e3, 1e6, 1e9):  # an instant in seconds, ms, … since 1970: as a span it would be 30 years or more
        if 1e9 <= number / scale < 1e11:
            return number / scale - said_at
    return number / 1000 if unit == "ms" else number


def _unit_seconds(name: str) -> float:
    name = name.lower()
    return 0.001 if name.startswith("milli") else _UNIT_SECONDS.get(name[:2]) or _UNIT_SECONDS[name[0]]


def _date(text: str) -> float:
    """Epoch seconds of a date as HTTP or ISO 8601 writes it."""
    try:
        return _http_date(text)
    except _NO_HINT:
        return _epoch(datetime.fromisoformat(text))


def _http_date(value: Json) -> float:
    return _epoch(parsedate_to_datetime(value if isinstance(value, str) else ""))


def _epoch(date: datetime) -> float:
    """Epoch seconds; a date without a zone is in UTC."""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
