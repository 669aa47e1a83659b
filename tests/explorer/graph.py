"""Nodes and states of an exploration by number: the same answers lead to the same node, equal states are one."""

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

from shared.errors import Problem, QueueUnreachable, StoreUnavailable
from shared.provider.language.rules import Rules
from shared.store import Item
from tests.explorer.replay import Broken, Defect, NextCall, Node, Replay, run, traced_by
from tests.explorer.scenario import FILE, PROVIDER, SIGNED, TASK, Kind, ProviderState, Scenario, Violation, last
from tests.support.clock import START_MS
from tests.support.keys import Bench
from tests.support.memory_parts import Parts, State
from tests.support.memory_queue import MemoryQueue
from tests.support.memory_store import MemoryStore


@dataclass(slots=True)
class Interned:
    """States by number; equal ones have the same."""

    states: list[Any] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, state: Any, key: str) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.states)
            self.states.append(state)
        return self.numbers[key]


class Entry(NamedTuple):
    """What Redis has of the task. `timer` tells one running lease or delay from another; None when none runs."""

    state: State
    is_leased: bool
    record: str
    timer: tuple[float, str] | None


class Graph:
    """The actors of a scenario, each at some node of its tree of answers, and the states around them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.states = 0
        tick: Kind = "scheduled" if scenario.woken else "process"
        self._kinds: tuple[Kind, ...] = (*scenario.actors, tick, "reconcile")  # the last two, when all is over
        signed = SIGNED if scenario.payload != "unsigned" else {}
        self._rules = Rules.from_json(FILE | signed | {"firstAnswer": scenario.first_answer_seconds})
        self._queues, self._stores, self._providers = Interned(), Interned(), Interned()
        self._nodes: list[Node] = []
        self._roots: tuple[int, ...] = ()
        self._empty = 0
        self._steps: dict[tuple[object, ...], Any] = {}
        self._seen_results: set[tuple[int, int]] = set()
        self._seen_ends: set[tuple[object, ...]] = set()
        self._entries: dict[int, Entry] = {}
        self._unbounded = sum(1 << actor for actor, kind in enumerate(self._kinds) if kind == "reconcile")
        self._twins = [last(scenario.actors[:actor], kind) for actor, kind in enumerate(scenario.actors)]
        self._listing = [actor for actor, kind in enumerate(scenario.actors) if kind == "reconcile"]

    @contextmanager
    def _controlled(self) -> Iterator[None]:
        log, handler = logging.getLogger("meanwhile"), Broken(logging.ERROR)
        level, propagates = log.level, log.propagate
        log.setLevel(logging.ERROR)
        log.propagate = False
        log.addHandler(handler)
        try:
            with ExitStack() as stack:
                for name, module in list(sys.modules.items()):
                    if name.startswith("shared.") and hasattr(module, "new_token"):
                        stack.enter_context(patch.object(module, "new_token", self._token))
                self._tracer = stack.enter_context(traced_by(None))
                gc.disable()  # nothing of this is garbage, and there is much
                yield
        finally:
            gc.enable()
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagates

    def _token(self) -> str:
        return self._replay.token()

    def _name(self, actor: int) -> str:
        return f"{self._kinds[actor]} {actor}"

    def _node(self, actor: int, answers: tuple[Any, ...]) -> int:
        """The number of the node: runs the actor's code over these answers."""
        call, result = None, None
        self._replay = Replay(self._name(actor), actor, answers)
        try:
            with traced_by(self._tracer):
                result = run(self._kinds[actor], self._replay, self._rules, self.scenario)
        except NextCall as following:
            call = following.call
        except (Problem, StoreUnavailable) as problem:
            result = problem
        except Defect as defect:
            raise Violation(f"{self._replay.name} broke: {defect.__cause__ or defect!r}") from defect
        except Exception as error:
            raise Violation(f"{self._replay.name} broke: {error!r}") from error
        label = f"{self._name(actor)}: {'.'.join(call[:2]) if call else 'ends'}"
        self._nodes.append(Node(actor, answers, call, result, self._replay, label))
        return len(self._nodes) - 1

    def _child(self, number: int, answer: Any) -> int:
        node, key = self._nodes[number], repr(answer)
        if key not in node.children:
            node.children[key] = self._node(node.actor, (*node.answers, answer))
        return node.children[key]

    def _away(self, number: int) -> int:
        """The node after a call that Redis did not answer."""
        node = self._nodes[number]
        if node.away is None:
            node.away = self._child(number, QueueUnreachable("away"))
        return node.away

    def _queue_number(self, queue: MemoryQueue) -> int:
        known = len(self._queues.states)
        dump = queue.dump()
        number = self._queues.number(queue, repr([(key, sorted(dump[key].items())) for key in sorted(dump)]))
        if number == known and (leaks := Bench(queue).leaks()):
            raise Violation(f"keys leak: {leaks}")
        return number

    def _store_number(self, store: MemoryStore) -> int:
        return self._stores.number(store, repr(store.items))

    def _provider_number(self, state: ProviderState) -> int:
        return self._providers.number(state, repr(state))

    def _entry(self, number: int) -> "Entry":
        """What a state of Redis has of the task."""
        if number not in self._entries:
            there = Bench(self._queues.states[number]).parts(PROVIDER)
            parts = Parts()
            parts.state = there["state"]
            lease_ends = there["leases"].get(TASK.name, 0)
            ends = max(there["queue"].get(TASK.name, 0), lease_ends)
            timer = (ends, parts.state[TASK.name]) if ends > START_MS else None
            record = there["tasks"].get(TASK.name, "")
            self._entries[number] = Entry(parts.parsed(TASK.name), bool(lease_ends), record, timer)
        return self._entries[number]

    def _item(self, number: int) -> Item | None:
        """The task's item in a state of the store."""
        item: Item | None = self._stores.states[number].items.get(TASK)
        return item
