"""Walks over the queue beside a plain model: nothing lost, nothing owned twice, generations never mixed, no leak.

The walks are the same in every run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakeredis.commands_mixins import server_mixin
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import Add, Becomes, Claimed, End, Hold, Queue, Settle, Which
from shared.task import Task
from tests.support.clock import START_MS
from tests.support.keys import PROVIDER, Bench
from tests.support.memory_queue import MemoryQueue

LEASE_SECONDS = 3600.0
DELAY_SECONDS = 7200.0
"""Both far longer than a walk takes on a server, whose own time goes on: only `rewind` lets them pass."""

names = st.sampled_from(["a", "b", "c", "名"])
generations = st.integers(1, 4)
ends = st.sampled_from(["buried", "forgotten", "dropped"])
becoming = st.sampled_from(["completed", "waiting", "waiting", "buried", "forgotten"])
delays = st.sampled_from([0.0, DELAY_SECONDS])
WHICH = st.sampled_from(["ordinary", "ordinary", "once", "often"])


@dataclass
class Known:
    """What the model knows of a task in the queue."""

    generation: int
    record: str
    due: float = 0
    holder: str | None = None
    lease_end: float = 0
    turn: int = 0
    came_back: int = 0
    is_dead: bool = False
    adder: str | None = None
    becomes: str | None = None


@dataclass
class Model:
    """The queue as a person would draw it on paper; `now` in seconds, moved by rewind alone."""

    tasks: dict[str, Known] = field(default_factory=dict)
    now: float = 0

    def return_expired(self) -> int:
        expired = [one for one in self.tasks.values() if one.holder and one.lease_end <= self.now]
        for one in expired:
            one.holder, one.due, one.came_back, one.adder = None, one.lease_end, one.came_back + 1, None
        for name in [name for name, one in self.tasks.items() if one in expired and one.becomes]:
            expired.remove(self.tasks[name])
            self.end(name, self.tasks[name].becomes or "")
        return len(expired)

    def return_lost(self, token: str) -> None:
        for name, one in list(self.tasks.items()):
            if token and one.holder == token:
                one.holder, one.due, one.adder = None, self.now, None
                if one.becomes:
                    self.end(name, one.becomes)

    def end(self, name: str, becomes: str) -> None:
        if becomes != "buried":
            del self.tasks[name]
        else:
            one = self.tasks[name]
            one.holder, one.is_dead, one.came_back, one.adder, one.becomes = None, True, 0, None, None

    def due(self, which: str) -> set[str]:
        return {
            name
            for name, one in self.tasks.items()
            if not one.is_dead and not one.holder and one.due <= self.now
            if ("ordinary", "once", "often")[min(one.came_back, 2)] == which
        }


class Walk(RuleBasedStateMachine):
    """Calls the queue and the model alike."""

    def __init__(self, queue: Any, bench: Bench) -> None:
        super().__init__()
        self.queue = queue
        self.bench = bench
        self.model = Model()
        self.holds: list[Hold] = []
        self.tokens = 0

    def token(self) -> str:
        self.tokens += 1
        return f"{self.tokens:08}abcd"

    @rule(name=names, generation=generations, delay=delays, leased=st.booleans(), again=st.booleans())
    def add(self, name: str, generation: int, delay: float, leased: bool, again: bool) -> None:
        token, known = self.token(), self.model.tasks.get(name)
        record = f"{name} {generation} {token}"
        if again and known and known.adder:
            token = known.adder
        wanted = [Add(Task(PROVIDER, name), generation, record, delay)]
        answer = self.queue.add(wanted, token=token, lease_seconds=LEASE_SECONDS if leased else 0)
        if known and known.generation >= generation:
            own = known.generation == generation and token in (known.adder, known.holder)
            taken = "waiting" if leased and not known.holder else "created"
            expected = taken if own else "exists" if known.generation == generation else "stale"
            assert answer == [expected]
            return
        assert answer == ["created"]
        self.model.tasks[name] = Known(
            generation=generation,
            record=record,
            due=self.model.now + delay,
            holder=token if leased else None,
            lease_end=self.model.now + LEASE_SECONDS,
            turn=int(leased),
            adder=token,
        )
        if leased:
            self.holds.append(Hold(Task(PROVIDER, name), generation, token, 1))

    @rule(limit=st.integers(1, 3), which=WHICH, lost=st.booleans())
    def claim(self, limit: int, which: Which, lost: bool) -> None:
        token, lost_token = self.token(), self.holds[-1].token if lost and self.holds else ""
        expired = self.model.return_expired()
        self.model.return_lost(lost_token)
        due = self.model.due(which)
        options: Any = {"which": which, "lost_token": lost_token}
        claim = self.queue.claim(PROVIDER, limit=limit, lease_seconds=LEASE_SECONDS, token=token, **options)
        taken = [claimed.hold.task.name for claimed in claim.tasks]
        assert claim.expired == expired
        assert len(taken) == min(1 if which == "often" else limit, len(due))
        assert set(taken) <= due
        for told, of in ((claim.once, "once"), (claim.often, "often")):
            assert told == bool(self.model.due(of) - set(taken))
        late = [self.model.tasks[name].due for name in due - set(taken)]
        assert all(self.model.tasks[name].due <= min(late, default=math.inf) for name in taken)
        for claimed in claim.tasks:
            self.taken(claimed, token)

    def taken(self, claimed: Claimed, token: str) -> None:
        known = self.model.tasks[claimed.hold.task.name]
        known.turn += 1
        hold = Hold(claimed.hold.task, known.generation, token, known.turn)
        assert claimed == Claimed(hold, known.came_back, known.record.encode())
        known.holder, known.lease_end, known.adder = token, self.model.now + LEASE_SECONDS, None
        self.holds.append(claimed.hold)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), becomes=becoming, delay=delays, attempted=st.booleans(), turn=st.sampled_from([0, 0, 7]))
    def settle(self, data: st.DataObject, becomes: Becomes, delay: float, attempted: bool, turn: int) -> None:
        """A worker settles, whether it still holds the task or not, perhaps for the second time."""
        hold = data.draw(st.sampled_from(self.holds))
        known = self.model.tasks.get(hold.task.name)
        held = known is not None and (known.generation, known.holder) == (hold.generation, hold.token)
        row = Settle(hold, becomes, delay, f"from {hold.token}", attempted=attempted, turn=turn)
        if not known or not held:
            assert self.queue.settle([row]) == [False]
        elif becomes == "waiting" and known.becomes:
            assert self.queue.settle([row]) == [False]
            self.model.end(hold.task.name, known.becomes)
        else:
            assert self.queue.settle([row]) == [True]
            if becomes == "waiting":
                known.holder, known.due, known.adder = None, self.model.now + delay, None
                known.record, known.turn = f"from {hold.token}", max(known.turn, turn)
                known.came_back = 0 if attempted else known.came_back
            else:
                self.model.end(hold.task.name, becomes)

    @rule(name=names, generation=generations, becomes=ends)
    def end(self, name: str, generation: int, becomes: Any) -> None:
        known = self.model.tasks.get(name)
        if becomes == "buried":
            there = known is not None and known.generation == generation and not known.is_dead
        else:
            there = known is not None and known.generation <= generation
        assert self.queue.end([End(Task(PROVIDER, name), generation, becomes)]) == [there]
        if known and there and becomes != "dropped" and known.holder and known.lease_end > self.model.now:
            known.becomes = becomes
        elif there:
            self.model.end(name, becomes)

    @rule(seconds=st.sampled_from([LEASE_SECONDS + 1, DELAY_SECONDS + 1]))
    def time_passes(self, seconds: float) -> None:
        self.bench.rewind(seconds)
        self.model.now += seconds

    @rule(name=names)
    def look(self, name: str) -> None:
        known = self.model.tasks.get(name)
        (place,) = self.queue.look([Task(PROVIDER, name)], records=True)
        assert place.held_generation == (known.generation if known else 0)
        assert place.record == (known.record.encode() if known and not known.is_dead else None)
        assert (place.buried_seconds is not None) == bool(known and known.is_dead)
        assert (place.lease_seconds is not None) == bool(known and known.holder)

    @invariant()
    def everything_is_where_the_model_has_it_and_no_key_leaks(self) -> None:
        expected = {
            name: ("dead" if one.is_dead else "processing" if one.holder else "waiting", one.generation)
            for name, one in self.model.tasks.items()
        }
        assert self.bench.state() == expected
        dead = [Task(PROVIDER, name) for name, one in self.model.tasks.items() if one.is_dead]
        assert sorted(self.queue.members(PROVIDER, "dead")) == sorted(dead)
        assert self.bench.leaks() == []


WALKS = settings(derandomize=True, database=None, deadline=None, max_examples=30, stateful_step_count=40)


@pytest.mark.parametrize("redis_kind", ["fakeredis"], indirect=True)
def test_the_queue_does_as_the_model(queue: Queue, bench: Bench, redis_client: Any) -> None:
    def walk() -> Walk:
        redis_client.flushall()
        return Walk(queue, bench)

    run_state_machine_as_test(cast(Any, walk), settings=WALKS)


def walk_over_the_double(**options: Any) -> None:
    def walk() -> Walk:
        queue = MemoryQueue()
        return Walk(queue, Bench(queue))

    run_state_machine_as_test(cast(Any, walk), settings=settings(WALKS, max_examples=100, **options))


def test_the_double_does_as_the_model() -> None:
    walk_over_the_double()


def test_a_walk_would_find_a_task_that_is_owned_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = MemoryQueue.claim

    def forgetful(self: MemoryQueue, provider: str, **options: Any) -> Any:
        before = self.copy()
        claimed = claim(self, provider, **options)
        self._providers = before._providers
        return claimed

    monkeypatch.setattr(MemoryQueue, "claim", forgetful)
    with pytest.raises(AssertionError):
        walk_over_the_double(phases=[Phase.generate], report_multiple_bugs=False)


# --- limits, pauses and groups: the scripts and the double, step by step

LIMITS = st.sampled_from(
    [
        UNLIMITED,
        Limits(parallel=2),
        Limits(open_jobs=2),
        Limits(rate_seconds=1000, burst=2),
        Limits(rate_seconds=333.3, burst=3, parallel=3, open_jobs=3),
    ]
)
ODD, EVEN = (frozenset(f"task {number}" for number in range(9) if number % 2 == odd) for odd in (1, 0))
HEALTH = st.sampled_from(
    [
        UNKNOWN,
        UNKNOWN,
        Health(well=ODD),
        Health(well=ODD | EVEN),
        Health(pause_seconds=500),
        Health(pause_seconds=50, well=ODD),
        Health(errors=1, errors_to_pause=2, shortest_seconds=300, longest_seconds=700),
        Health(errors=1, unwell=EVEN, errors_to_pause=2, shortest_seconds=300, longest_seconds=700),
        Health(errors=3, unwell=ODD | EVEN, errors_to_pause=2, shortest_seconds=300, longest_seconds=700),
        Health(well=ODD, unwell=EVEN, shortest_seconds=300, longest_seconds=700),
        Health(unwell=EVEN, shortest_seconds=300, longest_seconds=700),
    ]
)
many_names = st.sampled_from([f"task {number}" for number in range(9)])
WANTED = st.tuples(many_names, st.integers(1, 3), st.sampled_from(["", "A", "B"]), st.booleans())


class Pair(RuleBasedStateMachine):
    """Calls the scripts and the double alike, at one instant that only `rewind` moves: all replies and keys agree."""

    def __init__(self, queue: Any, bench: Bench, limits: Limits | None = None) -> None:
        super().__init__()
        self.queue, self.bench, self.limits = queue, bench, limits
        self.double = MemoryQueue()
        self.double_bench = Bench(self.double)
        self.holds: list[Hold] = []
        self.tokens = 0

    def both(self, call: Callable[[Any], Any]) -> Any:
        reply = call(self.queue)
        assert call(self.double) == reply
        return reply

    def token(self) -> str:
        self.tokens += 1
        return f"{self.tokens:08}abcd"

    @rule(wanted=st.lists(WANTED, max_size=3, unique_by=lambda one: one[0]), leased=st.booleans(), limits=LIMITS)
    def add(self, wanted: list[tuple[str, int, str, bool]], leased: bool, limits: Limits) -> None:
        token, lease_seconds = self.token(), LEASE_SECONDS if leased else 0
        adds = [Add(Task(PROVIDER, name), number, "{}", 0, group, job) for name, number, group, job in wanted]
        limits = self.limits or limits
        self.both(lambda queue: queue.add(adds, token=token, lease_seconds=lease_seconds, limits=limits))
        if leased:
            self.holds += [Hold(one.task, one.generation, token) for one in adds]

    @rule(limit=st.integers(1, 5), which=WHICH, limits=LIMITS)
    def claim(self, limit: int, which: Which, limits: Limits) -> None:
        token, options = self.token(), {"limit": limit, "which": which, "limits": self.limits or limits}
        claim = self.both(lambda queue: queue.claim(PROVIDER, lease_seconds=LEASE_SECONDS, token=token, **options))
        self.holds += [claimed.hold for claimed in claim.tasks]
        waits = [score for score in self.double_bench.parts()["queue"].values() if score > 0]
        assert claim.wait_seconds is not None or not waits or claim.once or claim.often or which != "ordinary"

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), becomes=becoming, health=HEALTH, attempted=st.booleans())
    def settle(self, data: st.DataObject, becomes: Becomes, health: Health, attempted: bool) -> None:
        some = data.draw(st.lists(st.sampled_from(self.holds), min_size=1, max_size=3, unique=True))
        delay, has_job = data.draw(delays), data.draw(st.booleans())
        rows = [Settle(hold, becomes, delay, None, has_job, attempted) for hold in some]
        self.both(lambda queue: queue.settle(rows, health))

    @rule(wanted=st.lists(st.tuples(many_names, st.integers(1, 3), ends), max_size=3, unique_by=lambda one: one[0]))
    def end(self, wanted: list[tuple[str, int, Any]]) -> None:
        self.both(lambda queue: queue.end([End(Task(PROVIDER, *one[:1]), *one[1:]) for one in wanted]))

    @rule(name=many_names, generation=st.integers(1, 3), delay=st.sampled_from([0.0, 100.0]))
    def hasten(self, name: str, generation: int, delay: float) -> None:
        self.both(lambda queue: queue.hasten([(Task(PROVIDER, name), generation)], delay))

    @rule(limits=LIMITS)
    def look(self, limits: Limits) -> None:
        tasks = [Task(PROVIDER, f"task {number}") for number in range(9)]
        self.both(lambda queue: queue.look(tasks, records=True, limits=limits))

    @rule(seconds=st.sampled_from([200.0, 500.0, 1000.0, LEASE_SECONDS + 1, DELAY_SECONDS + 1]))
    def time_passes(self, seconds: float) -> None:
        self.bench.rewind(seconds)
        self.double_bench.rewind(seconds)

    @invariant()
    def both_keep_the_same(self) -> None:
        parts, double = self.bench.parts(), self.double_bench.parts()
        gate, double_gate = parts.pop("gate"), double.pop("gate")
        assert parts == double
        assert gate.keys() == double_gate.keys()
        assert gate.pop("probe", None) == double_gate.pop("probe", None)
        for field_name, value in gate.items():
            assert float(value) == pytest.approx(float(double_gate[field_name]), rel=1e-15)
        assert self.bench.leaks() == []

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        parts, limits = self.double_bench.parts(), self.limits
        if limits and limits.parallel:
            live = sum(end > self.double.now_ms for end in parts["leases"].values())
            assert live <= limits.parallel


@pytest.mark.parametrize("redis_kind", ["fakeredis"], indirect=True)
@pytest.mark.parametrize("limits", [None, Limits(parallel=2), Limits(rate_seconds=333.3, burst=3, parallel=3)])
def test_the_double_does_as_the_scripts(
    queue: Queue, bench: Bench, redis_client: Any, monkeypatch: pytest.MonkeyPatch, limits: Limits | None
) -> None:
    monkeypatch.setattr(server_mixin, "time", SimpleNamespace(time=lambda: START_MS / 1000))

    def walk() -> Pair:
        redis_client.flushall()
        return Pair(queue, bench, limits)

    run_state_machine_as_test(cast(Any, walk), settings=settings(WALKS, max_examples=25, stateful_step_count=30))
