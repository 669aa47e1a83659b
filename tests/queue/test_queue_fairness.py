"""Fairness between groups: one group's many tasks do not hold up another's one.

The bound: a group with nothing in process has its turn within 1 + ceil(due / 500) claims, whatever else is due, where a
claim has a place for each such group. Where it has fewer, down to one, whoever had a turn goes behind all that wait:
with n groups before it, within (n + 1) * (1 + ceil(due / 500)) claims.
"""

import math
from collections import Counter
from random import Random
from typing import Any

import pytest

from shared.limits import UNLIMITED, Limits
from shared.queue import Add, Claim, Queue, Release
from shared.task import Task
from tests.support.desk import LEASE_SECONDS
from tests.support.keys import PROVIDER, Bench, key_of


def put(queue: Queue, group: str, count: int, *, first: int = 0) -> None:
    """So many tasks of a group, due now, named after it and numbered in their order."""
    names = [f"{group}{number:05}" for number in range(first, first + count)]
    queue.add([Add(Task(PROVIDER, name), 1, "{}", group=group) for name in names], token="adder")


def claim(queue: Queue, limit: int = 10, limits: Limits = UNLIMITED, **more: Any) -> Claim:
    return queue.claim(PROVIDER, limit=limit, lease_seconds=LEASE_SECONDS, token="worker", limits=limits, **more)


def groups(claimed: Claim) -> Counter[str]:
    return Counter(one.hold.task.name[0] for one in claimed.tasks)


def claims_until(queue: Queue, group: str, limit: int = 10, limits: Limits = UNLIMITED) -> int:
    """How many claims it takes until a task of the group is handed out."""
    for number in range(1, 50):
        if group in groups(claim(queue, limit, limits)):
            return number
    raise AssertionError(f"no task of {group} in 50 claims")


@pytest.mark.promise("turns", "one group's backlog does not delay another group's only task")
@pytest.mark.parametrize(
    ("backlog", "limit"), [*((backlog, 10) for backlog in (9, 499, 500, 501, 1000, 2000)), (2000, 1), (2000, 200)]
)
def test_one_groups_backlog_does_not_hold_up_anothers_one_task_however_many_a_claim_takes(
    queue: Queue, backlog: int, limit: int
) -> None:
    put(queue, "A", backlog)
    put(queue, "B", 1)
    assert claims_until(queue, "B", limit) <= 1 + math.ceil((backlog + 1) / 500)


@pytest.mark.parametrize("before", [1, 2, 4])
def test_it_is_the_same_wherever_the_look_through_the_backlog_has_come_to(queue: Queue, before: int) -> None:
    put(queue, "A", 1400)
    for _ in range(before):
        claim(queue, 3)
    put(queue, "B", 1)
    assert claims_until(queue, "B", 3) <= 1 + math.ceil(1401 / 500)


@pytest.mark.parametrize("redis_kind", ["memory", "valkey"], indirect=True)
@pytest.mark.parametrize("position", [0, 499, 500, 650, 899, 900])
def test_a_task_in_the_midst_of_a_backlog_is_found_as_soon(queue: Queue, position: int) -> None:
    put(queue, "A", position)
    put(queue, "B", 1)
    put(queue, "C", 900 - position)
    assert claims_until(queue, "B") <= 1 + math.ceil(901 / 500)


@pytest.mark.parametrize(
    ("waiting", "limit", "taken"),
    [
        ({"A": 50, "B": 50, "C": 2}, 12, {"A": 5, "B": 5, "C": 2}),
        ({"": 20, "B": 2}, 6, {"0": 4, "B": 2}),  # tasks without a group are one group
        ({"A": 30}, 20, {"A": 20}),  # slots that no group needs go to whoever waits
    ],
)
def test_groups_share_a_claim_evenly_and_each_by_age(
    queue: Queue, waiting: dict[str, int], limit: int, taken: dict[str, int]
) -> None:
    for group, count in waiting.items():
        put(queue, group, count)
    claimed = claim(queue, limit)
    assert groups(claimed) == taken
    oldest = {f"{group}{number:05}" for group in waiting for number in range(taken[group or "0"])}
    assert {one.hold.task.name for one in claimed.tasks} == oldest


