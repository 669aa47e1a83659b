"""Erasure, in the table: of an item nothing stays but that there was one, and whoever still writes finds it ended.

First the item is emptied, then the rest of the task goes (`api/erase.py`), and only then is it said to be erased.
"""

from dataclasses import replace
from typing import Any

from shared.errors import StoreUnavailable
from shared.store.item import Item, digest
from shared.store.rows import Attributes, read, wired
from shared.store.store import Store
from shared.store.table import unchanged
from shared.task import Task

KEPT = ("status", "generation", "created_at", "updated_at", "completed_at", "expires_at", "input_digest")
"""What is left, beside an empty input: each item has one, and the release before insists on it."""
ROUNDS = 5  # how often who meets a change looks again


def emptied(store: Store, task: Task, now: int) -> tuple[Item, Item] | None:
    """End the task's generation, if it is open, and leave no content of its item, whatever stands there.

    The item as it was, as far as it can be read, and as it is: cancelled. One that is damaged is emptied, too, and one
    that has expired and is not deleted yet. None: there is none. Raises StoreUnavailable.
    """
    before: Item | None = None
    for _ in range(ROUNDS):
        attributes = store.table.attributes(task)
        if not attributes:
            return None
        before = _latest(before, seen := _readable(task, attributes, now))
        item = _empty(seen, now, now // 1000 + store.retention_seconds)
        tombstone = {"task_id": task.id, **{name: getattr(item, name) for name in KEPT}, "input": "{}"}
        if _lasting(attributes) == _lasting({name: wired(value) for name, value in tombstone.items()}):
            return before, seen  # it has been emptied before
        condition, values = unchanged(attributes, ("generation", "status"))
        replaced = store.table.put(tombstone, condition, values)
        if replaced is not None:
            return _latest(before, _readable(task, replaced, now)), item
    raise StoreUnavailable(f"{task.id} changes too fast")


def said_so(store: Store, emptied: Item, now: int) -> Item:
    """Note that nothing is left of a task but this item; it is then shown as erased, since now or an earlier time.

    The item; if the next generation has begun by then, what became of this one. Raises StoreUnavailable.
    """
    expression = "SET #erased_at = if_not_exists(#erased_at, :now)"
    condition = "#generation = :generation AND #status = :cancelled"
    values = {"now": now, "generation": emptied.generation, "cancelled": emptied.status}
    written = store.table.update(emptied.task, expression, condition, values, read_back=True)
    return written if isinstance(written, Item) else replace(emptied, erased_at=now)


def _empty(item: Item, now: int, expires_at: int) -> Item:
    """What is left of an item. Its `updated_at` is another: who has seen what was there begins nothing with it."""
    return Item(
        task=item.task, status="cancelled", generation=item.generation, created_at=item.created_at,
        updated_at=now + (item.updated_at == now), completed_at=item.completed_at or now, expires_at=expires_at,
        input={}, input_digest=digest({}),
    )  # fmt: skip


def _lasting(attributes: Attributes) -> Attributes:
    """What does not change while an emptied item stays empty."""
    return {name: value for name, value in attributes.items() if name not in ("updated_at", "expires_at", "erased_at")}


def _latest(before: Item | None, seen: Item) -> Item:
    """What is there now, but what was there before its own end: the reply to our write may have been lost."""
    is_ours = before and before.generation == seen.generation and seen.status == "cancelled"
    return before if before and is_ours else seen


def _readable(task: Task, attributes: Attributes, now: int) -> Item:
    """An item as far as it can be read; one without a sound status counts as open."""
    known, _ = read(attributes)
    attempt = known.pop("attempt", {})
    own: dict[str, Any] = {name: value for name, value in known.items() if name not in ("task_id", "open")}
    lacking: dict[str, Any] = {"status": "pending", "generation": now + 1, "created_at": now, "updated_at": 0}
    return Item(**(lacking | {"input": {}, "input_digest": "", "task": task} | own | attempt))
