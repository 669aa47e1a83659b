"""What a client sees of a task: one JSON shape for every answer, whether from the item, from Redis or just learned."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from shared.api.answer import Answer
from shared.api.merge import merge
from shared.codec import Json
from shared.errors import NotFound, RecordError, StoreUnavailable
from shared.limits import UNLIMITED
from shared.outcome import Completed, Failed, Pending, Retry
from shared.provider import Provider
from shared.queue import Place, Queue, without_redis
from shared.record import Record
from shared.store import Item, Store
from shared.store.item import digest
from shared.store.spill import Link
from shared.task import Task
from shared.work.settle import Settlement

PASSING = ("age_seconds", "next_attempt_at", "data_url", "data_url_expires_at")
"""What changes in a status view though nothing happened."""


class Viewer:
    """The status view, and the answers to requests. `clock` tells epoch milliseconds."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        clock: Callable[[], int],
        providers: Mapping[str, Provider],
        *,
        tick_seconds: float,
    ) -> None:
        self._store = store
        self._queue = queue
        self._providers = providers
        self._clock = clock
        self._tick_seconds = tick_seconds

    def status(self, task: Task) -> Answer:
        """Everything that is known of a task. Raises NotFound, StoreUnavailable; without Redis no schedule."""
        item = self._store.get(task, self._clock())
        if item is None:
            raise NotFound(f"there is no task {task.id}", field="name")
        body = show(self._store.opened(item, self._clock()), self._clock())
        if item.status in ("pending", "failed"):
            body |= self.schedule(item, self.place(item))
        lasting = {name: value for name, value in body.items() if name not in PASSING}
        return Answer(status=200, body=body, etag=f'W/"{digest(lasting)[:24]}"')

    def stored(self, item: Item, *, deduplicated: bool = False, revalidating: bool = False) -> Answer:
        """200: what is stored. `revalidating`: it is stale, and the next generation has begun."""
        body = show(self._store.opened(item, self._clock()), self._clock(), deduplicated=deduplicated)
        if revalidating:
            return Answer(status=200, body=body | {"revalidating": True}, location=item.task)
        return Answer(status=200, body=body)

    def accepted(self, item: Item, retry_after_seconds: float, *, deduplicated: bool = False) -> Answer:
        """202: the task will be seen to its end."""
        now = self._clock()
        return Answer(
            status=202,
            body=show(self._store.opened(item, now), now, deduplicated=deduplicated),
            retry_after_seconds=max(1, math.ceil(retry_after_seconds)),
            location=item.task,
        )

    def in_progress(self, item: Item, *, deduplicated: bool) -> Answer:
        """202, with when and why the task will be looked at next."""
        place = self.place(item)
        wait_seconds = place.wait_seconds if place and place.wait_seconds is not None else self._tick_seconds
        answer = self.accepted(item, wait_seconds, deduplicated=deduplicated)
        return replace(answer, body=answer.body | self.schedule(item, place))

    def learned(self, item: Item, settlement: Settlement) -> Answer:
        """The answer after an attempt in the request; what stood in its way wins over what it found."""
        now = self._clock()
        ended = settlement.item
        if ended and ended.status != "pending":
            return replace(self.stored(ended), status=422 if ended.refused else 200, location=item.task)
        match settlement.outcome:
            case Completed(data) if settlement.verb == "complete":
                done = replace(item, status="completed", data=data, partial=None, completed_at=now, updated_at=now)
                return self._linked(Answer(status=200, body=show(done, now), location=item.task), done)
            case Completed(data):  # learned but not stored: shown, and asked for again
                return self.accepted(replace(item, partial=data), settlement.delay_seconds)
            case Failed(reason, error) if settlement.verb == "forget":
                text = {"reason": reason, "error": error, "refused": True}
                failed = replace(item, status="failed", error=text, completed_at=now, updated_at=now)
                return replace(self.stored(failed), status=422, location=item.task)
            case Pending() | Retry():
                partial = settlement.record.partial if settlement.record else None
                return self.accepted(replace(item, partial=partial), settlement.delay_seconds)
        return self.accepted(item, settlement.delay_seconds)

    def _linked(self, answer: Answer, done: Item) -> Answer:
        """The answer; if it had to leave out its data, with a link to them as they were stored just now."""
        if "data_url" in answer.body:
            with suppress(StoreUnavailable):
                stored = self._store.get(done.task, self._clock())
                if stored and stored.generation == done.generation:
                    return replace(self.stored(stored), location=answer.location)
        return answer

    def place(self, item: Item) -> Place | None:
        """Where Redis has the item's generation; None when Redis does not answer."""
        places: list[Place] = []
        with without_redis(then="the schedule is unknown"):
            provider = self._providers.get(item.task.provider)
            limits = provider.rules.limits if provider else UNLIMITED
            places = self._queue.look([item.task], records=True, limits=limits)
        for place in places:
            return place if place.generation == item.generation else Place(0, None, None, None, None)
        return None

    def schedule(self, item: Item, place: Place | None) -> dict[str, Json]:
        """When and why a pending or failed task will be looked at next; empty if failed and no dead letter."""
        if place is None:
            return {"schedule": "unknown"}
        if place.wait_seconds is not None:
            at = instant(self._clock() + place.wait_seconds * 1000)
            return {"schedule": place.held_up or "waiting", "next_attempt_at": at} | _progress(place)
        if place.lease_seconds is not None:
            return {"schedule": "processing"} | _progress(place)
        if place.buried_seconds is not None:
            return {"schedule": "dead letter"}
        return {"schedule": "lost"} if item.status == "pending" else {}


def show(item: Item, now: int, *, deduplicated: bool = False) -> dict[str, Json]:
    """A task as its opened item has it: while it is not completed, stored data overlaid by the partial answer.

    Where stored data is a link, `data` is the partial answer alone, or null.
    """
    link = item.data if isinstance(item.data, Link) else None
    body: dict[str, Json] = {
        "task_id": item.task.id,
        "provider": item.task.provider,
        "name": item.task.name,
        "status": item.status,
        "data": merge(None if link else item.data, item.partial),
        "partial": item.status != "completed",
        "deduplicated": deduplicated,
        "generation": item.generation,
        "created_at": instant(item.created_at),
        "updated_at": instant(item.updated_at),
        "age_seconds": max(0, now - (item.completed_at or item.created_at)) // 1000,
    }
    if link:
        body["data_url"] = link.url
        if link.expires_at is not None:
            body["data_url_expires_at"] = instant(link.expires_at)
    if item.completed_at is not None:
        body["completed_at"] = instant(item.completed_at)
    if item.status == "failed":
        body["error"] = {"reason": item.error["reason"], "detail": item.error["error"]}
    return body


def instant(ms: float) -> str:
    """Epoch milliseconds as RFC 3339, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _progress(place: Place) -> dict[str, Json]:
    try:
        record = Record.from_text(place.record)
    except RecordError:
        return {}
    return {
        "attempts": record.attempts,
        "errors": record.errors,
        "progress": record.progress,
        "reason": record.reason,
    }
