"""The Redis client as wiring makes it: how long it waits, what it asks again and what never."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO, TypeAlias

import pytest

from shared import wiring
from shared.errors import QueueUnavailable, QueueUnreachable
from shared.queue import Add, Claim, End, Hold, Queue, Settle
from shared.task import Task

READ_SECONDS = 0.2
"""What a test waits for a reply that never comes."""
NOTHING_DUE = b"*5\r\n:-1\r\n:0\r\n:0\r\n:0\r\n*0\r\n"
HELLO = b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n"

Reply: TypeAlias = bytes | None
"""What to answer; nothing at all (b""), or None: hang up."""


class ScriptedRedis:
    """Speaks just enough of the protocol; answers each call as it is told, the last answer for ever."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.calls: list[list[bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def hang_up(self) -> None:
        """Cuts every connection, as a proxy does with idle ones."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError, ValueError):
            while command := _command(stream):
                reply = self._reply(command)
                if reply is None:
                    return
                connection.sendall(reply)

    def _reply(self, command: list[bytes]) -> Reply:
        match command[0].upper():
            case b"HELLO":
                return HELLO
            case b"EVALSHA" | b"ZSCAN":
                self.calls.append(command)
                return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return b"+OK\r\n"


Scripted: TypeAlias = Callable[..., tuple[ScriptedRedis, Queue]]


def _command(stream: BinaryIO) -> list[bytes]:
    count = stream.readline()
    if not count:
        return []
    return [stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(count[1:]))]


@pytest.fixture
def queue_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Queue]]:
    """The queue that wiring makes for a URL, but waiting for a reply less long."""
    made: list[Queue] = []

    def make(url: str) -> Queue:
        monkeypatch.setenv("REDIS_URL", url)
        made.append(wiring.queue())
        client: Any = made[-1]._client
        client.connection_pool.connection_kwargs["socket_timeout"] = READ_SECONDS
        return made[-1]

    yield make
    for queue in made:
        queue._client.close()


@pytest.fixture
def scripted(queue_of: Callable[[str], Queue]) -> Iterator[Scripted]:
    """Starts a scripted Redis with these replies, and the queue over it."""
    with ExitStack() as stack:

        def start(*replies: Reply) -> tuple[ScriptedRedis, Queue]:
            redis = ScriptedRedis(*replies)
            stack.callback(redis.close)
            return redis, queue_of(redis.url)

        yield start


def claim(queue: Queue) -> Claim:
    return queue.claim("example", limit=1, lease_seconds=30, token="t")


@pytest.mark.parametrize("verb", ["claim", "add", "settle", "end", "hasten", "look", "dead", "mend"])
def test_no_call_waits_for_two_replies(scripted: Scripted, verb: str) -> None:
    redis, queue = scripted(b"")
    task = Task("example", "a")
    hold = Hold(task, 1, "t")
    calls: dict[str, Callable[[], object]] = {
        "claim": lambda: claim(queue),
        "add": lambda: queue.add([Add(task, 1, "{}")], token="t"),
        "settle": lambda: queue.settle([Settle(hold, "waiting")]),
        "end": lambda: queue.end([End(task, 1, "dropped")]),
        "hasten": lambda: queue.hasten([(task, 1)]),
        "look": lambda: queue.look([task]),
        "dead": lambda: queue.members("example", "dead"),
        "mend": lambda: queue.mend("example"),
    }
    with pytest.raises(QueueUnreachable, match="Timeout"):
        calls[verb]()
    assert len(redis.calls) == 1


def test_a_call_whose_connection_breaks_is_repeated_once_and_no_more(scripted: Scripted) -> None:
    redis, queue = scripted(None)
    with pytest.raises(QueueUnreachable):
        claim(queue)
    assert len(redis.calls) == 2


def test_a_call_whose_connection_breaks_once_succeeds(scripted: Scripted) -> None:
    redis, queue = scripted(None, NOTHING_DUE)
    assert claim(queue).tasks == ()
    assert redis.calls[0] == redis.calls[1]


@pytest.mark.promise("ends", "scripts that Redis has forgotten and connections that were cut cost nothing")
def test_a_connection_that_was_cut_while_idle_costs_nothing(scripted: Scripted) -> None:
    redis, queue = scripted(NOTHING_DUE)
    assert claim(queue) == Claim((), None, once=False, often=False, expired=0)
    assert len(redis.calls) == 1
    redis.hang_up()
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("error", ["READONLY replica", "LOADING", "OOM command not allowed", "NOAUTH", "ERR broken"])
def test_an_error_reply_is_unavailable_and_not_repeated_by_the_client(scripted: Scripted, error: str) -> None:
    redis, queue = scripted(f"-{error}\r\n".encode())
    with pytest.raises(QueueUnavailable):
        claim(queue)
    assert len(redis.calls) <= 2


def test_where_nobody_listens_it_is_unavailable(queue_of: Callable[[str], Queue]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(QueueUnreachable, match="ConnectionError"):
        claim(queue_of(f"redis://127.0.0.1:{port}/0"))


def test_making_the_queue_connects_to_nothing(queue_of: Callable[[str], Queue]) -> None:
    queue_of("redis://192.0.2.1:6379/0")  # the network guard would tell
