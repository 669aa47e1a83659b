"""What a look tells, and adding or settling that looks: the soonest that an attempt may begin, and what holds it up."""

from random import Random
from typing import Any

import pytest

from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import Add, Hold, Place, Settle
from tests.support.desk import LEASE_SECONDS, Desk, task

SOON = 1.0
"""When to look again for what an attempt under way may free."""


def about(seconds: float) -> Any:
    """So many seconds, on a server whose own time goes on; far shorter than these tests' spans."""
    return pytest.approx(seconds, abs=60)


def where(desk: Desk, name: str, limits: Limits = UNLIMITED) -> Place:
    [place] = desk.queue.look([task(name)], limits=limits)
    return place


def seen(desk: Desk, name: str, limits: Limits = UNLIMITED) -> tuple[float | None, str]:
    place = where(desk, name, limits)
    return place.wait_seconds, place.held_up


def good(*holds: Hold) -> Health:
    return Health(well=frozenset(hold.task.name for hold in holds))


def pause(desk: Desk, seconds: float) -> None:
    """The provider asks for a pause."""
    desk.settle("completed", desk.seed("paused", lease_seconds=LEASE_SECONDS), health=Health(pause_seconds=seconds))


# --- without limits


def test_one_that_waits_may_be_asked_when_it_is_due(desk: Desk) -> None:
    desk.put("a", delay=500)
    desk.put("b")
    assert seen(desk, "a") == (about(500), "")
    assert seen(desk, "b") == (0, "")


def test_one_in_process_is_told_its_lease_alone(desk: Desk) -> None:
    desk.begin("a")
    assert seen(desk, "a") == (None, "")
    assert where(desk, "a").lease_seconds == about(LEASE_SECONDS)


def test_one_whose_lease_is_over_waits_again(desk: Desk) -> None:
    desk.seed("a", lease_seconds=-100)
    place = where(desk, "a")
    assert (place.due_seconds, place.lease_seconds, place.wait_seconds) == (None, about(-100), 0)


def test_one_whose_lease_is_over_waits_for_a_pause_too(desk: Desk) -> None:
    desk.seed("a", lease_seconds=-100)
    pause(desk, 600)
    assert seen(desk, "a") == (about(600), "paused")


# --- a pause, and the slow start after it


def test_a_pause_puts_off_what_is_due_before_its_end(desk: Desk) -> None:
    pause(desk, 600)
    desk.put("b", delay=400)
    desk.put("c", delay=5000)
    assert seen(desk, "b") == (about(600), "paused")
    assert seen(desk, "c") == (about(5000), "")


def test_after_a_pause_all_wait_for_the_probe_and_who_is_behind_it_knows(desk: Desk) -> None:
    pause(desk, 600)
    desk.put("ab")
    desk.rewind(700)
    assert seen(desk, "a") == (0, "")
    assert seen(desk, "b") == (SOON, "paused")
    desk.claim(limit=1)
    assert seen(desk, "b") == (SOON, "paused")


def test_the_slow_start_after_a_pause_is_told_apart_from_a_limit(desk: Desk) -> None:
    pause(desk, 600)
    desk.put("abcd")
    desk.put("e", delay=5000)
    desk.rewind(700)
    (probe,) = desk.hold()
    desk.settle("completed", probe, health=good(probe))
    assert [seen(desk, name) for name in "bcd"] == [(0, ""), (0, ""), (SOON, "slow start")]
    desk.claim(limit=2)
    assert seen(desk, "d") == (SOON, "slow start")
    assert seen(desk, "e") == (about(4300), "")


def test_a_pause_and_a_rate_both_count(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000)
    desk.begin("x", limits)
    pause(desk, 600)
    desk.put("a", limits=limits)
    assert seen(desk, "a", limits) == (about(1000), "limited")
    assert seen(desk, "a") == (about(600), "paused")


# --- limits


