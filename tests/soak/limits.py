"""Whether the provider with limits was ever asked more than its file allows, as it counted itself.

A loss of Redis loses the count of what is under way, and a process that stood still beyond its lease goes on where
others have begun: what comes right then is left out, and counting begins anew.
"""

from collections.abc import Iterator
from typing import Any

from tests.soak.history import Fault, History, task_of
from tests.soak.journal import Event
from tests.soak.plan import ATTEMPT_SECONDS, BURST, OPEN_JOBS, PARALLEL, RATE_SECONDS

PROVIDER = "limited"
AFTERMATH_SECONDS = ATTEMPT_SECONDS + 1
"""So long after a loss there may be requests that were begun before it."""


def check(history: History) -> Iterator[Fault]:
    """Every moment in which the provider was asked too much."""
    losses = [event for event in history.of("fault") if event["kind"] in ("restart", "flush")]
    spans = [(event["begun"], event["at"] + AFTERMATH_SECONDS) for event in losses]
    starts = [0.0, *(end for _, end in spans)]
    ends = [*(begin for begin, _ in spans), float("inf")]
    asked = [event for event in history.of("asked") if event["provider"] == PROVIDER and event["verb"] != "cancel"]
    counted = sorted((event for event in asked if not _is_late(history, event)), key=lambda event: event["begun"])
    jobs = [event for event in history.of("job") if event["provider"] == PROVIDER]
    for start, end in zip(starts, ends, strict=True):
        within = [event for event in counted if start <= event["begun"] < end]
        yield from _parallel(within)
        yield from _rate(within)
        yield from _open_jobs(history, [job for job in jobs if start <= job["at"] < end])


def _is_late(history: History, event: Event) -> bool:
    return any(
        freeze["worker"] == event["worker"]
        and freeze["at"] <= event["begun"] <= freeze["at"] + freeze["seconds"] + AFTERMATH_SECONDS
        for freeze in history.long_freezes
    )


def _parallel(asked: list[Event]) -> Iterator[Fault]:
    """An attempt is over when it was answered, at the latest when its time is."""
    spans = [(event["begun"], min(event["sent"], event["begun"] + ATTEMPT_SECONDS), event) for event in asked]
    yield from _most(spans, PARALLEL, "attempts at once")


def _open_jobs(history: History, jobs: list[Event]) -> Iterator[Fault]:
    """A job is open until it is done or vanishes, or nobody asks after it any more."""
    spans = []
    for job in jobs:
        later = (event for event in history.writes.get(str(task_of(job)), []) if event["at"] > job["at"])
        over = [event["at"] for event in later if event["new"]["status"] != "pending"]
        spans.append((job["at"], min([job["done_at"], *over]), job))
    yield from _most(spans, OPEN_JOBS, "jobs open at once")


def _rate(asked: list[Event]) -> Iterator[Fault]:
    """Of those who come within a span, some may have begun before it: no more than may be under way at once."""
    spare = [event["begun"] / RATE_SECONDS - i for i, event in enumerate(asked)]
    first = 0  # whoever has most behind him that is too much, if anybody has
    for last, event in enumerate(asked):
        first = last if spare[last] > spare[first] else first
        if spare[first] - spare[last] + 1 > BURST + PARALLEL:
            begun = asked[first]["begun"]
            why = f"{last - first + 1} attempts within {event['begun'] - begun:.3f} s from {begun:.3f}"
            yield Fault("exceeded", PROVIDER, why, tuple(asked[first : last + 1]))
            return


def _most(spans: list[tuple[float, float, Event]], limit: int, what: str) -> Iterator[Fault]:
    changes: list[tuple[float, int, Any]] = []
    for begin, end, event in spans:
        if end > begin:
            changes += [(begin, 1, event), (end, -1, event)]
    changes.sort(key=lambda change: change[:2])  # at one instant, who ends goes first
    under_way: list[Event] = []
    for at, change, event in changes:
        if change < 0:
            under_way = [one for one in under_way if one is not event]
            continue
        under_way.append(event)
        if len(under_way) > limit:
            yield Fault("exceeded", PROVIDER, f"{len(under_way)} {what} at {at:.3f}", tuple(under_way))
            return
