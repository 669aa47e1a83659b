"""Settling: turning outcomes into what becomes of tasks, many at once. The one place where tasks in hand move."""

import logging
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from shared.limits import Health
from shared.logs import facts, log
from shared.outcome import Outcome, Retry
from shared.provider import Finding, Provider
from shared.queue import Becomes, Hold, Place, Queue, Settle
from shared.reasons import Trait
from shared.record import Record
from shared.store import Item


class Settlement(Struct, frozen=True):
    """What becomes of a held task in the queue, and what it counts as in the tally.

    `outcome` and `record` are what the attempt found, if there was one; `attempted`: there was; `item` is how the task
    has ended: before that, or just now in the user's request; `turn` is its item's, where a later holder wrote there;
    `store_away`: DynamoDB did not answer.
    """

    hold: Hold
    becomes: Becomes = "waiting"
    counts_as: str = "released"
    outcome: Outcome | None = None
    record: Record | None = None
    delay_seconds: float = 0
    item: Item | None = None
    attempted: bool = False
    turn: int = 0
    store_away: bool = False


def settle(queue: Queue, provider: Provider, settlements: Sequence[Settlement]) -> Counter[str]:
    """Move tasks of one provider in the queue, in one call; the tally says what became of them.

    A task that somebody else has taken meanwhile counts as lost. Raises QueueUnavailable; leases bring those back.
    """
    rows = [_row(one) for one in settlements]
    return _tally(settlements, queue.settle(rows, _health(provider, settlements), provider.rules.limits))


def settle_and_look(queue: Queue, provider: Provider, settlements: Sequence[Settlement]) -> list[Place]:
    """The same; tells where each task stands then."""
    rows = [_row(one) for one in settlements]
    settled = queue.settle_and_look(rows, _health(provider, settlements), provider.rules.limits)
    _tally(settlements, [is_done for is_done, _ in settled])
    return [place for _, place in settled]


def _health(provider: Provider, settlements: Sequence[Settlement]) -> Health:
    return provider.delays.health(
        {one.hold.task.name: Finding(one.outcome, one.record) for one in settlements if one.outcome and one.record}
    )


def _tally(settlements: Sequence[Settlement], done: Sequence[bool]) -> Counter[str]:
    """What became of them, each of which is reported."""
    tally: Counter[str] = Counter()
    for settlement, is_done in zip(settlements, done, strict=True):
        counts_as = settlement.counts_as if is_done or settlement.becomes == "forgotten" else "lost"
        tally[counts_as] += 1
        report(settlement, counts_as)
        if counts_as == "lost":
            report_dropped(settlement, "somebody else has the task")
    return tally


def _row(one: Settlement) -> Settle:
    turn = max(one.turn, one.hold.turn)  # what the item has: a take-over may have raised it
    if one.becomes != "waiting":
        return Settle(one.hold, one.becomes)
    if one.record is None:
        return Settle(one.hold, "waiting", one.delay_seconds, attempted=one.attempted, turn=turn)
    is_lost = isinstance(one.outcome, Retry) and Trait.REPLY_LOST in one.outcome.reason.traits
    has_job = one.record.outputs is not None or is_lost
    return Settle(one.hold, "waiting", one.delay_seconds, one.record.to_text(), has_job, one.attempted, turn)


def report_dropped(settlement: Settlement, reason: str) -> None:
    """One line where a result in hand goes with this settlement: it will be asked for again."""
    if settlement.record and settlement.record.result is not None:
        log.error("result dropped", extra=facts(settlement.hold) | {"reason": reason})


def report(settlement: Settlement, counts_as: str) -> None:
    """One line per change: ends at INFO, waiting at DEBUG."""
    level = logging.DEBUG if counts_as in ("snoozed", "retried", "released") else logging.INFO
    if log.isEnabledFor(level):
        outcome = settlement.outcome
        said = {name: getattr(outcome, name) for name in ("reason", "delay_seconds") if hasattr(outcome, name)}
        log.log(level, counts_as, extra=facts(settlement.hold) | said)
