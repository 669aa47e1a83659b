"""Settling: turning outcomes into complete, release, bury or forget, many at once. The one place where tasks move."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from shared.limits import Health
from shared.logs import facts, log
from shared.outcome import Outcome, Retry
from shared.provider import Finding, Provider
from shared.queue import Hold, Queue, Release
from shared.reasons import Trait
from shared.record import Record
from shared.store import Item

Verb: TypeAlias = Literal["complete", "release", "bury", "forget"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to happen to a held task in the queue, and what it counts as in the tally.

    `outcome` and `record` are what the attempt found, if there was one; `item` is how the task has ended: before that,
    or just now in the user's request. A pending one refused what was found, as it knows more.
    """

    hold: Hold
    verb: Verb = "release"
    counts_as: str = "released"
    outcome: Outcome | None = None
    record: Record | None = None
    delay_seconds: float = 0
    item: Item | None = None


def settle(queue: Queue, provider: Provider, settlements: Sequence[Settlement]) -> Counter[str]:
    """Move tasks of one provider in the queue, at most one call per verb; the tally says what became of them.

    The first call says how the provider is, as all replies together tell, so that errors count once; each says
    which of its own tasks had a good or a bad reply, as the probe may be any of them. A task that somebody else has
    taken meanwhile counts as lost. Raises QueueUnavailable; leases bring those back.
    """
    health = provider.delays.health(
        {one.hold.task.name: Finding(one.outcome, one.record) for one in settlements if one.outcome and one.record}
    )
    tally: Counter[str] = Counter()
    for verb in get_args(Verb):
        if group := [one for one in settlements if one.verb == verb]:
            for settlement, done in zip(group, _move(queue, verb, group, health), strict=True):
                counts_as = settlement.counts_as if done or verb == "forget" else "lost"
                tally[counts_as] += 1
                report(settlement, counts_as)
            health = replace(health, pause_seconds=0, errors=0)
    return tally


def _move(queue: Queue, verb: Verb, group: list[Settlement], health: Health) -> list[bool]:
    holds = [one.hold for one in group]
    match verb:  # mypy asks for a return where a verb is missing here
        case "release":
            return queue.release([_released(one) for one in group], health)
        case "forget":
            return queue.forget([(hold.task, hold.generation) for hold in holds], health)
        case "complete" | "bury":
            return (queue.complete if verb == "complete" else queue.bury)(holds, health)


def _released(one: Settlement) -> Release:
    if one.record is None:
        return Release(one.hold, one.delay_seconds)
    is_lost = isinstance(one.outcome, Retry) and Trait.REPLY_LOST in one.outcome.reason.traits
    return Release(one.hold, one.delay_seconds, one.record.to_text(), one.record.outputs is not None or is_lost)


def report(settlement: Settlement, counts_as: str) -> None:
    """One line per change: ends at INFO, waiting at DEBUG."""
    outcome = settlement.outcome
    said = {name: getattr(outcome, name) for name in ("reason", "delay_seconds") if hasattr(outcome, name)}
    level = logging.DEBUG if counts_as in ("snoozed", "retried", "released") else logging.INFO
    log.log(level, counts_as, extra=facts(settlement.hold) | said)
