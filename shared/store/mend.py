"""Mending: a damaged item of which its owner wants no more is cancelled, and what can be read of it is kept."""

from shared.store.item import Item, digest
from shared.store.rows import parse, read
from shared.store.store import Store, assigned
from shared.store.table import unchanged
from shared.task import Task


def mend(store: Store, task: Task, now: int) -> Item | None:
    """Cancel whatever stands there of a task whose item cannot be read, and keep of it what can be read.

    The item as it is then, or as it is by now where it can be read; None: it is gone or changed meanwhile. Raises
    StoreUnavailable.
    """
    attributes = store.table.attributes(task)
    known, faulty = read(attributes, whole=True)
    if not faulty or not attributes:
        return parse(attributes)
    lacking = {"generation": now, "created_at": now, "input": "{}"}
    sets = {name: value for name, value in lacking.items() if name in faulty} | store.ended(now)
    sets |= {"status": "cancelled", "input_digest": digest(known.get("input", {}))}
    removed = sorted({"open", "notify", *faulty} - sets.keys())
    expression = f"SET {assigned(sets)} REMOVE {', '.join(f'#{name}' for name in removed)}"
    same, seen = unchanged(attributes, ("generation", "status", "updated_at"))
    written = store.table.update(task, expression, same, sets, read_back=True, seen=seen)
    return written if isinstance(written, Item) else None
