"""Lines, rings and the main set, when they differ: the main set is the truth, a claim catches up, `mend` mends all."""

import math
from typing import Any

import pytest

from shared.limits import Limits
from tests.support.desk import LEASE_SECONDS, Desk, task
from tests.support.keys import PLACES, PROVIDER, RINGS, key_of, line_member
from tests.support.redis_servers import SERVERS

ONE_MORE: dict[str, dict[str, Any]] = {
    "lines": {}, "job_lines": {"has_job": True}, "once": {"came_back": 1}, "often": {"came_back": 2},
}  # fmt: skip


def standing(desk: Desk) -> int:
    parts = desk.parts()
    return sum(len(parts[place]) for place in PLACES)


# --- a claim catches up


def test_a_main_set_without_lines_is_caught_up_the_oldest_first_200_a_claim(desk: Desk) -> None:
    """As the release before leaves it."""
    for number in range(450):
        desk.seed(f"{number:03}", due_seconds=number - 1000, group="AB"[number % 2], in_line=False)
    for caught_up in (200, 400, 450):
        assert desk.claim(limit=0).tasks == ()
        assert standing(desk) == caught_up
    assert desk.leaks() == []
    taken = [name for _ in range(3) for name in desk.take(limit=200)]
    assert taken == [f"{number:03}" for number in range(450)]


def test_the_first_claim_of_such_a_set_gives_the_oldest_of_each_group(desk: Desk) -> None:
    for number in range(150):
        desk.seed(f"{number:03}", due_seconds=number - 1000, group="A", in_line=False)
    desk.seed("B", due_seconds=-5, group="B", in_line=False)
    desk.seed("later", due_seconds=5000, in_line=False)
    desk.seed("once", came_back=1, in_line=False)
    desk.seed("often", came_back=2, in_line=False)
    claimed = desk.claim(limit=3)
    assert {one.hold.task.name for one in claimed.tasks} == {"000", "001", "B"}
    assert (claimed.once, claimed.often) == (True, True)
    assert desk.take(which="once") + desk.take(which="often") == ["once", "often"]
    assert desk.leaks() == []


def test_where_the_oldest_stand_in_line_and_may_not_go_others_are_caught_up(desk: Desk) -> None:
    """200 that wait for a job, and behind them those with one, as another release has put them back."""
    limits = Limits(open_jobs=2)
    for number in range(250):
        desk.seed(f"waits {number:03}", due_seconds=-5000 + number)
    for name in "ab":
        desk.seed(name, has_job=True, due_seconds=-5, in_line=False)
    taken: list[str] = []
    for _ in range(3):
        taken += desk.take(limits)
    assert sorted(taken) == ["a", "b"]


def test_a_group_that_is_caught_up_goes_behind_those_that_wait_however_old_its_task(desk: Desk) -> None:
    desk.seed("b", group="B")
    desk.rewind(50)
    desk.seed("a", due_seconds=-100, group="A", in_line=False)
    assert desk.take(limit=1) + desk.take(limit=1) == ["b", "a"]


@pytest.mark.junk
def test_a_task_that_was_moved_while_its_line_was_not_is_found_at_once(desk: Desk) -> None:
    """Another release has claimed it and put it back: the sizes are the same."""
    desk.seed("a", due_seconds=-50)
    desk.write("queue", "a", float(desk.keys.now() - 10))
    first = desk.claim()
    assert (first.tasks, first.wait_seconds) == ((), 0)
    assert desk.take() == ["a"]
    assert desk.claim().wait_seconds is None
    assert desk.leaks() == []


@pytest.mark.parametrize("place", PLACES)
def test_a_task_that_was_taken_by_another_release_is_not_handed_out_again(desk: Desk, place: str) -> None:
    desk.seed("a", due_seconds=-50, **ONE_MORE[place])
    desk.write("queue", "a", 0.0)
    desk.write("leases", "a", float(desk.keys.now() + LEASE_SECONDS * 1000))
    for which in ("ordinary", "once", "often"):
        assert desk.claim(which=which).tasks == ()
    assert desk.leaks() == []


@pytest.mark.junk
def test_a_main_set_that_has_lost_entries_leaves_nobody_in_the_lines(desk: Desk) -> None:
    for number in range(30):
        desk.seed(f"{number}", due_seconds=-50, group=f"g{number % 3}")
        desk.keys.remove(key_of(PROVIDER, "queue"), f"{number}")
    desk.seed("left")
    assert desk.take() == ["left"]
    assert standing(desk) == 0
    assert desk.parts()["ring"] == {}


# --- mend


@pytest.mark.parametrize("count", [1, 105])
def test_mending_puts_all_into_line_at_once(desk: Desk, count: int) -> None:
    for place, how in ONE_MORE.items():
        for number in range(count):
            group = "" if number % 3 else f"g{number}"
            desk.seed(f"{place} {number}", due_seconds=number - 20, group=group, in_line=False, **how)
    desk.seed("held", lease_seconds=LEASE_SECONDS)
    desk.seed("dead", dead=True)
    assert desk.queue.mend(PROVIDER) == []
    assert desk.leaks() == []


def test_mending_what_is_sound_changes_nothing(desk: Desk) -> None:
    for number, how in enumerate(ONE_MORE.values()):
        desk.seed(f"due {number}", due_seconds=-5, group="A", **how)
        desk.seed(f"later {number}", due_seconds=500, **how)
    desk.claim(limit=1)
    with desk.unchanged():
        assert desk.queue.mend(PROVIDER) == []


