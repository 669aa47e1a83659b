"""erase: the item first, then the provider, who is told on a best-effort basis, then S3 and Redis; then it is said.

An emptied item brings nothing back: it has ended, so whoever still works on the task stores nothing. Each step may be
repeated, and leaves alone what a later generation has.
"""

from shared.api import view
from shared.api.answer import Answer
from shared.errors import NotFound, QueueUnavailable, StoreUnavailable, Unavailable
from shared.logs import facts, log
from shared.queue import End
from shared.reasons import Trait, having
from shared.store import Item
from shared.store.erasure import emptied, said_so
from shared.task import Task
from shared.work.keeper import CANCEL_SECONDS, record_of
from shared.work.parts import Parts


def answer(parts: Parts, task: Task) -> Answer:
    """Erase what the task holds, in whatever state it is; repeatable.

    Raises NotFound, also where there was something without an item and is no more; Unavailable where not all could be
    done: then a repetition does the rest.
    """
    try:
        item = _erased(parts, task)
    except (StoreUnavailable, QueueUnavailable) as error:
        reason = {"provider": task.provider, "task": task.name, "reason": str(error)}
        log.error("erasing stopped", extra=reason)
        raise Unavailable("not everything could be erased now: repeat this request until it is answered") from error
    if item is None:
        raise NotFound(f"there is no task {task.id}", field="name")
    log.info("erased", extra=facts(item))
    return view.stored(parts, item)


def _erased(parts: Parts, task: Task) -> Item | None:
    """The item that is left. Raises StoreUnavailable, QueueUnavailable."""
    found = emptied(parts.store, task, parts.clock())
    if found and _has_job(found[0]) and (provider := parts.providers.get(task.provider)):
        provider.cancel(task, record_of(found[0]), seconds=CANCEL_SECONDS)
    generation = found[1].generation if found else parts.clock()  # without an item all that is there is older
    parts.store.spill.erase(task, generation)
    parts.queue.end([End(task, generation, "dropped")], parts.limits(task))
    return said_so(parts.store, found[1], parts.clock()) if found else None


def _has_job(item: Item) -> bool:
    """Whether the provider may still be at work: it was open, or failed for a reason that says nothing of the job."""
    has_failed = item.status == "failed" and item.error
    return item.status == "pending" or bool(has_failed and item.error["reason"] in having(Trait.KEEPS_JOB))
