"""In-memory doubles of Queue and Store: the scripts' and the conditional writes' promises in plain Python, copyable.

The contract suites (`test_queue.py`, `test_store.py`) hold them to the real ones.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, TypeAlias

from shared.codec import Json, dumps, loads
from shared.errors import QueueUnavailable, StoreTooLarge, StoreUnavailable
from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import BATCH, Add, Added, Claim, Claimed, End, Hold, Place, Release
from shared.record import Record
from shared.store import Item, Superseded
from shared.store.item import MAX_NOTIFY, Status, digest, open_key, open_keys, packed
from shared.task import Task
from tests.support.clock import START_MS
from tests.support.keys import Dump, key_of

_STATE = re.compile(r"(\d+):([^:]*):(\d+)")
WINDOW = 500
GROUPS = 10_000
AGAIN_MS = 1000

Scores: TypeAlias = dict[str, float]


class _Parts:
    """One provider's keys."""

    __slots__ = ("dead", "gate", "groups", "jobs", "leases", "queue", "served", "state", "tasks")

    def __init__(self) -> None:
        self.queue: Scores = {}
        self.leases: Scores = {}
        self.dead: Scores = {}
        self.state: dict[str, str] = {}
        self.tasks: dict[str, str] = {}
        self.gate: dict[str, str] = {}
        self.jobs: dict[str, str] = {}
        self.groups: dict[str, str] = {}
        self.served: Scores = {}

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
        parts = (getattr(self, part) for part in self.__slots__ if part not in ("gate", "served"))
        gone = [part.pop(name, None) for part in parts]
        if not self.groups:
            self.served.clear()
        return any(value is not None for value in gone)

    def number(self, field: str) -> float | None:
        """A number in the gate; junk is none."""
        with suppress(KeyError, ValueError):
            value = float(self.gate[field])
            return value if 0 <= value <= 2**53 else None
        return None

    def set_number(self, field: str, value: float) -> None:
        self.gate[field] = f"{value:.17g}"

    def serve(self, names: Sequence[str], now_ms: float) -> None:
        """Remember that the groups of these tasks had a turn."""
        if self.groups and names:
            served_at = max(now_ms, max(self.served.values(), default=0) + 1)
            self.served.update({self.groups.get(name, ""): served_at for name in names})
            for group in sorted(self.served, key=lambda group: (self.served[group], group))[:-GROUPS]:
                del self.served[group]

    def open_jobs(self) -> int:
        return sum(name in self.queue for name in self.jobs)


