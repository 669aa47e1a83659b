"""The worker: one attempt for one held task; `keeper.py` stores what it found.

enqueue and process both come here. A task that came back from an expired lease, or that reconcile has queued, is taken
over in its item before anybody is asked: what an earlier holder still writes is refused from then on.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from shared.codec import OWN_DEPTH, loads
from shared.errors import ItemUnreadable, RecordError, StoreTooLarge, StoreUnavailable, StoreUnreachable
from shared.logs import facts, log
from shared.outcome import Completed, Failed, Pending
from shared.provider import Finding
from shared.provider.wire.message import Reply
from shared.provider.wire.room import ROOM
from shared.queue import Claimed, Hold
from shared.reasons import Reason
from shared.record import Record
from shared.store import Item, Superseded
from shared.work.keeper import STORE_RETRY_SECONDS, Keeper, record_of, resumed
from shared.work.parts import Parts
from shared.work.settle import Settlement
from shared.work.turn import Instant, Turn, holder_of

_NOTHING_TOLD = {"outputs": None, "partial": None}  # what a callback may tell that is kept
UNREADABLE_SECONDS = 60.0  # how long a task waits whose record a later version of this code wrote


@dataclass
class Worker:
    """Asks, and has it stored. Safe to use from many threads."""

    parts: Parts
    keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.parts)

    def instant(self) -> Instant:
        """Now, by the clocks that turns are counted by."""
        return self.keeper.instant()

    def work(self, claimed: Claimed, since: Instant) -> Settlement:
        """All that is to do for one task, held since then, but to move it in the queue; raises nothing."""
        turn = Turn(claimed.hold, since, since.monotonic + self.parts.settings.attempt_seconds)
        try:
            return _let_go(self._work(claimed, turn))
        except StoreUnavailable as error:
            log.warning("store unavailable", extra=facts(turn.hold) | {"reason": str(error)})
            away = isinstance(error, StoreUnreachable)
            return Settlement(
                turn.hold, delay_seconds=self.keeper.spread(turn.hold, STORE_RETRY_SECONDS), store_away=away
            )
        except ItemUnreadable as error:
            return _unreadable(turn.hold, error)
        except Exception:
            log.exception("attempt broke", extra=facts(turn.hold))
            return self._broken(claimed, turn)

    def attempt(self, turn: Turn, record: Record, *, taken_over: bool = False) -> Settlement:
        """Ask the provider once and store what it says; in the user's request, a refusal is final."""
        hold = turn.hold
        provider = self.parts.providers[hold.task.provider]
        if provider.submits(record) and not turn.inline and not taken_over:
            item = self.parts.item(hold.task)
            if item is None or not item.is_pending(hold.generation):
                return self.keeper.ended(hold, item, record)
            record = resumed(record, item)
        seconds = turn.seconds_left(self.keeper.monotonic())
        try:
            finding = provider.attempt(hold.task, record, now=self.parts.clock(), seconds=seconds)
            return self.keeper.keep(turn, record, finding)
        finally:
            ROOM.leave()

    def say_finished(self, settlement: Settlement) -> None:
        """Keep in the item that this attempt has ended, though Redis could not be told; raises nothing."""
        hold = settlement.hold
        if settlement.attempted and (by := holder_of(hold)):
            with suppress(StoreUnavailable):
                self.parts.store.finished(hold.task, hold.generation, by)

    def hear(self, item: Item, payload: Reply, signed_at: int | None = None) -> Settlement | None:
        """What a callback says of a pending item, stored; None where the provider is to be asked now.

        The settlement's hold has no token: the caller decides what becomes of the task in Redis. A failure is none of a
        job that follows the lost one. Older news never replaces newer: only what was signed (epoch ms) later than all
        that is known may; other news adds what is not known yet, and for the rest the provider is asked.
        """
        hold, record = Hold(item.task, item.generation, token=""), record_of(item)
        finding = self.parts.providers[item.task.provider].hear(item.task, record, payload, now=self.parts.clock())
        if finding is None:
            return None
        if not isinstance(finding.outcome, Pending):
            jobless = replace(finding.record, outputs=None)  # its job is over: there is none to cancel
            settlement = self.keeper.keep(Turn(hold, self.keeper.instant()), record, Finding(finding.outcome, jobless))
            return None if settlement.item and settlement.item.status == "pending" else settlement
        told = _differing(record, finding.record)
        is_news = item.is_news(signed_at)
        news = told if is_news else _lacking(record, told)
        if news and not self._learned(item, record, news, signed_at if is_news else None):
            return None
        if finding.outcome.delay_seconds == 0 or news != told:
            return None
        return Settlement(hold, counts_as="snoozed", outcome=finding.outcome)

    def _learned(self, item: Item, seen: Record, news: dict[str, Any], signed_at: int | None) -> bool:
        """Store news; whether what it replaces was there still. The rest is as it was: a worker may have written."""
        record, now = replace(seen, **(_NOTHING_TOLD | news)), self.parts.clock()
        with suppress(StoreTooLarge):  # partial data is what one can do without
            return self.parts.store.learn(item.task, record, now, seen=seen, told_at=signed_at) is None
        return True

    def _work(self, claimed: Claimed, turn: Turn) -> Settlement:
        item: Item | None = None
        if turn.is_late(self.keeper.instant(), self.parts.settings.lease_seconds):
            return Settlement(turn.hold)
        if claimed.came_back and turn.by:
            taken = self.parts.store.take_over(turn.hold.task, turn.hold.generation, turn.by, claimed.came_back)
            if isinstance(taken, Superseded):
                return self.keeper.ended(turn.hold, taken.item)
            item, turn = taken, replace(turn, hold=replace(turn.hold, turn=taken.turn))
        record = self._record(claimed, turn.hold, item)
        if isinstance(record, Settlement):
            return record
        if item and item.crashes:
            record = replace(record, saved=None)  # whatever this attempt finds is written, so that none stands any more
        crashes = min(item.crashes, claimed.came_back) if item else 0  # a turn that was given back unasked is none
        if crashes > self.parts.settings.max_crashes:
            crashed = Failed(Reason.CRASHED, f"ended its worker {crashes} times")
            return self.keeper.keep(turn, record, Finding(crashed, record), attempted=False)
        if record.result is not None:
            result, record = _result_of(record, turn.hold), replace(record, result=None)
            if result:
                return self.keeper.keep(turn, record, Finding(result, record), attempted=False)
        return self.attempt(turn, record, taken_over=item is not None)

    def _record(self, claimed: Claimed, hold: Hold, item: Item | None) -> Record | Settlement:
        """The claimed task's record, with what its item knows; of the item, the truth, where Redis has lost it."""
        try:
            record = Record.from_text(claimed.record)
            if record.generation == hold.generation:
                return resumed(record, item) if item else record
        except RecordError as error:
            if error.newer:
                return Settlement(hold, delay_seconds=self.keeper.spread(hold, UNREADABLE_SECONDS))
        log.error("record unreadable", extra=facts(hold))
        item = item or self.parts.item(hold.task)
        if item is None or not item.is_pending(hold.generation):
            return self.keeper.ended(hold, item)
        return record_of(item)

    def _broken(self, claimed: Claimed, turn: Turn) -> Settlement:
        """The settlement of a task whose attempt broke in our own code: an error like any other, and bounded."""
        try:
            record = self._record(claimed, turn.hold, None)
            if isinstance(record, Settlement):
                return record
            retry = self.parts.providers[turn.hold.task.provider].delays.retry
            return self.keeper.keep(turn, record, retry(record, self.parts.clock(), Reason.BROKEN))
        except ItemUnreadable as error:
            return _unreadable(turn.hold, error)
        except Exception:
            log.exception("attempt broke twice", extra=facts(turn.hold))
            return Settlement(turn.hold, delay_seconds=self.keeper.spread(turn.hold, UNREADABLE_SECONDS))


