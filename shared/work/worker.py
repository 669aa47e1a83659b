"""The worker: one attempt for one held task, and its outcome stored.

enqueue and process both come here. Store, then complete: what an attempt found is written to the item before the task
moves in Redis (`settle.py`), and a generation that is no longer pending ends in Redis as its item says.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

from shared.errors import RecordError, StoreTooLarge, StoreUnavailable, StoreUnreachable
from shared.logs import facts, log
from shared.outcome import Completed, Failed, Pending, Retry
from shared.provider import Finding
from shared.provider.wire.message import Reply
from shared.queue import Add, Claimed, Hold
from shared.reasons import Reason
from shared.record import Record
from shared.store import Ended, Item, Superseded
from shared.task import Task
from shared.work.parts import Parts
from shared.work.settle import Settlement

STORE_RETRY_SECONDS = 10.0  # how long a task waits after its result could not be stored
UNREADABLE_SECONDS = 60.0  # how long a task waits whose record a later version of this code wrote
CANCEL_SECONDS = 5.0  # the longest that telling a provider of a cancellation may take
DURABLE = ("outputs", "partial", "submitted_at", "resubmits")  # what an item keeps of its generation's record


@dataclass
class Worker:
    """Asks and stores. Safe to use from many threads."""

    parts: Parts

    def work(self, claimed: Claimed, seconds: float) -> Settlement:
        """All that is to do for one claimed task but to move it in the queue, within `seconds`; raises nothing."""
        hold = claimed.hold
        try:
            record = self._record(claimed)
            if isinstance(record, Settlement):
                return record
            if claimed.came_back > self.parts.settings.max_crashes:
                crashed = Failed(Reason.CRASHED, f"ended its worker {claimed.came_back} times")
                return self._store_finding(hold, record, Finding(crashed, record))
            return self.attempt(hold, record, seconds)
        except StoreUnavailable as error:
            log.warning("store unavailable", extra=facts(hold) | {"reason": str(error)})
            away = isinstance(error, StoreUnreachable)
            return Settlement(hold, delay_seconds=STORE_RETRY_SECONDS, store_away=away)
        except Exception:
            log.exception("attempt broke", extra=facts(hold))
            return self._broken(claimed)

    def attempt(self, hold: Hold, record: Record, seconds: float, *, inline: bool = False) -> Settlement:
        """Ask the provider once and store what it says. `inline`: in the user's request, whose refusal is final."""
        provider = self.parts.providers[hold.task.provider]
        if provider.submits(record) and not inline:
            item = self.parts.item(hold.task)
            if item is None or not item.is_pending(hold.generation):
                return self._ended(hold, item, record)
            record = _resumed(record, item)
        finding = provider.attempt(hold.task, record, now=self.parts.clock(), seconds=seconds)
        return self._store_finding(hold, record, finding, inline=inline)

    def say_finished(self, settlement: Settlement) -> None:
        """Keep in the item that this attempt has ended, though Redis could not be told; raises nothing."""

    def hear(self, item: Item, payload: Reply) -> Settlement | None:
        """What a callback says of a pending item, stored; None where the provider is to be asked now.

        The settlement's hold has no token: the caller decides what becomes of the task in Redis.
        """
        hold, record = Hold(item.task, item.generation, token=""), record_of(item)
        provider = self.parts.providers[item.task.provider]
        finding = provider.hear(item.task, record, payload, now=self.parts.clock())
        if finding is None:
            return None
        if not isinstance(finding.outcome, Pending):
            jobless = replace(finding.record, outputs=None)  # its job is over: there is none to cancel
            return self._store_finding(hold, record, Finding(finding.outcome, jobless))
        if finding.record.digest != record.saved:
            with suppress(StoreTooLarge):  # partial data is what one can do without
                self.parts.store.learn(item.task, finding.record, self.parts.clock())
        if finding.outcome.delay_seconds == 0:
            return None
        return Settlement(hold, counts_as="snoozed", outcome=finding.outcome)

    def _record(self, claimed: Claimed) -> Record | Settlement:
        """The claimed task's record; from its item, the truth, where Redis has lost or mangled it."""
        hold = claimed.hold
        try:
            record = Record.from_text(claimed.record)
            if record.generation == hold.generation:
                return record
        except RecordError as error:
            if error.newer:
                return Settlement(hold, delay_seconds=UNREADABLE_SECONDS)
        log.error("record unreadable", extra=facts(hold))
        item = self.parts.item(hold.task)
        if item is None or not item.is_pending(hold.generation):
            return self._ended(hold, item)
        return record_of(item)

    def _store_finding(self, hold: Hold, before: Record, finding: Finding, *, inline: bool = False) -> Settlement:
        outcome, record = finding.outcome, finding.record
        found = Settlement(hold, outcome=outcome, record=record, attempted=True)
        store, now = self.parts.store, self.parts.clock()
        written: Ended
        try:
            match outcome:
                case Completed(data):
                    written = store.complete(hold.task, hold.generation, data, now, read_back=inline)
                    settlement = replace(found, becomes="completed", counts_as="completed")
                case Failed(reason, error):
                    text = {"reason": reason, "error": error, "refused": inline}
                    written = store.fail(hold.task, hold.generation, text, now, read_back=inline)
                    refused = replace(found, becomes="forgotten", counts_as="refused")
                    settlement = refused if inline else replace(found, becomes="buried", counts_as="buried")
                case Pending(delay_seconds=delay) | Retry(delay_seconds=delay):
                    written, record = self._keep(hold, record, outcome, now)
                    counts_as = "snoozed" if isinstance(outcome, Pending) else "retried"
                    settlement = replace(found, record=record, delay_seconds=delay, counts_as=counts_as)
                case _:
                    assert_never(outcome)
        except StoreTooLarge as error:
            if isinstance(outcome, Failed):
                return _unstored(found, before)
            too_large = Finding(Failed(Reason.TOO_LARGE, str(error)), record)
            return self._store_finding(hold, before, too_large, inline=inline)
        except StoreUnavailable as error:
            log.warning("store unavailable", extra=facts(hold) | {"reason": str(error)})
            return replace(_unstored(found, before), store_away=isinstance(error, StoreUnreachable))
        if not isinstance(written, Superseded):
            return replace(settlement, item=written)
        if written.item and written.item.is_pending(hold.generation):
            # we come late: that job is lost, and another may be open
            return replace(settlement, record=_resumed(record, written.item))
        return self._ended(hold, written.item, record)

    def _keep(self, hold: Hold, record: Record, outcome: Pending | Retry, now: int) -> tuple[Superseded | None, Record]:
        """Write what changed since the last successful write; else make sure, now and then, that it is still wanted."""
        if record.digest != record.saved:
            try:
                resubmit = isinstance(outcome, Retry) and outcome.reason is Reason.RESUBMIT
                return self.parts.store.save(hold.task, record, now, resubmit=resubmit), record.confirmed(now)
            except StoreTooLarge:  # of the two that it may be, partial data is the one to do without
                if record.partial is None:
                    raise
                return self._keep(hold, replace(record, partial=None), outcome, now)
        if isinstance(outcome, Pending) and now - record.confirmed_at > self.parts.settings.confirm_seconds * 1000:
            item = self.parts.store.get(hold.task, now)
            if item is None or not item.is_pending(hold.generation):
                return Superseded(item), record
            return None, _resumed(record, item).confirmed(now)
        return None, record

    def _ended(self, hold: Hold, item: Item | None, record: Record | None = None) -> Settlement:
        """How a generation that is no longer pending ends in Redis: as its item says, never by a retry."""
        if item and item.generation == hold.generation:
            if item.status == "cancelled" and record:
                self.parts.providers[hold.task.provider].cancel(hold.task, record, seconds=CANCEL_SECONDS)
            if item.status == "failed" and not item.refused:
                return Settlement(hold, "buried", "buried", item=item)
        return Settlement(hold, "forgotten", "forgotten", item=item)

    def _broken(self, claimed: Claimed) -> Settlement:
        """The settlement of a task whose attempt broke in our own code: an error like any other, and bounded."""
        hold = claimed.hold
        try:
            record = self._record(claimed)
            if isinstance(record, Settlement):
                return record
            retry = self.parts.providers[hold.task.provider].delays.retry
            return self._store_finding(hold, record, retry(record, self.parts.clock(), Reason.BROKEN))
        except Exception:
            log.exception("attempt broke twice", extra=facts(hold))
            return Settlement(hold, delay_seconds=UNREADABLE_SECONDS)


