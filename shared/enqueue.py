"""enqueue, step by step: a request is answered at once, and its task is left where it will be seen to its end.

The order of the steps closes every gap: a crash at any point leaves either nothing or a task that ends.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from shared.answer import Answer, problem
from shared.errors import BadRequest, Conflict, Problem, StoreUnavailable, Unavailable
from shared.item import Item, digest
from shared.outcome import Completed, Failed, Pending, Retry
from shared.provider import Provider
from shared.queue import Add, Added, Hold, Queue, new_token, without_redis
from shared.request import TaskRequest
from shared.settings import Settings
from shared.settle import Settlement, facts, settle
from shared.store import Store
from shared.view import Viewer, show, whole_seconds
from shared.worker import Worker, record_of

Map: TypeAlias = Callable[..., Iterable[Any]]
"""`map`, or that of a pool."""

ROUNDS = 5
"""How often a request that loses the race to begin looks again."""
RESERVE_SECONDS = 5.0
"""Kept back from the function's time for storing, settling and answering."""

log = logging.getLogger("meanwhile")


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """A generation that a request has begun; `wait_seconds` as the request prefers; `stale` answers it meanwhile."""

    item: Item
    provider: Provider
    wait_seconds: float | None
    stale: Item | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueuer:
    """Serves requests for tasks. `clock` tells epoch milliseconds."""

    store: Store
    queue: Queue
    worker: Worker
    viewer: Viewer
    providers: Mapping[str, Provider]
    settings: Settings
    clock: Callable[[], int]
    pool: Callable[[int], Executor] = ThreadPoolExecutor

    def answer(self, request: TaskRequest, remaining: Callable[[], float]) -> Answer:
        """The answer to a request; `remaining` tells the seconds that the function has left.

        Raises BadRequest, Conflict, and StoreUnavailable when nothing was accepted.
        """
        accepted = self._accept(request)
        return accepted if isinstance(accepted, Answer) else self._serve([accepted], remaining)[0]

    def answer_all(self, requests: Sequence[TaskRequest | Problem], remaining: Callable[[], float]) -> list[Answer]:
        """The answers to many requests at once, one each; a fault in one, its Problem too, harms no other."""
        with self.pool(max(1, len(requests))) as pool:
            accepted = list(pool.map(self._accepted, requests))
            begun = [one for one in accepted if isinstance(one, Begun)]
            served = iter(self._serve(begun, remaining, pool.map))
        return [next(served) if isinstance(one, Begun) else one for one in accepted]

    def batch(self, requests: Sequence[TaskRequest | Problem], remaining: Callable[[], float]) -> Answer:
        """One answer that holds those to many requests, in their order."""
        results = [
            {"status": one.status, "retry_after_seconds": one.retry_after_seconds, "body": one.body}
            for one in self.answer_all(requests, remaining)
        ]
        return Answer(status=200, body={"results": results})

    def _accepted(self, request: TaskRequest | Problem) -> Answer | Begun:
        try:
            if isinstance(request, Problem):
                raise request
            return self._accept(request)
        except (Problem, StoreUnavailable) as error:
            return problem(error)

    def _accept(self, request: TaskRequest) -> Answer | Begun:
        """The answer from what is known, or the generation that was begun."""
        task = request.task
        provider = self.providers.get(task.provider)
        if provider is None:
            raise BadRequest(f"there is no provider {task.provider!r}", field="provider")
        for _ in range(ROUNDS):
            item = seen = self.store.get(task, self.clock())  # 1. get
            if item and (known := self._known(request, provider, item)):
                return known
            input_ = request.input if request.input is not None else (item.input if item else {})
            item = self.store.begin(task, item, input_, self.clock(), group=request.group)  # 2. begin
            if item:
                log.debug("begun", extra=facts(item))
                stale = seen if seen and self._may_be_stale(request, provider, seen) else None
                return Begun(item, provider, request.prefers.wait_seconds, stale)
        raise Unavailable("the task changes too fast; try again", field="name")

    def _serve(self, begun: Sequence[Begun], remaining: Callable[[], float], map_: Map = map) -> list[Answer]:
        """The rest of the steps, for many at once: one call per provider and verb, attempts through `map_`."""
        token = new_token()
        seconds = {one: self._first_answer_seconds(one, remaining()) for one in begun}
        added = self._add(begun, token, seconds)  # 3. add
        asked = [one for one in begun if added[one] in ("created", None) and seconds[one] > 0]

        def ask(one: Begun) -> Settlement:
            hold = Hold(one.item.task, one.item.generation, token)
            return self.worker.attempt(hold, record_of(one.item), seconds[one], inline=True)

        settlements = dict(zip(asked, map_(ask, asked), strict=True))  # 4. ask, 5. store
        for provider, group in _by_provider(one for one in asked if added[one] is not None).items():
            with without_redis(then="the task comes back with its lease"):
                settle(self.queue, provider, [settlements[one] for one in group])  # 6. settle
        return [self._answer(one, added[one], settlements.get(one)) for one in begun]  # 7. answer

    def _add(self, begun: Sequence[Begun], token: str, seconds: Mapping[Begun, float]) -> dict[Begun, Added | None]:
        """What became of each in Redis, leased where it is to be asked at once; None where Redis is away."""
        added: dict[Begun, Added | None] = dict.fromkeys(begun)
        for lease_seconds in (self.settings.lease_seconds, 0):
            chosen = [one for one in begun if (seconds[one] > 0) == (lease_seconds > 0)]
            for provider, group in _by_provider(chosen).items():
                adds = [_add_of(one.item) for one in group]
                limits = provider.rules.limits
                with without_redis(then="reconcile queues the task"):
                    replies = self.queue.add(adds, token=token, lease_seconds=lease_seconds, limits=limits)
                    added.update(zip(group, replies, strict=True))
        return added

    def _first_answer_seconds(self, one: Begun, remaining: float) -> float:
        """How long to wait for the provider: as the request prefers, else its file, else the settings."""
        if one.stale:
            return 0
        preferred = one.wait_seconds if one.wait_seconds is not None else one.provider.rules.first_answer_seconds
        seconds = self.settings.first_answer_seconds if preferred is None else preferred
        return min(seconds, self.settings.attempt_seconds, remaining - RESERVE_SECONDS)

    def _answer(self, one: Begun, added: Added | None, settlement: Settlement | None) -> Answer:
        if one.stale:
            return Answer(
                status=200, body=show(one.stale, self.clock()) | {"revalidating": True}, location=one.item.task
            )
        if settlement:
            return self._learned(one.item, settlement)
        if added in ("exists", "stale", "waiting"):
            return self._in_progress(one.item, deduplicated=added != "waiting")
        return accepted(one.item, self.clock(), 1)

    def _may_be_stale(self, request: TaskRequest, provider: Provider, item: Item) -> bool:
        """Whether the request takes this completed item although it is stale (RFC 5861's stale-while-revalidate)."""
        same = request.input is None or digest(request.input) == item.input_digest
        longest = provider.rules.freshness_seconds + request.prefers.stale_seconds
        asked_for = request.prefers.stale_seconds > 0 and item.status == "completed"
        return asked_for and same and self._age_seconds(item) < longest

    def _age_seconds(self, item: Item) -> float:
        return (self.clock() - (item.completed_at or 0)) / 1000

    def _known(self, request: TaskRequest, provider: Provider, item: Item) -> Answer | None:
        """The answer from what is stored; None when the next generation is to begin."""
        same = request.input is None or digest(request.input) == item.input_digest
        if item.status == "pending":
            if not same:
                raise Conflict("the task is in progress with another input; cancel it first", field="input")
            return self._in_progress(item, deduplicated=True)
        fresh = {
            "completed": provider.rules.freshness_seconds,
            "failed": provider.rules.freshness_failed_seconds,
        }.get(item.status, 0)
        if request.prefers.max_age_seconds is not None:
            fresh = min(fresh, request.prefers.max_age_seconds)
        if same and self._age_seconds(item) < fresh:
            return Answer(status=200, body=show(item, self.clock(), deduplicated=True))
        return None

    def _in_progress(self, item: Item, *, deduplicated: bool) -> Answer:
        place = self.viewer.place(item)
        due_seconds = place.due_seconds if place and place.due_seconds is not None else self.settings.tick_seconds
        answer = accepted(item, self.clock(), due_seconds, deduplicated=deduplicated)
        return replace(answer, body=(answer.body or {}) | self.viewer.schedule(item, place))

    def _learned(self, item: Item, settlement: Settlement) -> Answer:
        """The answer after an attempt of our own; what stood in its way wins over what it found."""
        now = self.clock()
        ended = settlement.item
        if ended and ended.status != "pending":
            return Answer(status=200, body=show(ended, now), location=item.task)
        match settlement.outcome:
            case Completed(data) if settlement.verb == "complete":
                done = replace(item, status="completed", data=data, partial=None, completed_at=now, updated_at=now)
                return Answer(status=200, body=show(done, now), location=item.task)
            case Completed(data):  # learned but not stored: shown, and asked for again
                return accepted(replace(item, partial=data), now, settlement.delay_seconds)
            case Failed(reason, error) if settlement.verb == "forget":
                text = {"reason": reason, "error": error, "refused": True}
                failed = replace(item, status="failed", error=text, completed_at=now, updated_at=now)
                return Answer(status=422, body=show(failed, now), location=item.task)
            case Pending() | Retry():
                partial = settlement.record.partial if settlement.record else None
                return accepted(replace(item, partial=partial), now, settlement.delay_seconds)
        return accepted(item, now, settlement.delay_seconds)


def _add_of(item: Item) -> Add:
    return Add(item.task, item.generation, record_of(item).to_text(), group=item.group)


def _by_provider(begun: Iterable[Begun]) -> dict[Provider, list[Begun]]:
    groups: dict[Provider, list[Begun]] = {}
    for one in begun:
        groups.setdefault(one.provider, []).append(one)
    return groups


def accepted(item: Item, now: int, retry_after_seconds: float, *, deduplicated: bool = False) -> Answer:
    """202: the task will be seen to its end."""
    return Answer(
        status=202,
        body=show(item, now, deduplicated=deduplicated),
        retry_after_seconds=whole_seconds(retry_after_seconds),
        location=item.task,
    )
