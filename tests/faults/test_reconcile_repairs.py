"""Whatever half of a task is missing or left over in Redis, reconcile puts it right, says so, and is then done."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.world import DELETE, LEASE_SECONDS, NAME, World
from tests.support.api_events import rest
from tests.support.keys import key_of
from tests.support.simulator import DONE, PENDING, refused

pytestmark = [pytest.mark.server, pytest.mark.slow]

PARTS = ("queue", "leases", "state", "tasks", "dead", "jobs", "groups")
REMOVALS = {"queue": "zrem", "leases": "zrem", "dead": "zrem", "jobs": "srem", "state": "hdel", "tasks": "hdel"}


def waiting(world: World) -> None:
    world.post(NAME)


def leased(world: World) -> None:
    """Somebody has claimed it and is dead."""
    world.post(NAME)
    world.pass_(LEASE_SECONDS)
    assert world.run("process", dies_after=1).killed


def ended(world: World, status: str) -> None:
    """The item has ended, as a worker would have it that died before it came to Redis; or is gone."""
    if status == "gone":
        delete(world)
        return
    world.simulator.say(DONE if status == "completed" else refused())
    if status == "cancelled":
        assert world.run("enqueue", DELETE, dies_after=1).killed
    else:
        world.pass_(LEASE_SECONDS)
        assert world.run("process", dies_after=3).killed
        put_back(world)
    assert world.status(NAME) == status


def delete(world: World) -> None:
    world.dynamodb.delete_item(TableName=world.table, Key={"task_id": world.known(NAME)["task_id"]})


def put_back(world: World) -> None:
    """Its lease is over."""
    generation = world.bench.parts("job")["state"][NAME].partition(":")[0]
    world.redis.zrem(key_of("job", "leases"), NAME)
    world.redis.zadd(key_of("job", "queue"), {NAME: world.bench.keys.now() + 3_600_000})
    world.redis.hset(key_of("job", "state"), NAME, f"{generation}::1")


def lose(world: World, *parts: str) -> None:
    """Redis loses what these keys have of it."""
    for part in parts:
        removal: Callable[..., Any] = getattr(world.redis, REMOVALS[part])
        assert removal(key_of("job", part), NAME) == 1


def old(world: World) -> None:
    """Nobody who still worked on it would not have stored by now."""
    world.pass_(LEASE_SECONDS + 1)


def repairs(world: World, **counts: int) -> None:
    """One run counts just this; the next changes nothing, and then nothing is out of joint."""
    assert world.reconcile() == ({"job": counts} if counts else {})
    assert world.bench.leaks() == []
    before = world.bench.parts("job")
    again = world.reconcile()
    assert again in ({}, {"job": {"seen": 1}})
    assert world.bench.parts("job") == before
    world.check(NAME)


LOST = ("queue", "state", "queue tasks", "queue state", "state tasks", "queue state tasks")
LOST_AT_WORK = ("leases", "queue", "queue leases")


@pytest.mark.promise("faults", "an open item whose task Redis has lost in part, or a whole key")
@pytest.mark.parametrize(
    ("begin", "parts"), [*((waiting, lost) for lost in LOST), *((leased, lost) for lost in LOST_AT_WORK)]
)
def test_an_open_item_whose_task_has_lost_a_part_is_requeued_though_it_was_at_work(
    world: World, begin: Callable[[World], None], parts: str
) -> None:
    begin(world)
    lose(world, *parts.split())
    old(world)
    repairs(world, seen=1, requeued=1)
    world.ends_well(NAME)


@pytest.mark.promise("faults", "an open item whose task Redis has lost in part, or a whole key")
def test_a_task_without_record_is_handed_out_with_what_its_item_knows_and_that_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    waiting(world)
    lose(world, "tasks")
    old(world)
    assert world.reconcile() == {"job": {"seen": 1}}
    world.simulator.say(PENDING)
    assert world.process() == {"job": {"claimed": 1, "snoozed": 1}}
    assert "record unreadable" in [line.message for line in caplog.records]
    assert world.bench.leaks() == []
    world.ends_well(NAME)


@pytest.mark.promise("faults", "an open item whose task Redis has lost in part, or a whole key")
@pytest.mark.parametrize("part", PARTS)
def test_a_key_that_redis_has_evicted_is_made_up_for(world: World, part: str) -> None:
    for name in (NAME, "b"):
        world.ask(rest("POST", "/tasks", {"provider": "job", "name": name, "group": "A"}))
    world.simulator.say(refused(), to="b")
    world.pass_(LEASE_SECONDS)
    world.process()
    world.post("c")
    world.redis.delete(key_of("job", part))
    for _ in range(2):
        old(world)
        world.process()
        world.reconcile()
    world.simulator.say(DONE)
    for name in (NAME, "c"):
        world.finish(name)
        world.check_end(name)
    assert world.bench.leaks() == []
    world.check("b")


@pytest.mark.promise("faults", "a task that has ended and is still in Redis, whole or in part")
@pytest.mark.parametrize(
    ("status", "counts"),
    [("completed", "forgotten"), ("cancelled", "forgotten"), ("gone", "forgotten"), ("failed", "buried")],
)
def test_a_task_that_has_ended_and_is_still_queued_ends_there_as_its_item_says(
    world: World, status: str, counts: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    waiting(world)
    ended(world, status)
    asked = world.simulator.calls()
    caplog.clear()
    repairs(world, **{counts: 1})
    assert [line.message for line in caplog.records if line.message != "reconcile"] == [counts]
    assert world.simulator.calls() == asked
    assert world.places() == (["dead"] if status == "failed" else [])


@pytest.mark.promise("faults", "a task that has ended and is still in Redis, whole or in part")
@pytest.mark.parametrize("parts", [("queue",), ("queue", "state"), ("queue", "tasks")], ids=" and ".join)
@pytest.mark.parametrize("status", ["completed", "cancelled", "failed", "gone"])
def test_what_is_left_of_a_task_that_has_ended_is_dropped(world: World, status: str, parts: tuple[str, ...]) -> None:
    waiting(world)
    ended(world, status)
    lose(world, *parts)
    repairs(world, forgotten=1)
    assert {part for part, members in world.bench.parts("job").items() if members} <= {"gate"}


@pytest.mark.promise("faults", "entries in Redis that belong to nothing")
@pytest.mark.parametrize("part", ["queue", "leases", "state", "tasks", "jobs", "groups"])
def test_an_entry_that_belongs_to_nothing_is_dropped(world: World, part: str) -> None:
    now = world.bench.keys.now()
    worthless: dict[str, Any] = {"leases": now - 1, "state": "5::0", "tasks": "{}", "jobs": "", "groups": "A"}
    if part == "queue":  # a whole task that nobody accepted
        world.bench.seed(NAME, provider="job", due_seconds=3600)
    else:
        world.bench.keys.write(key_of("job", part), NAME, worthless[part])
    repairs(world, forgotten=1)
    assert world.redis.dbsize() == 0


@pytest.mark.promise("faults", "entries in Redis that belong to nothing")
def test_thousands_of_entries_are_gone_through(world: World) -> None:
    waiting(world)
    for number in range(600):
        world.redis.hset(key_of("job", "state"), f"stray {number}", "5::0")
    old(world)
    repairs(world, seen=1, forgotten=600)
    assert world.bench.state("job").keys() == {NAME}


@pytest.mark.promise("faults", "reconcile does not touch what somebody works on or has just written")
def test_what_somebody_works_on_is_left_alone_whatever_its_item_says(world: World) -> None:
    leased(world)
    delete(world)
    before = world.bench.parts("job")
    assert world.reconcile() == {}
    assert world.bench.parts("job") == before


@pytest.mark.promise("faults", "reconcile does not touch what somebody works on or has just written")
def test_a_task_whose_item_was_written_just_now_is_left_alone(world: World) -> None:
    waiting(world)
    before = world.bench.parts("job")
    assert world.reconcile() == {}
    assert world.bench.parts("job") == before
    assert json.loads(before["tasks"][NAME])["outputs"] == {"id": "j-1"}
