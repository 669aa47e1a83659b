"""What may happen next in a state, and the state after it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from shared.errors import QueueUnavailable
from shared.store import Superseded
from tests.explorer.promises import Promises
from tests.explorer.provider import answers
from tests.explorer.scenario import ENDED, LEASE_SECONDS, OLD_MS, TASK, ProviderState, World, replaced
from tests.support.clock import START_MS
from tests.support.keys import Bench
from tests.support.memory_store import MemoryStore

Step: TypeAlias = tuple[str, World]


class Steps(Promises):
    """The steps out of a world."""

    def _following(self, world: World) -> Iterator[Step]:
        for actor, place in enumerate(world.places):
            if place == ENDED or (place == self._roots[actor] and not self._may_start(world, actor)):
                continue
            if self._kinds[actor] == "callback" and place == self._roots[actor]:
                lost = world._replace(places=replaced(world.places, actor, ENDED))
                yield f"callback {actor} is lost", self._without(lost, actor)
                if not self._has_job(world):
                    continue
            for label, following in self._calls(world, actor, place):
                yield label, following
                if world.crashes and following.places[actor] != ENDED:
                    yield from self._stops(label, following, actor)

    def _may_start(self, world: World, actor: int) -> bool:
        """Of two of a kind the first starts first: the other way round is the same."""
        twin = self._twins[actor]
        return twin is None or world.places[twin] != self._roots[twin]

    def _has_job(self, world: World) -> bool:
        """Whether the provider has begun what a callback would be about."""
        state: ProviderState = self._providers.states[world.provider]
        return any(submit.generation == self.scenario.generation for submit in state.submits)

    def _calls(self, world: World, actor: int, place: int) -> Iterator[Step]:
        """The actor's next call, answered in every way that is possible now."""
        node = self._nodes[place]
        target, method, *_ = node.call or ("", "")
        label = node.label
        if target == "provider":
            yield from self._provider_steps(world, actor, place)
        elif target == "queue":
            yield from self._queue_calls(world, actor, place, label)
        else:
            yield label, self._store_step(world, actor, place)
            if method == "open_since" and world.item_timer == 0:
                yield f"{label}, the item older than a lease", self._store_step(world, actor, place, old=True)

    def _queue_calls(self, world: World, actor: int, place: int, label: str) -> Iterator[Step]:
        if world.is_down or world.outages:
            away = self._away(place)
            outages = world.outages if world.is_down else world.outages - 1
            yield f"{label}, Redis is away", self._moved(world._replace(is_down=True, outages=outages), actor, away)
        if world.is_down:
            world = world._replace(is_down=False)
        yield label, self._queue_step(world, actor, place)
        if world.queue_timer == 0 and "queue.claim" in label:
            yield f"{label}, after the lease or delay has run out", self._queue_step(self._later(world), actor, place)
        if world.flushes:
            yield f"{label}, after Redis lost everything", self._queue_step(self._flushed(world), actor, place)
        if world.outages:
            struck = world._replace(outages=world.outages - 1)
            yield f"{label}, repeated since the connection broke", self._queue_step(struck, actor, place, "twice")
            lost = self._queue_step(struck, actor, place, "lost")
            yield f"{label}, its answer is lost and Redis goes away", lost._replace(is_down=True)

    def _queue_step(
        self, world: World, actor: int, place: int, how: Literal["once", "twice", "lost"] = "once"
    ) -> World:
        key = ("queue", world.queue, place, how)
        if key not in self._steps:
            queue = self._queues.states[world.queue].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            answer = getattr(queue, method)(*arguments, **options)
            if how == "twice":
                answer = getattr(queue, method)(*arguments, **options)
            if how == "lost":
                answer = QueueUnavailable("the answer is lost")
            self._steps[key] = self._queue_number(queue), self._child(place, answer)
        queue_number, child = self._steps[key]
        self._check_owners(world, actor, child)
        if queue_number != world.queue:
            timer = self._timer(queue_number)
            if timer is None:
                world = world._replace(queue=queue_number, queue_timer=None)
            elif timer == self._timer(world.queue):
                world = world._replace(queue=queue_number)
            else:
                world = world._replace(queue=queue_number, queue_timer=self._at_work(world, actor))
        return self._moved(world, actor, child)

    def _store_step(self, world: World, actor: int, place: int, *, old: bool = False) -> World:
        key = ("store", world.store, place, old)
        if key not in self._steps:
            store = self._stores.states[world.store].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            if method == "open_since":
                answer: Any = list(self._aged(store, old).open_since(*arguments))
            else:
                answer = getattr(store, method)(*arguments, **options)
            wrote = method not in ("get", "open_since") and not isinstance(answer, Superseded)
            wrote = wrote and not (method == "begin" and answer is None)
            if wrote:
                before = self._stores.states[world.store].items.get(TASK)
                self._check_write(self._name(actor), before, store.items[TASK])
            self._steps[key] = self._store_number(store), self._child(place, answer), wrote
        store_number, child, wrote = self._steps[key]
        if wrote:
            provider = self._settled(world.provider, actor, "stored")
            world = world._replace(store=store_number, item_timer=self._at_work(world, actor), provider=provider)
        return self._moved(world, actor, child)

    @staticmethod
    def _aged(store: MemoryStore, old: bool) -> MemoryStore:
        """The store with its items written just now, or longer ago than a lease."""
        twin = store.copy()
        updated_at = OLD_MS if old else START_MS
        twin.items = {task: replace(item, updated_at=updated_at) for task, item in store.items.items()}
        return twin

    def _provider_steps(self, world: World, actor: int, place: int) -> Iterator[Step]:
        is_stalled = bool(world.stalled >> actor & 1)
        key = ("provider", world.provider, place, is_stalled)
        if key not in self._steps:
            state: ProviderState = self._providers.states[world.provider]
            _, _, (call, _), _ = self._nodes[place].call or ("", "", (None, None), {})
            self._steps[key] = [
                (f"{self._name(actor)} {told}", self._provider_number(after), self._child(place, answer))
                for told, after, answer in answers(state, call, actor, is_stalled, frozenset(self.scenario.troubles))
            ]
        for label, provider, child in self._steps[key]:
            yield label, self._moved(world._replace(provider=provider), actor, child)

    def _stops(self, label: str, world: World, actor: int) -> Iterator[Step]:
        """The actor crashes after its call; or it stalls, and others go on without waiting for it."""
        lost = self._settled(world.provider, actor, "lost")
        struck = self._without(world._replace(crashes=world.crashes - 1, provider=lost), actor)
        yield f"{label}; it crashes", struck._replace(places=replaced(struck.places, actor, ENDED))
        if self._kinds[actor] == "process":
            yield f"{label}; it stalls", struck._replace(stalled=struck.stalled | 1 << actor)

    def _at_work(self, world: World, actor: int) -> int:
        """Those who must finish within a lease from now, the actor of this very call among them."""
        started = sum(
            1 << other
            for other, place in enumerate(world.places)
            if other == actor or (place != ENDED and place not in self._roots)
        )
        return started & ~world.stalled & ~self._unbounded

    def _moved(self, world: World, actor: int, child: int) -> World:
        """The actor has its answer, and may have ended with it."""
        queue, store, provider, places, stalled, queue_timer, item_timer, is_down, crashes, flushes, outages = world
        if item_timer is not None and all(places[one] != self._roots[one] for one in self._listing):
            item_timer = None  # nobody asks for its age any more
        place = child
        if self._nodes[child].call is None:
            self._check_result(world, child)
            place, others = ENDED, ~(1 << actor)
            stalled &= others
            queue_timer = None if queue_timer is None else queue_timer & others
            item_timer = None if item_timer is None else item_timer & others
        faults = (is_down, crashes, flushes, outages)
        places = replaced(places, actor, place)
        return World(queue, store, provider, places, stalled, queue_timer, item_timer, *faults)

    def _without(self, world: World, actor: int) -> World:
        """Nobody waits for this actor any more."""
        bit = ~(1 << actor)
        queue_timer = None if world.queue_timer is None else world.queue_timer & bit
        item_timer = None if world.item_timer is None else world.item_timer & bit
        return world._replace(queue_timer=queue_timer, item_timer=item_timer, stalled=world.stalled & bit)

    def _later(self, world: World) -> World:
        """A lease later in Redis."""
        key = ("later", world.queue)
        if key not in self._steps:
            queue = self._queues.states[world.queue].copy()
            Bench(queue).rewind(2 * LEASE_SECONDS)
            self._steps[key] = self._queue_number(queue)
        return world._replace(queue=self._steps[key], queue_timer=None)

    def _flushed(self, world: World) -> World:
        return world._replace(queue=self._empty, queue_timer=None, flushes=world.flushes - 1)

    def _settled(self, number: int, actor: int, answer: Literal["stored", "lost"]) -> int:
        """The provider's state, knowing what became of the answer that this actor had."""
        key = ("settled", number, actor, answer)
        if key not in self._steps:
            state: ProviderState = self._providers.states[number]
            submits = tuple(
                submit._replace(answer=answer) if (submit.actor, submit.answer) == (actor, "on the way") else submit
                for submit in state.submits
            )
            self._steps[key] = self._provider_number(state._replace(submits=submits))
        settled: int = self._steps[key]
        return settled
