"""The keeper: stores what an attempt found, and says what becomes of its task in Redis.

Store, then complete: the item is written before the task moves, on condition that nobody with a later turn has written
there. A generation that is no longer pending ends in Redis as its item says; a refused write gives the task back.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from msgspec.structs import replace

from shared.bounds import RESULT_BYTES
from shared.codec import dumps
from shared.errors import StoreTooLarge, StoreUnavailable, StoreUnreachable
from shared.logs import facts, log
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider import Finding
from shared.queue import Add, Hold
from shared.reasons import Reason
from shared.record import Record
from shared.store import Ended, Item, Superseded
from shared.task import Task
from shared.work.parts import Parts
from shared.work.settle import Settlement
from shared.work.turn import Instant, Turn

STORE_RETRY_SECONDS = 10.0  # how long a task waits after its result could not be stored
STORE_PAUSE_SECONDS = 1.0  # how long a result in hand waits before it is stored once more
CANCEL_SECONDS = 5.0  # the longest that telling a provider of a cancellation may take
DURABLE = ("outputs", "partial", "submitted_at", "resubmits", "news")  # what an item keeps of its generation's record


@dataclass(slots=True)
class Keeper:
    """Safe to use from many threads. `monotonic` tells seconds."""

    parts: Parts
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def instant(self) -> Instant:
        """Now."""
        return Instant(self.parts.clock(), self.monotonic())

    def spread(self, hold: Hold, seconds: float) -> float:
        """So long, or a little longer: all would come back together."""
        provider = self.parts.providers.get(hold.task.provider)
        return provider.delays.spread(seconds) if provider else seconds

    def keep(self, turn: Turn, before: Record, finding: Finding, *, attempted: bool = True) -> Settlement:
        """Store it. `before` is the record without what the attempt learned; `attempted`: there was one just now."""
        outcome, record, hold = finding.outcome, finding.record, turn.hold
        found = Settlement(hold, outcome=outcome, record=record, attempted=attempted)
        if not isinstance(outcome, Completed) and turn.is_late(self.instant(), self.parts.settings.lease_seconds):
            log.warning("too late to store", extra=facts(hold))
            return self._unstored(found, before)
        try:
            written, settlement = self._written(turn, before, found)
        except StoreTooLarge as error:
            if isinstance(outcome, Failed):
                return self._unstored(found, before)
            too_large = Finding(Failed(Reason.TOO_LARGE, str(error)), record)
            return self.keep(turn, before, too_large, attempted=attempted)
        except StoreUnavailable as error:
            log.warning("store unavailable", extra=facts(hold) | {"reason": str(error)})
            return replace(self._unstored(found, before), store_away=isinstance(error, StoreUnreachable))
        if not isinstance(written, Superseded):
            return replace(settlement, item=written) if written else settlement
        there = written.item
        if there and there.is_pending(hold.generation):  # it knows more than we do
            if isinstance(outcome, Failed):
                settlement = replace(found, delay_seconds=self.spread(hold, STORE_RETRY_SECONDS))
            own = before if isinstance(outcome, Failed) or _is_resubmit(outcome) else settlement.record or record
            return replace(settlement, record=resumed(own, there), item=there, turn=there.turn)
        return self.ended(hold, there, record)

    def ended(self, hold: Hold, item: Item | None, record: Record | None = None) -> Settlement:
        """How a generation that is no longer pending ends in Redis: as its item says, never by a retry."""
        if item and item.generation == hold.generation:
            if item.status == "cancelled" and record:
                self.parts.providers[hold.task.provider].cancel(hold.task, record, seconds=CANCEL_SECONDS)
            if item.status == "failed" and not item.refused:
                return Settlement(hold, "buried", "buried", item=item)
        return Settlement(hold, "forgotten", "forgotten", item=item)

    def _written(self, turn: Turn, before: Record, found: Settlement) -> tuple[Ended, Settlement]:
        """What became of the write, and how the task settles if it was taken."""
        hold, outcome, inline = turn.hold, found.outcome, turn.inline
        match outcome:
            case Completed(data):
                return self._completed(turn, before, data), replace(found, becomes="completed", counts_as="completed")
            case Failed(reason, error):
                text, now = {"reason": reason, "error": error, "refused": inline}, self.parts.clock()
                written = self.parts.store.fail(
                    hold.task, hold.generation, text, now, by=turn.by, resubmits=before.resubmits, read_back=inline
                )
                refused = replace(found, becomes="forgotten", counts_as="refused")
                return written, refused if inline else replace(found, becomes="buried", counts_as="buried")
            case Pending(delay_seconds=delay) | Retry(delay_seconds=delay):
                assert found.record
                superseded, record = self._saved(turn, found.record, outcome)
                counts_as = "snoozed" if isinstance(outcome, Pending) else "retried"
                return superseded, replace(found, record=record, delay_seconds=delay, counts_as=counts_as)
            case None:
                raise AssertionError("a finding has an outcome")
            case _:
                assert_never(outcome)

    def _completed(self, turn: Turn, before: Record, data: Any) -> Ended:
        """Store a result in hand, which a provider may give only once: again while the attempt's time lasts.

        Nobody waits any more for a later job that was begun because this one was given up: it is cancelled.
        """
        hold, later = turn.hold, None
        while True:
            resubmits = None if later else before.resubmits
            try:
                written = self.parts.store.complete(
                    hold.task, hold.generation, data, self.parts.clock(), resubmits=resubmits, read_back=turn.inline
                )
            except StoreUnavailable:
                if turn.seconds_left(self.monotonic()) < STORE_PAUSE_SECONDS:
                    raise
                self.sleep(STORE_PAUSE_SECONDS)
                continue
            there = written.item if isinstance(written, Superseded) else None
            if later is None and there and there.is_pending(hold.generation):
                later = there
                continue
            if later and not isinstance(written, Superseded):
                self.parts.providers[hold.task.provider].cancel(hold.task, record_of(later), seconds=CANCEL_SECONDS)
            return written

    def _saved(self, turn: Turn, record: Record, outcome: Pending | Retry) -> tuple[Superseded | None, Record]:
        """Write what changed since the last successful write; else make sure, now and then, that it is still wanted."""
        hold, now = turn.hold, self.parts.clock()
        if record.digest != record.saved:
            resubmit = _is_resubmit(outcome)
            written = self.parts.store.save(hold.task, record, now, by=turn.by, resubmit=resubmit)
            there = written.item if written else None
            if there and there.is_pending(hold.generation) and there.news > record.news and not resubmit:
                return self._saved(turn, resumed(record, there), outcome)  # what is not told of there is ours
            return written, record if written else record.confirmed(now)
        if isinstance(outcome, Pending) and now - record.confirmed_at > self.parts.settings.confirm_seconds * 1000:
            item = self.parts.store.get(hold.task, now)
            if item is None or not item.is_pending(hold.generation):
                return Superseded(item), record
            return None, replace(resumed(record, item), confirmed_at=now)
        return None, record

    def _unstored(self, found: Settlement, before: Record) -> Settlement:
        """The settlement of an outcome that could not be stored: later again, and no error of the provider's."""
        match found.outcome:
            case Retry(delay, Reason.RESUBMIT):  # it must stand in the item before it may happen
                return replace(found, delay_seconds=delay, record=before)
            case Pending(delay_seconds=delay) | Retry(delay_seconds=delay):
                return replace(found, delay_seconds=delay)
            case Completed(data):
                found = replace(found, record=_with_result(found, data))
        return replace(found, delay_seconds=self.spread(found.hold, STORE_RETRY_SECONDS))