def test_the_group_with_the_least_in_process_comes_first(queue: Queue) -> None:
    put(queue, "A", 10)
    claim(queue, 4)
    put(queue, "B", 10)
    assert groups(claim(queue, 4)) == {"B": 4}
    assert groups(claim(queue, 4)) == {"A": 2, "B": 2}


def test_more_groups_than_slots_wait_in_turn_by_age(queue: Queue, seed: Any) -> None:
    for number in range(9):
        seed(f"{number} first", group=f"group {number}", due_seconds=number - 100)
        seed(f"{number} second", group=f"group {number}", due_seconds=number - 50)
    assert [sorted(groups(claim(queue, 3))) for _ in range(3)] == [list("012"), list("345"), list("678")]


def test_suspects_have_no_groups_the_oldest_is_taken(queue: Queue, seed: Any) -> None:
    seed("A", group="A", crashes=1, due_seconds=-10)
    seed("A held", group="A", lease_seconds=LEASE_SECONDS)
    seed("B", group="B", crashes=1, due_seconds=-5)
    assert groups(claim(queue, 1, suspect=True)) == {"A": 1}


def test_a_group_stays_with_its_task_until_that_ends_or_begins_anew(queue: Queue, bench: Bench) -> None:
    put(queue, "A", 3)
    claimed = [one.hold for one in claim(queue).tasks]
    queue.release([Release(claimed[0])])
    assert bench.parts()["groups"] == {"A00000": "A", "A00001": "A", "A00002": "A"}
    queue.complete([claimed[1]])
    queue.bury([claimed[2]])
    assert bench.parts()["groups"] == {"A00000": "A"}
    queue.add([Add(claimed[0].task, 2, "{}")], token="next")
    assert bench.parts()["groups"] == {}
    queue.add([Add(claimed[0].task, 3, "{}", group="B")], token="next")
    assert bench.parts()["groups"] == {"A00000": "B"}


# --- when places come free one at a time


def done(queue: Queue, claimed: Claim) -> None:
    queue.complete([one.hold for one in claimed.tasks])


def again(queue: Queue, claimed: Claim, seconds: float = 0) -> None:
    queue.release([Release(one.hold, seconds, has_job=False) for one in claimed.tasks])


def snoozed(queue: Queue, claimed: Claim) -> None:
    again(queue, claimed, 60)


def turns_until(queue: Queue, group: str, settle: Any, limit: int = 1, limits: Limits = UNLIMITED) -> int:
    """How many claims it takes until a task of the group is handed out, each settled before the next."""
    for number in range(1, 400):
        claimed = claim(queue, limit, limits)
        if group in groups(claimed):
            return number
        assert claimed.tasks
        settle(queue, claimed)
    raise AssertionError(f"no task of {group} in 400 claims")


@pytest.mark.promise("turns", "one group's backlog does not delay another group's only task")
@pytest.mark.parametrize("settle", [done, snoozed, again])
@pytest.mark.parametrize(("limit", "limits"), [(1, UNLIMITED), (10, Limits(parallel=1)), (10, Limits(open_jobs=1))])
def test_a_backlog_does_not_hold_up_anothers_one_task_although_nothing_stays_in_process(
    queue: Queue, limit: int, limits: Limits, settle: Any
) -> None:
    put(queue, "A", 1000)
    put(queue, "B", 1)
    assert turns_until(queue, "B", settle, limit, limits) <= 2 * (1 + math.ceil(1001 / 500))


def test_it_is_the_same_when_the_rate_lets_one_begin_at_a_time(queue: Queue, rewind: Any) -> None:
    put(queue, "A", 30)
    put(queue, "B", 1)

    def later(queue: Queue, claimed: Claim) -> None:
        done(queue, claimed)
        rewind(100)

    assert turns_until(queue, "B", later, 10, Limits(rate_seconds=100, burst=1)) <= 2


