"""What may happen next in a state, and the state after it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from shared.errors import QueueUnreachable, StoreUnreachable
from shared.queue import Claim
from tests.explorer.faults import Faults, wrote
from tests.explorer.provider import answers
from tests.explorer.replay import Late
from tests.explorer.scenario import ENDED, OLD_MS, Holders, ProviderState, Replica, World, replaced
from tests.support.clock import START_MS
from tests.support.memory_store import MemoryStore

Step: TypeAlias = tuple[str, World]
How: TypeAlias = Literal["once", "twice", "lost"]
TIMED = ("claim", "end")
"""What finds out that a lease or a delay has run out."""


class Steps(Faults):
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
                if world.left.crashes and following.places[actor] != ENDED:
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
        target = node.call[0] if node.call else ""
        if target == "provider":
            yield from self._provider_steps(world, actor, place)
        elif target == "queue":
            if world.replica:
                went_back = self._gone_back(world, world.replica)
                yield from self._queue_calls(went_back, actor, place, f"{node.label}, after Redis went back")
            if not world.replica or world.replica.calls:
                yield from self._queue_calls(world, actor, place, node.label)
        else:
            yield from self._store_calls(world, actor, place, node.label)
            if world.late_write is not None:
                landed = self._landed(world)
                yield from self._store_calls(landed, actor, place, f"{node.label}, after the late write has landed")

    def _queue_calls(self, world: World, actor: int, place: int, label: str) -> Iterator[Step]:
        left = world.left
        if world.is_down or left.outages:
            spent = left if world.is_down else left._replace(outages=left.outages - 1)
            away = world._replace(is_down=True, left=spent)
            yield f"{label}, Redis is away", self._moved(away, actor, self._away(place))
        if world.is_down:
            world = world._replace(is_down=False)
        yield from self._queue_steps(world, actor, place, label)
        if world.queue_timer == 0 and self._nodes[place].method in TIMED:
            later = f"{label}, after the lease or delay has run out"
            yield from self._queue_steps(self._later(world), actor, place, later)
        if left.flushes and not world.replica:
            yield from self._queue_steps(self._flushed(world), actor, place, f"{label}, after Redis lost everything")
        if left.outages:
            struck = world._replace(left=left._replace(outages=left.outages - 1))
            twice = f"{label}, repeated since the connection broke"
            yield from self._queue_steps(struck, actor, place, twice, "twice")
            for what, lost in self._queue_steps(struck, actor, place, f"{label}, its answer is lost", "lost"):
                unheard = lost.holders.unheard or self._nodes[place].method == "claim"
                yield what, lost._replace(is_down=True, holders=lost.holders._replace(unheard=unheard))

    def _queue_steps(self, world: World, actor: int, place: int, label: str, how: How = "once") -> Iterator[Step]:
        """One call, and what may become of its effect and of its answer."""
        child, after = self._queue_step(world, actor, place, how)
        following = self._moved(after, actor, child)
        yield label, following
        left = world.left
        if left.failovers and after.queue != world.queue:
            timer = world.queue_timer
            if timer is not None and following.places[actor] == ENDED:
                timer &= ~(1 << actor)
            replica = Replica(world.queue, timer, self.scenario.lost_calls - 1)
            spent = left._replace(failovers=left.failovers - 1)
            yield f"{label}, which Redis will lose", following._replace(replica=replica, left=spent)
        match self._nodes[child].answer:
            case Claim(tasks=(_,)) as claim if left.jumps:
                yield f"{label}; its clock jumps", self._jumped(after, actor, place, claim)

    def _queue_step(self, world: World, actor: int, place: int, how: How) -> tuple[int, World]:
        """The node after the call, and the world but for the actor's place."""
        key = ("queue", world.queue, place, how)
        if key not in self._steps:
            queue = self._queues.states[world.queue].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            answer = getattr(queue, method)(*arguments, **options)
            if how == "twice":
                answer = getattr(queue, method)(*arguments, **options)
            if how == "lost":
                answer = QueueUnreachable("the answer is lost")
            self._steps[key] = self._queue_number(queue), self._child(place, answer)
        number, child = self._steps[key]
        self._check_owners(world, actor, child)
        if self._nodes[place].method == "settle":
            self._check_settling(world, place)
        if number != world.queue:
            timer, replica = self._entry(number).timer, world.replica
            if timer is None:
                waits_for = None
            elif timer == self._entry(world.queue).timer:
                waits_for = world.queue_timer
            else:
                waits_for = self._at_work(world, actor)
            if replica:
                replica = replica._replace(calls=replica.calls - 1)
            holders = self._came_back(world, place, number)
            world = world._replace(queue=number, queue_timer=waits_for, replica=replica, holders=holders)
            if self._nodes[place].method == "settle":
                world = self._handed_over(world, actor, place)
            if self._nodes[place].method == "add" and world.stalled >> actor & 1:
                world = self._excused(world, world.holders.order)  # it puts in anew what others are at work on
        return child, world

    def _came_back(self, world: World, place: int, number: int) -> Holders:
        """Whether the task has come back since the last attempt: by its leases and by who has put it in."""
        node, before, after = self._nodes[place], self._entry(world.queue).state, self._entry(number).state
        is_back = world.holders.is_back
        if before.generation != after.generation:
            is_back = self._kinds[node.actor] == "reconcile" and node.method == "add"
        elif node.method == "settle" and node.replay.asked:
            is_back = False
        return world.holders._replace(is_back=is_back or after.came_back > before.came_back)

    def _jumped(self, world: World, actor: int, place: int, answer: Any) -> World:
        left = world.left._replace(jumps=world.left.jumps - 1)
        return self._moved(world._replace(left=left), actor, self._child(place, Late(answer)))

    def _store_calls(self, world: World, actor: int, place: int, label: str) -> Iterator[Step]:
        yield label, self._store_step(world, actor, place)
        method = self._nodes[place].method
        if method == "open_since" and world.item_timer == 0:
            yield f"{label}, the item older than a lease", self._store_step(world, actor, place, old=True)
        if world.left.timeouts and world.late_write is None and method not in ("get", "open_since"):
            left = world.left._replace(timeouts=world.left.timeouts - 1)
            given_up = self._child(place, StoreUnreachable("it took too long"))
            away = world._replace(left=left, late_write=place)
            yield f"{label}, gives up; it may land later", self._moved(away, actor, given_up)

    def _store_step(self, world: World, actor: int, place: int, *, old: bool = False) -> World:
        key = ("store", world.store, place, old)
        if key not in self._steps:
            store = self._stores.states[world.store].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            if method == "open_since":
                answer: Any = list(self._aged(store, old).open_since(*arguments))
            else:
                answer = getattr(store, method)(*arguments, **options)
            self._steps[key] = self._store_number(store), self._child(place, answer), wrote(method, answer)
        number, child, has_written = self._steps[key]
        if has_written:
            world = self._written(world, place, number, self._at_work(world, actor))
        return self._moved(world, actor, child)

    @staticmethod
    def _aged(store: MemoryStore, old: bool) -> MemoryStore:
        """The store with its items written just now, or longer ago than a lease."""
        twin = store.copy()
        updated_at = OLD_MS if old else START_MS
        twin.items = {task: replace(item, updated_at=updated_at) for task, item in store.items.items()}
        return twin

    def _provider_steps(self, world: World, actor: int, place: int) -> Iterator[Step]:
        is_stray = bool((world.stalled | world.holders.excused) >> actor & 1)
        _, _, (call, _), _ = self._nodes[place].call or ("", "", (None, None), {})
        if call.method != "DELETE":
            self._check_question(world, actor)
        key = ("provider", world.provider, place, is_stray)
        if key not in self._steps:
            state: ProviderState = self._providers.states[world.provider]
            self._steps[key] = [
                (f"{self._name(actor)} {told}", self._provider_number(after), self._child(place, answer), answer)
                for told, after, answer in answers(state, call, actor, is_stray, frozenset(self.scenario.troubles))
            ]
        for label, provider, child, answer in self._steps[key]:
            asked = world._replace(provider=provider)
            yield label, self._moved(asked, actor, child)
            if world.left.jumps and call.method != "DELETE":
                yield f"{label}; its clock jumps", self._jumped(asked, actor, place, answer)

    def _stops(self, label: str, world: World, actor: int) -> Iterator[Step]:
        """The actor crashes after its call; or it stalls, and others go on without waiting for it."""
        replay = self._nodes[world.places[actor]].replay
        if self.scenario.in_company and replay.hold and replay.which == "often":
            return
        left, lost = world.left._replace(crashes=world.left.crashes - 1), self._settled(world.provider, actor, "lost")
        struck = self._without(world._replace(left=left, provider=lost), actor)
        dead = struck._replace(places=replaced(struck.places, actor, ENDED))
        yield f"{label}; it crashes", dead._replace(holders=self._held_no_more(dead, actor))
        if self._kinds[actor] in self.scenario.stalling and not self.scenario.in_company:
            yield f"{label}; it stalls", struck._replace(stalled=struck.stalled | 1 << actor)

    def _moved(self, world: World, actor: int, child: int) -> World:
        """The actor has its answer, and may have ended with it."""
        queue, store, provider, places, stalled, queue_timer, item_timer, is_down, left, _, replica, late_write = world
        if item_timer is not None and all(places[one] != self._roots[one] for one in self._listing):
            item_timer = None  # nobody asks for its age any more
        holders, node = self._held(world, actor, child), self._nodes[child]
        if node.call is not None:
            places = replaced(places, actor, child)
        else:
            self._check_result(world, child)
            provider, places, others = self._left(world, actor, child), replaced(places, actor, ENDED), ~(1 << actor)
            stalled &= others
            queue_timer = queue_timer and queue_timer & others
            item_timer = item_timer and item_timer & others
            if replica and replica.timer:
                replica = replica._replace(timer=replica.timer & others)
        timers = (queue_timer, item_timer)
        return World(queue, store, provider, places, stalled, *timers, is_down, left, holders, replica, late_write)

    def _without(self, world: World, actor: int) -> World:
        """Nobody waits for this actor any more."""
        others, replica = ~(1 << actor), world.replica
        if replica and replica.timer:
            replica = replica._replace(timer=replica.timer & others)
        queue_timer = world.queue_timer and world.queue_timer & others
        item_timer = world.item_timer and world.item_timer & others
        stalled = world.stalled & others
        return world._replace(queue_timer=queue_timer, item_timer=item_timer, stalled=stalled, replica=replica)
