"""The parts that every work is done with: whatever runs or answers takes these, made once in `wiring`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.provider import Provider
from shared.queue import Queue
from shared.settings import Settings
from shared.store import Item, Store
from shared.task import Task


@dataclass(frozen=True, slots=True)
class Parts:
    """`providers` by name; `clock` tells epoch milliseconds, as the store has them."""

    store: Store
    queue: Queue
    providers: Mapping[str, Provider]
    settings: Settings
    clock: Callable[[], int]

    def item(self, task: Task) -> Item | None:
        """The task's item as it stands now; None if there is none. Raises StoreUnavailable."""
        return self.store.get(task, self.clock())
