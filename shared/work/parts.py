"""The parts that every work is done with: whatever runs or answers takes these, made once in `wiring`."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.errors import ItemUnreadable
from shared.limits import UNLIMITED, Limits
from shared.logs import log
from shared.provider import Provider
from shared.queue import Queue
from shared.settings import Settings
from shared.store import Item, Store
from shared.store.mend import mend
from shared.task import Task


class Budget:
    """So many bytes of data, one answer's, for many tasks: what has none is not read. For many threads."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether there was so much left."""
        with self._lock:
            has_room = size <= self._left
            self._left -= size if has_room else 0
            return has_room


@dataclass(frozen=True, slots=True)
class Parts:
    """`providers` by name; `clock` tells epoch milliseconds, as the store has them; `budget`: what may be shown."""

    store: Store
    queue: Queue
    providers: Mapping[str, Provider]
    settings: Settings
    clock: Callable[[], int]
    budget: Budget | None = None

    def item(self, task: Task) -> Item | None:
        """The task's item as it stands now; None if there is none. Raises StoreUnavailable, ItemUnreadable."""
        return self.store.get(task, self.clock())

    def mended(self, task: Task) -> Item | None:
        """The same for who wants the task ended or begun anew: where it cannot be read, it is cancelled first."""
        try:
            return self.item(task)
        except ItemUnreadable as error:
            return self.mend(task, error)

    def mend(self, task: Task, error: ItemUnreadable) -> Item | None:
        """Cancel a task whose item cannot be read; the item as it is then."""
        log.error("item unreadable", extra=error.facts | {"then": "cancelled"})
        return mend(self.store, task, self.clock())

    def limits(self, task: Task) -> Limits:
        """Those of the task's provider; none where that has no sound file."""
        provider = self.providers.get(task.provider)
        return provider.rules.limits if provider else UNLIMITED
