"""In-memory doubles of Queue and Store: the scripts' and the conditional writes' promises in plain Python, copyable.

The contract suites (`test_queue.py`, `test_store.py`) hold them to the real ones.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeAlias

from shared.codec import Json, dumps, loads
from shared.errors import QueueUnavailable, StoreTooLarge, StoreUnavailable
from shared.item import MAX_NOTIFY, Item, Status, digest, open_key, open_keys, packed
from shared.queue import BATCH, Added, Claim, Claimed, Hold, Place
from shared.record import Record
from shared.store import Superseded
from shared.task import Task
from tests.clock import START_MS
from tests.keys import Dump, key_of

_STATE = re.compile(r"(\d+):([^:]*):(\d+)")

Scores: TypeAlias = dict[str, float]


class _Parts:
    """One provider's keys."""

    __slots__ = ("dead", "leases", "queue", "state", "tasks")

    def __init__(self) -> None:
        self.queue: Scores = {}
        self.leases: Scores = {}
        self.dead: Scores = {}
        self.state: dict[str, str] = {}
        self.tasks: dict[str, str] = {}

    def copy(self) -> "_Parts":
        twin = _Parts()
        for part in self.__slots__:
            setattr(twin, part, dict(getattr(self, part)))
        return twin

    def parsed(self, name: str) -> tuple[int, str, int]:
        """Generation, token and crashes; of junk 0, nobody's, none."""
        found = _STATE.fullmatch(self.state.get(name, ""))
        return (int(found[1]), found[2], int(found[3])) if found else (0, "", 0)

    def is_held(self, name: str) -> bool:
        if name in self.queue:
            return self.queue[name] > 0 or name in self.leases
        return name in self.dead

    def drop(self, name: str) -> bool:
        gone = [getattr(self, part).pop(name, None) for part in self.__slots__]
        return any(value is not None for value in gone)


