"""Redis loses everything, or its last writes, at the worst moment: every task ends, once, and no job is begun twice."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from local.servers.redis_server import RedisServer
from tests.faults.replicas import Pair
from tests.faults.world import DELETE, FILE, FURTHER, LEASE_SECONDS, NAME, REVIVE, MakeWorld, StartServer, World
from tests.support.simulator import DONE, PENDING, Said, completed, pending, refused

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
def server(start_server: StartServer) -> RedisServer:
    return start_server()


Losing: TypeAlias = tuple[World, Callable[[], object]]


@pytest.fixture(params=["flushed", "restarted"])
def lose(request: pytest.FixtureRequest, server: RedisServer, make_world: MakeWorld) -> Losing:
    """A world, and how its Redis loses everything."""
    world = make_world(server.url)
    return world, world.redis.flushall if request.param == "flushed" else server.restart


@pytest.mark.promise("faults", "Redis loses everything while a task is requested, polled or completed")
def test_redis_that_loses_everything_while_a_request_asks(lose: Losing) -> None:
    world, loses = lose
    world.simulator.say(PENDING.after(loses))
    assert world.post(NAME).status == 202
    assert world.bench.state("job") == {}
    world.pass_(LEASE_SECONDS + 1)
    assert world.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    world.ends_well(NAME)


@pytest.mark.promise("ends", "when Redis has lost everything, the tasks come back with their jobs")
@pytest.mark.promise("faults", "Redis loses everything while a task is requested, polled or completed")
@pytest.mark.parametrize("said", [FURTHER, DONE], ids=["asked after", "completed"])
def test_redis_that_loses_everything_while_a_task_is_asked_after_or_completed(lose: Losing, said: Said) -> None:
    world, loses = lose
    world.due(NAME)
    world.simulator.say(said.after(loses))
    assert world.process() == {"job": {"claimed": 1, "lost": 1}}
    if said is DONE:
        world.check_end(NAME)
        world.pass_(LEASE_SECONDS + 1)
        assert world.reconcile() == {}
    world.ends_well(NAME)
    assert world.bench.state("job") == {}


@pytest.mark.promise("faults", "Redis has lost a dead letter")
def test_a_dead_letter_that_redis_has_lost_can_be_revived(lose: Losing) -> None:
    world, loses = lose
    world.due(NAME)
    world.simulator.say(refused())
    world.process()
    loses()
    world.check(NAME)
    world.simulator.say(DONE)
    assert world.ask(REVIVE).status == 202
    world.finish(NAME)
    world.check_end(NAME)
    assert world.status(NAME) == "completed"


@pytest.mark.promise("ends", "while Redis is away requests are accepted; reconcile queues them afterwards")
@pytest.mark.promise("faults", "Redis is away")
def test_while_redis_is_away_every_request_is_accepted_and_reconcile_queues_them_later(
    server: RedisServer, make_world: MakeWorld
) -> None:
    world, names = make_world(server.url), ["a", "b", "c"]
    world.post("before")
    server.kill()
    assert [world.post(name).status for name in names] == [202] * 3
    assert world.process() == {"job": {"unreachable": 1}}
    assert world.reconcile() == {"job": {"unreachable": 1}}
    server.restart()
    world.pass_(LEASE_SECONDS + 1)
    assert world.reconcile() == {"job": {"seen": 4, "requeued": 4}}
    world.ends_well("before", *names)


@pytest.mark.promise("faults", "Redis is full")
def test_a_full_redis_drains_and_takes_what_was_accepted_meanwhile_as_soon_as_it_may(
    server: RedisServer, make_world: MakeWorld
) -> None:
    world = make_world(server.url)
    world.due(NAME)
    world.redis.config_set("maxmemory-policy", "noeviction")
    world.redis.config_set("maxmemory", 1)
    assert world.post("later").status == 202
    world.check("later")
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    world.check_end(NAME)
    world.pass_(LEASE_SECONDS + 1)
    assert world.reconcile() == {"job": {"unreachable": 1}}
    world.redis.config_set("maxmemory", 0)
    assert world.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    world.ends_well("later")


@pytest.fixture
def replicated(replicas: Pair, make_world: MakeWorld) -> World:
    return make_world(replicas.way.url)


@pytest.mark.promise("faults", "a failover to a replica that lacks an add or a claim")
def test_a_failover_that_loses_an_add(replicas: Pair, replicated: World) -> None:
    replicas.fall_behind()
    assert replicated.post(NAME).status == 202
    replicas.fail_over()
    assert replicated.bench.state("job") == {}
    replicated.ends_well(NAME)


@pytest.mark.promise("faults", "a failover to a replica that lacks an add or a claim")
@pytest.mark.parametrize(
    ("said", "counts_as"), [(FURTHER, "snoozed"), (DONE, "forgotten")], ids=["pending", "completed"]
)
def test_a_failover_that_loses_a_claim(replicas: Pair, replicated: World, said: Said, counts_as: str) -> None:
    replicated.due(NAME)
    replicas.fall_behind()
    replicated.simulator.say(said.after(replicas.fail_over), said)
    assert replicated.process() == {"job": {"claimed": 2, "lost": 1, counts_as: 1}}  # it is due again at once
    replicated.ends_well(NAME)


@pytest.mark.promise("faults", "a failover to a replica that lacks an add or a claim")
def test_a_failover_that_loses_a_claim_lets_a_second_worker_ask_and_the_first_result_counts(
    replicas: Pair, replicated: World
) -> None:
    replicated.due(NAME)
    replicas.fall_behind()

    def second() -> None:
        replicas.fail_over()
        replicated.simulator.say(completed({"by": "the second"}))
        assert replicated.run("process").result["job"]["completed"] == 1

    replicated.simulator.say(completed({"by": "the first"}).after(second))
    assert replicated.process() == {"job": {"claimed": 1, "forgotten": 1}}
    replicated.check_end(NAME)
    assert replicated.known(NAME)["data"]["S"] == '{"by":"the second"}'


@pytest.mark.promise("faults", "a failover to a replica that lacks an add or a claim")
def test_a_failover_that_loses_the_claim_of_a_submit_leads_to_a_second_one_under_the_same_key(
    replicas: Pair, make_world: MakeWorld
) -> None:
    world = make_world(replicas.way.url, files={"job": FILE | {"firstAnswer": 0}})
    world.post(NAME)
    replicas.fall_behind()

    def second() -> None:
        replicas.fail_over()
        world.simulator.say(PENDING)
        assert world.run("process").result["job"]["snoozed"] == 1

    world.simulator.say(pending(id="j-1").after(second))
    world.process()
    world.simulator.say(DONE)
    world.finish(NAME)
    world.check_end(NAME)
    first, again = world.submits(NAME)
    assert first == again


@pytest.mark.promise("faults", "a failover to a replica that lacks a completion, a release, a burial or a cancellation")
@pytest.mark.parametrize(
    ("said", "counts_as"),
    [(DONE, "completed"), (FURTHER, "snoozed"), (refused(), "buried")],
    ids=["completion", "release", "burial"],
)
def test_a_failover_that_loses_a_settlement(replicas: Pair, replicated: World, said: Said, counts_as: str) -> None:
    replicated.due(NAME)
    replicated.simulator.say(said.after(replicas.fall_behind))
    assert replicated.process() == {"job": {"claimed": 1, counts_as: 1}}
    replicas.fail_over()
    assert replicated.places() == ["processing"]
    if counts_as == "buried":
        replicated.simulator.say(said)
        replicated.finish(NAME)
        replicated.check_end(NAME)
        assert replicated.places() == ["dead"]
    else:
        replicated.ends_well(NAME)


@pytest.mark.promise("faults", "a failover to a replica that lacks a completion, a release, a burial or a cancellation")
def test_a_failover_that_loses_a_cancellation(replicas: Pair, replicated: World) -> None:
    replicated.due(NAME)
    replicas.fall_behind()
    assert replicated.ask(DELETE).status == 200
    replicas.fail_over()
    assert replicated.places() == ["waiting"]
    replicated.simulator.say(DONE)
    replicated.finish(NAME)
    replicated.check_end(NAME)
    assert replicated.status(NAME) == "cancelled"
