"""Settling: turning outcomes into complete, release, bury or forget, many at once. The one place where tasks move."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from shared.item import Item
from shared.outcome import Failed, Outcome, Pending, Retry
from shared.queue import Hold, Queue
from shared.record import Record

Verb: TypeAlias = Literal["complete", "release", "bury", "forget"]

log = logging.getLogger("meanwhile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What is to happen to a held task in the queue, and what it counts as in the tally.

    `outcome` and `record` are what the attempt found, if there was one; `item` is what stood in its way.
    """

    hold: Hold
    verb: Verb
    counts_as: str
    outcome: Outcome | None = None
    record: Record | None = None
    delay_seconds: float = 0
    item: Item | None = None


def settle(queue: Queue, settlements: Iterable[Settlement]) -> Counter[str]:
    """Move tasks of one provider in the queue, at most one call per verb; the tally says what became of them.

    A task that somebody else has taken meanwhile counts as lost. Raises QueueUnavailable; leases bring those back.
    """
    by_verb: dict[Verb, list[Settlement]] = {"complete": [], "release": [], "bury": [], "forget": []}
    for settlement in settlements:
        by_verb[settlement.verb].append(settlement)
    tally: Counter[str] = Counter()
    for verb, group in by_verb.items():
        if group:
            for settlement, done in zip(group, _move(queue, verb, group), strict=True):
                counts_as = settlement.counts_as if done or verb == "forget" else "lost"
                tally[counts_as] += 1
                report(settlement, counts_as)
    return tally


def facts(about: Hold | Item) -> dict[str, object]:
    """What every log line about a task says."""
    return {"provider": about.task.provider, "task": about.task.name, "generation": about.generation}


def _move(queue: Queue, verb: Verb, group: list[Settlement]) -> list[bool]:
    match verb:
        case "complete":
            return queue.complete([one.hold for one in group])
        case "bury":
            return queue.bury([one.hold for one in group])
        case "forget":
            return queue.forget([(one.hold.task, one.hold.generation) for one in group])
        case "release":
            return queue.release(
                [(one.hold, one.delay_seconds, one.record.to_text() if one.record else None) for one in group]
            )
    assert_never(verb)


def report(settlement: Settlement, counts_as: str) -> None:
    """One line per change: ends at INFO, waiting at DEBUG."""
    said = facts(settlement.hold)
    match settlement.outcome:
        case Failed(reason):
            said["reason"] = reason
        case Retry(delay, reason):
            said |= {"reason": reason, "delay_seconds": delay}
        case Pending(delay):
            said["delay_seconds"] = delay
    level = logging.DEBUG if counts_as in ("snoozed", "retried", "released") else logging.INFO
    log.log(level, counts_as, extra=said)