def record_of(item: Item) -> Record:
    """The record that a pending item stands for, with all that the item knows."""
    known = ("generation", "created_at", "input", "group", *DURABLE)
    return Record(**{name: getattr(item, name) for name in known}).confirmed(item.updated_at)


def add_of(task: Task, record: Record) -> Add:
    """What puts a pending task into the queue, due at once."""
    return Add(task, record.generation, record.to_text(), 0, record.group, record.outputs is not None)


def resumed(record: Record, item: Item) -> Record:
    """The record, with what its generation has in the item: a job, the loss of one, what a callback told.

    Its own stays only where the item has none. `saved` is of what the item has.
    """
    there = {name: getattr(item, name) for name in DURABLE}
    known = replace(record, **there).confirmed(item.updated_at)
    if item.resubmits > record.resubmits:
        return known
    return replace(known, **{name: getattr(record, name) for name in DURABLE if there[name] is None})


def _is_resubmit(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Retry) and outcome.reason is Reason.RESUBMIT


def _with_result(found: Settlement, data: Any) -> Record | None:
    """The record with a result in hand, for the next claim to store; one that is too large is asked for again."""
    text = dumps(data)
    size = len(text.encode())
    if found.record is None or size > RESULT_BYTES:
        log.error("result dropped", extra=facts(found.hold) | {"bytes": size, "limit": RESULT_BYTES})
        return found.record
    return replace(found.record, result=text)
