"""The way to Redis breaks, leads astray or is slow: nothing is lost, nothing is done twice, nobody waits for long."""

import logging
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from botocore import endpoint
from redis.exceptions import ResponseError

from local.waiting import wait_until
from shared import aws, wiring
from shared.errors import QueueUnavailable
from shared.work import tick, tick_queue
from tests.faults.mortal import WAIT_SECONDS
from tests.faults.proxy import Proxy
from tests.faults.replicas import Pair
from tests.faults.world import DELETE, FURTHER, LEASE_SECONDS, NAME, MakeWorld, StartServer, World
from tests.support.outage import BlackHole
from tests.support.simulator import DONE, Said, refused

pytestmark = [pytest.mark.server, pytest.mark.slow]

PROMPT = aws.prompt  # a world's calls to AWS are more patient
PROMPT_SECONDS = 3.0
"""What a caller may be kept waiting for a neighbour that does not answer, beyond the provider's own time."""


@pytest.fixture
def way(start_server: StartServer) -> Iterator[Proxy]:
    """The way by which the handlers reach their Redis."""
    with Proxy(start_server().port) as way:
        yield way


@pytest.fixture
def world(make_world: MakeWorld, way: Proxy) -> World:
    return make_world(f"redis://127.0.0.1:{way.target}/0", way=way.url)


def due(world: World) -> None:
    warm(world)
    world.post(NAME)
    world.pass_(LEASE_SECONDS)


def warm(world: World) -> None:
    """The function is connected, and the server knows the scripts: the next request over the way is a call's own."""
    queue = wiring.queue()
    for script in queue._scripts.values():
        world.redis.script_load(script.script)
    queue.members("job", "dead")


TROUBLES: dict[str, Callable[[World, Proxy], object]] = {
    "the server has forgotten the scripts": lambda world, _: world.redis.script_flush(),
    "the server closed the connections": lambda world, _: world.redis.client_kill_filter(_type="normal", skipme=True),
    "the way was cut": lambda _, way: way.cut(),
}


@pytest.mark.promise("faults", "scripts forgotten and connections closed or cut, between calls or during an attempt")
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
@pytest.mark.parametrize("amid", [False, True], ids=["between two calls", "amid an attempt"])
def test_a_warm_function_goes_on_as_if_nothing_had_been(
    world: World, way: Proxy, trouble: Callable[[World, Proxy], object], amid: bool
) -> None:
    due(world)
    world.simulator.say(DONE.after(lambda: trouble(world, way)) if amid else DONE)
    if not amid:
        trouble(world, way)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    world.check_end(NAME)


@pytest.mark.promise("faults", "a former primary that only reads")
def test_a_former_primary_that_only_reads_is_left_for_the_new_one_by_the_same_call(
    replicas: Pair, make_world: MakeWorld
) -> None:
    world = make_world(replicas.way.url)
    due(world)
    replicas.swap()
    world.redis.connection_pool.disconnect()
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    world.check_end(NAME)


@pytest.mark.promise("faults", "a former primary that only reads")
def test_a_server_that_stays_read_only_is_away_and_the_task_waits(way: Proxy, world: World) -> None:
    due(world)
    world.redis.replicaof("127.0.0.1", "1")
    assert world.process() == {"job": {"unreachable": 1}}
    assert world.post("meanwhile").status == 202
    world.redis.replicaof("NO", "ONE")
    world.ends_well(NAME, "meanwhile")


