"""What has struck other queues and their clients, at the handlers, on a real Redis: each as small as it can be."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest
from botocore.session import Session

from shared import wiring
from shared.provider import Finding
from shared.work.worker import Worker
from tests.faults.mortal import PATIENCE_SECONDS, Life
from tests.faults.virtual_time import VirtualTime
from tests.faults.world import FILE, LEASE_SECONDS, MakeWorld, World
from tests.support.api_events import rest
from tests.support.keys import key_of
from tests.support.simulator import DRIPPING, completed, pending, says

pytestmark = [pytest.mark.server, pytest.mark.slow]

NAME = "a"
PENDING = pending({"city": "Ghent"}, id="j-1")
WHOLE = {"city": "Ghent", "rating": 4.5}
DONE = completed(WHOLE)
DAYS = 86_400
DELETE = rest("DELETE", f"/tasks?provider=job&name={NAME}")
ACCEPTING = FILE | {"firstAnswer": 0}


def seen(world: World, name: str = NAME) -> dict[str, Any]:
    return world.ask(rest("GET", f"/tasks?provider=job&name={name}")).body


# --- once, whatever happens at the same time


@pytest.mark.promise("faults", "fifty simultaneous requests for one task")
def test_fifty_requests_at_once_for_one_task_begin_one_job(world: World) -> None:
    together = threading.Barrier(50)

    def ask(_: int) -> tuple[int, bool]:
        together.wait(PATIENCE_SECONDS)
        answered = world.post(NAME)
        return answered.status, answered.body["deduplicated"]

    with ThreadPoolExecutor(50) as pool:
        answers = Counter(pool.map(ask, range(50)))
    assert answers == {(202, False): 1, (202, True): 49}
    assert len(world.submits(NAME)) == 1
    before = world.bench.score(NAME, "job")
    assert world.post(NAME).body["deduplicated"]
    assert world.bench.score(NAME, "job") == before
    world.check(NAME)


# --- lost workers


@pytest.mark.promise("faults", "Lambda ends a function in the middle of a batch")
def test_three_tasks_whose_worker_was_killed_are_all_asked_after_one_lease_later(world: World) -> None:
    names = ("a", "b", "c")
    world.due(*names)
    assert world.run("process", dies_after=0).killed
    assert {place for place, _ in world.bench.state("job").values()} == {"processing"}
    world.pass_(LEASE_SECONDS)
    before = {name: world.polls()[name] for name in names}
    world.simulator.say(PENDING)
    tally = world.process()
    assert tally == {"job": {"claimed": 3, "expired": 3, "snoozed": 3}}
    assert {name: world.polls()[name] - before[name] for name in names} == dict.fromkeys(names, 1)
    for name in names:
        world.check(name)
        assert (seen(world, name)["schedule"], seen(world, name)["attempts"]) == ("waiting", 2)


@pytest.mark.promise("faults", "a task that kills its workers")
def test_a_task_whose_answer_kills_the_worker_is_a_dead_letter_after_so_many_claims_and_stops_no_other(
    world: World,
) -> None:
    lives: list[Life] = []
    started = threading.Event()

    def kill() -> None:
        started.wait(PATIENCE_SECONDS)
        lives[-1].process.kill()

    neighbours = ("x", "y", "z")
    world.due("killer", *neighbours)
    world.simulator.say(DONE.after(kill), to="killer")
    asked = []
    for _ in range(7):
        started.clear()
        lives.append(world.send("process"))
        started.set()
        lives[-1].wait()
        asked.append(sum(world.polls()[name] for name in neighbours))
        world.pass_(LEASE_SECONDS + 1)
    assert [life.killed for life in lives] == [True] * 4 + [False] * 3
    assert world.polls()["killer"] == 4
    assert (seen(world, "killer")["status"], seen(world, "killer")["error"]["reason"]) == ("failed", "crashed")
    assert seen(world, "killer")["schedule"] == "dead letter"
    assert all(later > earlier for earlier, later in zip(asked, asked[2:], strict=False))
    world.simulator.say(DONE)
    for name in neighbours:
        world.finish(name)
        assert world.status(name) == "completed"


# --- due when it should be, and not for ever


def test_a_task_due_long_after_its_lease_would_end_is_not_asked_about_before(make_world: MakeWorld) -> None:
    world = make_world(ATTEMPT_SECONDS="50")
    assert wiring.settings().lease_seconds == 60
    world.simulator.say(says(200, {"status": "async processing in progress", "id": "j-1"}, Retry_After="7200"))
    world.post(NAME)
    asked = world.simulator.calls()
    for passed in (90, 510):
        world.pass_(passed)
        before = world.bench.score(NAME, "job")
        assert world.process() == {}
        assert world.bench.score(NAME, "job") == before
    assert world.simulator.calls() == asked
    assert list(world.bench.state("job")) == [NAME]


@pytest.mark.promise("faults", "a job that never ends, and unexpected words")
def test_a_job_that_never_ends_is_given_up_at_its_age_with_what_was_learned(world: World) -> None:
    world.due(NAME)
    assert world.process() == {"job": {"claimed": 1, "snoozed": 1}}
    world.pass_(8 * DAYS)
    assert world.process() == {"job": {"claimed": 1, "buried": 1}}
    assert (seen(world)["status"], seen(world)["error"]["reason"]) == ("failed", "timeout")
    assert seen(world)["data"] == {"city": "Ghent"}
    asked = world.simulator.calls()
    world.pass_(DAYS)
    assert (world.process(), world.simulator.calls()) == ({}, asked)
    world.check_end(NAME)


@pytest.mark.promise("faults", "a job that never ends, and unexpected words")
def test_end_words_of_any_spelling_end_a_task_and_an_unknown_one_is_reported_and_does_so_at_its_age(
    make_world: MakeWorld,
) -> None:
    ends = [
        {"state": "failure", "expected": ["failed", "cancelled", "timeout"]},
        {"state": "success", "expected": ["done", "completed"]},
    ]
    world = make_world(files={"job": FILE | {"acceptors": [*ends, *FILE["acceptors"]]}})
    words = {"TIMEOUT": "failed", "CANCELLED": "failed", "Failed": "failed", "done ": "completed", "odd": "pending"}
    names = {word: f"{number}" for number, word in enumerate(words)}
    world.due(*names.values())
    for word, name in names.items():
        world.simulator.say(says(200, {"data": 1, "status": word}), to=name)
    world.process()
    assert {word: seen(world, name)["status"] for word, name in names.items()} == words
    assert seen(world, names["odd"])["reason"] == "no acceptor matches odd"
    world.pass_(8 * DAYS)
    world.process()
    assert seen(world, names["odd"])["error"]["reason"] == "timeout"
    asked = world.simulator.calls()
    world.pass_(8 * DAYS)
    assert (world.process(), world.simulator.calls()) == ({}, asked)


@pytest.mark.promise("faults", "a provider whose answers come after the deadline")
def test_an_answer_that_comes_byte_by_byte_is_given_up_and_its_task_waits(make_world: MakeWorld) -> None:
    world = make_world(ATTEMPT_SECONDS="0.3")
    world.due(NAME)
    world.simulator.say(DRIPPING)
    assert world.process() == {"job": {"claimed": 1, "retried": 1}}
    assert [place for place, _ in world.bench.state("job").values()] == ["waiting"]


def test_a_task_is_due_when_its_answer_says_and_else_when_its_file_does(world: World) -> None:
    now = world.clock() / 1000 + LEASE_SECONDS
    dates = [formatdate(now + seconds, usegmt=True) for seconds in (120, -120)]
    least, usual = FILE["polling"]["minDelay"], FILE["polling"]["minDelay"] * 2
    waits = {"120": 120, dates[0]: 120, dates[1]: least, "soon": usual}
    names = {said: f"{number}" for number, said in enumerate(waits)}
    world.due(*names.values())
    for said, name in names.items():
        world.simulator.say(says(200, {"status": "async processing in progress"}, Retry_After=said), to=name)
    before = world.bench.keys.now()
    assert world.process() == {"job": {"claimed": 4, "snoozed": 4}}
    after = world.bench.keys.now()
    for said, seconds in waits.items():
        score = world.bench.score(names[said], "job")
        assert score is not None
        assert before <= score - 1000 * seconds <= after


# --- one task, a crowd, and one bad among many


@pytest.mark.promise("faults", "our own errors in some tasks of many")
def test_two_faults_of_ours_among_ten_tasks_harm_no_other_and_the_tick_returns_its_tally(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}" for number in range(10)]
    world.due(*names)
    world.simulator.say(DONE)
    ask, record = wiring.providers()["job"].attempt, wiring.worker()._record

    def asks(task: Any, *arguments: Any, **options: Any) -> Finding:
        return ask(task, *arguments, **options) if task.name != "3" else 1 / 0  # type: ignore[return-value]

    def records(worker: Worker, one: Any) -> Any:
        return record(one) if one.hold.task.name != "7" else 1 / 0

    monkeypatch.setattr(wiring.providers()["job"], "attempt", asks)
    monkeypatch.setattr(Worker, "_record", records)
    assert world.process() == {"job": {"claimed": 10, "completed": 8, "retried": 1, "released": 1}}
    assert {name: place for name, (place, _) in world.bench.state("job").items()} == {"3": "waiting", "7": "waiting"}


def test_a_tick_costs_the_same_however_many_tasks_are_not_due(make_world: MakeWorld) -> None:
    world = make_world(files={"job": ACCEPTING}, PARALLEL_TASKS="1")  # so that every tick settles alike

    def cost() -> tuple[int, int]:
        """Commands that Redis ran for a tick with five due tasks, and the bytes that it sent."""
        names = [f"{number}" for number in range(5)]
        for name in names:
            world.ask(rest("POST", "/tasks", {"provider": "job", "name": name}, {"Cache-Control": "no-cache"}))
        before = spent(world)
        assert world.process() == {"job": {"claimed": 5, "completed": 5}}
        return tuple(now - then for now, then in zip(spent(world), before, strict=True))  # type: ignore[return-value]

    world.simulator.say(DONE)
    cost()  # the scripts are loaded
    few = cost()
    keys = [key_of("job", part) for part in ("queue", "state", "tasks")]
    for first in range(0, 200_000, 20_000):
        world.redis.eval(CROWD, len(keys), *keys, world.bench.keys.now() + 1000 * DAYS, first)
    many = cost()
    assert many[0] == few[0]
    assert many[1] < few[1] + 1000
    assert world.redis.zcard(keys[0]) == 200_000


CROWD = """
for i = ARGV[2] + 1, ARGV[2] + 20000 do
  redis.call('ZADD', KEYS[1], ARGV[1], 'later ' .. i)
  redis.call('HSET', KEYS[2], 'later ' .. i, '1::0')
  redis.call('HSET', KEYS[3], 'later ' .. i, '{}')
