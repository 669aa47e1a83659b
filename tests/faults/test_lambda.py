"""What Lambda does to a function: ends it in mid-batch, starts it twice, freezes it, leaves threads, deploys anew."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.waiting import wait_until
from shared import wiring
from shared.outcome import Completed
from shared.provider import Finding
from tests.faults.mortal import WAIT_SECONDS
from tests.faults.proxy import Proxy
from tests.faults.world import LEASE_SECONDS, NAME, MakeWorld, World
from tests.support.keys import key_of
from tests.support.simulator import DONE, PENDING, WHOLE

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.mark.promise("faults", "Lambda ends a function in the middle of a batch")
def test_a_function_that_runs_into_its_timeout_in_mid_batch_loses_nothing_and_repeats_nothing(
    make_world: MakeWorld,
) -> None:
    world, names = make_world(PARALLEL_TASKS="3"), [f"{number}" for number in range(6)]
    world.due(*names)
    held, over = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        held.release()
        over.wait(WAIT_SECONDS)

    for name in names:
        world.simulator.say(DONE if name in names[:2] else DONE.after(hold), to=name)
    life = world.send("process")
    for _ in range(3):
        assert held.acquire(timeout=WAIT_SECONDS)
    wait_until(lambda: len(world.bench.state("job")) == 4, WAIT_SECONDS, "the first two")
    life.process.kill()
    for step in life.wait().steps:
        world.note(step)
    over.set()
    assert Counter(place for place, _ in world.bench.state("job").values()) == {"processing": 3, "waiting": 1}
    for name in names:
        world.simulator.say(DONE, to=name)
        world.check(name)
    world.ends_well(*names)
    assert all(world.polls()[name] == 1 for name in names[:2])


@pytest.mark.promise("faults", "two ticks at once, and a tick with little time left")
def test_two_ticks_of_one_event_at_once_ask_about_each_task_once(make_world: MakeWorld) -> None:
    world, names = make_world(PARALLEL_TASKS="3"), [f"{number}" for number in range(20)]
    world.due(*names)
    both = DONE.after(lambda: wait_until(lambda: world.polls().total() >= 6, WAIT_SECONDS, "both"))
    world.simulator.say(both)
    event = {"id": "the same"}
    lives = [world.send("process", event) for _ in range(2)]
    tallies = [life.wait().result["job"] for life in lives]
    assert world.polls() == Counter(names)
    assert [tally["completed"] > 0 for tally in tallies] == [True, True]
    assert sum(tally["completed"] for tally in tallies) == len(names)
    assert world.bench.state("job") == {}


@pytest.fixture
def ways(redis_server: Any, dynamodb_server: Any, simulator: Any) -> Iterator[list[Proxy]]:
    ports = (redis_server("valkey").port, dynamodb_server.port, int(simulator.url.rpartition(":")[2]))
    with Proxy(ports[0]) as redis, Proxy(ports[1]) as dynamodb, Proxy(ports[2]) as provider:
        yield [redis, dynamodb, provider]


@pytest.mark.promise("faults", "freeze and thaw: every connection is stale")
def test_after_a_freeze_no_stale_connection_makes_a_call_fail_or_repeat(
    make_world: MakeWorld, ways: list[Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    redis, dynamodb, provider = ways
    world = make_world(
        way=redis.url,
        AWS_ENDPOINT_URL_DYNAMODB=f"http://127.0.0.1:{dynamodb.port}",
        PROVIDER_SERVERS=f"job=http://127.0.0.1:{provider.port}",
    )
    caplog.set_level(logging.WARNING, logger="meanwhile")
    world.post(NAME)

    def thawed() -> World:
        for way in ways:
            way.cut()
        return world

    assert thawed().post("b").status == 202
    world.pass_(LEASE_SECONDS)
    world.simulator.say(DONE)
    assert thawed().process() == {"job": {"claimed": 2, "completed": 2}}
    assert thawed().reconcile() == {}
    for name in (NAME, "b"):
        world.check_end(name)
        assert world.simulator.calls(name) == ["POST /jobs", "GET /jobs/j-1"]
    assert caplog.records == []


@pytest.mark.promise("faults", "a thread that hangs in its call")
@pytest.mark.parametrize("amid", [True, False], ids=["amid the next call", "after the next call"])
def test_an_attempt_that_hangs_over_its_call_takes_no_part_in_the_next(world: World, amid: bool) -> None:
    world.due(NAME)
    provider = wiring.providers()["job"]
    ask, begun, over, returned = provider.attempt, threading.Event(), threading.Event(), threading.Event()

    def hangs(_task: Any, record: Any, **_: Any) -> Finding:
        """Nothing stops it; when it comes back it has the data."""
        world.patch.setattr(provider, "attempt", ask)
        begun.set()
        over.wait(WAIT_SECONDS)
        return Finding(Completed({"by": "the hung"}), record)

    def comes_back() -> None:
        over.set()
        assert returned.wait(WAIT_SECONDS)

    complete = wiring.store().complete

    def completes(*arguments: Any, **options: Any) -> Any:
        try:
            return complete(*arguments, **options)
        finally:
            if arguments[2] == {"by": "the hung"}:
                returned.set()

    world.patch.setattr(provider, "attempt", hangs)
    world.patch.setattr(wiring.store(), "complete", completes)
    calls = iter([60.0])

    def remaining() -> float:
        """Enough to begin with; nothing once the attempt hangs."""
        left = next(calls, 0.0)
        assert left or begun.wait(WAIT_SECONDS)
        return left

    assert wiring.tick(remaining).run()["job"] == {"claimed": 1, "expired": 0, "abandoned": 1}
    world.pass_(LEASE_SECONDS + 1)
    world.simulator.say(DONE.after(comes_back) if amid else DONE)
    assert world.process() == {"job": {"claimed": 1, "expired": 1, "forgotten" if amid else "completed": 1}}
    if not amid:
        comes_back()
    world.check_end(NAME)
    assert json.loads(world.known(NAME)["data"]["S"]) == ({"by": "the hung"} if amid else WHOLE)


@pytest.mark.promise("faults", "a thread that hangs in its call")
def test_no_call_leaves_a_thread_behind(world: World) -> None:
    world.due(NAME, "b", "c")
    world.simulator.say(PENDING)
    world.process()

    def ours(kind: str = "") -> int:
        """The threads of the function; those of the provider end when it likes."""
        names = [thread.name for thread in threading.enumerate()]
        return sum(kind in name and "process_request" not in name for name in names)

    wait_until(lambda: not ours("PoolExecutor"), WAIT_SECONDS, "the first pool")
    before = ours()
    for _ in range(3):
        world.pass_(LEASE_SECONDS)
        assert world.process() == {"job": {"claimed": 3, "snoozed": 3}}
    wait_until(lambda: ours() <= before, WAIT_SECONDS, "the threads")


def rewrite(world: World, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Its record as another version of the code would have written it."""
    changed = change(json.loads(record_of(world)))
    text = changed if isinstance(changed, str | bytes) else json.dumps(changed)
    world.redis.hset(key_of("job", "tasks"), NAME, text)
    return text


