"""What a client sees of a task: one JSON shape for every answer, whether from the item, from Redis or just learned."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from shared.answer import Answer
from shared.codec import Json
from shared.errors import NotFound, RecordError
from shared.item import Item
from shared.merge import merge
from shared.queue import Place, Queue, without_redis
from shared.record import Record
from shared.spill import Link
from shared.store import Store
from shared.task import Task


class Viewer:
    """The status view. `clock` tells epoch milliseconds."""

    def __init__(self, store: Store, queue: Queue, clock: Callable[[], int]) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock

    def status(self, task: Task) -> Answer:
        """Everything that is known of a task. Raises NotFound, StoreUnavailable; without Redis no schedule."""
        item = self._store.get(task, self._clock())
        if item is None:
            raise NotFound(f"there is no task {task.id}", field="name")
        body = show(self._store.opened(item, self._clock()), self._clock())
        if item.status in ("pending", "failed"):
            body |= self.schedule(item, self.place(item))
        return Answer(status=200, body=body)

    def place(self, item: Item) -> Place | None:
        """Where Redis has the item's generation; None when Redis does not answer."""
        places: list[Place] = []
        with without_redis(then="the schedule is unknown"):
            places = self._queue.look([item.task], records=True)
        for place in places:
            return place if place.generation == item.generation else Place(0, None, None, None, None)
        return None

    def schedule(self, item: Item, place: Place | None) -> dict[str, Json]:
        """When and why a pending or failed task will be looked at next; empty if failed and no dead letter."""
        if place is None:
            return {"schedule": "unknown"}
        if place.due_seconds is not None:
            at = instant(self._clock() + place.due_seconds * 1000)
            return {"schedule": "waiting", "next_attempt_at": at} | _progress(place)
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


def whole_seconds(seconds: float) -> int:
    """A span for Retry-After: rounded up, at least 1."""
    return max(1, math.ceil(seconds))


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
