"""The relay by which containers reach the local stack."""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from local.servers import relay

# A second address of this machine, in the bridge's place.
HERE = "127.0.0.2"

ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
    connection.sendall(b"ping")
    sys.exit(0 if connection.recv(64) == b"pong to ping" else 1)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a bridge to relay from")


@pytest.fixture
def port() -> Iterator[int]:
    """Where something listens on loopback alone, and answers one question a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"pong to " + connection.recv(64))

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def run(address: str | None, port: int, *command: str) -> int:
    return asyncio.run(relay.run(address, [port], [sys.executable, "-c", *command]))


def test_a_command_reaches_through_the_relay_what_listens_on_loopback(port: int) -> None:
    assert run(HERE, port, ASK, HERE, str(port)) == 0


def test_nothing_is_relayed_where_there_is_no_bridge(port: int) -> None:
    assert run(None, port, ASK, HERE, str(port)) != 0


def test_the_relay_ends_with_the_command_and_gives_its_exit_code(port: int) -> None:
    assert run(HERE, port, "import sys; sys.exit(7)") == 7
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, port), timeout=5)


def test_a_connection_to_nothing_is_cut_off_rather_than_left_hanging() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    cut_off = "import socket, sys; sys.exit(len(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(1)))"
    assert run(HERE, port, f"try: {cut_off}\nexcept ConnectionError: pass", HERE, str(port)) == 0


def test_the_bridge_is_found_where_docker_has_made_one() -> None:
    made = "docker0" in {name for _, name in socket.if_nameindex()}
    assert (relay.bridge() is not None) == made
