"""What a request's headers ask for beside its task: how old, how stale and how soon the answer may be.

`Cache-Control` (RFC 9111; stale-while-revalidate as in RFC 5861) and `Prefer` (RFC 7240). What cannot be read is
ignored, as those documents say.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.api.event import ApiCall

LONGEST_WAIT_SECONDS = 20
MAX_CHARACTERS = 1024  # a longer header is ignored: splitting it would take long
LONGEST_AGE_SECONDS = 2**31  # what a greater number of seconds counts as (RFC 9111)

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PART = re.compile(rf'(?:{_QUOTED}|[^",])+')
_PREFERENCE = re.compile(rf"\s*([^\s=;,\"]+)(?:\s*=\s*([^\s;,\"]*|{_QUOTED}))?\s*(?:;.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """`max_age_seconds`: stored data may be so old (None: as the provider's file says). `stale_seconds`: for so long
    after that it still answers, and is renewed meanwhile. `wait_seconds`: how long to wait for the first reply (None:
    as the file says; at most 20). `applied`: how `Preference-Applied` names that.
    """

    max_age_seconds: float | None = None
    stale_seconds: float = 0
    wait_seconds: float | None = None
    applied: str | None = None


NONE = Preferences()


def preferences(call: ApiCall) -> Preferences:
    """The preferences that a call's headers state; the names of preferences are read in any case."""
    cache = [part.strip().lower() for part in _parts(call, "cache-control")]
    fresh_only = "no-cache" in cache
    wait_seconds, applied = _wait(_parts(call, "prefer"))
    return Preferences(
        max_age_seconds=0 if fresh_only else min(_seconds(cache, "max-age"), default=None),
        stale_seconds=0 if fresh_only else min(_seconds(cache, "stale-while-revalidate"), default=0),
        wait_seconds=wait_seconds,
        applied=applied,
    )


def _parts(call: ApiCall, name: str) -> list[str]:
    text = call.headers.get(name, "")
    return _PART.findall(text) if len(text) <= MAX_CHARACTERS else []


def _wait(parts: Sequence[str]) -> tuple[int | None, str | None]:
    """How long to wait, and how that is named; of a preference that is stated twice the first counts."""
    found = [match for part in parts if (match := _PREFERENCE.fullmatch(part))]
    stated = {match[1].lower(): (match[2] or "").strip('"') for match in reversed(found)}
    if re.fullmatch(r"[0-9]+", stated.get("wait", "")):
        seconds = min(int(stated["wait"][:10]), LONGEST_WAIT_SECONDS)
        return seconds, f"wait={seconds}"
    return (0, "respond-async") if "respond-async" in stated else (None, None)


def _seconds(directives: Iterable[str], name: str) -> list[int]:
    found = (re.fullmatch(rf'{name}=(?:([0-9]+)|"([0-9]+)")', directive) for directive in directives)
    return [min(int((one[1] or one[2])[:11]), LONGEST_AGE_SECONDS) for one in found if one]
