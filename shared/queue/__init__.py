"""The queue in Redis: its verbs, and what they take and give."""

from shared.queue.queue import BATCH, Queue, new_token, without_redis
from shared.queue.values import Add, Added, Becomes, Claim, Claimed, End, Hold, Place, Run, Settle, Wake, Way, Which

__all__ = [
    "BATCH", "Add", "Added", "Becomes", "Claim", "Claimed", "End", "Hold", "Place", "Queue", "Run", "Settle", "Wake",
    "Way", "Which", "new_token", "without_redis",
]  # fmt: skip
