"""Redis behind TLS with a private authority, under a user who may do no more than he must; and as a cluster."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from redis import Redis, RedisCluster
from redis.crc import key_slot
from redis.exceptions import NoPermissionError

from local import ROOT
from local.servers.redis_cluster import SLOTS, cluster_of
from local.servers.redis_server import Kind, RedisServer, free_port
from local.waiting import wait_until
from shared import wiring
from shared.errors import QueueUnavailable
from shared.queue import Queue
from shared.queue.client import client_of
from shared.task import Task
from tests.faults.mortal import WAIT_SECONDS
from tests.faults.world import DELETE, FILE, LEASE_SECONDS, NAME, REVIVE, MakeWorld, StartServer, World
from tests.support.api_events import rest
from tests.support.keys import PREFIX, key_of
from tests.support.redis_servers import server_or_skip
from tests.support.simulator import DONE, PENDING, refused
from tests.support.tls import certified

pytestmark = [pytest.mark.server, pytest.mark.slow]

LIMITED = FILE | {"limits": {"openJobs": 2, "parallel": 2, "rate": {"requests": 10, "seconds": 1}}}
ALLOWED = (
    "+evalsha +eval +time +type +exists +del +zadd +zrem +zscore +zmscore +zcard +zcount +zrangebyscore +zrangebylex "
    "+zlexcount +zremrangebyscore +zrevrange +zrevrangebyscore +zscan +hget +hmget +hset +hdel +hscan +sadd +srem "
    "+scard +sismember +smismember +sscan"
)
"""All that a user of the queue must be allowed, on keys that begin with `{queue:`."""


def test_the_page_names_all_that_must_be_allowed() -> None:
    assert ALLOWED in " ".join((ROOT / "docs" / "operations.md").read_text().split())


def live(world: World) -> None:
    """Through every verb: added, claimed, released, buried, revived, cancelled; lost and brought back; completed."""
    world.post(NAME)
    world.pass_(LEASE_SECONDS)
    assert world.process() == {"job": {"claimed": 1, "snoozed": 1}}
    world.pass_(LEASE_SECONDS)
    world.simulator.say(refused())
    assert world.process() == {"job": {"claimed": 1, "buried": 1}}
    world.simulator.say(PENDING)
    assert world.ask(REVIVE).status == 202
    assert world.ask(DELETE).status == 200
    world.ask(rest("POST", "/tasks", {"provider": "job", "name": NAME, "group": "A"}, {"Cache-Control": "no-cache"}))
    world.redis.flushall()
    world.pass_(LEASE_SECONDS + 1)
    assert world.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    world.bench.seed("gone", dead=True, provider="job")
    assert world.reconcile() == {"job": {"seen": 1, "forgotten": 1}}
    world.check(NAME)
    world.simulator.say(DONE)
    world.finish(NAME)
    world.check_end(NAME)


Guarded: TypeAlias = tuple[RedisServer, str]


@pytest.fixture
def guarded(start_server: StartServer, tmp_path: Path) -> Guarded:
    """A server that speaks TLS as well and knows a user with few rights; and that user's URL, but for the authority."""
    server: RedisServer = start_server("redis")
    return server, secured(server.url, tmp_path)


def secured(url: str, folder: Path, further: str = "") -> str:
    """Has that server speak TLS as well, and know the user; returns his URL."""
    certified(folder)
    port = free_port()
    with Redis.from_url(url) as client:
        files = {"tls-cert-file": "certificate.pem", "tls-key-file": "key.pem", "tls-ca-cert-file": "certificate.pem"}
        paths = [word for name, file in files.items() for word in (name, str(folder / file))]
        client.execute_command("CONFIG SET", *paths, "tls-auth-clients", "no", "tls-port", port)
        client.execute_command(
            "CONFIG SET", "tls-cluster", "yes", "cluster-announce-tls-port", port
        )  # what it tells of
        rights = f"on >s3cret resetkeys ~{{{PREFIX}:* resetchannels -@all {ALLOWED} {further}"
        client.execute_command("ACL SETUSER", "meanwhile", *rights.split())
    return f"rediss://meanwhile:s3cret@127.0.0.1:{port}/0"


