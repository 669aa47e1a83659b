"""A worker process: ticks over and over until it is ended; `python -m tests.support.ticking`, its wishes on stdin.

It is the process handler's tick with the real queue, worker and provider; every task is pending for the store.
"""

import json
import random
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

from redis import Redis

from shared.errors import SecretUnavailable
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.queue import Queue
from shared.record import Record
from shared.settings import Settings
from shared.store import Item, Store
from shared.task import Task
from shared.work.parts import Parts
from shared.work.tick import Tick
from shared.work.worker import Worker
from tests.support.clock import START_MS
from tests.support.items import pending_item
from tests.support.keys import PREFIX

BETWEEN_SECONDS = 0.02


class Trusting:
    """A store for which every task is pending in its first generation, and every write is well."""

    def know_time(self) -> None: ...

    def get(self, task: Task, now: int) -> Item:
        return pending_item(task, START_MS)

    def save(self, task: Task, record: Record, now: int, **options: Any) -> None:
        return None

    def complete(self, task: Task, generation: int, data: Any, now: int, **options: Any) -> None:
        return None

    def fail(self, task: Task, generation: int, error: Any, now: int, **options: Any) -> None:
        return None


def main(redis_url: str, files: Mapping[str, Any], settings: Mapping[str, str]) -> None:
    """Tick until somebody ends this process."""
    transport = Transport(50)
    providers = {}
    for name, file in files.items():
        rules = Rules.from_json(file)
        providers[name] = Provider(rules, transport, Credentials((), _no_secret, transport), random.SystemRandom())
    queue = Queue(Redis.from_url(redis_url, decode_responses=True), PREFIX)
    store, chosen = cast(Store, Trusting()), Settings.from_environment(settings)
    parts = Parts(store, queue, providers, chosen, lambda: time.time_ns() // 1_000_000)
    while True:
        Tick(parts, Worker(parts), lambda: 60).run()
        time.sleep(BETWEEN_SECONDS)


def _no_secret(reference: str, *, fresh: bool = False) -> str:
    raise SecretUnavailable(reference)


if __name__ == "__main__":
    main(**json.load(sys.stdin))