def record_of(item: Item) -> Record:
    """The record that a pending item stands for, with all that the item knows."""
    known = ("generation", "created_at", "input", "group", *DURABLE)
    return Record(**{name: getattr(item, name) for name in known}).confirmed(item.updated_at)


def add_of(task: Task, record: Record, delay_seconds: float = 0) -> Add:
    """What puts a pending task into the queue."""
    return Add(task, record.generation, record.to_text(), delay_seconds, record.group, record.outputs is not None)


def _resumed(record: Record, item: Item) -> Record:
    """The record, with what an earlier attempt of this generation left in the item: a job, or the loss of one."""
    if item.outputs is None and item.resubmits <= record.resubmits:
        return record
    return replace(record, **{name: getattr(item, name) for name in DURABLE}).confirmed(item.updated_at)


def _unstored(found: Settlement, before: Record) -> Settlement:
    """The settlement of an outcome that could not be stored: later again, and no error of the provider's."""
    match found.outcome:
        case Retry(delay, Reason.RESUBMIT):  # it must stand in the item before it may happen
            return replace(found, delay_seconds=delay, record=before)
        case Pending(delay_seconds=delay) | Retry(delay_seconds=delay):
            return replace(found, delay_seconds=delay)
    return replace(found, delay_seconds=STORE_RETRY_SECONDS)
