"""Requests for tasks, one by one or in a batch, as they come from one user after the other."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from shared.api import batch
from shared.api.answer import Answer
from shared.api.enqueue import Enqueuer
from shared.api.preference import Preferences
from shared.api.request import TaskRequest
from shared.errors import NotifyUnavailable, Problem
from shared.provider import Provider
from shared.queue import End
from shared.store import Item
from shared.task import Task
from shared.work.worker import Worker
from tests.support.backend import Backend
from tests.support.simulator import Simulator


@dataclass(repr=False)
class Front(Backend):
    """enqueue's part of a deployment, its providers at work on the simulator."""

    simulator: Simulator
    providers: dict[str, Provider]
    told: list[tuple[str, str, int]] = field(default_factory=list)
    deaf: bool = False
    threads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.worker = Worker(self.parts(self.providers))
        self.worker.keeper.monotonic, self.worker.keeper.sleep = self.clock.monotonic, self.clock.sleep

    def enqueuer(self, **settings: Any) -> Enqueuer:
        return Enqueuer(self.parts(self.providers, **settings), self.worker, self._tell)

    def _tell(self, target: str, item: Item) -> None:
        if self.deaf:
            raise NotifyUnavailable("away")
        self.told.append((target, item.status, item.generation))

    def ask(
        self,
        name: str = "a",
        *,
        provider: str = "example",
        input_: Any = None,
        max_age: float | None = None,
        stale: float = 0,
        wait: float | None = None,
        remaining: float = 25,
        notify: str | None = None,
        allowed: str = "",
        group: str = "",
        **settings: Any,
    ) -> Answer:
        prefers = Preferences(max_age_seconds=max_age, stale_seconds=stale, wait_seconds=wait)
        request = TaskRequest(task=Task(provider, name), input=input_, group=group, notify=notify, prefers=prefers)
        return self.enqueuer(notify=allowed, **settings).answer(request, lambda: remaining)

    def batch(self, *requests: TaskRequest | Problem, remaining: Callable[[], float] = lambda: 25) -> Answer:
        with patch.object(batch, "ThreadPoolExecutor", self.pool):
            return batch.answer(self.enqueuer(), requests, remaining)

    def results(self, *requests: TaskRequest | Problem, remaining: Callable[[], float] = lambda: 25) -> list[Any]:
        results: list[Any] = self.batch(*requests, remaining=remaining).body["results"]
        return results

    def pool(self, threads: int) -> ThreadPoolExecutor:
        self.threads.append(threads)
        return ThreadPoolExecutor(threads)

    def item(self, name: str = "a", provider: str = "example") -> Item:
        return self.item_of(Task(provider, name))

    def finish(self, data: Any, name: str = "a", provider: str = "example") -> None:
        """A worker completes the task."""
        item = self.item(name, provider)
        self.store.complete(item.task, item.generation, data, self.clock())
        self.queue.end([End(item.task, item.generation, "dropped")])

    def fail(self, name: str = "a", provider: str = "example") -> None:
        """A worker ends the task as failed."""
        item = self.item(name, provider)
        error = {"reason": "timeout", "error": "too slow", "refused": False}
        self.store.fail(item.task, item.generation, error, self.clock())
        self.queue.end([End(item.task, item.generation, "dropped")])

    def cancel(self, name: str = "a") -> None:
        """A user cancels the task."""
        item = self.item(name)
        self.store.cancel(item.task, item.generation, self.clock())
        self.queue.end([End(item.task, item.generation, "dropped")])
