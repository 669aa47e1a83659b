"""What the fault tests stand on: a DynamoDB of their own for all of them, a provider and a world for each."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from local.servers.dynamodb import DynamoDB
from tests.faults.proxy import Proxy
from tests.faults.replicas import Pair
from tests.faults.world import MakeWorld, StartServer, World
from tests.support.redis_servers import Server, server_or_skip
from tests.support.simulator import Simulator


@pytest.fixture(scope="session")
def dynamodb_server(loopback_only: None) -> Iterator[DynamoDB]:
    """A server; each world has a table of its own there."""
    with DynamoDB() as server:
        yield server


@pytest.fixture
def start_server(loopback_only: None) -> Iterator[StartServer]:
    """Starts servers of the test's own, which it may kill or set as it likes."""
    with ExitStack() as running:
        yield lambda kind="valkey", *without: running.enter_context(server_or_skip(kind, without=without))


@pytest.fixture
def replicas(start_server: StartServer) -> Iterator[Pair]:
    primary = start_server()
    with Proxy(primary.port) as way, Proxy(primary.port) as link:
        pair = Pair(primary, start_server(), way, link)
        pair.follow()
        yield pair


@pytest.fixture
def make_world(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    simulator: Simulator,
    redis_server: Server,
    dynamodb_server: DynamoDB,
) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(redis_url: str | None = None, **options: object) -> World:
        url = redis_url or redis_server("valkey").url
        made.append(World(monkeypatch, tmp_path, simulator, url, dynamodb_server, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A world as the settings' defaults have it."""
    return make_world()