class MemoryQueue:
    """Queue without Redis. Its time stands still at `now_ms`; `unavailable` makes every call fail."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.unavailable = False
        self._providers: dict[str, _Parts] = {}

    def copy(self) -> "MemoryQueue":
        """An independent twin."""
        twin = MemoryQueue()
        twin.now_ms, twin.unavailable = self.now_ms, self.unavailable
        twin._providers = {provider: parts.copy() for provider, parts in self._providers.items()}
        return twin

    def flush(self) -> None:
        """FLUSHALL."""
        self._providers = {}

    def now(self) -> int:
        return self.now_ms

    def dump(self) -> Dump:
        every = {
            key_of(provider, part): dict(getattr(parts, part))
            for provider, parts in self._providers.items()
            for part in _Parts.__slots__
        }
        return {key: members for key, members in every.items() if members}

    def write(self, key: str, member: str, value: float | str) -> None:
        base, _, part = key.partition("}")
        provider = base.partition(":")[2]
        getattr(self._parts(provider), part.removeprefix(":") or "queue")[member] = value

    def lasting(self) -> bool:
        return True

    def add(
        self,
        adds: Sequence[tuple[Task, int, str]],
        *,
        token: str,
        delays: Sequence[float] = (),
        lease_seconds: float = 0,
    ) -> list[Added]:
        waits = delays or [0.0] * len(adds)
        return [self._add(*one, token, wait, lease_seconds) for one, wait in zip(adds, waits, strict=True)]

    def claim(self, provider: str, *, limit: int, lease_seconds: float, token: str, suspect: bool = False) -> Claim:
        parts = self._parts(provider)
        expired = self._return_expired(parts)
        due = sorted((score, name) for name, score in parts.queue.items() if 1 <= score <= self.now_ms)
        wanted = [name for _, name in due if (parts.parsed(name)[2] > 0) == suspect]
        suspects = any(parts.parsed(name)[2] > 0 for _, name in due)
        limit = 1 if suspect else min(limit, BATCH)
        tasks = []
        for name in wanted[:limit]:
            generation, _, crashes = parts.parsed(name)
            parts.queue[name] = 0
            parts.leases[name] = self.now_ms + _ms(lease_seconds)
            parts.state[name] = f"{generation}:{token}:{crashes}"
            tasks.append(Claimed(Hold(Task(provider, name), generation, token), crashes, parts.tasks.get(name)))
        later = min((score for score in parts.queue.values() if score > self.now_ms), default=None)
        wait_seconds = 0.0 if len(tasks) == limit else None if later is None else (later - self.now_ms) / 1000
        return Claim(tuple(tasks), wait_seconds, suspects, expired)

    def complete(self, holds: Sequence[Hold]) -> list[bool]:
        return [self._held(hold, lambda parts, name: parts.drop(name)) for hold in holds]

    def release(self, releases: Sequence[tuple[Hold, float, str | None]]) -> list[bool]:
        return [self._release(*one) for one in releases]

    def bury(self, holds: Sequence[Hold]) -> list[bool]:
        return [self._bury(hold) for hold in holds]

    def forget(self, ends: Sequence[tuple[Task, int]]) -> list[bool]:
        dropped = []
        for task, generation in ends:
            parts = self._parts(task.provider)
            dropped.append(parts.parsed(task.name)[0] <= generation and parts.drop(task.name))
        return dropped

    def hasten(self, waiting: Sequence[tuple[Task, int]]) -> list[bool]:
        hastened = []
        for task, generation in waiting:
            parts = self._parts(task.provider)
            hastened.append(parts.parsed(task.name)[0] == generation and parts.queue.get(task.name, 0) > self.now_ms)
            if hastened[-1]:
                parts.queue[task.name] = self.now_ms
        return hastened

    def look(self, tasks: Sequence[Task], *, records: bool = False) -> list[Place]:
        return [self._look(task, records) for task in tasks]

    def dead(self, provider: str) -> list[Task]:
        return [Task(provider, name) for name in self._parts(provider).dead]

    def _parts(self, provider: str) -> _Parts:
        if self.unavailable:
            raise QueueUnavailable("the double is told to fail")
        return self._providers.setdefault(provider, _Parts())

    def _add(
        self, task: Task, generation: int, record: str, token: str, delay_seconds: float, lease_seconds: float
    ) -> Added:
        parts, name = self._parts(task.provider), task.name
        held_generation, held_token, _ = parts.parsed(name) if parts.is_held(name) else (0, "", 0)
        if generation < held_generation:
            return "stale"
        if generation == held_generation:
            return "created" if held_token == token else "exists"
        parts.drop(name)
        parts.queue[name] = 0 if lease_seconds > 0 else self.now_ms + _ms(delay_seconds)
        if lease_seconds > 0:
            parts.leases[name] = self.now_ms + _ms(lease_seconds)
        parts.state[name] = f"{generation}:{token}:0"
        parts.tasks[name] = record
        return "created"

    def _return_expired(self, parts: _Parts) -> int:
        expired = sorted((end, name) for name, end in parts.leases.items() if end <= self.now_ms)[:BATCH]
        returned = 0
        for end, name in expired:
            del parts.leases[name]
            if parts.queue.get(name) == 0:
                generation, _, crashes = parts.parsed(name)
                parts.queue[name] = max(1, end)
                parts.state[name] = f"{generation}::{crashes + 1}"
                returned += 1
        return returned

    def _held(self, hold: Hold, move: Callable[[_Parts, str], object]) -> bool:
        parts = self._parts(hold.task.provider)
        generation, token, _ = parts.parsed(hold.task.name)
        held = (generation, token) == (hold.generation, hold.token) and hold.task.name in parts.state
        if held:
            move(parts, hold.task.name)
        return held

    def _release(self, hold: Hold, delay_seconds: float, record: str | None) -> bool:
        def move(parts: _Parts, name: str) -> None:
            parts.leases.pop(name, None)
            parts.queue[name] = self.now_ms + _ms(delay_seconds)
            parts.state[name] = f"{hold.generation}::0"
            if record:
                parts.tasks[name] = record

        return self._held(hold, move)

    def _bury(self, hold: Hold) -> bool:
        def move(parts: _Parts, name: str) -> None:
            parts.drop(name)
            parts.state[name] = f"{hold.generation}::0"
            parts.dead[name] = self.now_ms

        return self._held(hold, move)

    def _look(self, task: Task, records: bool) -> Place:
        parts, name = self._parts(task.provider), task.name
        score, lease = parts.queue.get(name), None
        if score == 0:
            score, lease = None, parts.leases.get(name)
        buried = parts.dead.get(name)
        return Place(
            parts.parsed(name)[0],
            None if score is None else (score - self.now_ms) / 1000,
            None if lease is None else (lease - self.now_ms) / 1000,
            None if buried is None else (self.now_ms - buried) / 1000,
            parts.tasks.get(name) if records else None,
        )


class MemoryStore:
    """Store without DynamoDB. `unavailable` makes every call fail."""

    def __init__(self, retention_seconds: int) -> None:
        self.unavailable = False
        self.items: dict[Task, Item] = {}
        self._retention_seconds = retention_seconds

    def copy(self) -> Self:
        """An independent twin."""
        twin = type(self)(self._retention_seconds)
        twin.unavailable = self.unavailable
        twin.items = dict(self.items)
        return twin

    def get(self, task: Task, now: int) -> Item | None:
        item = self._item(task)
        return None if item is None or item.expired(now) else item

    def begin(
        self,
        task: Task,
        seen: Item | None,
        input_: Json,
        now: int,
        *,
        group: str = "",
        notify: str | None = None,
        keep_outputs: bool = False,
    ) -> Item | None:
        input_ = _kept(input_, "input")
        item = self._item(task)
        if seen:
            unchanged = item is not None and item.generation == seen.generation
        else:
            unchanged = item is None or item.expired(now)
        if not unchanged or (item is not None and item.status == "pending"):
            return None
        self.items[task] = Item(
            task=task,
            status="pending",
            generation=(item.generation if item else now) + 1,
            created_at=now,
            updated_at=now,
            completed_at=None,
            expires_at=None,
            submitted_at=None,
            resubmits=0,
            input_digest=digest(input_),
            group=group,
            input=input_,
            outputs=item.outputs if item and keep_outputs else None,
            partial=None,
            data=item.data if item and seen else None,
            error=None,
            notify=frozenset([notify] if notify else []),
        )
        return self.items[task]

    def save(self, task: Task, record: Record, now: int, *, resubmit: bool = False) -> Superseded | None:
        changes: dict[str, Any] = {"partial": _kept(record.partial, "partial")}
        if record.outputs is not None or resubmit:
            changes["outputs"] = None if record.outputs is None else _kept(record.outputs, "outputs")
        return self._write(
            task,
            record.generation,
            updated_at=now,
            submitted_at=record.submitted_at,
            resubmits=record.resubmits,
            **changes,
        )

    def learn(self, task: Task, record: Record, now: int) -> Superseded | None:
        known = {"outputs": record.outputs, "partial": record.partial}
        changes = {name: _kept(value, name) for name, value in known.items() if value is not None}
        item = self._item(task)
        if item is None or item.resubmits != record.resubmits:
            return Superseded(item)
        return self._write(task, record.generation, updated_at=now, **changes)

    def notify(self, task: Task, generation: int, target: str) -> Superseded | None:
        item = self._item(task)
        known = item.notify if item else frozenset()
        if target not in known and len(known) >= MAX_NOTIFY:
            return Superseded(item)
        return self._write(task, generation, notify=known | {target})

    def complete(self, task: Task, generation: int, data: Json, now: int) -> Superseded | None:
        data = _kept(data, "data")
        return self._end(task, generation, "completed", now, data=data, error=None, partial=None, outputs=None)

    def fail(self, task: Task, generation: int, error: dict[str, Json], now: int) -> Superseded | None:
        try:
            error = _kept(error, "error")
        except StoreTooLarge:
            error = error | {"error": "the provider's error is too large to keep"}
        return self._end(task, generation, "failed", now, error=error)

    def cancel(self, task: Task, generation: int, now: int) -> Superseded | None:
        return self._end(task, generation, "cancelled", now)

    def open_since(self, provider: str, before: int) -> Iterator[tuple[Task, int]]:
        shards = open_keys(provider)
        self._item(Task(provider, ""))
        found = [item for item in self.items.values() if item.status == "pending" and open_key(item.task) in shards]
        for item in sorted(found, key=lambda item: (shards.index(open_key(item.task)), item.updated_at)):
            if item.updated_at < before:
                yield item.task, item.generation

    def _item(self, task: Task) -> Item | None:
        if self.unavailable:
            raise StoreUnavailable("the double is told to fail")
        return self.items.get(task)

    def _end(self, task: Task, generation: int, status: Status, now: int, **changes: Json) -> Superseded | None:
        ended = {"status": status, "completed_at": now, "updated_at": now, "notify": frozenset[str]()}
        expires_at = now // 1000 + self._retention_seconds
        return self._write(task, generation, **ended, expires_at=expires_at, **changes)

    def _write(self, task: Task, generation: int, **changes: Any) -> Superseded | None:
        item = self._item(task)
        if item is None or item.generation != generation or item.status != "pending":
            return Superseded(item)
        self.items[task] = dataclasses.replace(item, **changes)
        return None


def _kept(value: Json, name: str) -> Json:
    """The value as it comes back. Raises StoreTooLarge as the real one does."""
    packed(value, name)
    return loads(dumps(value), max_depth=1000)


def _ms(seconds: float) -> int:
    return -int(-max(seconds, 0) * 1000 // 1)
