"""What stands for Redis in tests: its kinds, and real servers and clusters of each."""

import os
from collections.abc import Callable, Sequence

import pytest

from local.servers.redis_server import Kind, NoServerError, RedisServer

Server = Callable[..., RedisServer]
SERVERS = (
    "fakeredis", pytest.param("valkey", marks=pytest.mark.server), pytest.param("redis", marks=pytest.mark.server),
)  # fmt: skip


CLUSTER_OF_THREE = pytest.param("redis cluster of three", marks=pytest.mark.server)
CLUSTERS = (
    pytest.param("valkey cluster", marks=pytest.mark.server),
    pytest.param("redis cluster", marks=pytest.mark.server),
)
BARE = pytest.param("redis without HELLO CLIENT COMMAND CONFIG SCRIPT SELECT", marks=pytest.mark.server)
"""As proxies and services are that stand before a Redis, or for one."""
ALONE_AND_CLUSTER = ("fakeredis", CLUSTER_OF_THREE)
EVERY_KIND = ("memory", *SERVERS, CLUSTER_OF_THREE)
"""The double too: a contract that runs on all of them holds it to what the servers do."""


def server_or_skip(kind: Kind, port: int = 0, without: Sequence[str] = ()) -> RedisServer:
    """A server that is not started yet; a machine without one skips, CI fails."""
    try:
        return RedisServer(kind, port, without)
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