@pytest.mark.parametrize("limit", [1, 3])
def test_many_groups_wait_for_one_turn_of_each_that_came_before(queue: Queue, rewind: Any, limit: int) -> None:
    for number in range(26):
        put(queue, chr(ord("a") + number), 10)
    rewind(1)
    put(queue, "B", 1)
    assert turns_until(queue, "B", done, limit) == math.ceil(27 / limit)


def test_groups_of_one_task_each_go_by_age(queue: Queue, rewind: Any) -> None:
    queue.add([Add(Task(PROVIDER, f"g{number:03}"), 1, "{}", group=f"g{number}") for number in range(200)], token="t")
    rewind(1)
    put(queue, "z", 1)
    assert turns_until(queue, "z", done) == 201


@pytest.mark.parametrize("comers", ["new ones", "one that comes back"])
def test_whoever_comes_later_does_not_overtake_a_group_that_had_its_turn(
    queue: Queue, rewind: Any, comers: str
) -> None:
    put(queue, "A", 20)
    taken = ""
    for number in range(12):
        claimed = claim(queue, 1)
        taken += "".join(groups(claimed))
        done(queue, claimed)
        rewind(0.05)
        group = f"new {number}" if comers == "new ones" else "back"
        queue.add([Add(Task(PROVIDER, f"z{number:02}"), 1, "{}", group=group)], token="adder")
        rewind(0.05)
    assert taken == ("AAzAzzAzzzAz" if comers == "new ones" else "AAzAzAzAzAzA")


@pytest.mark.promise("turns", "while a group waits, no other group has two turns")
@pytest.mark.parametrize("number", range(3))
def test_while_a_group_waits_no_other_has_two_turns(queue: Queue, rewind: Any, number: int) -> None:
    random, made = Random(number), 0
    passed: dict[str, Counter[str]] = {}  # group that waits -> turns of others since
    waiting = Counter[str]()
    for _ in range(60):
        for _ in range(random.choice((0, 0, 1, 3))):
            group, made = random.choice("ABCD"), made + 1
            queue.add([Add(Task(PROVIDER, f"{group}{made:05}"), 1, "{}", group=group)], token="adder")
            rewind(0.01)
            waiting[group] += 1
            passed.setdefault(group, Counter())
        claimed = claim(queue, 1)
        for group in groups(claimed):
            waiting[group] -= 1
            del passed[group]
            for others in passed.values():
                others[group] += 1
            if waiting[group]:
                passed[group] = Counter()
        assert all(turns <= 1 for others in passed.values() for turns in others.values())
        done(queue, claimed)
        rewind(0.01)


@pytest.mark.promise("turns", "what is kept for the turns is bounded, and gone with the last task")
def test_nothing_is_kept_of_turns_once_the_last_task_with_a_group_has_left(queue: Queue, bench: Bench) -> None:
    put(queue, "A", 2)
    put(queue, "B", 1)
    queue.add([Add(Task(PROVIDER, "without"), 1, "{}")], token="adder")
    first, second, third, _ = [one.hold for one in claim(queue).tasks]
    assert bench.parts()["served"].keys() == {"A", "B", ""}
    queue.complete([first])
    queue.bury([second])
    assert bench.parts()["served"]
    queue.add([Add(third.task, 2, "{}")], token="next")
    assert bench.parts()["served"] == {}


@pytest.mark.promise("turns", "what is kept for the turns is bounded, and gone with the last task")
@pytest.mark.parametrize("redis_kind", ["memory", "fakeredis"], indirect=True)
def test_turns_are_remembered_of_a_bounded_number_of_groups(queue: Queue, bench: Bench) -> None:
    put(queue, "A", 2)
    for number in range(10_050):
        bench.keys.write(key_of(PROVIDER, "served"), f"group {number}", float(1 + number))
    claim(queue, 1)
    left = bench.parts()["served"]
    assert len(left) == 10_000
    assert {"A", "group 10049"} < left.keys()


