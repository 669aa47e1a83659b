"""What a client sees of a task: one JSON shape for every answer, whether from the item, from Redis or just learned."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby

from shared.api.answer import Answer
from shared.codec import Json
from shared.errors import BadRequest, NotFound, RecordError
from shared.outcome import Completed, Pending, Retry
from shared.provider import Provider
from shared.queue import Place, without_redis
from shared.record import Record
from shared.settings import SCHEDULE_SECONDS
from shared.store import Item, Link, digest
from shared.task import Task
from shared.work.parts import Parts
from shared.work.settle import Settlement

NOWHERE = Place(0, None, None, None, None)
_IN_REDIS = ("pending", "failed")  # whose tasks Redis may tell more of
PASSING = ("age_seconds", "next_attempt_at", "next_attempt_by", "data_url", "data_url_expires_at")
"""What changes though nothing happened; so does `schedule` by what others leave of the limits."""
LATE_SECONDS = 2  # who is later than this is not waited for by a wake-up: that one has come, or is lost


def status(parts: Parts, task: Task) -> Answer:
    """Everything that is known of a task. Raises NotFound, StoreUnavailable; without Redis no schedule."""
    item = existing(parts, task)
    (place,) = places_of(parts, [item]) if item.status in _IN_REDIS else (None,)
    return status_of(parts, item, place)


def status_of(parts: Parts, item: Item, place: Place | None) -> Answer:
    """Everything that is known of a task by its item and by what Redis tells of it."""
    body = shown(parts, item)
    if item.status in _IN_REDIS:
        body |= schedule(parts, item, of_item(item, place))
    lasting = {name: value for name, value in body.items() if name not in PASSING}
    if body.get("schedule") in ("limited", "slow start"):
        lasting["schedule"] = "waiting"
    return Answer(status=200, body=body, etag=f'W/"{digest(lasting)[:24]}"')


def stored(parts: Parts, item: Item, **more: Json) -> Answer:
    """200: what is stored, and what else is to be told."""
    if not _has_room(parts, item):
        return elsewhere(item)
    return Answer(status=200, body=shown(parts, item) | more)


def accepted(parts: Parts, item: Item, place: Place | None, record: Record | None = None, **more: Json) -> Answer:
    """202: the task will be finished; with the time of the next attempt, why it is then, and what a record tells."""
    if not _has_room(parts, item):
        return elsewhere(item)
    body = shown(parts, item) | more | schedule(parts, item, place, record)
    return Answer(status=202, body=body, retry_after_seconds=_again_seconds(parts, place), location=item.task)


def learned(parts: Parts, begun: Item, settlement: Settlement, place: Place | None) -> Answer:
    """The answer after an attempt in the request: the task as it has ended, or with what was learned of it."""
    item = settlement.item
    if item and item.status != "pending":
        answer = stored(parts, item)
        return replace(answer, status=422 if item.refused else answer.status, location=item.task)
    match settlement.outcome:
        case Completed(data):  # learned but not stored: shown, and asked for again
            begun = replace(begun, partial=data)
        case Pending() | Retry() if settlement.record:
            begun = replace(begun, partial=settlement.record.partial)
    return accepted(parts, begun, place, settlement.record)


def elsewhere(item: Item) -> Answer:
    """303: look at the task by itself, for its data have no room beside others."""
    return Answer(status=303, body=_named(item) | _error(item), location=item.task)


def _has_room(parts: Parts, item: Item) -> bool:
    return parts.budget is None or parts.budget.take(item.room_bytes)


def shown(parts: Parts, item: Item) -> dict[str, Json]:
    """What is shown of an item, its data opened. Raises DataUnavailable."""
    now = parts.clock()
    return show(parts.store.opened(item, now), now)


def places_of(parts: Parts, items: Sequence[Item]) -> list[Place | None]:
    """Where Redis has each item's generation, by one call for each provider; None once it does not answer."""
    found: dict[Task, Place] = {}
    with without_redis(then="the schedule is unknown"):
        for _, group in groupby(sorted(items, key=_provider_name), key=_provider_name):
            known = list(group)
            places = parts.queue.look([one.task for one in known], records=True, limits=parts.limits(known[0].task))
            for item, place in zip(known, places, strict=True):
                found[item.task] = place
    return [of_item(item, found.get(item.task)) for item in items]


