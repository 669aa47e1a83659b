"""cancel: the item first, then Redis, then the provider, who is told on a best-effort basis."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.answer import Answer
from shared.errors import Conflict, NotFound, Unavailable
from shared.item import Item
from shared.provider import Provider
from shared.queue import Queue, without_redis
from shared.store import Store
from shared.task import Task
from shared.view import show
from shared.worker import CANCEL_SECONDS, record_of

ROUNDS = 5
"""How often a cancellation that meets a change looks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceller:
    """Ends tasks that nobody wants any more. `clock` tells epoch milliseconds."""

    store: Store
    queue: Queue
    providers: Mapping[str, Provider]
    clock: Callable[[], int]

    def cancel(self, task: Task) -> Answer:
        """Cancel the open generation; repeatable. Raises NotFound, Conflict (it has ended), StoreUnavailable."""
        for _ in range(ROUNDS):
            item = self.store.get(task, self.clock())
            if item is None:
                raise NotFound(f"there is no task {task.id}", field="name")
            if item.status in ("completed", "failed"):
                raise Conflict(f"the task has {item.status} already", field="name")
            cancelled_now = item.status == "pending"
            if cancelled_now and self.store.cancel(task, item.generation, self.clock()):
                continue  # it changed meanwhile
            self._forget(item)
            if cancelled_now and task.provider in self.providers:
                self.providers[task.provider].cancel(task, record_of(item), seconds=CANCEL_SECONDS)
            return Answer(status=200, body=self._shown(task, item))
        raise Unavailable("the task changes too fast; try again", field="name")

    def _forget(self, item: Item) -> None:
        with without_redis(then="the worker that claims the task finds it cancelled"):
            self.queue.forget([(item.task, item.generation)])

    def _shown(self, task: Task, item: Item) -> dict[str, object]:
        now = self.clock()
        return show(self.store.get(task, now) or item, now)
