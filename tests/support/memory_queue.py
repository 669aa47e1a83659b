"""The queue's double: what its scripts promise, without Redis, and copyable. The contract's tests hold it to that."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from shared.errors import QueueUnavailable
from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import BATCH, Add, Added, Claim, Claimed, End, Hold, Place, Run, Settle, Wake, Which
from shared.queue.values import NO_RUN
from shared.task import Task
from tests.support.clock import START_MS
from tests.support.keys import Dump, key_of
from tests.support.memory_gate import AGAIN_MS, Pass, hear
from tests.support.memory_lines import Round, catch_up, due_in, line_up, oldest, step_out, tidy
from tests.support.memory_parts import Parts, State, whole_ms
from tests.support.memory_place import place_of
from tests.support.memory_wake import HAND_MS, STANDS_MS, begins_in, forget_plans, is_served, plan

MARKS = {"buried": "b", "forgotten": "f"}
ENDS: dict[str, Literal["buried", "forgotten"]] = {"b": "buried", "f": "forgotten"}


class MemoryQueue:
    """Queue without Redis. Its time stands still at `now_ms`; `unavailable` makes every call fail."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.unavailable = False
        self._providers: dict[str, Parts] = {}
        self._wake: Wake | None = None

    def copy(self) -> "MemoryQueue":
        twin = MemoryQueue()
        twin.now_ms, twin.unavailable, twin._wake = self.now_ms, self.unavailable, self._wake
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
        self._key(key)[member] = value

    def remove(self, key: str, member: str) -> None:
        self._key(key).pop(member, None)

    def score(self, key: str, member: str) -> float | None:
        score = self._key(key).get(member)
        return None if score is None else float(score)

    def lasting(self) -> bool:
        return True

    def add(
        self, adds: Sequence[Add], *, token: str, lease_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[Added]:
        if not adds:
            return []
        if len({one.task.name for one in adds}) < len(adds):
            raise ValueError("one call adds a task once")
        parts = self._parts(adds[0].task.provider)
        gate = self._gate_of_add(parts, len(adds), limits) if lease_seconds > 0 else None
        known = set(parts.state)
        created: dict[str, tuple[Add, bool]] = {}
        begun: list[str] = []
        answers: list[Added] = []
        for one in adds:
            name = one.task.name
            held = parts.parsed(name) if parts.is_held(name) else State()
            is_own, is_leased = held.token in (token, token[:8]), name in parts.leases
            if one.generation > held.generation:
                is_own, is_leased = True, gate is not None and len(begun) < gate.allowed
                created[name] = one, is_leased
                begun += [name] * is_leased
            elif one.generation < held.generation or not is_own:
                answers.append("stale" if one.generation < held.generation else "exists")
                continue
            answers.append("waiting" if gate and not is_leased else "created")
        step_out(parts, [name for name in created if name in known])
        for one, is_leased in created.values():
            self._put(parts, one, token, whole_ms(lease_seconds) if is_leased else None, limits)
        waiting = [(one.task.name, int(one.came_back)) for one, is_leased in created.values() if not is_leased]
        line_up(parts, [(name, parts.queue[name], came_back) for name, came_back in waiting], self.now_ms)
        if gate:
            gate.admit(begun)
        if waiting:
            self._plan(adds[0].task.provider, limits)
        return answers

    def add_and_look(self, adds: Sequence[Add], **how: Any) -> list[tuple[Added, Place]]:
        return list(
            zip(self.add(adds, **how), self.look([one.task for one in adds], limits=how["limits"]), strict=True)
        )

    def claim(
        self,
        provider: str,
        *,
        limit: int,
        lease_seconds: float,
        token: str,
        which: Which = "ordinary",
        lost_token: str = "",
        limits: Limits = UNLIMITED,
        run: Run = NO_RUN,
    ) -> Claim:
        parts = self._parts(provider)
        is_late = any(1 <= due <= self.now_ms - STANDS_MS for due in parts.queue.values())
        gives_way = run.gives_way == "always" or (run.gives_way == "in time" and not is_late)
        if gives_way and is_served(parts, self.now_ms, but=run.name):
            return Claim((), None, once=False, often=False, expired=0)
        if run.name:
            if parts.queue:
                parts.runs[run.name] = self.now_ms + whole_ms(run.alive_seconds)
            forget_plans(parts, self.now_ms)
        expired = self._bring_back(parts, lost_token)
        in_line = len(parts.lines) + len(parts.job_lines) + len(parts.once) + len(parts.often)
        if len(parts.queue) != len(parts.leases) + in_line:
            every = oldest(parts.queue, above=0, most=len(parts.queue))
            for first in (0, in_line, self.now_ms % max(1, len(parts.queue))):
                if catch_up(parts, every[first : first + BATCH], self.now_ms):
                    break
        limit = 1 if which == "often" else min(limit, BATCH)
        gate = Pass(parts, limits, self.now_ms, len(parts.leases), limit)
        slots = math.inf if limits.open_jobs is None else max(0, limits.open_jobs - len(parts.jobs))
        turns = Round(parts, self.now_ms, gate.allowed, slots, 2 * limit + 100)
        if gate.allowed and which == "ordinary":
            turns.go()
        elif gate.allowed and which != "ordinary":
            turns.take_back(which)
        wait_ms = self._wait_ms(parts, gate, limit, turns)
        turns.finish()
        tasks = [self._hand_out(parts, Task(provider, name), token, lease_seconds, limits) for name in turns.taken]
        claimed = tuple(one for one in tasks if one)
        gate.admit([one.hold.task.name for one in claimed])
        is_enough = len(turns.taken) < gate.allowed and turns.slots > 0 and not turns.is_cut
        if gate.slow is not None and which == "ordinary" and is_enough:
            parts.gate.pop("slow")
        once, often = (due_in(place, self.now_ms) > 0 for place in (parts.once, parts.often))
        return Claim(claimed, None if wait_ms is None else wait_ms / 1000, once, often, expired)

    def rest(
        self, provider: str, run: Run, limits: Limits, *, may_stay: bool = True, least_seconds: float = 0
    ) -> float | None:
        parts, least_ms = self._parts(provider), whole_ms(least_seconds)
        for dead in [name for name, until in parts.runs.items() if until <= self.now_ms]:
            del parts.runs[dead]
        until = parts.runs.pop(run.name, None)
        wait_ms = begins_in(parts, limits, self.now_ms, least_ms)
        if may_stay and not is_served(parts, self.now_ms) and wait_ms <= HAND_MS:
            if until is not None:
                parts.runs[run.name] = until
            return wait_ms / 1000
        forget_plans(parts, self.now_ms)
        if not parts.queue:
            parts.plans.clear()
        self._plan(provider, limits, least_ms)
        return None

    def settle(self, rows: Sequence[Settle], health: Health = UNKNOWN, limits: Limits = UNLIMITED) -> list[bool]:
        if not rows:
            return []
        parts = self._parts(rows[0].hold.task.provider)
        held = [self._holds(parts, row.hold) for row in rows]
        before, done = [parts.parsed(row.hold.task.name) for row in rows], list(held)
        waiting = []
        for at, (row, state) in enumerate(zip(rows, before, strict=True)):
            name, becomes = row.hold.task.name, row.becomes
            if held[at] and becomes == "waiting" and state.mark in ENDS:
                becomes, done[at] = ENDS[state.mark], False
            if held[at] and becomes == "waiting":
                waiting.append((name, *self._wait(parts, row, state)))
            elif held[at]:
                self._leave(parts, name, state, is_dead=becomes == "buried")
        line_up(parts, waiting, self.now_ms)
        hear(parts, rows, held, health, self.now_ms)
        self._plan(rows[0].hold.task.provider, limits)
        return done

    def settle_and_look(self, rows: Sequence[Settle], health: Health, limits: Limits) -> list[tuple[bool, Place]]:
        done = self.settle(rows, health, limits)
        return list(zip(done, self.look([row.hold.task for row in rows], limits=limits), strict=True))

    def end(self, ends: Sequence[End], limits: Limits = UNLIMITED) -> list[bool]:
        done = [self._end(*end) for end in ends]
        if ends and limits.open_jobs is not None:
            self._plan(ends[0].task.provider, limits)
        return done

    def hasten(
        self, waiting: Sequence[tuple[Task, int]], delay_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[bool]:
        hastened, due = [], self.now_ms + whole_ms(delay_seconds)
        for task, generation in waiting:
            parts, name = self._parts(task.provider), task.name
            state = parts.parsed(name)
            hastened.append(state.generation == generation and parts.queue.get(name, 0) > due)
            if hastened[-1]:
                step_out(parts, [name])
                parts.queue[name] = due
                line_up(parts, [(name, due, state.came_back)], self.now_ms)
        if waiting:
            self._plan(waiting[0][0].provider, limits)
        return hastened

    def look(self, tasks: Sequence[Task], *, records: bool = False, limits: Limits = UNLIMITED) -> list[Place]:
        return [
            place_of(self._parts(task.provider), task.name, limits, self.now_ms, with_record=records) for task in tasks
        ]

    def members(self, provider: str, key: Literal["queue", "dead"]) -> list[Task]:
        return [Task(provider, name) for name in getattr(self._parts(provider), key)]

    def mend(self, provider: str) -> list[Task]:
        parts = self._parts(provider)
        parts.served.clear()
        for over in (parts.runs, parts.plans):
            for name in [name for name, at in over.items() if at <= self.now_ms]:
                del over[name]
        catch_up(parts, [name for name, due in parts.queue.items() if due > 0], self.now_ms)
        tidy(parts)
        left = {*parts.leases, *parts.state, *parts.tasks, *parts.jobs, *parts.groups}
        strays = left - parts.queue.keys() - parts.dead.keys() | parts.dead.keys() - parts.state.keys()
        return [Task(provider, name) for name in sorted(strays)]

    def _plan(self, provider: str, limits: Limits, floor_ms: float = 0) -> None:
        if self._wake:
            wait_ms = plan(self._parts(provider), limits, self.now_ms, floor_ms)
            if wait_ms is not None:
                self._wake.send(provider, wait_ms / 1000)

    def _parts(self, provider: str) -> Parts:
        if self.unavailable:
            raise QueueUnavailable("the double is told to fail")
        return self._providers.setdefault(provider, Parts())

    def _key(self, key: str) -> dict[str, float | str]:
        base, _, part = key.partition("}")
        provider = base.partition(":")[2]
        members: dict[str, float | str] = getattr(self._parts(provider), part.removeprefix(":") or "queue")
        return members

    def _gate_of_add(self, parts: Parts, wanted: int, limits: Limits) -> Pass:
        """What the limits leave of those that are due already and have not come back."""
        ahead = fresh = 0
        if limits != UNLIMITED:
            due, groups = (sum(1 <= at <= self.now_ms for at in part.values()) for part in (parts.queue, parts.ring))
            ahead = due - due_in(parts.once, self.now_ms) - due_in(parts.often, self.now_ms)
            fresh = ahead if groups else 0
        gate = Pass(parts, limits, self.now_ms, self._live(parts), wanted + ahead)
        gate.allowed -= ahead
        if limits.open_jobs is not None:
            gate.allowed = min(gate.allowed, limits.open_jobs - len(parts.jobs) - fresh)
        return gate

    def _live(self, parts: Parts) -> int:
        return sum(end > self.now_ms for end in parts.leases.values())

    def _put(self, parts: Parts, one: Add, token: str, lease_ms: int | None, limits: Limits) -> None:
        name, is_leased = one.task.name, lease_ms is not None
        for part in (parts.leases, parts.dead, parts.jobs, parts.groups):
            part.pop(name, None)
        parts.queue[name] = 0 if is_leased else self.now_ms + whole_ms(one.delay_seconds)
        holder, turn = (token, 1) if is_leased else (token[:8], one.turn)
        parts.state[name] = State(one.generation, holder, turn, "", int(one.came_back)).text()
        parts.tasks[name] = one.record
        if lease_ms is not None:
            parts.leases[name] = self.now_ms + lease_ms
        if limits.open_jobs is not None and (is_leased or one.has_job):
            parts.jobs[name] = ""
        if one.group:
            parts.groups[name] = one.group

    def _bring_back(self, parts: Parts, lost_token: str) -> int:
        """Let tasks wait again whose lease has expired, or is under that token; how many had expired."""
        waiting = []
        expired = [name for name in oldest(parts.leases, most=BATCH) if parts.leases[name] <= self.now_ms]
        for name in expired:
            due, state = max(1, parts.leases.pop(name)), parts.parsed(name)
            if parts.queue.get(name) == 0:
                waiting.append((name, due, state.came_back + 1))
        for name in list(parts.leases) if lost_token else ():
            state = parts.parsed(name)
            if state.token == lost_token:
                del parts.leases[name]
                if parts.queue.get(name) == 0:
                    waiting.append((name, self.now_ms, state.came_back))
        ended = {name: state for name, *_ in waiting if (state := parts.parsed(name)).mark in ENDS}
        for name, state in ended.items():
            self._leave(parts, name, state, is_dead=ENDS[state.mark] == "buried")
        waiting = [one for one in waiting if one[0] not in ended]
        for name, due, came_back in waiting:
            parts.queue[name] = due
            state = parts.parsed(name)
            parts.state[name] = State(state.generation, "", state.turn, "", came_back).text()
        line_up(parts, waiting, self.now_ms)
        return sum(name in expired for name, *_ in waiting)

    def _wait_ms(self, parts: Parts, gate: Pass, limit: int, turns: Round) -> float | None:
        taken = len(turns.taken)
        if taken == limit or (taken < gate.allowed and turns.is_cut):
            return 0
        next_ms = min((score - self.now_ms for score in parts.queue.values() if score > self.now_ms), default=None)
        if taken < gate.allowed and turns.slots > 0:
            return next_ms
        if sum(1 <= score <= self.now_ms for score in parts.queue.values()) == taken:
            return None if next_ms is None else max(next_ms, gate.wait_ms)
        if taken == gate.allowed:
            return gate.wait_ms
        if not parts.leases and not taken:
            return next_ms
        return min(AGAIN_MS, next_ms or AGAIN_MS)

    def _hand_out(self, parts: Parts, task: Task, token: str, lease_seconds: float, limits: Limits) -> Claimed | None:
        """Lease a task to this token; of one whose state is junk, nothing is left."""
        name, state = task.name, parts.parsed(task.name)
        if not state.generation:
            parts.drop(name)
            return None
        turn = state.turn + 1
        parts.queue[name] = 0
        parts.leases[name] = self.now_ms + whole_ms(lease_seconds)
        parts.state[name] = State(state.generation, token, turn, "", state.came_back).text()
        if limits.open_jobs is not None:
            parts.jobs[name] = ""
        record = parts.tasks.get(name)
        hold = Hold(task, state.generation, token, turn)
        return Claimed(hold, state.came_back, None if record is None else record.encode())

    def _holds(self, parts: Parts, hold: Hold) -> bool:
        state = parts.parsed(hold.task.name)
        return hold.task.name in parts.state and (state.generation, state.token) == (hold.generation, hold.token)

    def _wait(self, parts: Parts, row: Settle, state: State) -> tuple[float, int]:
        """Let a task in hand wait: when it is due, and how often it has come back."""
        name, due = row.hold.task.name, self.now_ms + whole_ms(row.delay_seconds)
        came_back = 0 if row.attempted else state.came_back
        parts.leases.pop(name, None)
        parts.queue[name] = due
        parts.state[name] = State(state.generation, "", max(state.turn, row.turn), "", came_back).text()
        if row.record:
            parts.tasks[name] = row.record
        if not row.has_job:
            parts.jobs.pop(name, None)
        return due, came_back

    def _leave(self, parts: Parts, name: str, state: State, *, is_dead: bool) -> bool:
        """Let a task out of the queue, perhaps to the dead letters; whether there was anything."""
        traces = parts.drop(name)
        if is_dead:
            parts.state[name] = State(state.generation, "", state.turn).text()
            parts.dead[name] = self.now_ms
        return traces

    def _end(self, task: Task, generation: int, becomes: str) -> bool:
        parts, name = self._parts(task.provider), task.name
        state, is_buried = parts.parsed(name), becomes == "buried"
        if state.generation > generation or (is_buried and (state.generation < generation or name not in parts.queue)):
            return False
        if becomes in MARKS and parts.leases.get(name, 0) > self.now_ms:
            parts.state[name] = state._replace(mark=MARKS[becomes]).text()
            return True
        step_out(parts, [name])
        if not is_buried and parts.gate.get("probe") == name:
            del parts.gate["probe"]
        return self._leave(parts, name, state, is_dead=is_buried)