def test_a_rate_tells_each_when_its_attempt_is_saved_up_behind_those_before_it(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000, burst=2)
    desk.put("abcd", limits=limits)
    assert [seen(desk, name, limits) for name in "abcd"] == [
        (0, ""), (0, ""), (about(1000), "limited"), (about(2000), "limited"),
    ]  # fmt: skip
    assert desk.take(limits) == ["a", "b"]
    assert seen(desk, "d", limits) == (about(2000), "limited")
    assert seen(desk, "d") == (0, "")


def test_a_rate_that_is_used_up_puts_off_what_falls_due_before_it_is_saved_up(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000)
    desk.begin("x", limits)
    desk.put("a", delay=500, limits=limits)
    desk.put("b", delay=5000, limits=limits)
    assert seen(desk, "a", limits) == (about(1000), "limited")
    assert seen(desk, "b", limits) == (about(5000), "")


def test_another_groups_tasks_put_nobody_off_as_far_as_is_known(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000)
    desk.put("abc", group="A", limits=limits)
    desk.put("d", group="D", limits=limits)
    assert seen(desk, "c", limits) == (about(2000), "limited")
    assert seen(desk, "d", limits) == (0, "")


def test_who_came_back_goes_without_a_turn(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000)
    desk.put("ab", limits=limits)
    desk.seed("y", came_back=1)
    desk.seed("z", lease_seconds=-1)
    assert seen(desk, "y", limits) == seen(desk, "z", limits) == (0, "")


@pytest.mark.parametrize("limits", [Limits(parallel=1), Limits(open_jobs=1)])
def test_what_an_attempt_under_way_may_free_is_looked_at_again_soon(desk: Desk, limits: Limits) -> None:
    desk.put("ab", limits=limits)
    desk.put("c", delay=500, limits=limits)
    assert seen(desk, "a", limits) == (0, "")
    assert seen(desk, "b", limits) == (SOON, "limited")
    desk.claim(limits, limit=1)
    assert seen(desk, "b", limits) == (SOON, "limited")
    assert seen(desk, "c", limits) == (about(500), "")
    assert seen(desk, "a", limits) == (None, "")


ONE_JOB = Limits(open_jobs=1)


def test_while_nobody_asks_after_a_job_who_needs_one_waits_until_somebody_will(desk: Desk) -> None:
    desk.put("a", has_job=True, delay=500, limits=ONE_JOB)
    desk.put("b", limits=ONE_JOB)
    desk.put("c", delay=100, limits=ONE_JOB)
    desk.put("d", delay=900, limits=ONE_JOB)
    assert [seen(desk, name, ONE_JOB) for name in "bc"] == [(about(500), "limited")] * 2
    assert seen(desk, "d", ONE_JOB) == (about(900), "")
    assert seen(desk, "a", ONE_JOB) == (about(500), "")
    desk.rewind(600)
    assert seen(desk, "b", ONE_JOB) == (SOON, "limited")


def test_an_attempt_under_way_may_free_a_job_before_another_is_asked_about(desk: Desk) -> None:
    limits = Limits(open_jobs=2)
    desk.seed("asked", has_job=True, lease_seconds=LEASE_SECONDS)
    desk.seed("a", has_job=True, due_seconds=500)
    desk.put("b", limits=limits)
    assert seen(desk, "b", limits) == (SOON, "limited")


def test_who_has_a_job_waits_for_none(desk: Desk) -> None:
    desk.seed("a", has_job=True)
    assert seen(desk, "a", ONE_JOB) == (0, "")


@pytest.mark.parametrize("came_back", [1, 2])
def test_one_that_came_back_with_its_job_is_asked_about_too(desk: Desk, came_back: int) -> None:
    desk.seed("a", has_job=True, came_back=came_back, due_seconds=500)
    desk.put("b", limits=ONE_JOB)
    assert seen(desk, "b", ONE_JOB) == (about(500), "limited")


