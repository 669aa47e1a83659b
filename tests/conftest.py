"""What the tests stand on: nothing but loopback is reachable, and each test gets a queue and a table of its own."""

import copy
import dataclasses
import functools
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import fakeredis
import pytest
from botocore.config import Config
from botocore.loaders import JSONFileLoader
from moto import mock_aws
from redis import Redis

from local.servers.dynamodb import create_table
from local.servers.redis_cluster import cluster_of
from local.servers.redis_server import Kind, RedisServer
from local.servers.third_party import ThirdParty
from shared import aws, wiring
from shared.provider.wire.room import ROOM
from shared.queue import Queue
from shared.queue.client import client_of
from shared.settings import Settings
from shared.store import Store, Table
from tests.support.backend import Backend, QueueBackend
from tests.support.clock import Clock
from tests.support.keys import PREFIX, Bench, RedisKeys
from tests.support.memory_queue import MemoryQueue
from tests.support.network import guarded, guarded_lookup
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.redis_servers import Server, server_or_skip
from tests.support.simulator import PENDING, Simulator

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.deployment import Deployment

TABLE = "meanwhile"
BUCKET = "meanwhile-spill"
RETENTION_SECONDS = 2_592_000
THIRD_PARTY_SEED = 7


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line says how many were skipped, and why."""
    skipped = [str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped")]
    if skipped:
        reasons = [f"{count} times: {reason}" for reason, count in Counter(skipped).most_common()]
        terminalreporter.write_line(f"{len(skipped)} skipped: {'; '.join(reasons)}")


# --- around every test


@pytest.fixture(autouse=True, scope="session")
def loopback_only() -> Iterator[None]:
    """Nothing reaches the network: a connection to another host fails the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
        patch.setattr(socket, "getaddrinfo", guarded_lookup(socket.getaddrinfo))
        yield


@pytest.fixture(autouse=True, scope="session")
def descriptions_read_once() -> Iterator[None]:
    """botocore parses the description of a service once, not for each client: that is most of what making one takes."""
    load = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: load(path))
        yield


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dummy AWS credentials, and the settings' defaults whatever this machine's environment says."""
    for variable in list(os.environ):
        if variable.startswith(("AWS_", "POWERTOOLS_", "_X_AMZN")):
            monkeypatch.delenv(variable)
    for setting in dataclasses.fields(Settings):
        monkeypatch.delenv(setting.name.upper(), raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def fresh_wiring() -> Iterator[None]:
    """Nothing that was made once lives longer than a test, and no test keeps the room of large answers."""
    yield
    ROOM.leave()
    for made in [*vars(wiring).values(), *vars(aws).values()]:
        if hasattr(made, "cache_clear"):
            made.cache_clear()


# --- time


@pytest.fixture
def clock() -> Clock:
    """A clock that only the test moves."""
    return Clock()


# --- DynamoDB


@pytest.fixture(scope="session")
def dynamodb_client() -> "DynamoDBClient":
    """One client for all tests: making it takes longer than most of them."""
    return boto3.client(
        "dynamodb", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )


@pytest.fixture
def dynamodb(dynamodb_client: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch) -> "Iterator[DynamoDBClient]":
    """moto's DynamoDB with the template's table, empty."""
    monkeypatch.setattr(dynamodb_client.meta, "events", copy.copy(dynamodb_client.meta.events))  # a test may listen
    with mock_aws():
        create_table(dynamodb_client, TABLE)
        yield dynamodb_client


@pytest.fixture(scope="session")
def s3_client() -> Any:
    """One client of S3 for all tests, for the same reason; configured as the deployed one."""
    return boto3.client(
        "s3",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(signature_version="s3v4"),
    )


@pytest.fixture
def s3(s3_client: Any, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch) -> Any:
    """moto's S3 beside its DynamoDB, with the bucket, empty."""
    monkeypatch.setattr(s3_client.meta, "events", copy.copy(s3_client.meta.events))  # a test may listen
    s3_client.create_bucket(Bucket=BUCKET)
    return s3_client


@pytest.fixture
def store(dynamodb: "DynamoDBClient") -> Store:
    """A store over that table."""
    return Store(Table(dynamodb, TABLE), RETENTION_SECONDS)


# --- Redis


@pytest.fixture(scope="session")
def redis_server(loopback_only: None) -> Iterator[Server]:
    """Real servers, one of each kind at most, started when first asked for; some lack commands."""
    with ExitStack() as stack:
        running: dict[tuple[Kind, tuple[str, ...]], RedisServer] = {}

        def server(kind: Kind, *without: str) -> RedisServer:
            if (kind, without) not in running:
                running[kind, without] = stack.enter_context(server_or_skip(kind, without=without))
            return running[kind, without]

        yield server