def of_item(item: Item, place: Place | None) -> Place | None:
    """Where the item's own generation is: Redis may have another one, or does not tell."""
    return NOWHERE if place and place.generation != item.generation else place


def _provider_name(item: Item) -> str:
    return item.task.provider


def schedule(parts: Parts, item: Item, place: Place | None, record: Record | None = None) -> dict[str, Json]:
    """When and why the next attempt is made of a pending or failed task; empty if failed and no dead letter.

    `next_attempt_at` is the soonest that it may begin; `next_attempt_by`, where nobody is known to be woken then, is
    when the schedule's next run will have come. The record is the place's own, if no other is given.
    """
    return _when(parts, item, place) | _progress(record, place.record if place else None)


def _when(parts: Parts, item: Item, place: Place | None) -> dict[str, Json]:
    if place is None or (place.wait_seconds is not None and item.task.provider not in parts.providers):
        return {"schedule": "unknown"}
    if place.wait_seconds is not None:
        at = parts.clock() + place.wait_seconds * 1000
        by = {} if _is_woken(parts, place) else {"next_attempt_by": instant(at + SCHEDULE_SECONDS * 1000)}
        return {"schedule": place.held_up or "waiting", "next_attempt_at": instant(at), **by}
    if place.lease_seconds is not None:
        return {"schedule": "processing"}
    if place.buried_seconds is not None:
        return {"schedule": "dead letter"}
    return {"schedule": "lost"} if item.status == "pending" else {}


def _is_woken(parts: Parts, place: Place) -> bool:
    """Whether a run comes when an attempt of a waiting task may begin, as far as is known.

    None does for a lease that is over; and for who is late for no other reason, none did.
    """
    is_late = place.due_seconds is None or (place.due_seconds < -LATE_SECONDS and not place.held_up)
    return parts.queue.wakes and not is_late


def _again_seconds(parts: Parts, place: Place | None) -> int:
    """When to ask again: once the next attempt has begun, or soon where nobody knows when that is."""
    if place is None or place.wait_seconds is None:
        return math.ceil(parts.settings.tick_seconds)
    return max(1, math.ceil(place.wait_seconds + (0 if _is_woken(parts, place) else SCHEDULE_SECONDS)))


def show(item: Item, now: int) -> dict[str, Json]:
    """A task as its opened item has it: while it is not completed, stored data overlaid by the partial answer.

    Where stored data is a link, `data` is the partial answer alone, or null.
    """
    link = item.data if isinstance(item.data, Link) else None
    body = _named(item) | {
        "data": merge(None if link else item.data, item.partial),
        "partial": item.status != "completed",
        "deduplicated": False,
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
    if item.erased_at is not None:
        body["erased_at"] = instant(item.erased_at)
    return body | _error(item)


def _named(item: Item) -> dict[str, Json]:
    task = item.task
    return {"task_id": task.id, "provider": task.provider, "name": task.name, "status": item.status}


def _error(item: Item) -> dict[str, Json]:
    if item.status != "failed":
        return {}
    return {"error": {"reason": item.error["reason"], "detail": item.error["error"]}}


def merge(stored: Json, partial: Json) -> Json:
    """Stored data overlaid by the partial answer, for showing while a task is pending, never for keeping.

    Objects key by key, null never overwrites, anything else replaces.
    """
    if partial is None:
        return stored
    if isinstance(stored, dict) and isinstance(partial, dict):
        return stored | {name: merge(stored.get(name), value) for name, value in partial.items()}
    return partial


def existing(parts: Parts, task: Task) -> Item:
    """The task's item as it stands. Raises NotFound, StoreUnavailable."""
    item = parts.item(task)
    if item is None:
        raise NotFound(f"there is no task {task.id}", field="name")
    return item


def provider_of(parts: Parts, task: Task) -> Provider:
    """The provider that a request names. Raises BadRequest."""
    provider = parts.providers.get(task.provider)
    if provider is None:
        raise BadRequest(f"there is no provider {task.provider!r}", field="provider")
    return provider


def instant(ms: float) -> str:
    """Epoch milliseconds as RFC 3339, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _progress(record: Record | None, text: bytes | None) -> dict[str, Json]:
    """What a record tells, or the text of one."""
    try:
        record = record or Record.from_text(text)
    except RecordError:
        return {}
    return {name: getattr(record, name) for name in ("attempts", "errors", "progress", "reason")}
