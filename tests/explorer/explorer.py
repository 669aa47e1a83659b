"""The protocol explorer: every reachable state of a few actors at work on one task, equal states merged.

The actors are the real enqueue, process, reconcile, cancel, revive and callback, against copyable doubles of the
scripts, the conditional writes and a provider. What an actor does next depends on nothing but the answers it has had
(its clock stands still, its tokens are numbered), so an actor's place is a node in a tree of answers, and the real code
runs once per node: from its start, fed with the answers on the way, up to its next call. A world is a tuple of small
numbers.

Beside the actors' calls these things happen, each within its budget: an actor crashes, or stalls until after its lease;
Redis loses everything, or goes back to before its last calls; Redis is away for a while, its last answer lost or asked
for twice; a write to DynamoDB lands after its caller gave up, or never; a worker's clock says that its lease is over;
the provider has a moment of trouble. Time passes by timers: a lease, a delay, an item's age. Each is one lease long, so
it runs out only when all who were at work when it began have finished, crashed or stalled; reconcile alone may take
longer. Whatever happens between calls happens just before the first call that can tell (or, a crash, just after the
actor's last one): any other order leads to the same states. That Redis will go back is decided at the first call that
it loses: the state before that call goes with the world until then.

Clocks stand still, so what waits in an actor ends: a tick makes one attempt, which takes its window; it sleeps once,
after which what failed is tried once more, and a second sleep ends it; a worker stores a result twice.
"""

from collections import deque
from itertools import pairwise

from shared.queue import Add
from shared.work.keeper import record_of
from tests.explorer.scenario import (
    ENDED,
    OLD_MS,
    PROVIDER,
    ROUNDS,
    SETTINGS,
    TASK,
    Budgets,
    Holders,
    ProviderState,
    Violation,
    World,
    replaced,
)
from tests.explorer.steps import Steps
from tests.support.keys import Bench
from tests.support.memory_queue import MemoryQueue
from tests.support.memory_store import MemoryStore
from tests.support.waker import Waker


class Explorer(Steps):
    """Explores one scenario. `states` counts the states seen."""

    def run(self) -> None:
        """Visit every state. Raises Violation with the shortest way to the first broken promise."""
        with self._controlled():
            start = self._start()
            parents: dict[World, World | None] = {start: None}
            waiting = deque([start])
            while waiting:
                world = waiting.popleft()
                try:
                    self._visit(world, parents, waiting)
                except Violation as violation:
                    raise Violation(f"{violation}\n{self._way(world, parents)}") from violation
            self.states = len(parents)

    def _visit(self, world: World, parents: dict[World, World | None], waiting: "deque[World]") -> None:
        for _, following in self._following(world):
            if following not in parents:
                parents[following] = world
                waiting.append(following)
        if all(place == ENDED for place in world.places):
            self._check_end(world)

    def _way(self, world: World, parents: dict[World, World | None]) -> str:
        way = [world]
        while (parent := parents[way[-1]]) is not None:
            way.append(parent)
        way.reverse()
        lines = []
        for before, after in pairwise(way):
            lines.append(next(label for label, following in self._following(before) if following == after))
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    def _start(self) -> World:
        self._empty = self._queue_number(self._queue())
        queue, store = self._queue(), MemoryStore(SETTINGS.retention_seconds)
        self._prepare(queue, store)
        self._roots = tuple(self._node(actor, ()) for actor in range(len(self._kinds)))
        scenario = self.scenario
        return World(
            queue=self._queue_number(queue),
            store=self._store_number(store),
            provider=self._provider_number(ProviderState((), scenario.trouble if scenario.troubles else 0)),
            places=(*self._roots[:-2], ENDED, ENDED),
            stalled=0,
            queue_timer=None,
            item_timer=0 if scenario.start == "waiting" else None,
            is_down=False,
            left=Budgets(*(getattr(scenario, name) for name in Budgets._fields)),
            holders=Holders(),
            replica=None,
            late_write=None,
        )

    def _queue(self) -> MemoryQueue:
        queue = MemoryQueue()
        queue._wake = Waker(lambda *_: None) if self.scenario.woken else None
        return queue

    def _prepare(self, queue: MemoryQueue, store: MemoryStore) -> None:
        if self.scenario.start == "nothing":
            return
        item = store.begin(TASK, None, {}, OLD_MS)
        assert item
        if self.scenario.start == "waiting":
            queue.add([Add(TASK, item.generation, record_of(item).to_text())], token="before")
        elif self.scenario.start == "completed":
            store.complete(TASK, item.generation, {"generation": item.generation}, OLD_MS)
        else:
            store.fail(TASK, item.generation, {"reason": "upstream", "error": None, "refused": False}, OLD_MS)
            Bench(queue).seed(TASK.name, generation=item.generation, dead=True, provider=PROVIDER)

    def _check_end(self, world: World) -> None:
        """All actors have ended: with no further fault the task ends, and Redis forgets or buries it."""
        if world.replica:
            world = self._gone_back(world, world.replica)
        budgets, left = self.scenario, world.left
        flushed = left.flushes < budgets.flushes or left.failovers < budgets.failovers
        key = (world.queue, world.store, world.provider, world.late_write, flushed)
        if key in self._seen_ends:
            return
        self._seen_ends.add(key)
        process, reconcile = len(self._kinds) - 2, len(self._kinds) - 1
        provider = self._providers.states[world.provider]._replace(trouble=0)
        left, nobody = left._replace(outages=0), Holders(is_back=world.holders.is_back, unheard=world.holders.unheard)
        quiet = world._replace(is_down=False, left=left, holders=nobody, provider=self._provider_number(provider))
        end = self._through(quiet, reconcile)
        self._check_brought_back(end)
        for _ in range(ROUNDS):
            before, end = end, self._through(self._later(end), process)
            if end[:3] == before[:3]:
                break
        self._check_ended(self._through(end, reconcile), flushed)
        if world.left.flushes:
            self._check_end(self._flushed(world))
        if world.late_write is not None:
            self._check_end(self._landed(world))

    def _through(self, world: World, actor: int) -> World:
        """The world after one whole run of a late actor, the item being old by then."""
        world = world._replace(places=replaced(world.places, actor, self._roots[actor]), item_timer=0)
        while (place := world.places[actor]) != ENDED:
            call = self._nodes[place].call
            if call and call[1] == "open_since":
                world = self._store_step(world, actor, place, old=True)
            else:
                _, world = next(self._calls(world, actor, place))
        return world
