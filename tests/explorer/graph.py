"""Nodes and states of an exploration by number: the same answers lead to the same node, equal states are one."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from shared.errors import Problem, QueueUnavailable
from shared.provider.language.rules import Rules
from tests.explorer.replay import Broken, Defect, NextCall, Node, Replay, run, traced_by
from tests.explorer.scenario import FILE, PROVIDER, SIGNED, TASK, Kind, ProviderState, Scenario, Violation, last
from tests.support.clock import START_MS
from tests.support.keys import Bench
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


class Graph:
    """The actors of a scenario, each at some node of its tree of answers, and the states around them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.states = 0
        self._kinds: tuple[Kind, ...] = (*scenario.actors, "process", "reconcile")  # the last two, when all is over
        signed = SIGNED if scenario.payload != "unsigned" else {}
        self._rules = Rules.from_json(FILE | signed | {"firstAnswer": scenario.first_answer_seconds})
        self._queues, self._stores, self._providers = Interned(), Interned(), Interned()
        self._nodes: list[Node] = []
        self._roots: tuple[int, ...] = ()
        self._empty = 0
        self._steps: dict[tuple[object, ...], Any] = {}
        self._seen_results: set[tuple[int, int]] = set()
        self._seen_ends: set[tuple[int, int, int, bool]] = set()
        self._timers: dict[int, tuple[float, str] | None] = {}
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
                for module in ("api.enqueue", "work.tick", "work.reconcile", "api.revive"):
                    stack.enter_context(patch(f"shared.{module}.new_token", self._token))
                self._tracer = stack.enter_context(traced_by(None))
                yield
        finally:
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
        self._replay = Replay(self._name(actor), answers)
        try:
            with traced_by(self._tracer):
                result = run(self._kinds[actor], self._replay, self._rules, self.scenario)
        except NextCall as following:
            call = following.call
        except Problem as problem:
            result = problem
        except Defect as defect:
            raise Violation(f"{self._replay.name} broke: {defect.__cause__ or defect!r}") from defect
        except Exception as error:
            raise Violation(f"{self._replay.name} broke: {error!r}") from error
        label = f"{self._name(actor)}: {'.'.join(call[:2]) if call else 'ends'}"
        self._nodes.append(Node(actor, answers, call, result, self._replay.holds, label))
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
            node.away = self._child(number, QueueUnavailable("away"))
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

    def _timer(self, number: int) -> tuple[float, str] | None:
        """What tells one running lease or delay from another; None when none runs."""
        if number not in self._timers:
            parts = Bench(self._queues.states[number]).parts(PROVIDER)
            ends = (parts["queue"].get(TASK.name, 0), parts["leases"].get(TASK.name, 0))
            running = max(ends) > START_MS
            self._timers[number] = (max(ends), parts["state"].get(TASK.name, "")) if running else None
        return self._timers[number]
