"""An item as a test needs it."""

from typing import Any

from shared.store import Item
from shared.task import Task


def pending_item(task: Task, now: int, **fields: Any) -> Item:
    """The item of a task that has just begun and knows nothing yet, but for these fields."""
    begun: dict[str, Any] = {"task": task, "status": "pending", "generation": 1, "created_at": now, "updated_at": now}
    ends = dict.fromkeys(("completed_at", "expires_at", "data", "error"))
    learned = dict.fromkeys(("submitted_at", "outputs", "partial"))
    return Item(**begun | ends | learned | {"resubmits": 0, "input_digest": "", "group": "", "input": {}} | fields)