def record_of(world: World) -> str:
    return str(world.redis.hget(key_of("job", "tasks"), NAME))


def newer(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"version": 2, "more": {"than": "we know"}}


@pytest.mark.promise("faults", "records of a later or an earlier version, and junk")
def test_a_record_of_a_later_version_is_left_as_it_is_however_often_it_is_met(world: World) -> None:
    world.due(NAME)
    before = record_of(world)
    text, asked = rewrite(world, newer), world.simulator.calls()
    for _ in range(15):
        assert world.process() == {"job": {"claimed": 1, "released": 1}}
        world.check(NAME)
        world.pass_(61)
        world.reconcile()
    assert record_of(world) == text
    assert world.simulator.calls() == asked
    rewrite(world, lambda _: before)  # the later version is back
    world.ends_well(NAME)


@pytest.mark.promise("faults", "records of a later or an earlier version, and junk")
def test_a_record_of_a_later_version_does_not_fail_though_workers_die_with_it(world: World) -> None:
    world.due(NAME)
    before = record_of(world)
    text = rewrite(world, newer)
    for step in (1, 3, 3):  # once it is claimed, then once it is taken over
        assert world.run("process", dies_after=step).killed
        world.pass_(LEASE_SECONDS + 1)
    for expired in ({"expired": 1}, {}, {}, {}):  # given back unasked: these are no crashes
        assert world.process() == {"job": {"claimed": 1, "released": 1} | expired}
        world.pass_(100)
    assert record_of(world) == text
    rewrite(world, lambda _: before)
    world.ends_well(NAME)


@pytest.mark.promise("faults", "records of a later or an earlier version, and junk")
def test_a_record_of_an_earlier_version_goes_on_where_it_was(world: World) -> None:
    world.due(NAME)
    since = ("group", "job_at", "unauthorized_at", "confirmed_at", "saved", "reason")
    rewrite(world, lambda record: {key: value for key, value in record.items() if key not in since})
    world.simulator.say(PENDING)
    assert world.process() == {"job": {"claimed": 1, "snoozed": 1}}
    world.ends_well(NAME)


JUNK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "cut off": lambda record: json.dumps(record)[:-5],
    "empty": lambda _: "",
    "null": lambda _: "null",
    "a list": lambda record: [record],
    "without a version": lambda record: {key: value for key, value in record.items() if key != "version"},
    "fields that nobody knows": lambda record: record | {"unknown": 1},
    "another generation's": lambda record: record | {"generation": 7},
    "not UTF-8": lambda _: b"\xff",
}


@pytest.mark.promise("faults", "records of a later or an earlier version, and junk")
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_record_that_is_junk_is_reported_and_made_anew_from_the_item(
    world: World, junk: Callable[[dict[str, Any]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    world.due(NAME)
    rewrite(world, junk)
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    assert [line.message for line in caplog.records if line.levelno >= logging.ERROR] == ["record unreadable"]
    world.check_end(NAME)
    assert len(world.submits(NAME)) == 1


@pytest.mark.promise("faults", "records of a later or an earlier version, and junk")
@pytest.mark.parametrize("state", ["", "junk", "1:2", "-1::0", "9:tok:en:0"])
def test_a_state_that_is_junk_harms_no_neighbour_and_the_task_comes_back(world: World, state: str) -> None:
    world.due(NAME, "b")
    world.redis.hset(key_of("job", "state"), NAME, state)
    world.simulator.say(DONE)
    assert world.process()["job"]["completed"] == 1
    world.ends_well(NAME, "b")