end"""


def spent(world: World) -> tuple[int, int]:
    commands = sum(one["calls"] for one in world.redis.info("commandstats").values())
    return commands, world.redis.info("stats")["total_net_output_bytes"]


# --- a name that has been used before


def test_a_name_whose_task_has_ended_is_answered_while_fresh_and_else_begun_again(world: World) -> None:
    world.due(NAME)
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    generation = seen(world)["generation"]
    fresh = world.post(NAME)
    assert (fresh.status, fresh.body["data"], fresh.body["generation"]) == (200, WHOLE, generation)
    assert world.bench.state("job") == {}
    world.simulator.say(PENDING)
    anew = world.post(NAME, **{"Cache-Control": "no-cache"})
    assert (anew.status, anew.body["data"], anew.body["deduplicated"]) == (202, WHOLE, False)
    assert world.bench.state("job") == {NAME: ("waiting", generation + 1)}
    world.simulator.say(DONE)
    world.finish(NAME)
    world.clock.advance(3601)
    stale = world.post(NAME)
    assert (stale.status, stale.body["generation"]) == (200, generation + 2)  # completed at once, by asking again
    assert len(world.submits(NAME)) == 3


def test_a_name_whose_task_was_cancelled_is_accepted_again(world: World) -> None:
    generation = world.post(NAME).body["generation"]
    assert world.ask(DELETE).status == 200
    assert world.redis.dbsize() == 0
    again = world.post(NAME)
    assert (again.status, again.body["deduplicated"], again.body["generation"]) == (202, False, generation + 1)
    assert world.bench.state("job") == {NAME: ("waiting", generation + 1)}


# --- functions and their callers


@pytest.mark.promise("faults", "a provider whose answers come after the deadline")
def test_a_provider_that_sleeps_keeps_no_caller_and_its_job_is_not_begun_twice(make_world: MakeWorld) -> None:
    world = make_world(files={"job": FILE | {"firstAnswer": 0.2}})
    over = threading.Event()
    world.simulator.say(PENDING.after(lambda: over.wait(PATIENCE_SECONDS)))
    began = time.monotonic()
    try:
        first, retry = world.post(NAME), world.post(NAME)
    finally:
        over.set()
    assert time.monotonic() - began < wiring.settings().attempt_seconds  # 20; the gateway gives up after 29
    assert [(one.status, one.body["deduplicated"]) for one in (first, retry)] == [(202, False), (202, True)]
    assert [place for place, _ in world.bench.state("job").values()] == ["waiting"]
    assert len(world.submits(NAME)) == 1


@pytest.mark.promise("faults", "two ticks at once, and a tick with little time left")
def test_a_tick_with_little_time_claims_only_what_it_can_end_and_is_back_before(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, names = make_world(PARALLEL_TASKS="4", ATTEMPT_SECONDS="3"), [f"{number}" for number in range(40)]
    world.due(*names)
    world.simulator.say(DONE)
    virtual, ends_at = VirtualTime(world, monkeypatch, lambda _: 3), world.clock.monotonic() + 20
    tally = virtual.run(lambda: ends_at - world.clock.monotonic())["job"]
    assert +tally == {"claimed": 16, "completed": 16}
    assert world.clock.monotonic() < ends_at
    assert Counter(place for place, _ in world.bench.state("job").values()) == {"waiting": 24}


def test_a_cold_start_into_32_attempts_at_once_makes_one_client(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, names = make_world(PARALLEL_TASKS="32"), [f"{number}" for number in range(32)]
    world.due(*names)
    together, made, create = threading.Barrier(32), list[str](), Session.create_client

    def creates(session: Session, service: str, *arguments: Any, **options: Any) -> Any:
        made.append(service)
        return create(session, service, *arguments, **options)

    monkeypatch.setattr(Session, "create_client", creates)
    world.simulator.say(DONE.after(lambda: together.wait(PATIENCE_SECONDS)))
    wiring.queue()._client.close()
    world.forget_wiring()
    assert world.process() == {"job": {"claimed": 32, "completed": 32}}
    assert made == ["dynamodb"]
