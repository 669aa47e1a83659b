"""revive: the next generation of a task that has failed, with the stored input and a new deadline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.api.answer import Answer
from shared.api.view import Viewer
from shared.errors import BadRequest, Conflict, NotFound
from shared.logs import facts, log
from shared.provider import Provider
from shared.queue import Queue, new_token, without_redis
from shared.reasons import Trait, having
from shared.store import Store
from shared.task import Task
from shared.work.worker import add_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviver:
    """Begins failed tasks again. `clock` tells epoch milliseconds."""

    store: Store
    queue: Queue
    viewer: Viewer
    providers: Mapping[str, Provider]
    clock: Callable[[], int]

    def revive(self, task: Task) -> Answer:
        """Begin the next generation, due now. Raises NotFound, Conflict unless it has failed, StoreUnavailable."""
        provider = self.providers.get(task.provider)
        if provider is None:
            raise BadRequest(f"there is no provider {task.provider!r}", field="provider")
        item = self.store.get(task, self.clock())
        if item is None:
            raise NotFound(f"there is no task {task.id}", field="name")
        if item.status != "failed":
            raise Conflict(f"only a failed task can be revived; this one is {item.status}", field="name")
        keeps_job = item.error["reason"] in having(Trait.KEEPS_JOB)
        begun = self.store.begin(task, item, item.input, self.clock(), group=item.group, keep_outputs=keeps_job)
        if begun is None:
            raise Conflict("the task was begun again meanwhile", field="name")
        log.info("revived", extra=facts(begun))
        with without_redis(then="reconcile queues the task"):
            self.queue.add([add_of(begun)], token=new_token(), limits=provider.rules.limits)
        return self.viewer.accepted(begun, 1)