# --- with limits


def test_a_group_is_not_held_up_by_anothers_tasks_that_wait_for_a_job(queue: Queue) -> None:
    limits = Limits(open_jobs=4)
    put(queue, "A", 1200)
    first, *_ = [one.hold for one in claim(queue, 10, limits).tasks]
    put(queue, "B", 1)
    queue.complete([first])
    taken = Counter[str]()
    for _ in range(1 + math.ceil(1201 / 500)):
        claimed = claim(queue, 10, limits)
        taken += groups(claimed)
        queue.release([Release(one.hold, has_job=False) for one in claimed.tasks if "A" in one.hold.task.name])
    assert taken["B"] == 1


def test_groups_share_the_open_jobs(queue: Queue) -> None:
    put(queue, "A", 600)
    put(queue, "B", 5)
    assert sum((groups(claim(queue, 3, Limits(open_jobs=8))) for _ in range(4)), Counter()) == {"A": 4, "B": 4}


def test_jobs_are_asked_after_behind_a_backlog_that_waits(queue: Queue, seed: Any) -> None:
    put(queue, "A", 1500)
    seed("B", group="B", due_seconds=0, has_job=True)
    seed("C", group="C", due_seconds=0, has_job=True)
    assert groups(claim(queue, 10, Limits(open_jobs=2))) == {"B": 1, "C": 1}


def test_while_a_part_of_the_backlog_is_unseen_somebody_looks_again_soon(queue: Queue, seed: Any) -> None:
    put(queue, "A", 1)
    for number in range(1300):
        seed(f"{number}", crashes=1, due_seconds=-number)
    first = claim(queue)
    assert (first.tasks, 0 < (first.wait_seconds or 0) <= 1) == ((), True)
    assert groups(claim(queue)) == {"A": 1}


@pytest.mark.promise("turns", "no task is passed over, whatever comes and goes meanwhile")
@pytest.mark.parametrize("number", range(3))
def test_nobody_is_missed_whatever_comes_and_goes_meanwhile(queue: Queue, bench: Bench, number: int) -> None:
    """Tasks come, go and are cancelled while one group waits with a single task."""
    random, made = Random(number), 1500
    put(queue, "A", made)
    for _ in range(random.randint(0, 3)):
        claim(queue, 200)
    put(queue, "B", 1)
    put(queue, "A", 200, first=made)
    for _ in range(2 + math.ceil(1901 / 500)):
        claimed = claim(queue, random.randint(1, 200))
        if "B" in groups(claimed):
            return
        queue.release([Release(one.hold, random.choice((0, 5))) for one in claimed.tasks if random.random() < 0.5])
        gone = [Task(PROVIDER, f"A{random.randrange(made):05}") for _ in range(random.randint(0, 50))]
        queue.forget([(task, 1) for task in gone])
    raise AssertionError("B was missed")


@pytest.mark.parametrize("cursor", ["junk", "-5", "1e15", "7.5"])
def test_junk_in_the_place_of_the_cursor_begins_the_look_anew(queue: Queue, bench: Bench, cursor: str) -> None:
    put(queue, "A", 1100)
    bench.keys.write(key_of(PROVIDER, "gate"), "cursor", cursor)
    put(queue, "B", 1)
    assert claims_until(queue, "B") <= 1 + math.ceil(1101 / 500)


def test_without_groups_it_is_the_oldest_and_nothing_is_kept(queue: Queue, bench: Bench) -> None:
    queue.add([Add(Task(PROVIDER, f"{number:04}"), 1, "{}") for number in range(700)], token="adder")
    assert [one.hold.task.name for one in claim(queue, 3).tasks] == ["0000", "0001", "0002"]
    assert bench.parts()["gate"] == bench.parts()["groups"] == {}
