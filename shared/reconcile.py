"""Reconcile: Redis is the schedule, DynamoDB the truth; what Redis lost comes back, what ended elsewhere leaves."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import TypeVar

from shared.errors import QueueUnavailable, StoreUnavailable
from shared.provider import Provider
from shared.queue import BATCH, Add, Queue, new_token
from shared.rules import Rules
from shared.store import Store
from shared.task import Task
from shared.worker import record_of

T = TypeVar("T")

STOP_SECONDS = 10.0
"""A run stops when the function has less left than this; the next one begins with other items."""
DEAD_A_RUN = 1000
"""So many of a provider's dead letters are looked at in a run."""

log = logging.getLogger("meanwhile")


class Reconciler:
    """Compares every open item with Redis. `clock` tells epoch milliseconds."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        providers: Mapping[str, Provider],
        lease_seconds: float,
        clock: Callable[[], int],
        random: Random,
    ) -> None:
        self._store = store
        self._queue = queue
        self._providers = providers
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._random = random

    def run(self, remaining: Callable[[], float]) -> dict[str, Counter[str]]:
        """One run over all providers: how many open items were seen, requeued, and dead letters forgotten, for each."""
        tally: dict[str, Counter[str]] = {name: Counter() for name in self._providers}
        names = self._random.sample(list(tally), len(tally))  # no provider is always the last
        for step in (self._requeue, self._forget_dead):
            for name in (name for name in names if not tally[name]["unreachable"]):
                try:
                    tally[name] += step(name, remaining)
                except (QueueUnavailable, StoreUnavailable) as error:
                    tally[name]["unreachable"] += 1
                    log.error("reconcile stopped", extra={"provider": name, "reason": str(error)})
        return tally

    def _requeue(self, name: str, remaining: Callable[[], float]) -> Counter[str]:
        """Queue every open item, older than a lease, whose generation or a higher one Redis does not hold."""
        tally: Counter[str] = Counter()
        before = self._clock() - int(self._lease_seconds * 1000)
        for batch in _batches(self._store.open_since(name, before)):
            if remaining() < STOP_SECONDS:
                tally["unfinished"] += 1
                break
            places = self._queue.look([task for task, _ in batch])
            missing = [one for one, place in zip(batch, places, strict=True) if place.held_generation < one[1]]
            tally["seen"] += len(batch)
            tally["requeued"] += self._add(missing, self._providers[name].rules)
        return tally

    def _add(self, missing: list[tuple[Task, int]], rules: Rules) -> int:
        """Add what is still pending, due no earlier than a lease from now: whoever works on it has stored by then."""
        adds = []
        for task, generation in missing:
            item = self._store.get(task, self._clock())
            if item is not None and item.status == "pending" and item.generation == generation:
                delay = self._lease_seconds + self._random.uniform(0, rules.backoff.max_delay)
                has_job = item.outputs is not None
                adds.append(Add(task, generation, record_of(item).to_text(), delay, item.group, has_job))
        added = self._queue.add(adds, token=new_token(), limits=rules.limits) if adds else []
        for one, done in zip(adds, added, strict=True):
            if done == "created":
                said = {"provider": one.task.provider, "task": one.task.name, "generation": one.generation}
                log.info("requeued", extra=said)
        return added.count("created")

    def _forget_dead(self, name: str, remaining: Callable[[], float]) -> Counter[str]:
        """Forget dead letters whose item is gone, or no longer tells of that failure; of many, some each run."""
        tally: Counter[str] = Counter()
        dead = self._queue.dead(name)
        for batch in _batches(self._random.sample(dead, min(len(dead), DEAD_A_RUN))):
            if remaining() < STOP_SECONDS:
                tally["unfinished"] += 1
                break
            ends = []
            for task, place in zip(batch, self._queue.look(batch), strict=True):
                if place.buried_seconds is None:  # revived or begun again since it was listed
                    continue
                item = self._store.get(task, self._clock())
                if item is None or item.status != "failed" or item.generation != place.generation:
                    ends.append((task, place.generation))
            forgotten = self._queue.forget(ends) if ends else []
            for (task, generation), done in zip(ends, forgotten, strict=True):
                if done:
                    log.info("forgotten", extra={"provider": name, "task": task.name, "generation": generation})
            tally["forgotten"] += sum(forgotten)
        return tally


def _batches(values: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(values)
    while batch := list(islice(iterator, BATCH)):
        yield batch
