"""The client of Redis: made for a URL, what runs a script, and the sentence for whatever goes wrong."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from redis import Redis, RedisCluster, RedisError
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.connection import SSLConnection
from redis.exceptions import AskError, NoScriptError, ReadOnlyError, RedisClusterException
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from shared.errors import QueueUnavailable, QueueUnreachable
from shared.queue.cluster import Cluster

Client: TypeAlias = "Redis | RedisCluster"
_RAW = {NEVER_DECODE: True}
TROUBLE = (RedisError, RedisClusterException)
"""What a client raises; `unavailable` makes ours of it."""
OPTIONS: dict[str, Any] = {
    "decode_responses": True,
    "encoding_errors": "replace",
    "socket_connect_timeout": 1,
    "socket_timeout": 2,
    "protocol": 2,  # which every server and proxy speaks: no HELLO, nor
    "driver_info": None,  # CLIENT SETINFO, for the same reason
}
_IS_CLUSTER = "this is a cluster: REDIS_URL must begin with redis-cluster:// (with TLS rediss-cluster://)"
_IS_NONE = "this is no cluster: REDIS_URL must begin with redis:// (with TLS rediss://)"
_NO_TLS = "for such a one REDIS_URL must begin with redis:// or redis-cluster://"
_MINIMUM = "Redis 6.2 or newer, or Valkey, is needed, and Lua scripts (EVALSHA, EVAL) must be allowed"
_SENTENCES = (
    (r"cluster support disabled|unknown command .cluster", _IS_NONE),
    (r"not allowed in cluster mode", _IS_CLUSTER),
    (r"TTL exhausted", "a slot is moving to another node"),
    (r"unknown (redis )?command|wrong number of arg|syntax error|non.?deterministic", _MINIMUM),
)
"""What a server of another kind says, and what that means."""
_PROBE = """
for _, newest in ipairs({ 'ZMSCORE', 'SMISMEMBER' }) do
  local reply = redis.pcall(newest, KEYS[1], '')
  if type(reply) == 'table' and string.find(tostring(reply.err or ''), 'nknown') then return reply end
end"""
"""Fails on a server before the minimum, whatever the queue would need of it today."""


def client_of(url: str) -> Client:
    """A client for a URL as `settings.is_redis_url` takes it; it connects to nothing yet.

    At most one retry, over a connection made anew, so that no reply is waited for twice: where a connection is broken,
    or leads to what has become a replica, which refused the first write, so none happened.
    """
    scheme, _, rest = url.partition("://")
    if scheme.endswith("-cluster"):
        return Cluster(f"{scheme.removesuffix('-cluster')}://{rest}", redis_connect_func=_greet, **OPTIONS)
    retry = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError, ReadOnlyError))
    client: Redis = Redis.from_url(url, retry=retry, redis_connect_func=_connected, **OPTIONS)
    return client


def _connected(connection: Any) -> None:
    connection.on_connect()
    _greet(connection)


def _greet(connection: Any) -> None:
    """Over TLS say something to a server that nothing else was said to.

    Its session tickets come after the handshake, and redis-py takes a new connection with something to read for a
    broken one.
    """
    has_tls, has_spoken = isinstance(connection, SSLConnection), connection.username or connection.password
    if has_tls and not has_spoken and not connection.db:
        connection.send_command("PING", check_health=False)
        connection.read_response()


def scan(client: Client, key: str, count: int) -> set[bytes]:
    """All members of a sorted set, so many in each call, as bytes: a name may be junk."""
    call: Any = client.execute_command
    found: set[bytes] = set()
    cursor = None
    while cursor != 0:
        cursor, page = call("ZSCAN", key, cursor or 0, "COUNT", count, **_RAW)
        found.update(member for member, _ in page)
    return found


class Script:
    """A script, run by its digest; a server that does not have it is probed, gets the whole, and keeps it.

    Replies are bytes, decoded one by one by who reads them: a name may be junk.
    """

    def __init__(self, client: Client, script: str) -> None:
        self.script = script
        self._client: Any = client  # its untyped methods
        self._digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return self._client.execute_command("EVALSHA", self._digest, len(keys), *keys, *args, **_RAW)
        except NoScriptError:
            self._client.execute_command("EVAL", _PROBE, 1, keys[0])
            return self._client.execute_command("EVAL", self.script, len(keys), *keys, *args, **_RAW)


def unavailable(error: BaseException, client: Client) -> QueueUnavailable:
    """Our error for it: where Redis is, what it said, and what must change if it is another kind of server.

    It tells no value and no secret.
    """
    while isinstance(error, RedisClusterException) and (cause := error.__cause__ or error.__context__):
        error = cause  # what a node said
    said = f"{type(error).__name__}: {error}".partition(", with args beginning with")[0]
    if isinstance(error, AskError):  # MOVED too
        said = f"another node has this queue ({error}); {_IS_CLUSTER}"
    else:
        said = next((f"{said}; {means}" for words, means in _SENTENCES if re.search(f"(?i){words}", said)), said)
    if isinstance(error, RedisTimeoutError) and "connecting" in said and _has_tls(client):
        said += f"; a server without TLS does not answer: {_NO_TLS}"
    kind = QueueUnreachable if isinstance(error, RedisConnectionError | RedisTimeoutError) else QueueUnavailable
    return kind(f"{_where(client)}: {said}")


def _has_tls(client: Any) -> bool:
    if isinstance(client, Cluster):
        return client.has_tls
    return issubclass(client.connection_pool.connection_class, SSLConnection)


def _where(client: Any) -> str:
    if isinstance(client, Cluster):
        return f"Redis at {client.where}"
    known = client.connection_pool.connection_kwargs  # of which this tells nothing secret
    return f"Redis at {known['host']}:{known['port']}" if known.get("host") else "Redis"