@pytest.mark.parametrize("place", PLACES)
def test_mending_moves_a_task_that_stands_in_a_wrong_place(desk: Desk, place: str) -> None:
    for right, how in ONE_MORE.items():
        if right != place:
            desk.seed(right, due_seconds=-5, in_line=False, **how)
            due = desk.score(right) or 0
            if place in RINGS:
                desk.write(place, line_member("", due, right), 0.0)
                desk.write(RINGS[place], "", 1.0)
            else:
                desk.write(place, right, due)
    assert desk.queue.mend(PROVIDER) == []
    assert desk.leaks() == []


@pytest.mark.parametrize(
    "member",
    [line_member("A", 5, "a"), line_member("A", 5, "gone"), line_member("B", 5, "a"), "none", "A\0junk\0a", "\0\0\0"],
)
@pytest.mark.parametrize("lane", RINGS)
def test_mending_removes_what_the_main_set_does_not_confirm(desk: Desk, lane: str, member: str) -> None:
    desk.seed("a", group="A")
    for _ in range(2):
        desk.write(lane, member, 0.0)
        desk.write(RINGS[lane], "A", 1.0)
    assert desk.queue.mend(PROVIDER) == []
    assert desk.leaks() == []
    assert desk.take() == ["a"]


@pytest.mark.parametrize("place", ["once", "often"])
def test_mending_removes_those_that_have_not_come_back_or_do_not_wait(desk: Desk, place: str) -> None:
    desk.seed("a")
    desk.seed("held", lease_seconds=LEASE_SECONDS)
    desk.seed("in hand again", lease_seconds=LEASE_SECONDS, **ONE_MORE[place])
    for name in ("a", "held", "in hand again", "gone"):
        desk.write(place, name, 5.0)
    desk.queue.mend(PROVIDER)
    assert desk.leaks() == []


@pytest.mark.parametrize("lane", RINGS)
def test_mending_sets_right_which_groups_have_a_turn_and_none_too_late(desk: Desk, lane: str) -> None:
    how = ONE_MORE[lane]
    desk.seed("a", group="A", **how)
    desk.seed("b", group="B", **how)
    desk.write(RINGS[lane], "A", float(desk.keys.now() + 1_000_000))
    desk.keys.remove(key_of(PROVIDER, RINGS[lane]), "B")
    desk.write(RINGS[lane], "ghost", 5.0)
    desk.queue.mend(PROVIDER)
    assert desk.leaks() == []
    assert sorted(desk.take()) == ["a", "b"]


def test_mending_removes_the_turns_that_the_release_before_kept(desk: Desk) -> None:
    desk.seed("a", group="A")
    desk.write("served", "A", 5.0)
    desk.queue.mend(PROVIDER)
    assert desk.leaks() == []


@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("due", [-5.0, -1e300, 9e12, 1e18, math.inf, -math.inf])
def test_a_due_time_that_is_none_becomes_now_with_mending(desk: Desk, due: float) -> None:
    desk.seed("a", in_line=False)
    desk.seed("b")
    desk.write("queue", "a", due)
    assert desk.take() == ["b"]
    (place,) = desk.queue.look([task()])
    assert place.generation == 1
    assert (place.wait_seconds or 0) <= 366 * 86_400
    desk.queue.mend(PROVIDER)
    assert desk.leaks() == []
    assert desk.take() == ["a"]


@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("due", [-5.0, 1e18])
def test_a_due_time_that_is_none_is_no_reason_to_take_a_task_from_its_worker(desk: Desk, due: float) -> None:
    held = desk.seed("a", lease_seconds=LEASE_SECONDS)
    desk.write("queue", "a", due)
    desk.queue.mend(PROVIDER)
    assert desk.take() == []
    assert desk.settle("waiting", held, delay=0) == [True]
    assert desk.take() == ["a"]


@pytest.mark.parametrize("part", ["leases", "state", "tasks", "jobs", "groups"])
def test_mending_tells_what_is_left_of_tasks_that_are_nowhere_and_nothing_else(desk: Desk, part: str) -> None:
    desk.seed("waiting", group="A", has_job=True)
    desk.seed("leased", lease_seconds=9)
    desk.seed("dead", dead=True)
    assert desk.queue.mend(PROVIDER) == []
    left: dict[str, float | str] = {"leases": 5.0, "state": "1::0", "tasks": "{}", "jobs": "", "groups": "A"}
    for number in range(3):
        desk.write(part, f"stray {number}", left[part])
    strays = desk.queue.mend(PROVIDER)
    assert strays == [task(f"stray {number}") for number in range(3)]
    assert sorted(one.name for one in desk.queue.members(PROVIDER, "queue")) == ["leased", "waiting"]
    desk.end("forgotten", *(one.name for one in strays))
    assert desk.queue.mend(PROVIDER) == []


def test_another_providers_lines_are_left_alone(desk: Desk) -> None:
    desk.seed("a", provider="coin", in_line=False)
    before: Any = desk.parts("coin")
    desk.queue.mend(PROVIDER)
    assert desk.parts("coin") == before
    desk.queue.mend("coin")
    assert desk.leaks() == []
