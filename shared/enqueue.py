"""enqueue, step by step: a request is answered at once, and its task is left where it will be seen to its end.

The order of the steps closes every gap: a crash at any point leaves either nothing or a task that ends.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from shared.answer import Answer
from shared.errors import BadRequest, Conflict, StoreUnavailable, Unavailable
from shared.item import Item, digest
from shared.limits import UNLIMITED
from shared.outcome import Completed, Failed, Pending, Retry
from shared.provider import Provider
from shared.queue import Add, Added, Hold, Queue, new_token, without_redis
from shared.record import Record
from shared.request import TaskRequest
from shared.settings import Settings
from shared.settle import Settlement, facts, report, settle
from shared.spill import CALL_SECONDS
from shared.store import Store
from shared.view import Viewer, show, whole_seconds
from shared.worker import Worker, record_of

ROUNDS = 5
"""How often a request that loses the race to begin looks again."""
RESERVE_SECONDS = 5.0
"""Kept back from the function's time for storing, settling and answering; CALL_SECONDS more where data may spill."""

log = logging.getLogger("meanwhile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueuer:
    """Serves requests for tasks. `clock` tells epoch milliseconds."""

    store: Store
    queue: Queue
    worker: Worker
    viewer: Viewer
    providers: Mapping[str, Provider]
    settings: Settings
    clock: Callable[[], int]

    def answer(self, request: TaskRequest, remaining: Callable[[], float]) -> Answer:
        """The answer to a request; `remaining` tells the seconds that the function has left.

        Raises BadRequest, Conflict, and StoreUnavailable when nothing was accepted.
        """
        task = request.task
        provider = self.providers.get(task.provider)
        if provider is None:
            raise BadRequest(f"there is no provider {task.provider!r}", field="provider")
        for _ in range(ROUNDS):
            item = self.store.get(task, self.clock())  # 1. get
            if item and (known := self._known(request, provider, item)):
                return known
            input_ = request.input if request.input is not None else (item.input if item else {})
            group = request.group or (item.group if item else "")
            item = self.store.begin(task, item, input_, self.clock(), group=group)  # 2. begin
            if item:
                return self._begun(item, provider, remaining)
        raise Unavailable("the task changes too fast; try again", field="name")

    def _begun(self, item: Item, provider: Provider, remaining: Callable[[], float]) -> Answer:
        log.debug("begun", extra=facts(item))
        record = record_of(item)
        seconds = provider.rules.first_answer_seconds
        seconds = self.settings.first_answer_seconds if seconds is None else seconds
        reserve = RESERVE_SECONDS + (CALL_SECONDS if self.settings.spill_bucket else 0)
        seconds = min(seconds, self.settings.attempt_seconds, remaining() - reserve)
        hold = Hold(item.task, item.generation, new_token())
        add = Add(item.task, item.generation, record.to_text(), group=item.group)
        lease_seconds = self.settings.lease_seconds if seconds > 0 else 0
        limits = provider.rules.limits
        answers: list[Added] = []
        with without_redis(then="reconcile queues the task"):  # 3. add
            answers = self.queue.add([add], token=hold.token, lease_seconds=lease_seconds, limits=limits)
        added = next(iter(answers), None)
        if added in ("exists", "stale"):
            return self._in_progress(item, deduplicated=True)
        if added == "waiting":
            return self._in_progress(item, deduplicated=False)
        if seconds <= 0 or (added is None and limits != UNLIMITED):  # nobody knows what the limits still allow
            return accepted(self.store.opened(item, self.clock()), self.clock(), 1)
        return self._asked(item, hold, record, seconds, queued=added is not None)

    def _asked(self, item: Item, hold: Hold, record: Record, seconds: float, *, queued: bool) -> Answer:
        settlement = self.worker.attempt(hold, record, seconds, inline=True)  # 4. ask, 5. store
        settled = False
        if queued:
            with without_redis(then="the task comes back with its lease"):
                settle(self.queue, self.providers[item.task.provider], [settlement])  # 6. settle
                settled = True
        if not settled:
            report(settlement, settlement.counts_as)
        return self._learned(item, settlement)  # 7. answer

    def _known(self, request: TaskRequest, provider: Provider, item: Item) -> Answer | None:
        """The answer from what is stored; None when the next generation is to begin."""
        same = request.input is None or digest(request.input) == item.input_digest
        if item.status == "pending":
            if not same:
                raise Conflict("the task is in progress with another input; cancel it first", field="input")
            return self._in_progress(item, deduplicated=True)
        fresh = {
            "completed": provider.rules.freshness_seconds,
            "failed": provider.rules.freshness_failed_seconds,
        }.get(item.status, 0)
        if request.max_age_seconds is not None:
            fresh = min(fresh, request.max_age_seconds)
        age_seconds = (self.clock() - (item.completed_at or 0)) / 1000
        if same and age_seconds < fresh:
            opened = self.store.opened(item, self.clock())
            return Answer(status=200, body=show(opened, self.clock(), deduplicated=True))
        return None

    def _in_progress(self, item: Item, *, deduplicated: bool) -> Answer:
        place = self.viewer.place(item)
        due_seconds = place.due_seconds if place and place.due_seconds is not None else self.settings.tick_seconds
        opened = self.store.opened(item, self.clock())
        answer = accepted(opened, self.clock(), due_seconds, deduplicated=deduplicated)
        return replace(answer, body=answer.body | self.viewer.schedule(item, place))

    def _learned(self, item: Item, settlement: Settlement) -> Answer:
        """The answer after an attempt of our own; what stood in its way wins over what it found."""
        now = self.clock()
        ended = settlement.item
        if ended and ended.status != "pending":
            return Answer(status=200, body=show(self.store.opened(ended, now), now), location=item.task)
        if isinstance(settlement.outcome, Completed) and settlement.verb == "complete":
            data = settlement.outcome.data
            done = replace(item, status="completed", data=data, partial=None, completed_at=now, updated_at=now)
            return self._linked(Answer(status=200, body=show(done, now), location=item.task), done)
        item = self.store.opened(item, now)
        match settlement.outcome:
            case Completed(data):  # learned but not stored: shown, and asked for again
                return accepted(replace(item, partial=data), now, settlement.delay_seconds)
            case Failed(reason, error) if settlement.verb == "forget":
                text = {"reason": reason, "error": error, "refused": True}
                failed = replace(item, status="failed", error=text, completed_at=now, updated_at=now)
                return Answer(status=422, body=show(failed, now), location=item.task)
            case Pending() | Retry():
                partial = settlement.record.partial if settlement.record else None
                return accepted(replace(item, partial=partial), now, settlement.delay_seconds)
        return accepted(item, now, settlement.delay_seconds)

    def _linked(self, answer: Answer, done: Item) -> Answer:
        """The answer; if it had to leave out its data, with a link to them as they were stored just now."""
        if "data_url" in answer.body:
            with suppress(StoreUnavailable):
                stored = self.store.get(done.task, self.clock())
                if stored and stored.generation == done.generation:
                    stored = self.store.opened(stored, self.clock())
                    return replace(answer, body=show(stored, self.clock()))
        return answer


def accepted(item: Item, now: int, retry_after_seconds: float, *, deduplicated: bool = False) -> Answer:
    """202: the task will be seen to its end."""
    return Answer(
        status=202,
        body=show(item, now, deduplicated=deduplicated),
        retry_after_seconds=whole_seconds(retry_after_seconds),
        location=item.task,
    )
