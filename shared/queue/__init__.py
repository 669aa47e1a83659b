"""The queue in Redis: its verbs, and what they take and give."""

from shared.queue.queue import BATCH, Queue, new_token, without_redis
from shared.queue.values import Add, Added, Claim, Claimed, End, Hold, Place, Release

__all__ = [
    "BATCH", "Add", "Added", "Claim", "Claimed", "End", "Hold", "Place", "Queue", "Release",
    "new_token", "without_redis",
]  # fmt: skip