@pytest.fixture
def redis_kind(request: pytest.FixtureRequest) -> str:
    """What stands for Redis: fakeredis, unless `parametrize("redis_kind", …, indirect=True)` chooses."""
    return str(getattr(request, "param", "fakeredis"))


@pytest.fixture(scope="session")
def redis_cluster(loopback_only: None) -> Iterator[Callable[[Kind, int], list[int]]]:
    """The ports of real clusters, of a kind and so many nodes, started when first asked for."""
    with ExitStack() as stack:
        running: dict[tuple[Kind, int], list[int]] = {}

        def cluster(kind: Kind, nodes: int) -> list[int]:
            if (kind, nodes) not in running:
                running[kind, nodes] = stack.enter_context(cluster_of(server_or_skip(kind).binary, nodes))
            return running[kind, nodes]

        yield cluster


@pytest.fixture
def redis_client(request: pytest.FixtureRequest, redis_kind: str, redis_server: Server) -> Iterator["Redis"]:
    """A client of an empty Redis of that kind, as wiring makes it."""
    kind, *words = redis_kind.split()
    made: Any  # a client of a cluster is the same to a queue
    match words:
        case [] if kind == "fakeredis":
            options: dict[str, Any] = {"decode_responses": True, "encoding_errors": "replace"}
            made = fakeredis.FakeRedis(server=fakeredis.FakeServer(), **options)
        case [] | ["without", *_]:
            made = client_of(redis_server(kind, *words[1:]).url)
        case ["cluster", *_]:
            ports = request.getfixturevalue("redis_cluster")(kind, 3 if words[-1] == "three" else 1)
            made = client_of(f"redis-cluster://127.0.0.1:{ports[0]}")
        case _:
            raise ValueError(redis_kind)
    client: Redis = made
    client.flushall()
    with client:
        yield client


@pytest.fixture
def bare_queue(redis_kind: str, request: pytest.FixtureRequest) -> Any:
    """A queue that nobody checks; where the kind is "memory", the double."""
    return MemoryQueue() if redis_kind == "memory" else Queue(request.getfixturevalue("redis_client"), PREFIX)


@pytest.fixture
def bench(redis_kind: str, bare_queue: Any, request: pytest.FixtureRequest) -> Bench:
    """The queue's keys, to be seeded and looked at from outside."""
    return Bench(bare_queue if redis_kind == "memory" else RedisKeys(request.getfixturevalue("redis_client")))


@pytest.fixture
def queue(request: pytest.FixtureRequest, bare_queue: Any, bench: Bench) -> Iterator[Any]:
    """A queue, whose keys are checked at the end of the test, unless that is marked `junk`."""
    yield bare_queue
    if request.node.get_closest_marker("junk") is None:
        assert bench.leaks() == []


@pytest.fixture
def seed(bench: Bench) -> Any:
    """`seed("a", due_seconds=-5)` puts a task there (see Bench.seed)."""
    return bench.seed


@pytest.fixture
def state(bench: Bench) -> Any:
    """`state() == {"a": ("waiting", 1)}`: where the tasks are, and their generations."""
    return bench.state


@pytest.fixture
def rewind(bench: Bench) -> Callable[[float], None]:
    """`rewind(30)`: lets 30 seconds pass in the queue."""
    return bench.rewind


@pytest.fixture
def queue_backend(
    queue: Queue, clock: Clock, bench: Bench, redis_client: "Redis", monkeypatch: pytest.MonkeyPatch
) -> Iterator[QueueBackend]:
    """Queue and clock together; a Redis that was taken away is back before its keys are checked."""
    yield QueueBackend(queue, clock, bench, redis_client, RedisOutage(redis_client), monkeypatch)
    vars(redis_client).pop("execute_command", None)


@pytest.fixture
def backend(queue_backend: QueueBackend, store: Store, dynamodb: "DynamoDBClient") -> Backend:
    """The store beside them."""
    return Backend(**vars(queue_backend), store=store, dynamodb_client=dynamodb, dynamodb=DynamoDBOutage(dynamodb))


# --- the provider


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """A provider that takes every job and is at work for ever, unless told otherwise."""
    with Simulator() as simulator:
        simulator.say(PENDING)
        yield simulator


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: Backend, simulator: Simulator) -> "Deployment":
    """The handlers of tasks in place, over the simulator."""
    from tests.support.deployment import deploy  # it imports the handlers, which set up logging

    return deploy(monkeypatch, tmp_path, backend, simulator)


@pytest.fixture
def third_party() -> Iterator[ThirdParty]:
    """The simulated third party on a free port: `.url`, `.calls`."""
    with ThirdParty(seed=THIRD_PARTY_SEED, answer_seconds=0.05) as party:
        yield party
