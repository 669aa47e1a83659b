"""What must be true in every state, and of every step."""

from shared.api.answer import Answer
from shared.store import Item
from tests.explorer.graph import Graph
from tests.explorer.scenario import ENDED, PROVIDER, TASK, Violation, World, generation_of
from tests.support.keys import Bench


class Promises(Graph):
    """Checks of what an exploration comes to. Each raises Violation."""

    def _check_owners(self, world: World, actor: int, child: int) -> None:
        """Nothing is owned twice: of one generation there is one worker, but for those that have stalled, and those of
        which Redis has lost that it gave them the task."""
        owns = self._nodes[child].replay.owns
        if owns is None or owns == self._nodes[world.places[actor]].replay.owns:
            return
        strayed = world.stalled | world.holders.excused
        if world.stalled >> actor & 1:
            return
        for other, place in enumerate(world.places):
            at_work = other != actor and place != ENDED and not strayed >> other & 1
            if at_work and self._nodes[place].replay.owns == owns:
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

    def _check_order(self, world: World, place: int, before: Item | None) -> None:
        """Once a later holder has written, no earlier one changes anything; nor does the end of a job the next one.

        Whoever has a task of which Redis has lost that it gave it to them may have a turn that is higher than later
        ones: it counts as later, then.
        """
        node = self._nodes[place]
        _, method, arguments, options = node.call or ("", "", (), {})
        by = arguments[2] if method == "finished" else options.get("by")
        name, holders = self._name(node.actor), world.holders
        if by and before and method != "take_over":
            is_excused = holders.excused >> node.actor & 1
            is_refused = before.turn >= by.turn if is_excused else holders.deposed >> node.actor & 1
            if is_refused and before.holder != by.holder:
                raise Violation(f"{name} ({method} in turn {by.turn}) changes what a later holder wrote: {before}")
        if method == "fail" and before and before.resubmits > (options.get("resubmits") or 0):
            raise Violation(f"{name} ends job {before.resubmits} with the failure of an earlier one: {before}")

    def _check_crashes(self, world: World) -> None:
        """Only deaths count, and what cannot be told from one; who dies in company alone is not condemned."""
        item, budgets = self._item(world.store), self.scenario
        if item is None or not item.crashes:
            return
        left = world.left
        excuses = budgets.crashes - left.crashes + budgets.timeouts - left.timeouts + budgets.failovers - left.failovers
        excuses += min(1, budgets.flushes - left.flushes + budgets.jumps - left.jumps + world.holders.unheard)
        if item.crashes > excuses:
            raise Violation(f"{item.crashes} crashes are counted after {excuses} deaths: {item}")
        if budgets.in_company and item.crashes > 2:
            raise Violation(f"an innocent is condemned: {item}")

    def _check_settling(self, world: World, place: int) -> None:
        """What is open in its item stays in the queue."""
        node, item = self._nodes[place], self._item(world.store)
        if node.call is None or item is None:
            return
        for row in node.call[2][0]:
            if row.becomes != "waiting" and item.is_pending(row.hold.generation):
                raise Violation(f"{self._name(node.actor)} settles as {row.becomes} what is open: {item}")

    def _check_question(self, world: World, actor: int) -> None:
        """Nobody is asked about a task that came back once its generation has ended."""
        if world.holders.warned >> actor & 1:
            raise Violation(
                f"{self._name(actor)} asks about what came back to it after its end: {self._item(world.store)}"
            )

    def _check_result(self, world: World, number: int) -> None:
        """What an actor answered is true: accepted is durable, completed is stored, cancelled is cancelled."""
        if (number, world.store) in self._seen_results:
            return
        self._seen_results.add((number, world.store))
        node = self._nodes[number]
        name, answer = self._name(node.actor), node.result
        if not isinstance(answer, Answer) or self._kinds[node.actor] == "callback":
            return
        item = self._item(world.store)
        body = answer.body
        if item is None or item.generation < body["generation"]:
            raise Violation(f"{name} answered {answer.status} {body['status']}, of which nothing is stored")
        if item.generation == body["generation"] and body["status"] not in ("pending", item.status):
            raise Violation(f"{name} answered {body['status']}, but the item is {item.status}")

    def _check_brought_back(self, world: World) -> None:
        """Reconcile has run: Redis holds an open item's generation, and somebody will come back to it."""
        item = self._item(world.store)
        place, held = Bench(self._queues.states[world.queue]).state(PROVIDER).get(TASK.name, ("nowhere", 0))
        if item is not None and item.status == "pending" and (held < item.generation or place == "stranded"):
            raise Violation(f"reconcile leaves generation {item.generation} to nobody; Redis has {held} {place}")

    def _check_ended(self, world: World, flushed: bool) -> None:
        item = self._item(world.store)
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
