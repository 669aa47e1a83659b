"""What may happen between two calls, and the state after it: time, losses of Redis, a write that comes late."""

from collections.abc import Iterable

from shared.store import Superseded
from tests.explorer.holders import Holding, without
from tests.explorer.provider import job_of
from tests.explorer.scenario import ENDED, LEASE_SECONDS, Fate, ProviderState, Replica, World
from tests.support.clock import START_MS
from tests.support.keys import RINGS, Bench, line_member
from tests.support.memory_queue import MemoryQueue


class Faults(Holding):
    """The states after faults."""

    def _later(self, world: World) -> World:
        """A lease later in Redis."""
        if world.replica:
            world = world._replace(
                replica=world.replica._replace(queue=self._aged_queue(world.replica.queue), timer=None)
            )
        return world._replace(queue=self._aged_queue(world.queue), queue_timer=None)

    def _aged_queue(self, number: int) -> int:
        key = ("later", number)
        if key not in self._steps:
            queue = self._queues.states[number].copy()
            _let_pass(queue)
            self._steps[key] = self._queue_number(queue)
        aged: int = self._steps[key]
        return aged

    def _flushed(self, world: World) -> World:
        left, holders = world.left._replace(flushes=world.left.flushes - 1), world.holders._replace(is_back=False)
        return self._forgotten(world._replace(queue=self._empty, queue_timer=None, left=left, holders=holders))

    def _gone_back(self, world: World, replica: Replica) -> World:
        """Redis is what it was: of those who hold the task now it knows perhaps nothing."""
        entry, lost = self._entry(replica.queue), []
        for actor in world.holders.order:
            hold = None if world.places[actor] == ENDED else self._nodes[world.places[actor]].replay.hold
            if hold and not (entry.is_leased and entry.state.token == hold.token):
                lost.append(actor)
        holders = world.holders._replace(is_back=entry.state.came_back > 0)
        gone = world._replace(queue=replica.queue, queue_timer=replica.timer, replica=None, holders=holders)
        return self._forgotten(self._excused(gone, lost))

    def _excused(self, world: World, actors: Iterable[int]) -> World:
        """Redis does not know that it gave these the task."""
        for actor in actors:
            holders = world.holders._replace(excused=world.holders.excused | 1 << actor)
            provider = self._settled(world.provider, actor, "lost")
            world = world._replace(holders=holders, provider=provider)
        return world

    def _landed(self, world: World) -> World:
        """The late write has been done."""
        place = world.late_write
        assert place is not None
        actor = self._nodes[place].actor
        key = ("landed", world.store, place)
        if key not in self._steps:
            store = self._stores.states[world.store].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            answer = getattr(store, method)(*arguments, **options)
            self._steps[key] = self._store_number(store), wrote(method, answer)
        number, has_written = self._steps[key]
        if has_written:
            world = self._written(world, place, number, self._at_work(world))
        world = world._replace(late_write=None)
        if world.places[actor] == ENDED or self._nodes[world.places[actor]].replay.hold is None:
            world = world._replace(holders=without(world.holders, actor))
        return world

    def _written(self, world: World, place: int, store: int, timer: int) -> World:
        """After a write that was taken."""
        node, before = self._nodes[place], self._item(world.store)
        after = self._item(store)
        assert after
        self._check_write(self._name(node.actor), before, after)
        self._check_order(world, place, before)
        if node.method not in ("take_over", "finished"):
            provider = self._settled(world.provider, node.actor, "stored")
            provider = self._settled(provider, node.actor, "stored", "in Redis")
            world = world._replace(item_timer=timer, provider=provider)
        world = self._wrote(world._replace(store=store), node.actor, place)
        self._check_crashes(world)
        return world

    def _forgotten(self, world: World) -> World:
        """Redis has lost what it alone had."""
        provider = world.provider
        for actor in range(len(world.places)):
            provider = self._settled(provider, actor, "lost", "in Redis")
        return world._replace(provider=provider)

    def _handed_over(self, world: World, actor: int, child: int) -> World:
        """Redis has taken what the actor could not store; a failure is asked for again, and so is a refusal."""
        state: ProviderState = self._providers.states[world.provider]
        record = self._entry(world.queue).record
        for number, submit in enumerate(state.submits):
            is_kept = '"result"' in record or job_of(submit, number) in record
            if (submit.actor, submit.answer) == (actor, "on the way") and self._nodes[child].is_unstored:
                fate: Fate = "lost" if submit.is_refused else "in Redis" if is_kept else "on the way"
                world = world._replace(provider=self._settled(world.provider, actor, fate))
        return world

    def _left(self, world: World, actor: int, child: int) -> int:
        """The provider's state once the actor has ended: what it could neither store nor hand over is lost."""
        node = self._nodes[child]
        is_lost = node.is_unstored and not node.replay.is_settled
        return self._settled(world.provider, actor, "lost") if is_lost else world.provider

    def _settled(self, number: int, actor: int, answer: Fate, before: Fate = "on the way") -> int:
        """The provider's state, knowing what became of the answer that this actor had."""
        key = ("settled", number, actor, answer, before)
        if key not in self._steps:
            state: ProviderState = self._providers.states[number]
            submits = tuple(
                submit._replace(answer=answer) if (submit.actor, submit.answer) == (actor, before) else submit
                for submit in state.submits
            )
            self._steps[key] = self._provider_number(state._replace(submits=submits))
        settled: int = self._steps[key]
        return settled

    def _at_work(self, world: World, actor: int | None = None) -> int:
        """Those who must finish within a lease from now, the actor of this very call among them."""
        started = sum(
            1 << other
            for other, place in enumerate(world.places)
            if other == actor or (place != ENDED and place not in self._roots)
        )
        return started & ~world.stalled & ~self._unbounded


def wrote(method: str, answer: object) -> bool:
    """Whether the store was changed."""
    reads = method in ("get", "open_since") or (method == "begin" and answer is None)
    return not reads and not isinstance(answer, Superseded)


def _let_pass(queue: MemoryQueue) -> None:
    """All that was to come has come just now: how long ago it came makes no difference."""
    Bench(queue).rewind(2 * LEASE_SECONDS)
    for key, members in queue.dump().items():
        part = key.rpartition(":")[2]
        for member, score in members.items():
            if part in RINGS and member.count("\0") == 2:
                group, _, name = member.split("\0")
                queue.remove(key, member)
                queue.write(key, line_member(group, START_MS, name), 0)
            elif not isinstance(score, str) and score > 0:
                queue.write(key, member, START_MS)
