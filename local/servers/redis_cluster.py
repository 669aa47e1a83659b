"""Starts a cluster of Redis-compatible servers on loopback, whose nodes share the slots evenly."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from local.servers.redis_server import free_port
from local.waiting import wait_until

SLOTS = 16384


@contextmanager
def cluster_of(binary: Path, nodes: int, spares: int = 0) -> Iterator[list[int]]:
    """A cluster whose nodes share the slots evenly, and spare ones that have none; their ports."""
    with ExitStack() as stack:
        clients = [stack.enter_context(_node(binary, number)) for number in range(nodes + spares)]
        ports = [int(client.connection_pool.connection_kwargs["port"]) for client in clients]
        for number, client in enumerate(clients):
            first, after = (SLOTS * share // nodes for share in (number, number + 1))
            if number < nodes:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, after - 1)
            if number:
                bus = clients[0].config_get("cluster-port")["cluster-port"]
                client.execute_command("CLUSTER MEET", "127.0.0.1", ports[0], bus)
        wait_until(lambda: all(_is_whole(client) for client in clients), 60, "the cluster")
        yield ports


@contextmanager
def _node(binary: Path, number: int) -> Iterator[Any]:
    """A server in cluster mode that knows no other yet; a client of it."""
    port, bus = free_port(), free_port()
    options = {"bind": "127.0.0.1", "port": port, "cluster-port": bus, "cluster-enabled": "yes", "save": ""}
    with tempfile.TemporaryDirectory(prefix="meanwhile-cluster-") as directory:
        words = [f"{word}" for name, value in {**options, "dir": directory}.items() for word in (f"--{name}", value)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen([binary, *words], stdin=quiet, stdout=quiet, stderr=quiet) as process:
            try:
                with Redis(port=port, decode_responses=True) as known:
                    wait_until(lambda: _answers(known), 20, "the node")
                    client: Any = known  # its untyped methods
                    client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                    yield client
            finally:
                process.kill()


def _is_whole(client: Any) -> bool:
    """Whether a node knows who has each slot."""
    return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")


def _answers(client: "Redis") -> bool:
    try:
        return bool(client.ping())
    except RedisConnectionError:
        return False
