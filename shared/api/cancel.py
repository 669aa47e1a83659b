"""cancel: the item first, then the provider, who is told on a best-effort basis, then Redis.

Redis last, since the task's place among the open jobs is free only once the job is told to end.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from shared.api.answer import Answer
from shared.api.view import show
from shared.errors import Conflict, NotFound, StoreUnavailable, Unavailable
from shared.logs import facts, log
from shared.provider import Provider
from shared.queue import Queue, without_redis
from shared.store import Item, Store
from shared.task import Task
from shared.work.worker import CANCEL_SECONDS, record_of

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
        wanted = 0  # the generation that this call has tried to cancel: its own write may have come back as a change
        for _ in range(ROUNDS):
            item = self.store.get(task, self.clock())
            if item is None:
                raise NotFound(f"there is no task {task.id}", field="name")
            if item.status in ("completed", "failed"):
                raise Conflict(f"the task has {item.status} already", field="name")
            cancelled_now = item.status == "pending" or item.generation == wanted
            if item.status == "pending":
                wanted = item.generation
                if self.store.cancel(task, item.generation, self.clock()):
                    continue  # it changed meanwhile
            ended = self._ended(item)
            if cancelled_now:
                log.info("cancelled", extra=facts(ended))
                if task.provider in self.providers:
                    self.providers[task.provider].cancel(task, record_of(ended), seconds=CANCEL_SECONDS)
            with without_redis(then="the worker that claims the task finds it cancelled"):
                self.queue.forget([(task, item.generation)])
            return Answer(status=200, body=show(self.store.opened(ended, self.clock()), self.clock()))
        raise Unavailable("the task changes too fast; try again", field="name")

    def _ended(self, item: Item) -> Item:
        """The cancelled item, with what a worker may have stored in it since `item` was read."""
        with suppress(StoreUnavailable):
            now_there = self.store.get(item.task, self.clock())
            if now_there and now_there.generation == item.generation:
                return now_there
        return replace(item, status="cancelled")