@pytest.mark.promise("faults", "TLS with a private authority, a user with few rights, wrong credentials")
def test_all_goes_well_over_tls_with_a_private_authority_as_a_user_who_may_only_do_this(
    guarded: Guarded, make_world: MakeWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, url = guarded
    way = f"{url}?ssl_ca_certs={tmp_path / 'certificate.pem'}"
    world = make_world(server.url, way=way, files={"job": LIMITED})
    caplog.set_level(logging.WARNING)
    live(world)
    assert caplog.records == []
    client: Any = wiring.queue()._client
    for forbidden in (client.config_get, client.dbsize, lambda: client.get("another's")):
        with pytest.raises(NoPermissionError):
            forbidden()


@pytest.mark.promise("faults", "TLS with a private authority, a user with few rights, wrong credentials")
def test_a_server_with_tls_and_without_users_is_reached_each_time(guarded: Guarded, tmp_path: Path) -> None:
    """Its session tickets come when they please: fresh connections that had one to read were taken for broken."""
    way = guarded[1].replace("meanwhile:s3cret@", "") + f"?ssl_ca_certs={tmp_path / 'certificate.pem'}"
    for _ in range(30):
        Queue(client_of(way), PREFIX).look([Task("job", NAME)])


@pytest.mark.promise("faults", "TLS with a private authority, a user with few rights, wrong credentials")
def test_a_server_that_no_known_authority_vouches_for_is_not_spoken_to(guarded: Guarded, make_world: MakeWorld) -> None:
    world = make_world(guarded[0].url, way=guarded[1])
    assert world.post(NAME).status == 202
    assert world.process() == {"job": {"unreachable": 1}}
    assert world.redis.dbsize() == 0
    with pytest.raises(QueueUnavailable, match=r"(?i)certificate") as found:
        wiring.queue().members("job", "dead")
    assert "s3cret" not in str(found.value)


@pytest.mark.promise("faults", "TLS with a private authority, a user with few rights, wrong credentials")
@pytest.mark.parametrize("user", ["meanwhile:wrong", "nobody:s3cret"])
def test_wrong_credentials_are_an_outage_that_says_so(guarded: Guarded, make_world: MakeWorld, user: str) -> None:
    server = guarded[0]
    world = make_world(server.url, way=f"redis://{user}@127.0.0.1:{server.port}/0")
    assert world.post(NAME).status == 202
    with pytest.raises(QueueUnavailable, match=r"(?i)username-password|authentication") as found:
        wiring.queue().members("job", "dead")
    assert "wrong" not in str(found.value)


@pytest.fixture
def cluster(redis_cluster: Callable[[Kind, int], list[int]]) -> Iterator[Any]:
    """Three nodes, empty."""
    with RedisCluster("127.0.0.1", redis_cluster("redis", 3)[0], decode_responses=True) as client:
        client.flushall()
        yield client


def elsewhere(cluster: Any, provider: str) -> str:
    """The URL of a node that does not have a provider's queue."""
    home = cluster.get_node_from_key(key_of(provider, "queue"))
    port = next(node.port for node in cluster.get_primaries() if node.port != home.port)
    return f"redis://127.0.0.1:{port}/0"


@pytest.mark.promise("faults", "MOVED and TRYAGAIN: one node of a cluster as endpoint, a slot that moves")
def test_the_endpoint_of_one_node_is_called_a_wrong_setting_and_no_task_is_lost(
    make_world: MakeWorld, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(way=elsewhere(cluster, "job"))
    assert world.post(NAME).status == 202
    assert world.process() == {"job": {"unreachable": 1}}
    said = {str(vars(line).get("reason")) for line in caplog.records if line.message == "queue unavailable"}
    assert all("REDIS_URL must begin with redis-cluster://" in one for one in said)
    assert len(said) == 1
    assert world.status(NAME) == "pending"


@pytest.mark.promise("faults", "MOVED and TRYAGAIN: one node of a cluster as endpoint, a slot that moves")
def test_while_its_slot_moves_to_another_node_a_task_waits(make_world: MakeWorld, cluster: Any) -> None:
    home = cluster.get_node_from_key(key_of("job", "queue"))
    other = next(node for node in cluster.get_primaries() if node.port != home.port)
    world = make_world(f"redis://127.0.0.1:{home.port}/0")
    world.post(NAME)
    world.pass_(LEASE_SECONDS)
    here: Any = world.redis
    slot = here.cluster("KEYSLOT", key_of("job", "queue"))
    here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", cluster.cluster_myid(other))
    assert world.process() == {"job": {"unreachable": 1}}
    with pytest.raises(QueueUnavailable, match="TryAgain"):
        wiring.queue().look([Task("job", NAME)])
    here.execute_command("CLUSTER SETSLOT", slot, "STABLE")
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    world.check_end(NAME)


@pytest.mark.promise("faults", "a cluster of three nodes")
def test_providers_of_one_queue_may_live_on_different_nodes(cluster: Any) -> None:
    queue, providers = Queue(cluster, PREFIX), [f"provider-{number}" for number in range(12)]
    homes = {cluster.get_node_from_key(key_of(provider, "queue")).port for provider in providers}
    assert len(homes) == 3
    for provider in providers:
        assert queue.members(provider, "dead") == []
        assert queue.claim(provider, limit=1, lease_seconds=30, token="t").tasks == ()


@pytest.mark.promise("faults", "a cluster of three nodes")
def test_all_goes_well_on_a_cluster_of_three(
    make_world: MakeWorld, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """C11."""
    world = make_world(f"redis-cluster://127.0.0.1:{cluster.get_primaries()[0].port}", files={"job": LIMITED})
    caplog.set_level(logging.WARNING)
    live(world)
    assert caplog.records == []


@pytest.mark.promise("faults", "a cluster of three nodes")
def test_all_goes_well_on_a_cluster_over_tls_as_a_user_who_may_only_do_this(
    loopback_only: None, make_world: MakeWorld, tmp_path: Path
) -> None:
    """C11: as ElastiCache Serverless is reached, one node that stands for all."""
    with cluster_of(server_or_skip("redis").binary, 1) as [port]:
        url = secured(f"redis://127.0.0.1:{port}", tmp_path, "+cluster|slots").replace("rediss", "rediss-cluster")
        way = f"{url}?ssl_ca_certs={tmp_path / 'certificate.pem'}"
        live(make_world(f"redis://127.0.0.1:{port}", way=way, files={"job": LIMITED}))


@pytest.mark.promise("faults", "a cluster of three nodes")
@pytest.mark.parametrize("gone", [True, False], ids=["dies", "becomes a replica"])
def test_a_warm_function_finds_the_node_that_takes_over_though_its_url_names_the_one_that_is_gone(
    loopback_only: None, make_world: MakeWorld, gone: bool
) -> None:
    """C11."""
    with cluster_of(server_or_skip("redis").binary, 3, spares=1) as ports, ExitStack() as stack:
        *known, spare = [stack.enter_context(Redis(port=port, decode_responses=True)) for port in ports]
        slot = key_slot(key_of("job", "queue").encode())
        home: Any = known[3 * slot // SLOTS]
        heir: Any = spare
        heir.execute_command("CLUSTER REPLICATE", home.execute_command("CLUSTER MYID"))
        wait_until(lambda: heir.info("replication")["master_link_status"] == "up", WAIT_SECONDS, "the replica")
        world = make_world(f"redis-cluster://127.0.0.1:{home.connection_pool.connection_kwargs['port']}")
        world.due(NAME)
        assert home.wait(1, 1000 * WAIT_SECONDS) == 1
        if gone:
            home.shutdown(nosave=True)
            assert world.process() == {"job": {"unreachable": 1}}
        heir.execute_command("CLUSTER FAILOVER", "TAKEOVER")
        alive = [one for one in (*known, heir) if not (gone and one is home)]
        wait_until(lambda: all(_knows(one, slot, ports[3]) for one in alive), WAIT_SECONDS, "the news")
        world.simulator.say(DONE)
        assert world.process() == {"job": {"claimed": 1, "completed": 1}}
        world.check_end(NAME)


def _knows(node: Any, slot: int, port: int) -> bool:
    """Whether a node knows who has a slot."""
    rows = node.execute_command("CLUSTER SLOTS")
    return any(first <= slot <= last and primary[1] == port for first, last, primary, *_ in rows)


# --- C11: servers of another kind


@pytest.mark.promise("faults", "a Redis too old, without scripts, or of another kind than its URL says")
@pytest.mark.parametrize(
    ("without", "scheme", "said"),
    [
        (["ZMSCORE"], "redis", "Redis 6.2 or newer, or Valkey, is needed"),
        (["SMISMEMBER"], "redis", "Redis 6.2 or newer, or Valkey, is needed"),
        (["EVALSHA"], "redis", "Redis 6.2 or newer, or Valkey, is needed"),
        (["EVAL"], "redis", "Redis 6.2 or newer, or Valkey, is needed"),
        ([], "redis-cluster", "this is no cluster: REDIS_URL must begin with redis://"),
        (["CLUSTER"], "redis-cluster", "this is no cluster: REDIS_URL must begin with redis://"),
    ],
)
@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_one_sentence_says_what_is_wrong_and_no_request_is_refused(
    start_server: StartServer,
    make_world: MakeWorld,
    caplog: pytest.LogCaptureFixture,
    kind: Kind,
    without: list[str],
    scheme: str,
    said: str,
) -> None:
    url = start_server(kind, *without).url
    world = make_world(url, way=url.replace("redis", scheme))
    assert world.post(NAME).status == 202
    world.clock.advance(LEASE_SECONDS + 1)
    assert world.process() == {"job": {"unreachable": 1}}
    assert world.reconcile() == {"job": {"unreachable": 1}}
    reasons = [str(vars(line)["reason"]) for line in caplog.records if line.levelno >= logging.WARNING]
    assert len(reasons) == 3
    assert all(said in reason for reason in reasons), reasons
    assert [line for line in caplog.records if line.exc_info] == []
