"""What a request's headers ask for beside its task: how old, how stale and how soon the answer may be.

`Cache-Control` (RFC 9111, 5861) and `Prefer` (RFC 7240). What cannot be read is ignored, as those documents say.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_WAIT_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """`max_age_seconds`: stored data may be so old (None: as the provider's file says). `stale_seconds`: for so long
    after that it still answers, and is renewed meanwhile. `wait_seconds`: how long to wait for the first answer (None:
    as the file says; at most 20).
    """

    max_age_seconds: float | None = None
    stale_seconds: float = 0
    wait_seconds: float | None = None


NONE = Preferences()


def preferences(event: Mapping[str, Any]) -> Preferences:
    """The preferences that an event's headers state; header names are read in any case."""
    cache, prefer = _directives(event, "cache-control"), _directives(event, "prefer")
    waits = _numbers(prefer, "wait") or ([0] if "respond-async" in prefer else [])
    return Preferences(
        max_age_seconds=0 if "no-cache" in cache else min(_numbers(cache, "max-age"), default=None),
        stale_seconds=0 if "no-cache" in cache else max(_numbers(cache, "stale-while-revalidate"), default=0),
        wait_seconds=min(waits[0], LONGEST_WAIT_SECONDS) if waits else None,
    )


def header(event: Mapping[str, Any], name: str) -> str:
    """A header's values, joined by commas; '' if there is none."""
    headers = event.get("headers") or {}
    return ",".join(str(value) for key, value in headers.items() if key.lower() == name and value)


def _directives(event: Mapping[str, Any], name: str) -> list[str]:
    return [part.strip().lower() for part in re.split(r"[,;]", header(event, name))]


def _numbers(directives: list[str], name: str) -> list[int]:
    found = (re.fullmatch(rf'{name}\s*=\s*"?(\d{{1,10}})"?', directive) for directive in directives)
    return [int(one[1]) for one in found if one]
