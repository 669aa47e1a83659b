"""The queue's double: what its scripts promise, without Redis, and copyable. The contract's tests hold it to that."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from shared.errors import QueueUnavailable
from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import BATCH, Add, Added, Claim, Claimed, End, Hold, Place, Release
from shared.task import Task
from tests.support.clock import START_MS
from tests.support.keys import Dump, key_of
from tests.support.memory_parts import AGAIN_MS, Parts, Pass, whole_ms

WINDOW = 500


class MemoryQueue:
    """Queue without Redis. Its time stands still at `now_ms`; `unavailable` makes every call fail."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.unavailable = False
        self._providers: dict[str, Parts] = {}

    def copy(self) -> "MemoryQueue":
        twin = MemoryQueue()
        twin.now_ms, twin.unavailable = self.now_ms, self.unavailable
        twin._providers = {provider: parts.copy() for provider, parts in self._providers.items()}
        return twin

    def now(self) -> int:
        return self.now_ms

    def dump(self) -> Dump:
        every = {
            key_of(provider, part): dict(getattr(parts, part))
            for provider, parts in self._providers.items()
            for part in Parts.__slots__
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
        gate = Pass(parts, limits, self.now_ms, len(adds) + attempts if lease_seconds > 0 else 0)
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
        gate = Pass(parts, limits, self.now_ms, limit)
        if limits.open_jobs is not None and len(parts.jobs) + gate.allowed > limits.open_jobs:
            for name in [name for name in parts.jobs if name not in parts.queue]:
                del parts.jobs[name]
        chosen, suspects, is_held_back, unseen = self._chosen(parts, limits, gate, suspect)
        tasks = []
        for name in chosen:
            generation, _, crashes = parts.parsed(name)
            parts.queue[name] = 0
            parts.leases[name] = self.now_ms + whole_ms(lease_seconds)
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
        hastened, due = [], self.now_ms + whole_ms(delay_seconds)
        for task, generation in waiting:
            parts = self._parts(task.provider)
            hastened.append(parts.parsed(task.name)[0] == generation and parts.queue.get(task.name, 0) > due)
            if hastened[-1]:
                parts.queue[task.name] = due
        return hastened

    def look(self, tasks: Sequence[Task], *, records: bool = False, limits: Limits = UNLIMITED) -> list[Place]:
        return [self._look(task, records, limits) for task in tasks]

    def members(self, provider: str, key: str) -> list[Task]:
        return [Task(provider, name) for name in getattr(self._parts(provider), key)]

    def strays(self, provider: str) -> list[Task]:
        parts = self._parts(provider)
        left = {*parts.leases, *parts.state, *parts.tasks, *parts.jobs, *parts.groups}
        return [Task(provider, name) for name in sorted(left - parts.queue.keys() - parts.dead.keys())]

    def _parts(self, provider: str) -> Parts:
        if self.unavailable:
            raise QueueUnavailable("the double is told to fail")
        return self._providers.setdefault(provider, Parts())

    def _add(self, one: Add, token: str, lease_seconds: float, limits: Limits, gate: Pass, begun: list[str]) -> Added:
        parts, name = self._parts(one.task.provider), one.task.name
        held_generation, held_token, _ = parts.parsed(name) if parts.is_held(name) else (0, "", 0)
        if one.generation < held_generation:
            return "stale"
        if one.generation == held_generation and held_token != token:
            return "exists"
        if one.generation > held_generation:
            is_leased = len(begun) < gate.allowed
            parts.drop(name)
            parts.queue[name] = 0 if is_leased else self.now_ms + whole_ms(one.delay_seconds)
            if is_leased:
                parts.leases[name] = self.now_ms + whole_ms(lease_seconds)
                begun.append(name)
            parts.state[name] = f"{one.generation}:{token}:0"
            parts.tasks[name] = one.record
            if limits.open_jobs is not None and (is_leased or one.has_job):
                parts.jobs[name] = ""
            if one.group:
                parts.groups[name] = one.group
        return "waiting" if lease_seconds > 0 and name not in parts.leases else "created"

    def _ahead(self, parts: Parts) -> tuple[int, int]:
        """How many wait their turn, and how many of those have no job yet."""
        due = [name for name, score in parts.queue.items() if self._is_due(score)]
        if len(due) >= BATCH:
            return 2**31, 2**31
        ordinary = [name for name in due if parts.parsed(name)[2] == 0]
        return len(ordinary), sum(name not in parts.jobs for name in ordinary)

    def _chosen(self, parts: Parts, limits: Limits, gate: Pass, suspect: bool) -> tuple[list[str], bool, bool, bool]:
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

    def _window(self, parts: Parts, due: list[str], places: float) -> list[str]:
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
        self, parts: Parts, gate: Pass, limit: int, taken: int, is_held_back: bool, unseen: bool
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
        pause_ms = float(whole_ms(health.pause_seconds))
        until, pauses = parts.number("until"), parts.number("pauses") or 0
        is_paused = until is not None and self.now_ms < until
        in_a_row = (parts.number("troubles") or 0) + health.errors
        if health.well or health.errors or pause_ms > 0:
            parts.gate.pop("troubles", None)
        is_enough = health.errors > 0 and not health.well and in_a_row >= health.errors_to_pause
        if health.errors and not health.well:
            parts.set_number("troubles", in_a_row)
        if not is_paused and (is_enough or (until is not None and probe & health.unwell)):
            grown = whole_ms(health.shortest_seconds) * 2**pauses
            pause_ms = max(pause_ms, min(whole_ms(health.longest_seconds), grown))
        if pause_ms > 0:
            parts.set_number("until", max(until or 0, self.now_ms + math.ceil(pause_ms)))
            parts.set_number("pauses", pauses + (not is_paused))
        elif not is_paused and probe & health.well:
            for field in ("until", "probe", "pauses", "troubles"):
                parts.gate.pop(field, None)
        return answers

    def _return_expired(self, parts: Parts) -> int:
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

    def _held(self, hold: Hold, move: Callable[[Parts, str], object]) -> bool:
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

        def move(parts: Parts, name: str) -> None:
            nonlocal ended
            if (becomes := parts.tasks.get(name)) in ("buried", "forgotten"):
                del parts.leases[name]
                ended = self._end(one.hold.task, one.hold.generation, becomes)
                return
            parts.leases.pop(name, None)
            parts.queue[name] = self.now_ms + whole_ms(one.delay_seconds)
            parts.state[name] = f"{one.hold.generation}::0"
            if one.record:
                parts.tasks[name] = one.record
            if not one.has_job:
                parts.jobs.pop(name, None)

        return self._held(one.hold, move) and not ended

    def _bury(self, hold: Hold) -> bool:
        def move(parts: Parts, name: str) -> None:
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
        self, parts: Parts, name: str, due_ms: float, limits: Limits
    ) -> tuple[float, Literal["", "paused", "limited"]]:
        gate = Pass(parts, limits, self.now_ms, 1)
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
