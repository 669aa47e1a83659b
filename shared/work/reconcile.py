"""Reconcile: Redis is the schedule, DynamoDB the truth; what Redis lost comes back, what ended elsewhere leaves.

Whatever Redis has of a task, in part, twice or of another generation, one run makes it what the task's item says. An
item that is damaged says nothing: it is reported, and its task left alone.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
from random import Random
from typing import Literal, TypeAlias, TypeVar

from shared.errors import (
    BadRequest,
    ItemUnreadable,
    QueueUnavailable,
    QueueUnreachable,
    StoreUnavailable,
    StoreUnreachable,
)
from shared.logs import facts, log
from shared.provider.language.rules import Rules
from shared.queue import BATCH, Add, End, Place, Queue, new_token
from shared.store import LEAP, Item, Store
from shared.task import Task
from shared.work.keeper import add_of, record_of

T = TypeVar("T")
Repair: TypeAlias = Literal["requeued", "buried", "forgotten"]

STOP_SECONDS = 10.0  # a run stops when the function has less left than this; the next one begins with other items
LOOKS_A_RUN = 1000  # so many of a provider's dead letters are checked in a run, and of its tasks without an open item


@dataclass(slots=True)
class Reconciler:
    """Compares every open item with Redis. `clock` tells epoch milliseconds."""

    store: Store
    queue: Queue
    rules: Mapping[str, Rules]
    lease_seconds: float
    clock: Callable[[], int]
    random: Random

    def run(self, remaining: Callable[[], float]) -> dict[str, Counter[str]]:
        """One run over all providers: for each, how many open items were seen and requeued, how many entries of Redis
        whose tasks have ended were buried or forgotten, and how many items could not be read."""
        tally: dict[str, Counter[str]] = {name: Counter() for name in self.rules}
        names = self.random.sample(list(tally), len(tally))  # no provider is always the last
        checks = [_Check(self, name, remaining) for name in names]
        for step in (_Check.items, _Check.entries):
            for check in (one for one in checks if not tally[one.provider]["unreachable"]):
                try:
                    tally[check.provider] += self._mending(step, check)
                except (QueueUnavailable, StoreUnavailable) as error:
                    tally[check.provider]["unreachable"] += 1
                    log.error("reconcile stopped", extra={"provider": check.provider, "reason": str(error)})
                    if isinstance(error, QueueUnreachable | StoreUnreachable):  # the others would wait as long
                        return tally
        return tally

    def _mending(self, step: Callable[["_Check"], Counter[str]], check: "_Check") -> Counter[str]:
        """The step; where Redis refuses something, once more after its keys were mended: one may be of another type."""
        try:
            return step(check)
        except QueueUnreachable:
            raise
        except QueueUnavailable:
            self.queue.mend(check.provider)
            return step(check)


@dataclass(slots=True)
class _Check:
    """One run over one provider; `checked` are tasks that need no other look in it."""

    by: Reconciler
    provider: str
    remaining: Callable[[], float]
    checked: set[Task] = field(default_factory=set)

    def items(self) -> Counter[str]:
        """Check every open item, older than a lease, that Redis does not have as the index lists it."""
        tally: Counter[str] = Counter()
        self.by.store.know_time()
        before = self.by.clock() - int(self.by.lease_seconds * 1000)
        for batch in _batches(self.by.store.open_since(self.provider, before), self.remaining, tally):
            tally["seen"] += len(batch)
            for damaged in (one for one in batch if isinstance(one, ItemUnreadable)):
                self._report(damaged, tally)
            rows = dict(one for one in batch if isinstance(one, tuple))
            places = dict(zip(rows, self.by.queue.look(list(rows)), strict=True))
            doubtful = {task: place for task, place in places.items() if not _is_sound(place, rows[task])}
            self.checked |= rows.keys() - doubtful.keys()
            tally += self._repair(doubtful, listed=rows)
        return tally

    def entries(self) -> Counter[str]:
        """Check what Redis has of other tasks; of many, some each run."""
        tally: Counter[str] = Counter()
        queued, dead = (self.by.queue.members(self.provider, key) for key in ("queue", "dead"))
        others = [task for task in self.by.queue.mend(self.provider) if task not in self.checked]
        others += [*self._some(queued), *self._some(dead)]
        for batch in _batches(dict.fromkeys(others), self.remaining, tally):
            tally += self._repair(dict(zip(batch, self.by.queue.look(batch), strict=True)), queued=set(queued))
        return tally

    def _repair(
        self, places: Mapping[Task, Place], *, listed: Mapping[Task, int] = {}, queued: Collection[Task] | None = None
    ) -> Counter[str]:
        """Make Redis hold of each task what its item says, which is read after its place was looked up.

        `listed` are the generations that are open and older than a lease; `queued` who is in the queue, wherever there.
        Without that, tasks that are not open are left to `entries`.
        """
        tally: Counter[str] = Counter()
        adds, replaced, ends = [], [], []
        for task, place in takewhile(lambda _: self.remaining() >= STOP_SECONDS, places.items()):
            try:
                item = self.by.store.get(task, self.by.clock()) if _is_legal(task) else None
            except ItemUnreadable as error:
                self.checked.add(task)
                self._report(error, tally)
                continue
            repair: Repair | None
            if item and item.status == "pending":
                self.checked.add(task)
                repair = _repair_of_open(place, item, is_old=listed.get(task) == item.generation)
            else:
                repair = None if queued is None else _repair_of_ended(place, item, task in queued)
            match repair:
                case "requeued" if item:
                    adds.append(self._add_of(item))
                    replaced.append(End(task, place.generation, "forgotten"))  # whatever is left of it
                case "buried" | "forgotten":
                    ends.append(End(task, place.generation, repair))
        if replaced:
            self.by.queue.end(replaced)
        return tally + self._requeued(adds) + self._ended(ends)

    def _add_of(self, item: Item) -> Add:
        """Due no earlier than a lease from now: who still works on it stores before, or else is of an earlier turn."""
        longest = self.by.rules[self.provider].polling.max_delay
        delay = self.by.lease_seconds + self.by.random.uniform(0, longest)
        return add_of(item.task, record_of(item))._replace(delay_seconds=delay, turn=item.turn + LEAP, came_back=True)

    def _requeued(self, adds: list[Add]) -> Counter[str]:
        limits = self.by.rules[self.provider].limits
        added = self.by.queue.add(adds, token=new_token(), limits=limits) if adds else []
        for one, done in zip(adds, added, strict=True):
            if done == "created":
                log.info("requeued", extra=facts(one))
        return Counter(requeued=added.count("created"))

    def _ended(self, ends: list[End]) -> Counter[str]:
        answers = self.by.queue.end(ends, self.by.rules[self.provider].limits) if ends else []
        done = [one for one, is_done in zip(ends, answers, strict=True) if is_done]
        for one in done:
            log.info(one.becomes, extra=facts(one))
        return Counter(one.becomes for one in done)

    def _report(self, error: ItemUnreadable, tally: Counter[str]) -> None:
        tally["unreadable"] += 1
        log.error("item unreadable", extra={"provider": self.provider} | error.facts)

    def _some(self, tasks: list[Task]) -> list[Task]:
        others = [task for task in tasks if task not in self.checked]
        return self.by.random.sample(others, min(len(others), LOOKS_A_RUN))


def _is_sound(place: Place, generation: int) -> bool:
    """Whether Redis has an open task just as its item is: it waits or is in process, and is no dead letter."""
    return place.held_generation == generation and place.buried_seconds is None


def _is_in_hand(place: Place) -> bool:
    return place.lease_seconds is not None and place.lease_seconds > 0


def _repair_of_open(place: Place, item: Item, *, is_old: bool) -> Literal["requeued", "forgotten"] | None:
    """What makes Redis hold an open task. One that is not old may be on its way there, unless it has been there before.

    A higher generation than that of an item that was read later is of a table before it was restored.
    """
    if _is_sound(place, item.generation) or (_is_in_hand(place) and place.generation >= item.generation):
        return None
    if is_old or place.generation >= item.generation:
        return "requeued"
    return None if place.buried_seconds is None else "forgotten"


def _repair_of_ended(place: Place, item: Item | None, is_queued: bool) -> Literal["buried", "forgotten"] | None:
    """What makes Redis hold of a task that has ended a dead letter or nothing. In process it is left to its worker."""
    if _is_in_hand(place):
        return None
    if item and item.status == "failed" and item.generation == place.generation and not item.refused:
        is_queued = is_queued or place.due_seconds is not None or place.lease_seconds is not None
        return "buried" if is_queued else "forgotten" if place.buried_seconds is None else None
    return "forgotten"


def _is_legal(task: Task) -> bool:
    """Whether a request could name it; of another there is no item."""
    try:
        return Task.from_id(task.id) == task
    except BadRequest:
        return False


def _batches(values: Iterable[T], remaining: Callable[[], float], tally: Counter[str]) -> Iterator[list[T]]:
    """The values in batches for as long as there is time; else the tally says that the run is unfinished."""
    iterator = iter(values)
    while batch := list(islice(iterator, BATCH)):
        if remaining() < STOP_SECONDS:
            tally["unfinished"] += 1
            return
        yield batch
