"""Fairness between groups: each group with a due task has one turn before any has two.

That holds over fresh tasks and those with a job together, however many are due and however few a claim may take. A
group that has had a turn goes behind all that wait; one that comes new waits from when its first task is due. Within a
group the oldest task goes first.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakeredis.commands_mixins import server_mixin
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.limits import UNLIMITED, Limits
from shared.queue import Add, Becomes, Claim, End, Queue, Settle
from shared.task import Task
from tests.support.clock import START_MS
from tests.support.desk import LEASE_SECONDS
from tests.support.keys import PROVIDER, Bench
from tests.support.memory_queue import MemoryQueue
from tests.support.redis_servers import SERVERS


def put(queue: Queue, group: str, count: int, *, first: int = 0, **how: Any) -> None:
    """So many tasks of a group, due now, named after it and numbered in their order."""
    names = [f"{group}{number:05}" for number in range(first, first + count)]
    limits = Limits(open_jobs=9000) if how.get("has_job") else UNLIMITED
    queue.add([Add(Task(PROVIDER, name), 1, "{}", group=group, **how) for name in names], token="adder", limits=limits)


def claim(queue: Queue, limit: int = 10, limits: Limits = UNLIMITED, **more: Any) -> Claim:
    return queue.claim(PROVIDER, limit=limit, lease_seconds=LEASE_SECONDS, token="worker", limits=limits, **more)


def names(claimed: Claim) -> list[str]:
    return [one.hold.task.name for one in claimed.tasks]


def group_of(name: str) -> str:
    return name.rstrip("0123456789")


def groups(claimed: Claim) -> Counter[str]:
    return Counter(map(group_of, names(claimed)))


def settle(queue: Queue, claimed: Claim, becomes: Becomes, delay: float = 0, *, has_job: bool = False) -> None:
    queue.settle([Settle(one.hold, becomes, delay, has_job=has_job) for one in claimed.tasks])


# --- one claim


@pytest.mark.promise("turns", "one group's backlog does not delay another group's only task")
@pytest.mark.parametrize(("backlog", "limit"), [(9, 2), (499, 10), (2000, 2), (2000, 200)])
@pytest.mark.parametrize("has_job", [False, True])
def test_one_groups_backlog_does_not_hold_up_anothers_one_task(
    queue: Queue, backlog: int, limit: int, has_job: bool
) -> None:
    put(queue, "A", backlog)
    put(queue, "B", 1, has_job=has_job)
    assert groups(claim(queue, limit))["B"] == 1


@pytest.mark.parametrize(
    ("waiting", "limit", "taken"),
    [
        ({"A": 50, "B": 50, "C": 2}, 12, {"A": 5, "B": 5, "C": 2}),
        ({"": 20, "B": 2}, 6, {"": 4, "B": 2}),  # tasks without a group are one group
        ({"A": 30}, 20, {"A": 20}),  # slots that no group needs go to whoever waits
        ({"A": 300, "B": 300}, 200, {"A": 100, "B": 100}),
    ],
)
def test_groups_share_a_claim_evenly_and_each_by_age(
    queue: Queue, waiting: dict[str, int], limit: int, taken: dict[str, int]
) -> None:
    for group, count in waiting.items():
        put(queue, group, count)
    claimed = claim(queue, limit)
    assert groups(claimed) == taken
    assert {*names(claimed)} == {f"{group}{number:05}" for group in waiting for number in range(taken[group])}


def test_tasks_of_one_group_go_by_age_whether_they_have_a_job_or_not(queue: Queue, seed: Any) -> None:
    for age, has_job in ((1, True), (4, True), (3, False), (2, True), (5, False)):
        seed(f"{age}", group="A", due_seconds=-age, has_job=has_job)
        seed(f"B{age}", group="B", due_seconds=-age, has_job=not has_job)
    assert names(claim(queue)) == ["5", "B5", "4", "B4", "3", "B3", "2", "B2", "1", "B1"]


def test_a_group_with_fresh_tasks_and_jobs_has_one_turn_as_the_others(queue: Queue, seed: Any) -> None:
    for group in "ABC":
        for number in range(2):
            seed(f"{group}{number}", group=group, due_seconds=-9)
    for number in range(2, 4):
        seed(f"A{number}", group="A", due_seconds=-9, has_job=True)
    assert groups(claim(queue, 3)) == {"A": 1, "B": 1, "C": 1}
    assert groups(claim(queue, 3)) == {"A": 1, "B": 1, "C": 1}
    assert groups(claim(queue, 3)) == {"A": 2}


def test_more_groups_than_slots_wait_in_turn_by_age(queue: Queue, seed: Any) -> None:
    for number in range(9):
        for position, due_seconds in (("first", -100), ("second", -50)):
            how = {"group": f"group {number}", "due_seconds": number + due_seconds, "has_job": number % 2 == 0}
            seed(f"{number} {position}", **how)
    taken = [sorted(name[0] for name in names(claim(queue, 3))) for _ in range(6)]
    assert taken == [list("012"), list("345"), list("678")] * 2


@pytest.mark.parametrize("lanes", [1, 2])
def test_where_not_all_groups_can_be_read_in_one_call_none_has_two_turns_before_each_has_one(
    queue: Queue, lanes: int
) -> None:
    for number in range(200):
        group = f"{chr(ord('a') + number // 26)}{chr(ord('a') + number % 26)}"
        put(queue, group, 3)
        if lanes == 2:
            put(queue, group, 3, first=5, has_job=True)
    had = Counter[str]()
    while len(had) < 200:
        claimed = claim(queue, 200)
        assert claimed.tasks
        assert len(claimed.tasks) == 200 or claimed.wait_seconds == 0
        had += groups(claimed)
        assert set(had.values()) == {1} or len(had) == 200


@pytest.mark.parametrize("count", [125, 126, 150])
def test_a_call_that_comes_to_the_end_of_its_steps_says_that_there_is_more(queue: Queue, count: int) -> None:
    """125 groups of which three entries are read, at a step each and one more, use up 2 * 200 + 100."""
    waiting = [(f"{number}", delay) for number in range(count) for delay in (0, 3000, 3001)]
    queue.add([Add(Task(PROVIDER, f"{group} {delay}"), 1, "{}", delay, group) for group, delay in waiting], token="t")
    first, second = claim(queue, 200), claim(queue, 200)
    assert (len(first.tasks), first.wait_seconds) == (125, 0)
    assert len(second.tasks) == count - 125
    assert second.wait_seconds


def test_a_group_stays_with_its_task_until_that_ends_or_begins_anew(queue: Queue, bench: Bench) -> None:
    put(queue, "A", 3)
    first, second, third = [one.hold for one in claim(queue).tasks]
    queue.settle([Settle(first, "waiting")])
    assert bench.parts()["groups"] == {"A00000": "A", "A00001": "A", "A00002": "A"}
    queue.settle([Settle(second, "completed"), Settle(third, "buried")])
    assert bench.parts()["groups"] == {"A00000": "A"}
    queue.add([Add(first.task, 2, "{}")], token="next")
    assert bench.parts()["groups"] == {}
    queue.add([Add(first.task, 3, "{}", group="B")], token="next")
    assert bench.parts()["groups"] == {"A00000": "B"}


@pytest.mark.parametrize(("which", "came_back"), [("once", 1), ("often", 2)])
def test_those_that_came_back_have_no_groups_the_oldest_is_taken(
    queue: Queue, seed: Any, which: Any, came_back: int
) -> None:
    seed("A", group="A", came_back=came_back, due_seconds=-10)
    seed("B", group="B", came_back=came_back, due_seconds=-5)
    assert names(claim(queue, 1, which=which)) == ["A"]


# --- when places come free one at a time


def done(queue: Queue, claimed: Claim) -> None:
    settle(queue, claimed, "completed")


def again(queue: Queue, claimed: Claim) -> None:
    settle(queue, claimed, "waiting")


def asked_after(queue: Queue, claimed: Claim) -> None:
    settle(queue, claimed, "waiting", has_job=True)


def snoozed(queue: Queue, claimed: Claim) -> None:
    settle(queue, claimed, "waiting", 60)


def turns_until(queue: Queue, group: str, settled: Any, limit: int = 1, limits: Limits = UNLIMITED) -> int:
    """How many claims it takes until a task of the group is handed out, each settled before the next."""
    for number in range(1, 400):
        claimed = claim(queue, limit, limits)
        if group in groups(claimed):
            return number
        assert claimed.tasks
        settled(queue, claimed)
    raise AssertionError(f"no task of {group} in 400 claims")


@pytest.mark.promise("turns", "one group's backlog does not delay another group's only task")
@pytest.mark.parametrize("settled", [done, snoozed, again, asked_after])
@pytest.mark.parametrize(("limit", "limits"), [(1, UNLIMITED), (10, Limits(parallel=1)), (10, Limits(open_jobs=1))])
def test_a_backlog_does_not_hold_up_anothers_one_task_although_nothing_stays_in_process(
    queue: Queue, limit: int, limits: Limits, settled: Any
) -> None:
    if settled is asked_after and limits.open_jobs:
        return  # A's job takes up the only place
    put(queue, "A", 1000)
    put(queue, "B", 1)
    assert turns_until(queue, "B", settled, limit, limits) == 2


def test_it_is_the_same_when_the_rate_lets_one_begin_at_a_time(queue: Queue, rewind: Any) -> None:
    put(queue, "A", 30)
    put(queue, "B", 1)

    def later(queue: Queue, claimed: Claim) -> None:
        done(queue, claimed)
        rewind(100)

    assert turns_until(queue, "B", later, 10, Limits(rate_seconds=100, burst=1)) == 2


@pytest.mark.parametrize("limit", [1, 3])
def test_many_groups_wait_for_one_turn_of_each_that_came_before(queue: Queue, rewind: Any, limit: int) -> None:
    for number in range(26):
        put(queue, chr(ord("a") + number), 10)
    rewind(1)
    put(queue, "Z", 1)
    assert turns_until(queue, "Z", done, limit) == 27 // limit


def test_groups_of_one_task_each_go_by_age(queue: Queue, rewind: Any) -> None:
    queue.add([Add(Task(PROVIDER, f"g{number:03}"), 1, "{}", group=f"g{number}") for number in range(200)], token="t")
    rewind(1)
    put(queue, "z", 1)
    assert turns_until(queue, "z", done) == 201


def test_a_newcomer_waits_from_when_its_first_task_is_due(queue: Queue, seed: Any) -> None:
    for group, age in (("A", 30), ("B", 20), ("C", 10)):
        seed(f"{group}0", group=group, due_seconds=-age)
        seed(f"{group}1", group=group, due_seconds=-age)
    assert names(claim(queue, 1)) == ["A0"]
    seed("N0", group="N", due_seconds=-15)
    taken = [names(claim(queue, 1))[0] for _ in range(4)]
    assert taken[:2] == ["B0", "C0"]
    assert {*taken[2:]} == {"A1", "N0"}  # A has waited since its turn, in the same moment or before N came


@pytest.mark.parametrize("comers", ["new ones", "one that comes back"])
def test_whoever_comes_later_does_not_overtake_a_group_that_had_its_turn(
    queue: Queue, rewind: Any, comers: str
) -> None:
    put(queue, "A", 20)
    taken = ""
    for number in range(12):
        claimed = claim(queue, 1)
        taken += "".join(group[0] for group in groups(claimed))
        done(queue, claimed)
        rewind(0.05)
        group = f"new {number}" if comers == "new ones" else "back"
        queue.add([Add(Task(PROVIDER, f"z{number:02}"), 1, "{}", group=group)], token="adder")
        rewind(0.05)
    assert taken == ("AAzAzzAzzzAz" if comers == "new ones" else "AAzAzAzAzAzA")


@pytest.mark.parametrize("redis_kind", ["memory", "fakeredis"], indirect=True)
@pytest.mark.parametrize("limit", [1, 7])
def test_many_claims_in_one_millisecond_take_turns_too(
    queue: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Turns of one moment are told apart by fractions of it."""
    stand_still(monkeypatch)
    for group in "CAB":
        put(queue, group, 100)
        put(queue, group, 100, first=100, has_job=True)
    taken = [group_of(name) for _ in range(400 // limit) for name in names(claim(queue, limit))]
    for at in range(0, len(taken) - 3, 3):
        assert {*taken[at : at + 3]} == {*"ABC"}


@pytest.mark.parametrize("redis_kind", ["memory", "fakeredis"], indirect=True)
def test_what_is_due_this_very_millisecond_is_taken_from_wherever_in_its_line(
    queue: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each group two are read at first, and of A one more was seen."""
    stand_still(monkeypatch)
    put(queue, "A", 3)
    put(queue, "B", 1)
    assert groups(claim(queue, 4)) == {"A": 3, "B": 1}


def stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake server's time stand where the double's does."""
    monkeypatch.setattr(server_mixin, "time", SimpleNamespace(time=lambda: START_MS / 1000))


# --- with limits


def test_groups_share_the_open_jobs(queue: Queue) -> None:
    put(queue, "A", 600)
    put(queue, "B", 5)
    assert sum((groups(claim(queue, 3, Limits(open_jobs=8))) for _ in range(4)), Counter()) == {"A": 4, "B": 4}


def test_a_group_is_not_held_up_by_anothers_tasks_that_wait_for_a_job(queue: Queue) -> None:
    limits = Limits(open_jobs=4)
    put(queue, "A", 1200)
    first, *_ = claim(queue, 10, limits).tasks
    put(queue, "B", 1)
    queue.settle([Settle(first.hold, "completed")])
    (second,) = (claimed := claim(queue, 10, limits)).tasks
    queue.settle([Settle(second.hold, "completed")])
    assert groups(claimed) + groups(claim(queue, 10, limits)) == {"A": 1, "B": 1}  # A has waited since its turn


@pytest.mark.promise("limits", "jobs are polled however many tasks wait for one")
@pytest.mark.parametrize("limit", [1, 10, 200])
def test_while_all_jobs_are_open_only_tasks_with_one_are_taken_whoever_waits_before_them(
    queue: Queue, limit: int
) -> None:
    for number in range(320):
        queue.add([Add(Task(PROVIDER, f"fresh {number}"), 1, "{}", group=f"g{number}")], token="t")
    put(queue, "A", 2, has_job=True)
    put(queue, "B", 1, has_job=True)
    full = Limits(open_jobs=3)
    taken = Counter[str]()
    for _ in range(3):
        taken += groups(claim(queue, limit, full))
    assert taken == {"A": 2, "B": 1}
    assert claim(queue, limit, full).tasks == ()
    assert len(claim(queue, limit, Limits(open_jobs=4)).tasks) == 1


def test_groups_take_turns_when_only_their_jobs_may_be_asked_after_and_go_behind_with_their_fresh_tasks_too(
    queue: Queue, seed: Any
) -> None:
    for group, age in (("A", 30), ("B", 20), ("C", 10)):
        seed(f"{group}fresh", group=group, due_seconds=-age)
        if group != "C":
            seed(f"{group}job", group=group, due_seconds=-age, has_job=True)
    assert names(claim(queue, 1, Limits(open_jobs=2))) == ["Ajob"]
    assert names(claim(queue, 2)) == ["Bfresh", "Cfresh"]


# --- whatever comes and goes


class Turns(RuleBasedStateMachine):
    """Tasks of five groups come, are claimed, settled, ended and hastened, at any limit; who waits is counted."""

    def __init__(self, queue: Any, bench: Bench) -> None:
        super().__init__()
        self.queue, self.bench = queue, bench
        self.made, self.tokens = 0, 0
        self.held: list[Claim] = []
        self.passed: dict[str, Counter[str]] = defaultdict(Counter)  # group that waits -> turns of others since

    def ready(self, slots: float, taken: Iterable[str] = ()) -> dict[str, list[tuple[float, str]]]:
        """Group -> its due tasks that may go, the oldest first, but for those."""
        parts, now = self.bench.parts(), self.bench.keys.now()
        found: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for name, due in parts["queue"].items():
            if 1 <= due <= now and name not in taken and (slots > 0 or name in parts["jobs"]):
                found[group_of(name)].append((due, name))
        return {group: sorted(tasks) for group, tasks in found.items()}

    @rule(group=st.sampled_from("ABCDE"), count=st.integers(1, 4), delay=st.sampled_from([0, 0, 50]), job=st.booleans())
    def add(self, group: str, count: int, delay: float, job: bool) -> None:
        put(self.queue, group, count, first=self.made, has_job=job, delay_seconds=delay)
        self.made += count

    @rule(limit=st.sampled_from([1, 1, 2, 3, 7]), open_jobs=st.sampled_from([None, None, 1, 4]))
    def claim(self, limit: int, open_jobs: int | None) -> None:
        parts = self.bench.parts()
        slots = float("inf") if open_jobs is None else max(0, open_jobs - len(parts["jobs"]))
        waiting = self.ready(slots)
        jobs = {*parts["jobs"]}
        claimed = claim(self.queue, limit, Limits(open_jobs=open_jobs))
        assert len(claimed.tasks) == min(limit, self.most(waiting, jobs, slots))
        for name in names(claimed):
            group = group_of(name)
            allowed = [(due, one) for due, one in waiting[group] if one in jobs or slots > 0]
            assert name in {one for due, one in allowed if due == allowed[0][0]}
            slots -= name not in jobs
            waiting[group] = [(due, one) for due, one in waiting[group] if one != name]
            self.passed.pop(group, None)
            waiting = {
                other: rest
                for other, tasks in waiting.items()
                if (rest := [(due, one) for due, one in tasks if one in jobs or slots > 0])
            }
            for other in waiting:
                if other != group:
                    self.passed[other][group] += 1
                    assert self.passed[other][group] <= 1, f"{group} had two turns while {other} waited"
        self.keep(waiting)
        self.held.append(claimed)

    def keep(self, waiting: Iterable[str]) -> None:
        """Only these groups still wait."""
        self.passed = defaultdict(Counter, {group: turns for group, turns in self.passed.items() if group in waiting})

    def most(self, waiting: dict[str, list[tuple[float, str]]], jobs: set[str], slots: float) -> float:
        every = [name for tasks in waiting.values() for _, name in tasks]
        with_job = sum(name in jobs for name in every)
        return with_job + min(slots, len(every) - with_job)

    @precondition(lambda self: self.held)
    @rule(
        at=st.integers(0, 9), becomes=st.sampled_from(["completed", "waiting"]), delay=st.sampled_from([0, 50]),
        job=st.booleans(),
    )  # fmt: skip
    def settle(self, at: int, becomes: Becomes, delay: float, job: bool) -> None:
        claimed = self.held.pop(at % len(self.held))
        settle(self.queue, claimed, becomes, delay, has_job=job)

    @rule(number=st.integers(0, 30), group=st.sampled_from("ABCDE"), is_news=st.booleans())
    def end_or_hasten(self, number: int, group: str, is_news: bool) -> None:
        task = Task(PROVIDER, f"{group}{number:05}")
        if is_news:
            self.queue.hasten([(task, 1)])
        else:
            self.queue.end([End(task, 1, "dropped")])
        self.keep(self.ready(1))

    @invariant()
    def time_goes_on(self) -> None:
        self.bench.rewind(0.004)
        assert self.bench.leaks() == []

    @rule()
    def time_passes(self) -> None:
        self.bench.rewind(51)


WALKS = settings(derandomize=True, database=None, deadline=None, max_examples=60, stateful_step_count=40)


@pytest.mark.promise("turns", "while a group waits, no other group has two turns")
@pytest.mark.promise("turns", "no task is passed over, whatever comes and goes meanwhile")
@pytest.mark.parametrize("redis_kind", ["fakeredis"], indirect=True)
def test_while_a_group_waits_no_other_has_two_turns_and_nobody_is_missed(
    queue: Queue, bench: Bench, redis_client: Any
) -> None:
    walk_with(queue, bench, redis_client.flushall)


def test_while_a_group_of_the_double_waits_no_other_has_two_turns() -> None:
    double = MemoryQueue()
    walk_with(cast(Queue, double), Bench(double), double._providers.clear)


def walk_with(queue: Queue, bench: Bench, clear: Callable[[], object]) -> None:
    def walk() -> Turns:
        clear()
        return Turns(queue, bench)

    run_state_machine_as_test(cast(Any, walk), settings=WALKS)


@pytest.mark.promise("turns", "what is kept for the turns is bounded, and gone with the last task")
def test_nothing_is_kept_of_a_group_once_its_last_task_waits_no_more(queue: Queue, bench: Bench) -> None:
    put(queue, "A", 2)
    put(queue, "B", 1, has_job=True)
    put(queue, "", 1)
    assert {*bench.parts()["ring"]} | {"job", *bench.parts()["job_ring"]} == {"A", "", "job", "B"}
    claimed = claim(queue, 3)
    assert bench.parts()["ring"].keys() == {"A"}
    settle(queue, claimed, "completed")
    queue.end([End(Task(PROVIDER, "A00001"), 1, "dropped")])
    assert bench.keys.dump() == {}


# --- what a line holds that the main set does not confirm


def stale(bench: Bench, place: str, group: str, count: int, due: int = 1) -> None:
    for number in range(count):
        bench.keys.write(f"{{queue:{PROVIDER}}}:{place}", f"{group}\0{due:013}\0gone{number:05}", 0)


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("count", [1, 150, 1500])
def test_stale_entries_are_dropped_in_bounded_steps_and_hide_nobody(queue: Queue, bench: Bench, count: int) -> None:
    """Another release has taken and ended those tasks: it knows of no lines."""
    stale(bench, "lines", "A", count)
    put(queue, "A", 1)
    put(queue, "B", 1)
    taken = Counter[str]()
    for number in range(count // 100 + 3):
        before = len(bench.parts()["lines"])
        claimed = claim(queue)
        taken += groups(claimed)
        assert before - len(bench.parts()["lines"]) <= 2 * 10 + 100 + 25
        if claimed.wait_seconds != 0:
            break
        assert before > len(bench.parts()["lines"]), number
    assert taken == {"A": 1, "B": 1}
    assert bench.parts()["lines"] == bench.parts()["ring"] == {}
    assert claim(queue).wait_seconds is None


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("place", ["once", "often"])
def test_stale_entries_of_those_that_came_back_are_dropped_too(
    queue: Queue, bench: Bench, seed: Any, place: Any
) -> None:
    for number in range(25):
        bench.keys.write(f"{{queue:{PROVIDER}}}:{place}", f"gone {number}", 1)
    seed("a", came_back=1 if place == "once" else 2)
    taken = []
    for _ in range(4):
        taken += names(claimed := claim(queue, which=place))
        assert taken or claimed.wait_seconds == 0
    assert taken == ["a"]


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("ring", ["ring", "job_ring"])
def test_groups_in_a_ring_that_have_nothing_are_dropped_and_hide_nobody(queue: Queue, bench: Bench, ring: str) -> None:
    for number in range(700):
        bench.keys.write(f"{{queue:{PROVIDER}}}:{ring}", f"ghost {number}", 5)
    put(queue, "A", 1)
    calls = [claim(queue) for _ in range(700 // 10 + 2)]
    assert [name for claimed in calls for name in names(claimed)] == ["A00000"]
    assert calls[0].wait_seconds == 0
    assert calls[-1].wait_seconds is None
    assert bench.parts()[ring] == {}


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_a_task_that_stands_in_both_lanes_is_handed_out_once(queue: Queue, bench: Bench, seed: Any) -> None:
    seed("a", group="A", due_seconds=-5)
    due = round(bench.score("a") or 0)
    bench.keys.write(f"{{queue:{PROVIDER}}}:job_lines", f"A\0{due:013}\0a", 0)
    bench.keys.write(f"{{queue:{PROVIDER}}}:job_ring", "A", 1)
    seed("b", group="A")
    assert names(claim(queue)) == ["a", "b"]
    assert bench.leaks() == []


@pytest.mark.parametrize("count", [3, 4, 5])
def test_groups_whose_due_task_was_cancelled_give_nobody_two_turns(queue: Queue, seed: Any, count: int) -> None:
    for number, group in enumerate("AB"):
        seed(f"{group} cancelled", group=group, due_seconds=number - 9)
        seed(f"{group} later", group=group, due_seconds=500)
    for number in range(5):
        seed(f"C{number}", group="C", due_seconds=number / 10 - 7)
    for group in "DE":
        seed(group, group=group, due_seconds=-3)
    queue.end([End(Task(PROVIDER, f"{group} cancelled"), 1, "forgotten") for group in "AB"])
    taken: list[str] = []
    while len(taken) < 3:
        claimed = claim(queue, limit=count)
        assert claimed.tasks or claimed.wait_seconds == 0
        taken += names(claimed)
    assert sorted(taken[:3]) == ["C0", "D", "E"]