def _let_go(settlement: Settlement) -> Settlement:
    """The same without its data, which are stored: it may wait with many others to be settled."""
    is_stored = settlement.becomes == "completed" and isinstance(settlement.outcome, Completed)
    return replace(settlement, outcome=Completed(None)) if is_stored else settlement


def _differing(before: Record, after: Record) -> dict[str, Any]:
    """What a callback tells that is not known just so."""
    told = {name: getattr(after, name) for name in _NOTHING_TOLD}
    return {name: value for name, value in told.items() if value is not None and value != getattr(before, name)}


def _lacking(before: Record, told: dict[str, Any]) -> dict[str, Any]:
    """What of it is not known at all, with what is: each output for itself."""
    added = {name: value for name, value in told.items() if getattr(before, name) is None}
    if before.outputs is not None and (outputs := told.get("outputs", {}) | before.outputs) != before.outputs:
        added["outputs"] = outputs
    return added


def _result_of(record: Record, hold: Hold) -> Completed | None:
    """The result in hand; None if it is damaged: then it is asked for again."""
    try:
        return Completed(loads(record.result or "", max_depth=OWN_DEPTH))
    except ValueError:
        log.error("result unreadable", extra=facts(hold))
        return None


def _unreadable(hold: Hold, error: ItemUnreadable) -> Settlement:
    """The settlement of a task whose item is damaged: it waits for a person, and nobody is asked about it meanwhile."""
    log.error("item unreadable", extra=facts(hold) | error.facts)
    return Settlement(hold, "buried", "buried")
