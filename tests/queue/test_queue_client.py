"""The Redis client as wiring makes it: how it greets, how long it waits, what it repeats, and what its errors say."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import BinaryIO, TypeAlias

import pytest
from redis.crc import key_slot

from shared import wiring
from shared.errors import QueueUnavailable, QueueUnreachable
from shared.queue import Add, Claim, End, Hold, Queue, Settle, client, cluster
from shared.task import Task
from tests.support.outage import Door

READ_SECONDS = 0.2
"""What a test waits for a reply that never comes."""
NOTHING_DUE = b"*5\r\n:-1\r\n:0\r\n:0\r\n:0\r\n*0\r\n"
SCRIPTS = (b"EVALSHA", b"EVAL", b"ZSCAN", b"ZCOUNT")
SCHEMES = ("redis", "redis-cluster")
MINIMUM = "Redis 6.2 or newer, or Valkey, is needed"
A_CLUSTER = r"this is a cluster: REDIS_URL must begin with redis-cluster://"
NO_CLUSTER = r"this is no cluster: REDIS_URL must begin with redis://"

Reply: TypeAlias = bytes | None
"""What to answer; nothing at all (b""), or None: hang up."""


class ScriptedRedis:
    """Speaks just enough of the protocol; answers each call as it is told, the last answer for ever.

    `calls` are the queue's own; `greetings` are the names of all other commands. Who has which slot is told by `slots`:
    this one has all of them.
    """

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.calls: list[list[bytes]] = []
        self.greetings: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.slots: Reply = nodes(self.port)
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, scheme: str = "redis") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/0"

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
        if command[0] in SCRIPTS:
            self.calls.append(command)
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        self.greetings.append(b" ".join(command[:2]) if command[0] == b"CLUSTER" else command[0])
        return self.slots if command[0] == b"CLUSTER" else b"+OK\r\n"


def nodes(*ports: int) -> bytes:
    """Nodes that share the slots evenly, as CLUSTER SLOTS tells of them."""
    edges = [16384 * share // len(ports) for share in range(len(ports) + 1)]
    rows = [
        f"*3\r\n:{first}\r\n:{after - 1}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"
        for first, after, port in zip(edges, edges[1:], ports, strict=False)
    ]
    return f"*{len(rows)}\r\n{''.join(rows)}".encode()


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
    monkeypatch.setitem(client.OPTIONS, "socket_timeout", READ_SECONDS)

    def make(url: str) -> Queue:
        monkeypatch.setenv("REDIS_URL", url)
        made.append(wiring.queue())
        return made[-1]

    yield make
    for queue in made:
        queue._client.close()


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    """A server, and a cluster of it alone: the same is true of both."""
    return str(request.param)


@pytest.fixture
def start() -> Iterator[Callable[..., ScriptedRedis]]:
    """Starts a scripted Redis with these replies."""
    with ExitStack() as stack:

        def start(*replies: Reply) -> ScriptedRedis:
            redis = ScriptedRedis(*replies)
            stack.callback(redis.close)
            return redis

        yield start


@pytest.fixture
def scripted(start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue], scheme: str) -> Scripted:
    """Starts a scripted Redis with these replies, and the queue over it."""

    def both(*replies: Reply) -> tuple[ScriptedRedis, Queue]:
        redis = start(*replies)
        return redis, queue_of(redis.url(scheme))

    return both


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


def test_where_nobody_listens_it_is_unavailable(queue_of: Callable[[str], Queue], scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    queue = queue_of(f"{scheme}://somebody:secret@127.0.0.1:{port}/0")
    for _ in range(2):
        with pytest.raises(QueueUnreachable, match=f"Redis at 127.0.0.1:{port}: ConnectionError") as found:
            claim(queue)
        assert "secret" not in str(found.value)


def test_making_the_queue_connects_to_nothing(queue_of: Callable[[str], Queue], scheme: str) -> None:
    queue_of(f"{scheme}://192.0.2.1:6379/0")  # the network guard would tell


# --- C11: every kind of server


def test_a_server_is_greeted_with_nothing_that_it_might_not_know(
    start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue], scheme: str
) -> None:
    redis = start(NOTHING_DUE)
    claim(queue_of(redis.url(scheme).replace("//", "//somebody:secret@")))
    assert redis.greetings == ([b"AUTH", b"CLUSTER SLOTS", b"AUTH"] if scheme == "redis-cluster" else [b"AUTH"])


def test_a_script_that_a_server_does_not_have_is_sent_to_it_in_whole(scripted: Scripted) -> None:
    redis, queue = scripted(b"-NOSCRIPT No matching script\r\n", b"$-1\r\n", NOTHING_DUE)
    assert claim(queue).tasks == ()
    asked, _, sent = redis.calls
    assert (asked[0], sent[0], sent[2:]) == (b"EVALSHA", b"EVAL", asked[2:])
    assert b"redis.call" in sent[1]


def test_no_call_has_more_words_than_elasticache_serverless_takes(scripted: Scripted) -> None:
    redis, queue = scripted(b"-ERR no\r\n")
    tasks = [Task("example", f"{number}") for number in range(1000)]
    calls: list[Callable[[], object]] = [
        lambda: queue.add([Add(task, 1, "{}") for task in tasks], token="t"),
        lambda: queue.settle([Settle(Hold(task, 1, "t"), "waiting", 0, "{}") for task in tasks]),
    ]
    for call in calls:
        with pytest.raises(QueueUnavailable):
            call()
    assert all(200 < len(words) <= 3999 for words in redis.calls)


LACKING = [
    "ERR Unknown Redis command called from script script: 3f, on @user_script:1.",
    "ERR Unknown command called from script script: on @user_script:1.",  # Valkey
    "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: Unknown Redis command called from Lua",
    "ERR Error running script (call to f_1): @user_script:9: ERR syntax error",  # an option that it does not know
    "ERR Wrong number of args calling Redis command from script script: 3f, on @user_script:1.",
    "ERR Error running script: Write commands not allowed after non deterministic commands",  # before Redis 5
    "ERR unknown command `EVALSHA`, with args beginning with: `hunter2`, ",
    "ERR unknown command 'EVAL', with args beginning with: 'hunter2' ",
]


@pytest.mark.parametrize("said", LACKING)
def test_a_server_that_lacks_something_is_told_the_minimum(scripted: Scripted, said: str) -> None:
    redis, queue = scripted(f"-{said}\r\n".encode())
    with pytest.raises(QueueUnavailable, match=MINIMUM) as found:
        claim(queue)
    assert "hunter2" not in str(found.value)
    assert len(redis.calls) == 1


@pytest.mark.parametrize(
    "said", ["MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1", "ERR SELECT is not allowed in cluster mode"]
)
def test_one_client_at_a_cluster_is_told_which_scheme_its_url_needs(
    start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue], said: str
) -> None:
    redis = start(f"-{said}\r\n".encode())
    with pytest.raises(QueueUnavailable, match=A_CLUSTER):
        claim(queue_of(redis.url()))
    assert len(redis.calls) == 1


@pytest.mark.parametrize("said", ["ERR This instance has cluster support disabled", "ERR unknown command 'CLUSTER'"])
def test_a_client_of_a_cluster_at_one_server_is_told_which_scheme_its_url_needs(
    start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue], said: str
) -> None:
    redis = start(NOTHING_DUE)
    redis.slots = f"-{said}\r\n".encode()
    with pytest.raises(QueueUnavailable, match=f"Redis at 127.0.0.1:{redis.port}: .*{NO_CLUSTER}"):
        claim(queue_of(redis.url("redis-cluster")))
    assert (redis.greetings, redis.calls) == ([b"CLUSTER SLOTS"], [])


def test_what_a_node_says_of_rights_is_not_taken_for_a_wrong_scheme(
    start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue]
) -> None:
    redis = start(NOTHING_DUE)
    redis.slots = b"-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n"
    with pytest.raises(QueueUnavailable, match="NoPermission") as found:
        claim(queue_of(redis.url("redis-cluster")))
    assert "REDIS_URL" not in str(found.value)


def test_a_cluster_that_is_there_only_later_is_found_then(
    start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue]
) -> None:
    redis = start(NOTHING_DUE)
    redis.slots, slots = None, redis.slots
    queue = queue_of(redis.url("redis-cluster"))
    with pytest.raises(QueueUnavailable):
        claim(queue)
    redis.slots = slots
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("word", ["MOVED", "ASK"])
def test_a_redirection_leads_to_a_node_that_nobody_knew_of(
    start: Callable[..., ScriptedRedis], queue_of: Callable[[str], Queue], word: str
) -> None:
    new = start(NOTHING_DUE)
    old = start(f"-{word} {key_slot(b'queue:example')} 127.0.0.1:{new.port}\r\n".encode())
    assert claim(queue_of(old.url("redis-cluster"))).tasks == ()
    assert (len(old.calls), len(new.calls)) == (1, 1)
    assert new.greetings == ([b"ASKING"] if word == "ASK" else [])


@pytest.mark.parametrize(("search_seconds", "asked"), [(0, 1), (60, 5)])
def test_when_all_nodes_of_a_cluster_are_silent_the_search_for_one_that_answers_is_short(
    start: Callable[..., ScriptedRedis],
    queue_of: Callable[[str], Queue],
    monkeypatch: pytest.MonkeyPatch,
    search_seconds: float,
    asked: int,
) -> None:
    monkeypatch.setattr(cluster, "SEARCH_SECONDS", search_seconds)
    several = [start(NOTHING_DUE) for _ in range(6)]
    for one in several:
        one.slots = nodes(*(known.port for known in several))
    queue = queue_of(several[0].url("redis-cluster"))
    claim(queue)
    for one in several:
        one.replies, one.slots = [b""], b""
        one.greetings.clear()
    with pytest.raises(QueueUnavailable, match="Timeout"):
        claim(queue)
    assert sum(len(one.greetings) for one in several) == asked
    assert sum(len(one.calls) for one in several) == 2


@pytest.mark.parametrize("scheme", ["rediss", "rediss-cluster"])
def test_a_server_that_does_not_answer_to_tls_may_have_none(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(client.OPTIONS, "socket_connect_timeout", 0.1)
    monkeypatch.setitem(client.OPTIONS, "socket_timeout", 0.1)
    door = Door(silent=True)
    queue = Queue(client.client_of(f"{scheme}://127.0.0.1:{door.port}"), "queue")
    with pytest.raises(QueueUnreachable, match="REDIS_URL must begin with redis://"):
        claim(queue)
    door.close()