def test_a_job_counts_those_with_a_job_before_it_against_the_rate_and_no_fresh_ones(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000, open_jobs=9)
    desk.seed("fresh", due_seconds=-30)
    desk.seed("first", has_job=True, due_seconds=-20)
    desk.seed("second", has_job=True, due_seconds=-10)
    assert seen(desk, "second", limits) == (about(1000), "limited")
    desk.put(["last"], limits=limits)
    assert seen(desk, "last", limits) == (about(3000), "limited")


# --- adding and settling


def test_adding_may_tell_where_each_task_stands_then(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000)
    adds = [Add(task(name), 1, "{}") for name in "abc"]
    answers = desk.queue.add_and_look(adds, token="adder", lease_seconds=LEASE_SECONDS, limits=limits)
    assert [answer for answer, _ in answers] == ["created", "waiting", "waiting"]
    assert [(place.wait_seconds, place.held_up) for _, place in answers] == [
        (None, ""), (about(1000), "limited"), (about(2000), "limited"),
    ]  # fmt: skip
    assert {(place.generation, place.record) for _, place in answers} == {(1, None)}


def test_adding_tells_of_more_tasks_than_one_call_takes(desk: Desk) -> None:
    adds = [Add(task(f"{number:03}"), number, "{}") for number in range(1, 451)]
    answers = desk.queue.add_and_look(adds, token="adder", limits=UNLIMITED)
    assert [place.generation for _, place in answers] == list(range(1, 451))


def test_settling_may_tell_where_each_task_stands_then(desk: Desk) -> None:
    desk.put("abc")
    first, second, third = desk.hold()
    rows = [
        Settle(first, "completed"),
        Settle(second, "waiting", 500, "{}"),
        Settle(Hold(third.task, 1, "another's"), "waiting", 500, "{}"),
    ]
    answers = desk.queue.settle_and_look(rows, Health(pause_seconds=900), UNLIMITED)
    assert [done for done, _ in answers] == [True, True, False]
    gone, waits, held = (place for _, place in answers)
    assert gone == Place(0, None, None, None, None)
    assert (waits.generation, waits.due_seconds, waits.wait_seconds) == (1, about(500), about(900))
    assert waits.held_up == "paused"
    assert (held.wait_seconds, held.lease_seconds) == (None, about(LEASE_SECONDS))


# --- the promise, at random


@pytest.mark.promise("limits", "no attempt begins before the instant that a caller was told")
@pytest.mark.parametrize("seed", range(6))
def test_no_attempt_begins_before_the_instant_that_was_told(desk: Desk, seed: int) -> None:
    random = Random(seed)
    limits = Limits(
        rate_seconds=random.choice([None, 1000, 5000]),
        burst=random.randint(1, 3),
        parallel=random.choice([None, 1, 3]),
        open_jobs=random.choice([None, 2, 5]),
    )
    names = [f"{number:02}" for number in range(20)]
    for name in names:
        desk.put([name], delay=random.choice([0, 0, 2000, 9000]), group=random.choice(["", "A"]), limits=limits)
    if random.random() < 0.5:
        pause(desk, 3000)
    told = [place.wait_seconds or 0 for place in desk.queue.look([task(name) for name in names], limits=limits)]
    begun: dict[str, float] = {}
    passed = 0.0
    while len(begun) < len(names):
        claim = desk.claim(limits)
        for one in claim.tasks:
            begun[one.hold.task.name] = passed
        holds = [one.hold for one in claim.tasks]
        desk.queue.settle([Settle(hold, "completed") for hold in holds], good(*holds) if holds else UNKNOWN, limits)
        desk.rewind(100)
        passed += 100
    early = [name for name, soonest in zip(names, told, strict=True) if begun[name] < soonest - 60]
    assert early == []
    assert min(told) == about(min(begun.values()))


def test_no_attempt_is_told_to_be_further_off_than_any_task_may_be_due(desk: Desk) -> None:
    limits = Limits(rate_seconds=365 * 86_400)
    for name in "abcd":
        desk.seed(name, due_seconds=-1)
    (place,) = desk.queue.look([task("d")], limits=limits)
    assert place.wait_seconds == 366 * 86_400
