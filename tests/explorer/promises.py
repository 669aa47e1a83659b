"""What must be true in every state, and of every step."""

from shared.api.answer import Answer
from shared.store import Item
from tests.explorer.graph import Graph
from tests.explorer.scenario import ENDED, PROVIDER, TASK, Violation, World, generation_of
from tests.support.keys import Bench


class Promises(Graph):
    """Checks of what an exploration comes to. Each raises Violation."""

    def _check_owners(self, world: World, actor: int, child: int) -> None:
        """Nothing is owned twice: of one generation there is one worker, but for those that have stalled."""
        holds = self._nodes[child].holds
        if holds is None or holds == self._nodes[world.places[actor]].holds:
            return
        for other, place in enumerate(world.places):
            at_work = other != actor and place != ENDED and not world.stalled >> other & 1
            if at_work and self._nodes[place].holds == holds:
                raise Violation(f"{self._name(actor)} is given what {self._name(other)} holds")

    def _check_write(self, name: str, before: Item | None, after: Item) -> None:
        """An end is final; and generations never mix: what is stored for one came from its own job."""
        if before and before.status != "pending" and after.generation == before.generation:
            raise Violation(f"{name} changes what had {before.status} already: {after}")
        found = [after.outputs and generation_of(after.outputs["job"]), after.partial and after.partial["generation"]]
        if after.status == "completed":
            found.append(after.data["generation"])
        if any(generation not in (None, after.generation) for generation in found):
            raise Violation(f"{name} mixes generations: {after}")

    def _check_result(self, world: World, number: int) -> None:
        """What an actor answered is true: accepted is durable, completed is stored, cancelled is cancelled."""
        if (number, world.store) in self._seen_results:
            return
        self._seen_results.add((number, world.store))
        node = self._nodes[number]
        name, answer = self._name(node.actor), node.result
        if not isinstance(answer, Answer) or self._kinds[node.actor] == "callback":
            return
        item = self._stores.states[world.store].items.get(TASK)
        body = answer.body
        if item is None or item.generation < body["generation"]:
            raise Violation(f"{name} answered {answer.status} {body['status']}, of which nothing is stored")
        if item.generation == body["generation"] and body["status"] not in ("pending", item.status):
            raise Violation(f"{name} answered {body['status']}, but the item is {item.status}")

    def _check_brought_back(self, world: World) -> None:
        """Reconcile has run: Redis holds an open item's generation, and somebody will come back to it."""
        item = self._stores.states[world.store].items.get(TASK)
        place, held = Bench(self._queues.states[world.queue]).state(PROVIDER).get(TASK.name, ("nowhere", 0))
        if item is not None and item.status == "pending" and (held < item.generation or place == "stranded"):
            raise Violation(f"reconcile leaves generation {item.generation} to nobody; Redis has {held} {place}")

    def _check_ended(self, world: World, flushed: bool) -> None:
        item = self._stores.states[world.store].items.get(TASK)
        held = Bench(self._queues.states[world.queue]).state(PROVIDER)
        if item is None:
            expected: dict[str, tuple[str, int]] = {}
        elif item.status == "pending":
            raise Violation(f"the task never ends: {item}, Redis holds {held}")
        else:
            is_dead_letter = item.status == "failed" and not item.refused
            expected = {TASK.name: ("dead", item.generation)} if is_dead_letter else {}
        if held != expected and not (flushed and not held):
            raise Violation(f"in the end Redis holds {held} instead of {expected}: {item}")
