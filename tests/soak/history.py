"""The history of a soak, as its journals tell it, and a fault in it."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from typing import Literal, TypeAlias, TypeVar

from shared.provider.provider import idempotency_key
from shared.record import Record
from shared.task import Task
from tests.soak.journal import Event

Key = TypeVar("Key", bound=Hashable)
Kind: TypeAlias = Literal["lost", "doubled", "believed", "leaked", "exceeded"]
KINDS: tuple[Kind, ...] = ("lost", "doubled", "believed", "leaked", "exceeded")

MOST_RESUBMITS = 5
FROZEN_SECONDS = 7.0
"""A process that stood still for longer may have lost its leases: what is left of one after an attempt is less."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A promise that was broken, and all that is known of the task, or of the moment."""

    kind: Kind
    task: str
    why: str
    events: tuple[Event, ...] = ()

    def told(self) -> str:
        lines = [f"{self.kind}: {self.task}: {self.why}"]
        return "\n    ".join(lines + [_told(event) for event in self.events])


@dataclass(frozen=True, slots=True)
class Submit:
    """Which submit a key stands for."""

    task: str
    generation: int
    resubmits: int


class History:
    """All events by time, and where to find those of one kind."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = sorted(events, key=_at)
        self._by_kind = _indexed(self.events, lambda event: event["what"])
        self._by_task = _indexed(self.events, task_of)
        self._by_worker = _indexed(self.events, lambda event: event.get("worker"))
        self.writes = _indexed(self.of("write"), task_of)
        self.begins = self._first(lambda new: True)
        """The write that began each generation."""
        self.ends = self._first(lambda new: new["status"] != "pending")
        """The write that ended each generation."""
        self.jobs = {event["job"]: event for event in self.of("job")}
        self.long_freezes = [event for event in self.of("freeze") if event["seconds"] > FROZEN_SECONDS]
        """When processes stood still so long that others may have had their tasks."""

    def of(self, *whats: str) -> Iterator[Event]:
        """Every event that is one of these, by time."""
        return merge(*(self._by_kind.get(what, []) for what in whats), key=_at)

    def about_task(self, task: str) -> list[Event]:
        return self._by_task.get(task, [])

    def by_worker(self, worker: int) -> list[Event]:
        return self._by_worker.get(worker, [])

    def _first(self, counts: Callable[[Event], bool]) -> dict[tuple[str, int], Event]:
        found: dict[tuple[str, int], Event] = {}
        for event in (event for writes in self.writes.values() for event in writes if counts(event["new"])):
            found.setdefault((event["task"], event["new"]["generation"]), event)
        return found

    def following(self, task: str, generation: int) -> Event | None:
        """The write that began the generation after this one; None if there is none."""
        return next((event for event in self.writes.get(task, []) if event["new"]["generation"] > generation), None)

    @cached_property
    def submits(self) -> dict[str, Submit]:
        """Every key that a provider may be sent."""
        found = {}
        for task, generation in self.begins:
            for resubmits in range(MOST_RESUBMITS):
                record = Record(generation=generation, created_at=0, input=None, resubmits=resubmits)
                found[idempotency_key(Task.from_id(task), record)] = Submit(task, generation, resubmits)
        return found

    def about(self, task: str) -> tuple[Event, ...]:
        """Everything about a task, and what else broke meanwhile: the processes that had to do with it, and Redis."""
        own = self.about_task(task)
        if not own:
            return ()
        first, last = own[0]["at"] - 1, own[-1]["at"] + 1
        workers = {event["worker"] for event in own if "worker" in event}
        broken = [event for event in self.of("kill", "freeze", "ended") if event["worker"] in workers]
        broken += [event for event in self.of("fault") if event["place"] == "redis"]
        meanwhile = [event for event in broken if first <= event["at"] <= last]
        return tuple(sorted(own + meanwhile, key=_at))


def task_of(event: Event) -> str | None:
    if event.get("task") is None and "name" in event:
        return f"{event['provider']}/{event['name']}"
    return event.get("task")


def _at(event: Event) -> float:
    return float(event["at"])


def _indexed(events: Iterable[Event], key: Callable[[Event], Key | None]) -> dict[Key, list[Event]]:
    found: dict[Key, list[Event]] = defaultdict(list)
    for event in events:
        if (one := key(event)) is not None:
            found[one].append(event)
    return dict(found)


def _told(event: Event) -> str:
    facts = {name: value for name, value in event.items() if name not in ("at", "what", "old")}
    if event["what"] == "write":
        facts = {"worker": event["worker"]} | {name: value for name, value in event["new"].items() if value is not None}
    return f"{event['at']:.3f} {event['what']}: " + " ".join(f"{name}={value}" for name, value in facts.items())
