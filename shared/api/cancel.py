"""cancel: the item first, then the provider, who is told on a best-effort basis, then Redis.

Redis last: as long as the job may run, it counts as one of the provider's open jobs.
"""

from shared.api import view
from shared.api.answer import Answer
from shared.errors import Conflict, ItemUnreadable, Unavailable
from shared.logs import facts, log
from shared.queue import End, without_redis
from shared.store import Item, read_whole
from shared.task import Task
from shared.work.keeper import CANCEL_SECONDS, record_of
from shared.work.parts import Parts

ROUNDS = 5  # how often a cancellation that meets a change looks again


def answer(parts: Parts, task: Task) -> Answer:
    """Cancel the open generation; repeatable. Raises NotFound, Conflict (it has ended), StoreUnavailable.

    A task whose stored item is damaged is cancelled whatever its state was.
    """
    wanted = 0  # the generation that this call has tried to cancel: its own write may have come back as a change
    for _ in range(ROUNDS):
        try:
            item = view.existing(parts, task)
            if item.status == "completed":
                read_whole(item)
        except ItemUnreadable as error:
            mended = parts.mend(task, error)
            wanted = mended.generation if mended else 0
            continue
        if item.status in ("completed", "failed"):
            raise Conflict(f"the task has {item.status} already", field="name")
        is_ours = item.status == "pending" or item.generation == wanted
        if item.status == "pending":
            wanted = item.generation
            ended = parts.store.cancel(task, wanted, parts.clock())
            if not isinstance(ended, Item):
                continue  # it changed meanwhile
            item = ended
        if is_ours:
            log.info("cancelled", extra=facts(item))
            if provider := parts.providers.get(task.provider):
                provider.cancel(task, record_of(item), seconds=CANCEL_SECONDS)
        with without_redis(then="the worker that claims the task finds it cancelled"):
            parts.queue.end([End(task, item.generation, "dropped")], parts.limits(task))
        return view.stored(parts, item)
    raise Unavailable("the task changes too fast; try again", field="name")
