"""revive: the next generation of a task that has failed, with the stored input and a new deadline."""

from shared.api import view
from shared.api.answer import Answer
from shared.errors import Conflict
from shared.logs import facts, log
from shared.queue import new_token, without_redis
from shared.reasons import Trait, having
from shared.task import Task
from shared.work.keeper import add_of, record_of
from shared.work.parts import Parts


def answer(parts: Parts, task: Task) -> Answer:
    """Begin the next generation, due now. Raises NotFound, Conflict unless it has failed, StoreUnavailable."""
    provider, item = view.provider_of(parts, task), view.existing(parts, task)
    if item.status != "failed":
        raise Conflict(f"only a failed task can be revived; this one is {item.status}", field="name")
    keeps_job = item.error["reason"] in having(Trait.KEEPS_JOB)
    now = parts.clock()
    begun = parts.store.begin(task, item, item.input, now, group=item.group, keep_outputs=keeps_job)
    if begun is None:
        raise Conflict("the task was begun again meanwhile", field="name")
    log.info("revived", extra=facts(begun))
    place, record = None, record_of(begun)
    with without_redis(then="reconcile queues the task"):
        adds, limits = [add_of(task, record)], provider.rules.limits
        [(_, found)] = parts.queue.add_and_look(adds, token=new_token(), limits=limits)
        place = view.of_item(begun, found)
    return view.accepted(parts, begun, place, record)
