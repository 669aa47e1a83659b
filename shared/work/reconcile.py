"""Reconcile: Redis is the schedule, DynamoDB the truth; what Redis lost comes back, what ended elsewhere leaves."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from random import Random
from typing import Literal, TypeVar

from shared.errors import QueueUnavailable, StoreUnavailable
from shared.logs import facts, log
from shared.provider.language.rules import Rules
from shared.queue import BATCH, End, Place, Queue, new_token
from shared.store import Item, Store
from shared.task import Task
from shared.work.keeper import add_of, record_of

T = TypeVar("T")

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
        """One run over all providers: for each, how many open items were seen and requeued, and how many entries of
        Redis whose tasks have ended were buried or forgotten."""
        tally: dict[str, Counter[str]] = {name: Counter() for name in self.rules}
        is_open: dict[str, set[Task]] = {name: set() for name in self.rules}
        names = self.random.sample(list(tally), len(tally))  # no provider is always the last
        for step in (self._requeue, self._end):
            for name in (name for name in names if not tally[name]["unreachable"]):
                try:
                    tally[name] += step(name, is_open[name], remaining)
                except (QueueUnavailable, StoreUnavailable) as error:
                    tally[name]["unreachable"] += 1
                    log.error("reconcile stopped", extra={"provider": name, "reason": str(error)})
        return tally

    def _requeue(self, name: str, is_open: set[Task], remaining: Callable[[], float]) -> Counter[str]:
        """Queue every open item, older than a lease, whose generation or a higher one Redis does not hold."""
        tally: Counter[str] = Counter()
        self.store.know_time()
        before = self.clock() - int(self.lease_seconds * 1000)
        for batch in _batches(self.store.open_since(name, before), remaining, tally):
            places = self.queue.look([task for task, _ in batch])
            missing = [one for one, place in zip(batch, places, strict=True) if place.held_generation < one[1]]
            is_open.update(task for task, _ in batch)
            tally["seen"] += len(batch)
            tally["requeued"] += self._add(missing, self.rules[name], remaining)
        return tally

    def _add(self, missing: list[tuple[Task, int]], rules: Rules, remaining: Callable[[], float]) -> int:
        """Add what is still pending, due no earlier than a lease from now: who still works on it stores before."""
        adds = []
        for task, generation in takewhile(lambda _: remaining() >= STOP_SECONDS, missing):
            item = self.store.get(task, self.clock())
            if item and item.is_pending(generation):
                delay = self.lease_seconds + self.random.uniform(0, rules.polling.max_delay)
                add = add_of(task, record_of(item))
                adds.append(add._replace(delay_seconds=delay, turn=item.turn, came_back=True))
        added = self.queue.add(adds, token=new_token(), limits=rules.limits) if adds else []
        for one, done in zip(adds, added, strict=True):
            if done == "created":
                log.info("requeued", extra=facts(one))
        return added.count("created")

    def _end(self, name: str, is_open: set[Task], remaining: Callable[[], float]) -> Counter[str]:
        """End what Redis has of tasks that are not among the open items, as the items say; of many, some each run."""
        tally: Counter[str] = Counter()
        queued = [task for task in self.queue.members(name, "queue") if task not in is_open]
        entries = self.queue.mend(name) + self._some(queued) + self._some(self.queue.members(name, "dead"))
        for batch in _batches(entries, remaining, tally):
            ends = []
            looked_at = zip(batch, self.queue.look(batch), strict=True)
            for task, place in takewhile(lambda _: remaining() >= STOP_SECONDS, looked_at):
                if place.lease_seconds is None and (end := _end_of(place, self.store.get(task, self.clock()))):
                    ends.append(End(task, place.generation, end))
            for one, done in zip(ends, self.queue.end(ends), strict=True):
                if done:
                    tally[one.becomes] += 1
                    log.info(one.becomes, extra=facts(one))
        return tally

    def _some(self, tasks: list[Task]) -> list[Task]:
        return self.random.sample(tasks, min(len(tasks), LOOKS_A_RUN))


def _end_of(place: Place, item: Item | None) -> Literal["buried", "forgotten"] | None:
    """How an entry without a lease ends; None: it is as its item says, or `_requeue` adds it again."""
    is_waiting = place.due_seconds is not None
    is_dead = place.buried_seconds is not None and not is_waiting
    if item and item.status == "pending" and not is_dead:
        return None
    if item and item.status == "failed" and item.generation == place.generation and not item.refused:
        return "buried" if is_waiting else None if is_dead else "forgotten"
    return "forgotten"


def _batches(values: Iterable[T], remaining: Callable[[], float], tally: Counter[str]) -> Iterator[list[T]]:
    """The values in batches for as long as there is time; else the tally says that the run is unfinished."""
    iterator = iter(values)
    while batch := list(islice(iterator, BATCH)):
        if remaining() < STOP_SECONDS:
            tally["unfinished"] += 1
            return
        yield batch
