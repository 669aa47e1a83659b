"""A primary and its replica, and a way that leads to whichever of them is the primary."""

from dataclasses import dataclass

from redis import Redis

from local.servers.redis_server import RedisServer
from local.waiting import wait_until
from tests.faults.mortal import WAIT_SECONDS
from tests.faults.proxy import Proxy


@dataclass(frozen=True, slots=True)
class Pair:
    """`way` is where clients connect; what goes over `link` from primary to replica can be held up."""

    _primary: RedisServer
    _replica: RedisServer
    way: Proxy
    link: Proxy

    def follow(self) -> None:
        """Begin to replicate; returns when the replica has all there is."""
        with _client(self._primary) as primary, _client(self._replica) as replica:
            primary.config_set("repl-diskless-sync-delay", 0)
            replica.replicaof("127.0.0.1", f"{self.link.port}")
            wait_until(lambda: _follows(replica), WAIT_SECONDS, "the replica")

    def fall_behind(self) -> None:
        """From now on the replica gets nothing more; what was written before, it has."""
        with _client(self._primary) as primary:
            primary.set("mark", "")
            assert primary.wait(1, WAIT_SECONDS * 1000) == 1
            self.link.hold()
            primary.delete("mark")
        with _client(self._replica) as replica:
            assert replica.exists("mark")

    def fail_over(self) -> None:
        """The primary dies, the replica takes its place as it is."""
        with _client(self._replica) as replica:
            replica.replicaof("NO", "ONE")
            replica.delete("mark")
        self._primary.kill()
        self.way.target = self._replica.port
        self.way.cut()

    def swap(self) -> None:
        """The replica becomes the primary, the primary its replica; connections stay, and lead to the old one."""
        with _client(self._primary) as primary, _client(self._replica) as replica:
            replica.replicaof("NO", "ONE")
            self.way.target = self._replica.port
            primary.replicaof("127.0.0.1", f"{self._replica.port}")
            wait_until(lambda: _follows(primary), WAIT_SECONDS, "the former primary")


def _client(server: RedisServer) -> "Redis":
    return Redis.from_url(server.url, decode_responses=True)


def _follows(client: "Redis") -> bool:
    return bool(client.info("replication").get("master_link_status") == "up")