def test_sixty_four_attempts_at_once_wait_for_connections_and_for_nothing_else(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world, names = make_world(PARALLEL_TASKS="64"), [f"{number}" for number in range(64)]
    client: Any = wiring.queue()._client
    client.connection_pool.max_connections = 1  # enough: attempts have no business with Redis
    world.due(*names)
    together = threading.Barrier(64)
    world.simulator.say(DONE.after(lambda: together.wait(WAIT_SECONDS)))
    caplog.set_level(logging.WARNING)
    assert world.process() == {"job": {"claimed": 64, "completed": 64}}
    assert [line for line in caplog.records if line.levelno >= logging.WARNING] == []


@pytest.mark.promise("faults", "a reply of Redis is lost")
def test_an_add_whose_reply_is_lost(world: World, way: Proxy) -> None:
    warm(world)
    way.lose_next_reply()
    assert world.post(NAME).body["deduplicated"] is False
    assert way.lost == 1
    world.ends_well(NAME)


@pytest.mark.promise("faults", "a reply of Redis is lost")
def test_a_claim_whose_reply_is_lost_gives_back_what_it_took_and_claims_it_again(world: World, way: Proxy) -> None:
    due(world)
    way.lose_next_reply()
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    assert way.lost == 1
    world.check_end(NAME)


@pytest.mark.promise("faults", "a reply of Redis is lost")
@pytest.mark.parametrize(
    ("said", "status"),
    [(FURTHER, "pending"), (DONE, "completed"), (refused(), "failed")],
    ids=["waiting", "completed", "buried"],
)
def test_a_settlement_whose_reply_is_lost_counts_as_lost_and_has_happened_once(
    world: World, way: Proxy, said: Said, status: str
) -> None:
    due(world)
    world.simulator.say(said.after(way.lose_next_reply))
    assert world.process() == {"job": {"claimed": 1, "lost": 1}}
    assert (way.lost, world.status(NAME)) == (1, status)
    world.check(NAME)
    assert world.places() == {"pending": ["waiting"], "completed": [], "failed": ["dead"]}[status]
    if status == "pending":
        world.ends_well(NAME)


@pytest.mark.promise("faults", "a reply of Redis is lost")
def test_a_cancellation_whose_reply_is_lost(world: World, way: Proxy) -> None:
    due(world)
    way.lose_next_reply()
    assert world.ask(DELETE).status == 200
    assert way.lost == 1
    world.check_end(NAME)


def hasty() -> None:
    """The handlers wait for a reply of Redis no longer than a test may last."""
    client: Any = wiring.queue()._client
    client.connection_pool.connection_kwargs["socket_timeout"] = 0.2


@pytest.mark.promise("faults", "a reply of Redis comes too late")
def test_a_claim_whose_reply_is_late_is_not_repeated_and_the_late_reply_is_nobodys(world: World, way: Proxy) -> None:
    hasty()
    due(world)
    way.hold()
    before = scripts_run(world)
    assert world.process() == {"job": {"unreachable": 1}}
    wait_until(lambda: scripts_run(world) > before, WAIT_SECONDS, "the claim")
    assert scripts_run(world) == before + 1
    assert world.places() == ["processing"]
    way.release()
    asked = world.simulator.calls(NAME)
    assert world.process() == {}
    assert world.simulator.calls(NAME) == asked
    world.ends_well(NAME)


def scripts_run(world: World) -> int:
    return int(world.redis.info("commandstats")["cmdstat_evalsha"]["calls"])


@pytest.mark.promise("faults", "a reply of Redis comes too late")
@pytest.mark.parametrize("said", [FURTHER, DONE], ids=["waiting", "completed"])
def test_a_settlement_whose_reply_is_late_has_happened_once(world: World, way: Proxy, said: Said) -> None:
    hasty()
    due(world)
    for module in (tick, tick_queue):
        world.patch.setattr(module, "REST_SECONDS", 0.1)
    over = threading.Timer(0.5, way.release)

    def holds() -> None:
        way.hold()
        over.start()

    world.simulator.say(said.after(holds))
    tally = world.process()["job"]
    over.join()
    assert tally.pop("unreachable") >= 1
    assert tally == {"claimed": 1, "lost": 1}  # the first call had settled it
    assert world.places() == ([] if said is DONE else ["waiting"])
    assert world.process() == {}
    world.ends_well(NAME)


@pytest.mark.promise("faults", "a reply of Redis comes too late")
def test_an_add_whose_reply_is_late_is_accepted_asked_and_left_to_its_lease(world: World, way: Proxy) -> None:
    hasty()
    warm(world)
    way.hold()
    assert world.post(NAME).status == 202
    way.release()
    assert world.places() == ["processing"]
    world.ends_well(NAME)


@pytest.mark.promise("faults", "BUSY: somebody's script blocks Redis")
def test_while_somebodys_script_keeps_redis_busy_requests_are_accepted_and_tasks_wait(world: World) -> None:
    due(world)
    world.redis.config_set("busy-reply-threshold", 1)

    def endless() -> None:
        with pytest.raises(ResponseError, match=r"(?i)killed"):
            world.redis.eval("while true do end", 0)

    thread = threading.Thread(target=endless)
    thread.start()
    wait_until(lambda: _is_busy(world), WAIT_SECONDS, "the script")
    assert world.process() == {"job": {"unreachable": 1}}
    assert world.post("meanwhile").status == 202
    world.redis.script_kill()
    thread.join(WAIT_SECONDS)
    world.ends_well(NAME, "meanwhile")


def _is_busy(world: World) -> bool:
    try:
        world.redis.get("anything")
    except ResponseError as error:
        return "BUSY" in str(error) or "busy" in str(error)
    return False


Waits: TypeAlias = dict[int, list[float]]
"""Port -> how long each attempt to connect there may have lasted."""


@pytest.fixture
def black_hole() -> Iterator[int]:
    with closing(BlackHole()) as hole:
        yield hole.port


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    waited: Waits = {}
    connect = socket.socket.connect

    def timed(self: socket.socket, address: Any) -> None:
        waited.setdefault(address[1], []).append(self.gettimeout() or math.inf)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", timed)
    return waited


@pytest.mark.promise("faults", "Redis is away")
def test_a_redis_that_nobody_answers_for_costs_a_request_one_short_wait_and_reconcile_queues_its_task(
    world: World, black_hole: int, waits: Waits
) -> None:
    with world.patch.context() as patch:
        patch.setenv("REDIS_URL", f"redis://127.0.0.1:{black_hole}/0")
        assert world.post(NAME).status == 202
        assert 0 < sum(waits[black_hole]) < PROMPT_SECONDS
        wiring.queue()._client.close()
    world.forget_wiring()
    world.ends_well(NAME)


@pytest.mark.parametrize("silent", [True, False], ids=["black hole", "closed port"])
def test_the_message_names_the_host_that_cannot_be_reached(
    black_hole: int, waits: Waits, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = black_hole if silent else listener.getsockname()[1]
    monkeypatch.setenv("REDIS_URL", f"redis://somebody:secret@127.0.0.1:{port}/0")
    with pytest.raises(QueueUnavailable, match=f"127.0.0.1:{port}") as found:
        wiring.queue().members("job", "dead")
    assert "secret" not in str(found.value)
    assert sum(waits[port]) <= 2


@pytest.mark.promise("faults", "no call to DynamoDB, S3 or Redis outlives its function")
def test_a_dynamodb_that_nobody_answers_for_costs_a_request_three_seconds_at_most(
    world: World, black_hole: int, waits: Waits
) -> None:
    pauses: list[float] = []
    world.patch.setattr(endpoint, "time", SimpleNamespace(sleep=pauses.append))
    world.patch.setattr(aws, "prompt", PROMPT)
    world.patch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{black_hole}")
    answered = world.post(NAME)
    assert (answered.status, answered.headers["retry-after"]) == (503, "5")
    assert 0 < sum(waits[black_hole]) + sum(pauses) < PROMPT_SECONDS
    assert (world.redis.dbsize(), world.simulator.calls()) == (0, [])
