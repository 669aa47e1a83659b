"""A client of a cluster of nodes: redis-py's, bounded like the client of one server, and connected only when needed."""

import random
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from redis import RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import ClusterDownError, RedisClusterException, SlotNotCoveredError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

SEARCH_SECONDS = 1.0  # once this has passed, no further node is asked who has which slot


class Cluster(RedisCluster):
    """Takes the URL of a node or of the whole, with the schemes of one server, and redis-py's options.

    It connects at its first command. A command is repeated once at most, and never when its reply came too late. It
    sends commands with keys and CLUSTER SLOTS, nothing else.
    """

    ERRORS_ALLOW_RETRY: Any = (RedisConnectionError, ClusterDownError, SlotNotCoveredError)

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        self.where = f"{parts.hostname}:{parts.port or 6379}"
        self.has_tls = parts.scheme == "rediss"
        self._made_of = options | {"url": url, "retry": Retry(NoBackoff(), 1)}
        self._is_made = False
        self._making = threading.Lock()

    def execute_command(self, *words: Any, **options: Any) -> Any:
        with self._making:
            if not self._is_made:
                self._make()
        client: Any = super()
        return client.execute_command(*words, **options)

    def command(self, **_: Any) -> Any:
        """Nothing is known of commands: redis-py would ask for all there are, to tell where their keys stand."""
        return {}

    def determine_slot(self, *words: Any) -> Any:
        """By the key: a script's first, of any other command the word after its name."""
        client: Any = self
        return client.keyslot(words[3] if words[0] in ("EVAL", "EVALSHA") else words[1])

    def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
        """A node that is known, or becomes so because a redirection names it: redis-py falls over one that is new."""
        nodes: Any = self.nodes_manager
        if node_name and node_name not in nodes.nodes_cache:
            new_host, _, new_port = node_name.rpartition(":")
            make: Any = ClusterNode
            nodes.nodes_cache[node_name] = make(new_host, int(new_port), "primary")
        return nodes.get_node(host, port, node_name)

    def _make(self) -> None:
        client: Any = super()
        client.__init__(**self._made_of)
        nodes: Any = self.nodes_manager
        [named] = self.startup_nodes
        nodes.initialize = _Search(nodes, named)
        self._is_made = True


class _Search:
    """Learns anew who has which slot, from whoever tells first.

    redis-py by itself asks one node after the other, however long each of them is silent.
    """

    def __init__(self, nodes: Any, named: Any) -> None:
        self._nodes, self._named, self._ask = nodes, named, nodes.initialize

    def __call__(self, **how: Any) -> None:
        began, failed = time.monotonic(), how.get("last_failed_node_name")
        known = {node.name: node for node in (self._named, *list(self._nodes.nodes_cache.values()))}
        others = [node for name, node in known.items() if name != failed] or [self._named]
        random.shuffle(others)
        for node in others:
            self._nodes.startup_nodes = {node.name: node}
            try:
                return self._ask(**how)  # type: ignore[no-any-return]
            except RedisClusterException:
                if node is others[-1] or time.monotonic() - began > SEARCH_SECONDS:
                    raise
        return None