class _Pass:
    """What the gate lets through at `now_ms`: so many attempts, else `wait_ms`."""

    def __init__(self, parts: _Parts, limits: Limits, now_ms: float, wanted: int) -> None:
        self._parts, self._limits, self._now_ms = parts, limits, now_ms
        self.allowed, self.wait_ms = wanted, float(AGAIN_MS)
        self._is_probe = False
        until = parts.number("until")
        if until is not None and now_ms < until:
            self.allowed, self.wait_ms = 0, math.ceil(until - now_ms)
            return
        if until is not None:
            self._is_probe = True
            is_out = parts.leases.get(parts.gate.get("probe", ""), 0) > now_ms
            self.allowed = 0 if is_out else min(wanted, 1)
        if limits.parallel is not None:
            live = sum(end > now_ms for end in parts.leases.values())
            self.allowed = min(self.allowed, limits.parallel - live)
        if limits.rate_seconds is not None and self.allowed > 0:
            self._count(limits.rate_seconds * 1000)
        self.allowed = max(self.allowed, 0)

    def _count(self, attempt_ms: float) -> None:
        whole = self._limits.burst * attempt_ms
        lacking = max(0.0, (self._parts.number("full_at") or self._now_ms) - self._now_ms)
        if lacking > whole + 1:
            lacking = whole - attempt_ms
        saved = max(0.0, whole - lacking) / attempt_ms
        if math.floor(saved) < self.allowed:
            self.allowed, self.wait_ms = math.floor(saved), math.ceil((1 - saved % 1) * attempt_ms)

    def admit(self, names: Sequence[str]) -> None:
        if names and self._is_probe:
            self._parts.gate["probe"] = names[0]
        if names and self._limits.rate_seconds is not None:
            attempt_ms = self._limits.rate_seconds * 1000
            full_at = max(self._parts.number("full_at") or 0, self._now_ms)
            if full_at > self._now_ms + self._limits.burst * attempt_ms + 1:
                full_at = self._now_ms + (self._limits.burst - 1) * attempt_ms
            self._parts.set_number("full_at", full_at + len(names) * attempt_ms)


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
        self, adds: Sequence[Add], *, token: str, lease_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[Added]:
        if not adds:
            return []
        parts = self._parts(adds[0].task.provider)
        attempts, fresh = self._ahead(parts) if lease_seconds > 0 and limits != UNLIMITED else (0, 0)
        gate = _Pass(parts, limits, self.now_ms, len(adds) + attempts if lease_seconds > 0 else 0)
        gate.allowed -= attempts
        if limits.open_jobs is not None:
            gate.allowed = min(gate.allowed, limits.open_jobs - len(parts.jobs) - fresh)
        begun: list[str] = []
        answers = [self._add(one, token, lease_seconds, limits, gate, begun) for one in adds]
        gate.admit(begun)
        return answers

    def claim(
        self,
        provider: str,
        *,
        limit: int,
        lease_seconds: float,
        token: str,
        suspect: bool = False,
        limits: Limits = UNLIMITED,
    ) -> Claim:
        parts = self._parts(provider)
        expired = self._return_expired(parts)
        limit = 1 if suspect else min(limit, BATCH)
        gate = _Pass(parts, limits, self.now_ms, limit)
        if limits.open_jobs is not None and len(parts.jobs) + gate.allowed > limits.open_jobs:
            for name in [name for name in parts.jobs if name not in parts.queue]:
                del parts.jobs[name]
        chosen, suspects, is_held_back, unseen = self._chosen(parts, limits, gate, suspect)
        tasks = []
        for name in chosen:
            generation, _, crashes = parts.parsed(name)
            parts.queue[name] = 0
            parts.leases[name] = self.now_ms + _ms(lease_seconds)
            parts.state[name] = f"{generation}:{token}:{crashes}"
            if limits.open_jobs is not None:
                parts.jobs[name] = ""
            tasks.append(Claimed(Hold(Task(provider, name), generation, token), crashes, parts.tasks.get(name)))
        wait_ms = self._wait_ms(parts, gate, limit, len(tasks), is_held_back, unseen)
        gate.admit(chosen)
        parts.serve(chosen, self.now_ms)
        return Claim(tuple(tasks), None if wait_ms is None else wait_ms / 1000, suspects, expired)

    def complete(self, holds: Sequence[Hold], health: Health = UNKNOWN) -> list[bool]:
        done = [self._held(hold, lambda parts, name: parts.drop(name)) for hold in holds]
        return self._hear([hold.task for hold in holds], health, done)

    def release(self, releases: Sequence[Release], health: Health = UNKNOWN) -> list[bool]:
        return self._hear([one.hold.task for one in releases], health, [self._release(one) for one in releases])

    def bury(self, holds: Sequence[Hold], health: Health = UNKNOWN) -> list[bool]:
        return self._hear([hold.task for hold in holds], health, [self._bury(hold) for hold in holds])

    def forget(self, ends: Sequence[tuple[Task, int]], health: Health = UNKNOWN) -> list[bool]:
        dropped, known = [], []
        for task, generation in ends:
            parts = self._parts(task.provider)
            known.append(task.name in parts.state and parts.parsed(task.name)[0] <= generation)
            dropped.append(parts.parsed(task.name)[0] <= generation and parts.drop(task.name))
        return self._hear([task for task, _ in ends], health, dropped, answered=known)

    def end(self, ends: Sequence[End]) -> list[bool]:
        return [self._end(*end) for end in ends]

    def hasten(self, waiting: Sequence[tuple[Task, int]], delay_seconds: float = 0) -> list[bool]:
        hastened, due = [], self.now_ms + _ms(delay_seconds)
        for task, generation in waiting:
            parts = self._parts(task.provider)
            hastened.append(parts.parsed(task.name)[0] == generation and parts.queue.get(task.name, 0) > due)
            if hastened[-1]:
                parts.queue[task.name] = due
        return hastened

    def look(self, tasks: Sequence[Task], *, records: bool = False, limits: Limits = UNLIMITED) -> list[Place]:
        return [self._look(task, records, limits) for task in tasks]

    def dead(self, provider: str) -> list[Task]:
        return [Task(provider, name) for name in self._parts(provider).dead]

    def queued(self, provider: str) -> list[Task]:
        return [Task(provider, name) for name in self._parts(provider).queue]

    def strays(self, provider: str) -> list[Task]:
        parts = self._parts(provider)
        left = {*parts.leases, *parts.state, *parts.tasks, *parts.jobs, *parts.groups}
        return [Task(provider, name) for name in sorted(left - parts.queue.keys() - parts.dead.keys())]

    def _parts(self, provider: str) -> _Parts:
        if self.unavailable:
            raise QueueUnavailable("the double is told to fail")
        return self._providers.setdefault(provider, _Parts())

    def _add(self, one: Add, token: str, lease_seconds: float, limits: Limits, gate: _Pass, begun: list[str]) -> Added:
        parts, name = self._parts(one.task.provider), one.task.name
        held_generation, held_token, _ = parts.parsed(name) if parts.is_held(name) else (0, "", 0)
        if one.generation < held_generation:
            return "stale"
        if one.generation == held_generation and held_token != token:
            return "exists"
        if one.generation > held_generation:
            is_leased = len(begun) < gate.allowed
            parts.drop(name)
            parts.queue[name] = 0 if is_leased else self.now_ms + _ms(one.delay_seconds)
            if is_leased:
                parts.leases[name] = self.now_ms + _ms(lease_seconds)
                begun.append(name)
            parts.state[name] = f"{one.generation}:{token}:0"
            parts.tasks[name] = one.record
            if limits.open_jobs is not None and (is_leased or one.has_job):
                parts.jobs[name] = ""
            if one.group:
                parts.groups[name] = one.group
        return "waiting" if lease_seconds > 0 and name not in parts.leases else "created"

    def _ahead(self, parts: _Parts) -> tuple[int, int]:
        """How many wait their turn, and how many of those have no job yet."""
        due = [name for name, score in parts.queue.items() if self._is_due(score)]
        if len(due) >= BATCH:
            return 2**31, 2**31
        ordinary = [name for name in due if parts.parsed(name)[2] == 0]
        return len(ordinary), sum(name not in parts.jobs for name in ordinary)

    def _chosen(self, parts: _Parts, limits: Limits, gate: _Pass, suspect: bool) -> tuple[list[str], bool, bool, bool]:
        """The names to hand out, whether suspects wait, whether due tasks are held back, whether some were not seen."""
        if gate.allowed == 0:
            return [], False, False, False
        due = [name for _, name in sorted((score, name) for name, score in parts.queue.items() if self._is_due(score))]
        is_limited = limits.open_jobs is not None and parts.open_jobs() + gate.allowed > limits.open_jobs
        places = (limits.open_jobs or 0) - parts.open_jobs() if is_limited else math.inf
        unseen = bool(parts.groups) and len(due) >= WINDOW and places > 0
        if parts.groups:
            due = self._window(parts, due, places)
        may = [name for name in due if places > 0 or name in parts.jobs]
        wanted = [name for name in may if (parts.parsed(name)[2] > 0) == suspect]
        if parts.groups and not suspect and len(wanted) > gate.allowed:
            turns = Counter(parts.groups.get(name, "") for name in parts.leases)
            order: dict[str, tuple[float, ...]] = {}
            for name in wanted:
                group = parts.groups.get(name, "")
                turns[group] += 1
                served_at = parts.served.get(group, 0)
                order[name] = turns[group], max(parts.queue[name], served_at), served_at
            wanted.sort(key=lambda name: order[name])
        chosen: list[str] = []
        is_held_back = places <= 0
        for name in wanted:
            is_fresh = is_limited and name not in parts.jobs
            if len(chosen) == gate.allowed:
                break
            if is_fresh and places <= 0:
                is_held_back = True
                continue
            places -= is_fresh
            chosen.append(name)
        return chosen, any(parts.parsed(name)[2] > 0 for name in may), is_held_back, unseen

    def _window(self, parts: _Parts, due: list[str], places: float) -> list[str]:
        """What one call sees of the due tasks where there are groups."""
        seen = set(due[:WINDOW])
        rest = len(due) - WINDOW
        if places <= 0:
            seen = set()
        elif rest >= 0:
            cursor = int(parts.number("cursor") or 0)
            cursor = 0 if cursor >= rest else cursor
            seen |= set(due[WINDOW + cursor : WINDOW + cursor + WINDOW + BATCH])
            parts.gate["cursor"] = str(cursor + WINDOW)
        if not math.isinf(places):
            seen |= set(parts.jobs)
        return [name for name in due if name in seen]

    def _wait_ms(
        self, parts: _Parts, gate: _Pass, limit: int, taken: int, is_held_back: bool, unseen: bool
    ) -> float | None:
        if taken == limit:
            return 0
        next_ms = min((score - self.now_ms for score in parts.queue.values() if score > self.now_ms), default=None)
        if taken < gate.allowed and not is_held_back and not unseen:
            return next_ms
        if not any(self._is_due(score) for score in parts.queue.values()):
            return next_ms if next_ms is None else max(next_ms, gate.wait_ms)
        if taken == gate.allowed:
            return gate.wait_ms
        if not parts.leases and not unseen:
            return next_ms
        return min(AGAIN_MS, next_ms or AGAIN_MS)

    def _is_due(self, score: float) -> bool:
        return 1 <= score <= self.now_ms

    def _hear(
        self, tasks: Sequence[Task], health: Health, answers: list[bool], *, answered: list[bool] | None = None
    ) -> list[bool]:
        if not tasks:
            return answers
        parts = self._parts(tasks[0].provider)
        names = {task.name for task, told in zip(tasks, answered or answers, strict=True) if told}
        probe = names & {parts.gate.get("probe", "")}
        pause_ms = float(_ms(health.pause_seconds))
        until, pauses = parts.number("until"), parts.number("pauses") or 0
        is_paused = until is not None and self.now_ms < until
        in_a_row = (parts.number("troubles") or 0) + health.errors
        if health.well or health.errors or pause_ms > 0:
            parts.gate.pop("troubles", None)
        is_enough = health.errors > 0 and not health.well and in_a_row >= health.errors_to_pause
        if health.errors and not health.well:
            parts.set_number("troubles", in_a_row)
        if not is_paused and (is_enough or (until is not None and probe & health.unwell)):
            grown = _ms(health.shortest_seconds) * 2**pauses
            pause_ms = max(pause_ms, min(_ms(health.longest_seconds), grown))
        if pause_ms > 0:
            parts.set_number("until", max(until or 0, self.now_ms + math.ceil(pause_ms)))
            parts.set_number("pauses", pauses + (not is_paused))
        elif not is_paused and probe & health.well:
            for field in ("until", "probe", "pauses", "troubles"):
                parts.gate.pop(field, None)
        return answers

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

    def _end(self, task: Task, generation: int, becomes: str) -> bool:
        parts, name = self._parts(task.provider), task.name
        own = parts.parsed(name)[0]
        if own > generation or (becomes == "buried" and (own < generation or name not in parts.queue)):
            return False
        if parts.leases.get(name, 0) > self.now_ms:
            parts.tasks[name] = becomes
            return True
        traces = parts.drop(name)
        if becomes == "buried":
            parts.state[name], parts.dead[name] = f"{generation}::0", self.now_ms
        return traces

    def _release(self, one: Release) -> bool:
        ended = False

        def move(parts: _Parts, name: str) -> None:
            nonlocal ended
            if (becomes := parts.tasks.get(name)) in ("buried", "forgotten"):
                del parts.leases[name]
                ended = self._end(one.hold.task, one.hold.generation, becomes)
                return
            parts.leases.pop(name, None)
            parts.queue[name] = self.now_ms + _ms(one.delay_seconds)
            parts.state[name] = f"{one.hold.generation}::0"
            if one.record:
                parts.tasks[name] = one.record
            if not one.has_job:
                parts.jobs.pop(name, None)

        return self._held(one.hold, move) and not ended

    def _bury(self, hold: Hold) -> bool:
        def move(parts: _Parts, name: str) -> None:
            parts.drop(name)
            parts.state[name] = f"{hold.generation}::0"
            parts.dead[name] = self.now_ms

        return self._held(hold, move)

    def _look(self, task: Task, records: bool, limits: Limits) -> Place:
        parts, name = self._parts(task.provider), task.name
        score, lease = parts.queue.get(name), None
        if score == 0:
            score, lease = None, parts.leases.get(name)
        buried = parts.dead.get(name)
        wait_ms: float | None = None
        held_up: Literal["", "paused", "limited"] = ""
        if score is not None:
            wait_ms, held_up = self._held_up(parts, name, score - self.now_ms, limits)
        return Place(
            parts.parsed(name)[0],
            None if score is None else (score - self.now_ms) / 1000,
            None if lease is None else (lease - self.now_ms) / 1000,
            None if buried is None else (self.now_ms - buried) / 1000,
            parts.tasks.get(name) if records else None,
            None if wait_ms is None else wait_ms / 1000,
            held_up,
        )

    def _held_up(
        self, parts: _Parts, name: str, due_ms: float, limits: Limits
    ) -> tuple[float, Literal["", "paused", "limited"]]:
        gate = _Pass(parts, limits, self.now_ms, 1)
        is_paused = gate.allowed == 0 and parts.number("until") is not None
        if is_paused and gate.wait_ms > due_ms:
            return gate.wait_ms, "paused"
        if due_ms > 0 or is_paused:
            return max(0, due_ms), ""
        if gate.allowed == 0:
            return gate.wait_ms, "limited"
        if limits.open_jobs is not None and len(parts.jobs) >= limits.open_jobs and name not in parts.jobs:
            later = [score - self.now_ms for score in parts.queue.values() if score > self.now_ms]
            live = any(end > self.now_ms for end in parts.leases.values())
            return AGAIN_MS if live else min(later, default=AGAIN_MS), "limited"
        return 0, ""


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

    def opened(self, item: Item, now: int) -> Item:
        return item

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
        item = self._item(task)
        if item is not None and item.resubmits >= record.resubmits + (not resubmit):
            return Superseded(item)
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

    def complete(self, task: Task, generation: int, data: Json, now: int) -> Item | Superseded:
        data = _kept(data, "data")
        return self._end(task, generation, "completed", now, data=data, error=None, partial=None, outputs=None)

    def fail(self, task: Task, generation: int, error: dict[str, Json], now: int) -> Item | Superseded:
        try:
            error = _kept(error, "error")
        except StoreTooLarge:
            error = error | {"error": "the provider's error is too large to keep"}
        return self._end(task, generation, "failed", now, error=error)

    def cancel(self, task: Task, generation: int, now: int) -> Item | Superseded:
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

    def _end(self, task: Task, generation: int, status: Status, now: int, **changes: Json) -> Item | Superseded:
        ended = {"status": status, "completed_at": now, "updated_at": now, "notify": frozenset[str]()}
        expires_at = now // 1000 + self._retention_seconds
        superseded = self._write(task, generation, **ended, expires_at=expires_at, **changes)
        return superseded or self.items[task]

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
