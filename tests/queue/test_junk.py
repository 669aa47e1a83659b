"""What no client of ours has written (C9): a claim says so once, sets it aside, and hands out the rest.

A claimed task whose name or state is junk would else strand all that its claim took beside it.
"""

import logging
import math
from typing import Any

import pytest

from shared.limits import Limits
from shared.queue import Hold, Which
from shared.queue.queue import LAYOUT
from tests.support.desk import LEASE_SECONDS, Desk, task
from tests.support.keys import PLACES, PROVIDER, RINGS, key_of
from tests.support.redis_servers import CLUSTER_OF_THREE, SERVERS

GARBLED = b"\xff\xfe garbled"
EVERY_CLAIM: tuple[Which, ...] = ("ordinary", "once", "often")

pytestmark = [pytest.mark.junk, pytest.mark.parametrize("redis_kind", [*SERVERS, CLUSTER_OF_THREE], indirect=True)]


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was logged as an error: the message, and the task it names."""
    return [(one.message, vars(one).get("task", "")) for one in caplog.records if one.levelno >= logging.ERROR]


def write(client: Any, part: str, member: bytes, value: float | str) -> None:
    """As `Desk.write`, for a member that is no text."""
    key = key_of(PROVIDER, part)
    if isinstance(value, float):
        client.zadd(key, {member: value})
    else:
        client.hset(key, member, value)


@pytest.mark.parametrize("state", [None, "1::0", "1:.0:0", "junk"])
def test_a_member_of_the_main_set_that_is_no_utf_8_is_reported_once_and_set_aside(
    desk: Desk, redis_client: Any, caplog: pytest.LogCaptureFixture, state: str | None
) -> None:
    """C9."""
    write(redis_client, "queue", GARBLED, 1.0)
    if state:
        write(redis_client, "state", GARBLED, state)
    for name in "abcdef":
        desk.seed(name)
    claimed = desk.claim()
    assert sorted(one.hold.task.name for one in claimed.tasks) == [*"abcdef"]
    readable = state in ("1::0", "1:.0:0")
    assert said(caplog) == [("name unreadable" if readable else "state unreadable", repr(GARBLED))]
    assert desk.settle("completed", *(one.hold for one in claimed.tasks)) == [True] * 6
    for which in EVERY_CLAIM:
        assert desk.claim(which=which).tasks == ()
    desk.rewind(2 * LEASE_SECONDS)
    assert desk.claim().expired == 0
    assert len(said(caplog)) == 1
    assert desk.keys.dump() == {}


@pytest.mark.parametrize(("which", "came_back"), [("once", 1), ("often", 2)])
def test_one_that_came_back_and_is_no_utf_8_is_set_aside_too(
    desk: Desk, redis_client: Any, caplog: pytest.LogCaptureFixture, which: Which, came_back: int
) -> None:
    write(redis_client, "queue", GARBLED, 1.0)
    write(redis_client, "state", GARBLED, f"1::{came_back}")
    desk.seed("a", came_back=came_back)
    taken = [name for _ in range(3) for name in desk.take(which=which)]
    assert taken == ["a"]
    assert said(caplog) == [("name unreadable", repr(GARBLED))]


@pytest.mark.parametrize("place", PLACES)
def test_a_line_with_members_that_are_no_utf_8_hides_nobody(desk: Desk, redis_client: Any, place: str) -> None:
    how: dict[str, dict[str, Any]] = {
        "once": {"came_back": 1},
        "often": {"came_back": 2},
        "job_lines": {"has_job": True},
    }
    desk.seed("a", group="A", **how.get(place, {}))
    for member in (GARBLED, b"A\0" + GARBLED, b"A\0000000000001\0" + GARBLED, b"\xff\0000000000001\0a", b"A\0", b"\0"):
        write(redis_client, place, member, 0.0 if place in RINGS else 1.0)
    if place in RINGS:
        write(redis_client, RINGS[place], b"\xff", 1.0)
    which: Which = place if place in ("once", "often") else "ordinary"  # type: ignore[assignment]
    taken = [name for _ in range(4) for name in desk.take(which=which)]
    assert taken == ["a"]
    desk.queue.mend(PROVIDER)
    assert desk.parts()[place] == {}


@pytest.mark.parametrize("part", ["queue", "dead"])
def test_members_that_are_no_utf_8_are_listed_by_nobody_and_set_aside(
    desk: Desk, redis_client: Any, caplog: pytest.LogCaptureFixture, part: Any
) -> None:
    desk.seed("a", dead=part == "dead", due_seconds=60)
    write(redis_client, part, GARBLED, 9e15)
    for _ in range(2):
        assert desk.queue.members(PROVIDER, part) == [task()]
        assert said(caplog) == [("name unreadable", repr(GARBLED))]
    assert desk.leaks() == []


@pytest.mark.parametrize("part", ["leases", "state", "tasks", "groups"])
def test_what_is_left_of_a_name_that_is_no_utf_8_is_set_aside_with_mending(
    desk: Desk, redis_client: Any, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    write(redis_client, part, GARBLED, 5.0 if part == "leases" else "1::0")
    desk.write(part, "stray", 5.0 if part == "leases" else "1::0")
    for _ in range(2):
        assert desk.queue.mend(PROVIDER) == [task("stray")]
    assert said(caplog) == [("name unreadable", repr(GARBLED))]


@pytest.mark.parametrize("text", ["", "junk", "0::0", "1:t", "1:t.1bb:0", "1:t:x", "\0", "1:t.1:0:0"])
def test_a_state_that_does_not_parse_is_reported_once_and_strands_nobody(
    desk: Desk, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    for name in "abc":
        desk.seed(name)
    desk.write("state", "b", text)
    assert desk.take() == ["a", "c"]
    assert desk.claim().tasks == ()
    assert said(caplog) == [("state unreadable", repr(b"b"))]
    assert desk.add("b", 1) == "created"  # as reconcile does


@pytest.mark.parametrize("due", [0.25, 0.75, 1.5, 1e3, 1764547200000.5])
def test_a_due_time_with_a_fraction_is_due_and_settles_as_any(desk: Desk, due: float) -> None:
    desk.seed("a", in_line=False)
    desk.write("queue", "a", due)
    desk.seed("b")
    if due > desk.keys.now():
        desk.rewind((due - desk.keys.now()) / 1000 + 5)
    holds = [hold for _ in range(3) for hold in desk.hold()]
    assert sorted(hold.task.name for hold in holds) == ["a", "b"]
    assert desk.settle("completed", *holds) == [True, True]
    assert desk.keys.dump() == {}


@pytest.mark.parametrize("due", [-1.0, -0.5, -1e18, -math.inf, 1e13, 1e16, math.inf])
@pytest.mark.parametrize("how", [{}, {"group": "A"}, {"has_job": True}, {"came_back": 1}])
def test_a_due_time_that_is_none_holds_nobody_up_and_gives_no_reason_to_look_at_once(
    desk: Desk, due: float, how: Any
) -> None:
    desk.seed("odd", in_line=False, **how)
    desk.write("queue", "odd", due)
    for name in "abc":
        desk.seed(name, **how)
    taken, waits = list[str](), list[float | None]()
    for which in EVERY_CLAIM:
        for _ in range(3):
            claimed = desk.claim(which=which, limit=20)
            taken += [one.hold.task.name for one in claimed.tasks]
            waits.append(claimed.wait_seconds)
    assert sorted(taken) == [*"abc"]
    assert 0 not in waits
    (place,) = desk.queue.look([task("odd")], records=True)
    assert place.generation == 1
    assert desk.queue.mend(PROVIDER) == []
    assert desk.take() + desk.take(which="once") == ["odd"]


@pytest.mark.parametrize("lease_end", [-5.0, 0.0, 0.5, 1e16, math.inf, -math.inf])
def test_a_lease_that_ends_at_no_time_strands_nobody_but_its_own(desk: Desk, lease_end: float) -> None:
    hold = desk.seed("odd", lease_seconds=30)
    desk.write("leases", "odd", lease_end)
    desk.seed("a")
    assert desk.take() == ["a"]
    assert desk.state()["odd"] == ("waiting" if lease_end < desk.keys.now() else "processing", 1)
    assert desk.take(which="once") == (["odd"] if lease_end < desk.keys.now() else [])
    if lease_end > desk.keys.now():
        assert desk.settle("completed", hold) == [True]


@pytest.mark.parametrize(
    "group", ["[", "(", "A\1", "\1", "\0", "A\0B", "A\0000000000001\0x", "+", "-", "%s", "{queue:x}", "名前", "x" * 300]
)
def test_a_group_of_any_characters_has_its_turn(desk: Desk, group: str) -> None:
    desk.put("ab", group=group)
    desk.put("cd", group="A")
    desk.put("e")
    first = desk.hold(limit=3)
    assert sorted(hold.task.name for hold in first) == ["a", "c", "e"]
    desk.settle("waiting", *first, delay=0)
    assert sorted(hold.task.name for _ in range(3) for hold in desk.hold()) == [*"abcde"]
    assert desk.claim().wait_seconds is None
    assert all(not desk.parts()[part] for part in (*PLACES, *RINGS.values()))


def test_tasks_of_a_group_with_a_nul_stay_in_line_when_it_is_mended(desk: Desk) -> None:
    desk.put("ab", group="A\0B", delay=60)
    desk.put("c", group="A")
    desk.queue.mend(PROVIDER)
    assert len(desk.parts()["lines"]) == 3
    assert desk.take() == ["c"]
    assert len(desk.parts()["lines"]) == 2


@pytest.mark.parametrize("name", ["a\0b", "\0", "0\0000000000001\0a", "\1"])
def test_a_name_with_a_nul_goes_all_the_way(desk: Desk, name: str) -> None:
    desk.put([name], group="A")
    desk.seed("b", group="A")
    desk.queue.mend(PROVIDER)
    holds = desk.hold(Limits(open_jobs=5))
    assert {hold.task.name for hold in holds} == {name, "b"}
    assert desk.settle("waiting", *holds, delay=0) == [True, True]
    desk.queue.mend(PROVIDER)
    assert {*desk.take()} == {name, "b"}
    desk.end("dropped", name, "b")
    assert desk.keys.dump() == {}
    assert desk.has_lost(Hold(task(name), 1, "worker"))


@pytest.mark.parametrize("part", LAYOUT)
def test_a_key_of_another_type_is_removed_and_reported_once_and_its_provider_goes_on(
    desk: Desk, redis_client: Any, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """C9."""
    desk.put("abc")
    redis_client.delete(key_of(PROVIDER, part))
    redis_client.set(key_of(PROVIDER, part), "SECRET")
    desk.queue.mend(PROVIDER)
    assert [(line.message, vars(line)["key"]) for line in caplog.records] == [("key removed", key_of(PROVIDER, part))]
    desk.queue.mend(PROVIDER)
    assert len(caplog.records) == 1
    desk.put("d")
    assert "d" in desk.take()


@pytest.mark.parametrize("junk", ["zzzzzzzzzzzzz\0x", "~", "", "nan\0x", "9", "~~~~~~~~~~~~~~\0x"])
@pytest.mark.parametrize("limit", [3, 4])
def test_an_entry_behind_the_head_of_a_line_that_names_no_time_stops_nobody(desk: Desk, junk: str, limit: int) -> None:
    """C9: the ring is told when a group's next task is due."""
    for number in range(4):
        desk.seed(f"{number}", group="C", due_seconds=number - 9)
    desk.write("lines", f"C\0{junk}", 0)
    taken: list[str] = []
    for _ in range(4):
        taken += desk.take(limit=limit)
    assert taken == ["0", "1", "2", "3"]
    assert desk.parts()["lines"] == {}


def test_a_claim_that_was_stopped_by_stale_entries_ends_no_slow_start(desk: Desk) -> None:
    desk.seed("held", lease_seconds=30)
    desk.write("gate", "slow", "2")
    desk.write("lines", "A\0" + "1" * 13 + "\0ghost", 0)
    desk.write("ring", "A", 1)
    claimed = desk.claim()
    assert (claimed.tasks, claimed.wait_seconds) == ((), 0)
    assert desk.parts()["gate"] == {"slow": "2"}
    desk.claim()
    assert desk.parts()["gate"] == {}
