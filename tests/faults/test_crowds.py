"""Many at once, on a real Redis: one job, one client, a tick that costs the same; and tasks due when they should be."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest
from botocore.session import Session

from shared import wiring
from tests.faults.mortal import WAIT_SECONDS
from tests.faults.world import FILE, LEASE_SECONDS, NAME, MakeWorld, World
from tests.support.api_events import rest
from tests.support.keys import key_of
from tests.support.simulator import DONE, says

pytestmark = [pytest.mark.server, pytest.mark.slow]

DAYS = 86_400
ACCEPTING = FILE | {"firstAnswer": 0}


@pytest.mark.promise("faults", "fifty simultaneous requests for one task")
def test_fifty_requests_at_once_for_one_task_begin_one_job(world: World) -> None:
    together = threading.Barrier(50)

    def ask(_: int) -> tuple[int, bool]:
        together.wait(WAIT_SECONDS)
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


def test_a_task_is_due_when_its_answer_says_and_else_when_its_file_does(world: World) -> None:
    now = world.clock() / 1000 + LEASE_SECONDS
    dates = [formatdate(now + seconds, usegmt=True) for seconds in (120, -120)]
    usual = FILE["polling"]["minDelay"] * 2
    waits = {"120": 120, dates[0]: 120, dates[1]: usual, "soon": usual}  # what is past is no hint (C25)
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
    keys = [key_of("job", part) for part in ("queue", "state", "tasks", "lines", "ring")]
    for first in range(0, 200_000, 5_000):
        world.redis.eval(CROWD, len(keys), *keys, world.bench.keys.now() + 1000 * DAYS, first)
    many = cost()
    assert many[0] <= few[0]  # a line that never ends is never taken out of the ring
    assert many[1] < few[1] + 1000
    assert world.redis.zcard(keys[0]) == 200_000


CROWD = """
for i = ARGV[2] + 1, ARGV[2] + 5000 do
  redis.call('ZADD', KEYS[1], ARGV[1], 'later ' .. i)
  redis.call('HSET', KEYS[2], 'later ' .. i, '1::0')
  redis.call('HSET', KEYS[3], 'later ' .. i, '{}')
  redis.call('ZADD', KEYS[4], 0, '\\0' .. ARGV[1] .. '\\0later ' .. i)
end
redis.call('ZADD', KEYS[5], 'NX', ARGV[1], '')"""


def spent(world: World) -> tuple[int, int]:
    commands = sum(one["calls"] for one in world.redis.info("commandstats").values())
    return commands, world.redis.info("stats")["total_net_output_bytes"]


def test_a_cold_start_into_32_attempts_at_once_makes_one_client(make_world: MakeWorld) -> None:
    world, names = make_world(PARALLEL_TASKS="32"), [f"{number}" for number in range(32)]
    world.due(*names)
    together, made, create = threading.Barrier(32), list[str](), Session.create_client

    def creates(session: Session, service: str, *arguments: Any, **options: Any) -> Any:
        made.append(service)
        return create(session, service, *arguments, **options)

    world.patch.setattr(Session, "create_client", creates)
    world.simulator.say(DONE.after(lambda: together.wait(WAIT_SECONDS)))
    wiring.queue()._client.close()
    world.forget_wiring()
    assert world.process() == {"job": {"claimed": 32, "completed": 32}}
    assert made == ["dynamodb"]
