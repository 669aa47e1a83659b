"""Where waiting tasks stand in the double, and whose goes next: as lines.lua and ring.lua do."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal, TypeAlias

from tests.support.memory_parts import Parts, Scores

Lane: TypeAlias = Literal["lines", "job_lines"]
Place: TypeAlias = Literal["lines", "job_lines", "once", "often"]
LANES: tuple[Lane, Lane] = ("lines", "job_lines")
JOB = 2**51
LEAST = 50
RINGS: Mapping[Place, str] = {"lines": "ring", "job_lines": "job_ring"}


def member_of(group: str, due: float, name: str) -> str:
    return f"{group}\0{due_text(due)}\0{name}"


def due_of(member: str) -> float:
    return float(member.split("\0", 2)[1])


def due_text(due: float) -> str:
    return f"{due:013.0f}"


def place_of(parts: Parts, name: str, due: float, came_back: int) -> tuple[Place, str, str]:
    """Where a task stands that is due then: the place, its member there, its group."""
    group = parts.groups.get(name, "")
    if came_back:
        return "once" if came_back == 1 else "often", name, group
    return "job_lines" if name in parts.jobs else "lines", member_of(group, due, name), group


def line_up(parts: Parts, waiting: Iterable[tuple[str, float, int]], now_ms: float) -> int:
    """Let tasks stand in line: each with its due time and how often it came back. How many did not."""
    soonest: dict[tuple[Place, str], float] = {}
    added = 0
    for name, due, came_back in waiting:
        place, member, group = place_of(parts, name, due, came_back)
        added += member not in getattr(parts, place)
        getattr(parts, place)[member] = due + JOB * (name in parts.jobs) if came_back else 0
        if not came_back:
            soonest[place, group] = min(soonest.get((place, group), math.inf), max(due, now_ms))
    for (place, group), turn in soonest.items():
        ring: Scores = getattr(parts, RINGS[place])
        if group not in ring or (ring[group] >= now_ms + 1 and ring[group] > turn):
            ring[group] = turn
    return added


def step_out(parts: Parts, names: Iterable[str]) -> None:
    """Take tasks out of line, before their scores, groups or jobs change."""
    for name in names:
        parts.once.pop(name, None)
        parts.often.pop(name, None)
        if due := parts.queue.get(name):
            lane, member, group = place_of(parts, name, due, 0)
            getattr(parts, lane).pop(member, None)
            if not line_of(parts, lane, group):
                getattr(parts, RINGS[lane]).pop(group, None)


def catch_up(parts: Parts, names: Iterable[str], now_ms: float) -> int:
    """Let tasks of the main set stand where they belong. How many did not."""
    return line_up(parts, [(name, parts.queue[name], parts.parsed(name).came_back) for name in names], now_ms)


def line_of(parts: Parts, place: Place, group: str) -> list[str]:
    return sorted(member for member in getattr(parts, place) if member.startswith(f"{group}\0"))


def tidy(parts: Parts) -> None:
    """Remove what stands somewhere though the main set does not say so."""
    for place in ("once", "often", *LANES):
        for member in list(getattr(parts, place)):
            name = member.split("\0", 2)[-1]
            due = parts.queue.get(name)
            if not due or place_of(parts, name, due, parts.parsed(name).came_back)[:2] != (place, member):
                del getattr(parts, place)[member]
            elif place in ("once", "often"):
                getattr(parts, place)[member] = due + JOB * (name in parts.jobs)
    for lane in LANES:
        ring: Scores = getattr(parts, RINGS[lane])
        for group in [group for group in ring if not line_of(parts, lane, group)]:
            del ring[group]


def due_in(stand: Scores, now_ms: float) -> int:
    """How many are due of those that came back once, or more often."""
    return sum(at <= now_ms or JOB <= at <= JOB + now_ms for at in stand.values())


@dataclass
class Line:
    """A group's tasks in a lane, as far as they were read; `at` is the next one; `after` is when what was seen behind
    them is due; infinite: nothing is left."""

    lane: Lane
    entries: list[str]
    names: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    at: int = 0
    read: int = 0
    after: float = -math.inf


@dataclass
class Turn:
    """A group that takes part; `served` is how many tasks had been taken after its last."""

    group: str
    since: float
    lines: dict[Lane, Line] = field(default_factory=dict)
    served: int = 0


@dataclass
class Round:
    """One call's choice: up to `allowed` tasks, fresh ones while `slots` are free, within about `steps` entries."""

    parts: Parts
    now_ms: float
    allowed: int
    slots: float
    steps: int
    taken: list[str] = field(default_factory=list)
    gone: list[tuple[Place, str]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    cut: set[Lane] = field(default_factory=set)
    is_stale: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether it did not come to all that it might take."""
        return self.steps <= 0 or self.is_stale or self.leaves_some

    @property
    def leaves_some(self) -> bool:
        """Whether groups may have a turn that do not take part."""
        return "job_lines" in self.cut or ("lines" in self.cut and self.slots > 0)

    def go(self) -> None:
        """One turn for each group, again and again."""
        self._join()
        waiting, count = self.turns, math.ceil(self.allowed / max(1, len(self.turns)))
        for turn in waiting[: self.allowed]:
            for lane in LANES:
                if lane in turn.lines:
                    self._read(turn.lines[lane], count)
        while waiting:
            again, each = [], self.allowed - len(self.taken) if len(waiting) == 1 and not self.leaves_some else 1
            for turn in waiting:
                if len(self.taken) == self.allowed:
                    return
                if self._serve(turn, each, count) == each:
                    again.append(turn)
            waiting = again if self.steps > 0 and not self.leaves_some else []

    def take_back(self, place: Literal["once", "often"]) -> None:
        """Those that came back go without a turn."""
        stand: Scores = getattr(self.parts, place)
        with_job = sorted((at - JOB, name) for name, at in stand.items() if JOB <= at <= JOB + self.now_ms)
        without = sorted((at, name) for name, at in stand.items() if at <= self.now_ms)
        with_job = with_job[: max(LEAST, self.allowed)]
        room = max(LEAST, int(min(self.allowed, self.slots))) if self.slots > 0 else 0
        for at, name in sorted(with_job + without[:room]):
            has_job = name in self.parts.jobs
            if not self._is_true(name, due_text(at), place, name):
                continue
            if has_job != ((at, name) in with_job):
                self.gone.append((place, name))
                self.is_stale = True
            elif len(self.taken) < self.allowed and (has_job or self.slots > 0):
                self.slots -= not has_job
                self.taken.append(name)
                self.gone.append((place, name))

    def finish(self) -> None:
        """Say when each group that took part has its next turn, and take what went out of line."""
        self._next_turns()
        for place, member in self.gone:
            getattr(self.parts, place).pop(member, None)

    def _is_true(self, name: str, due: str, place: Place, member: str) -> bool:
        score = self.parts.queue.get(name)
        is_true = score is not None and due_text(score) == due
        if not is_true:
            self.gone.append((place, member))
            self.is_stale = True
        return is_true

    def _read(self, line: Line, count: int) -> None:
        if self.steps <= 0:
            return
        found = line.entries[line.read : line.read + count + 1]
        for member in found[:count]:
            _, due, name = member.split("\0", 2)
            if self._is_true(name, due, line.lane, member):
                line.names.append(name)
                line.members.append(member)
        self.steps -= 1 + len(found)
        line.read += min(len(found), count)
        line.after = due_of(found[count]) if len(found) > count else math.inf

    def _head(self, line: Line | None, count: int) -> float:
        """When its next task is due, later than now at the soonest; never if it has none, or none within the steps."""
        if line is None:
            return math.inf
        while line.at >= len(line.names) and line.after <= self.now_ms and self.steps > 0:
            self._read(line, count)
        if line.at < len(line.names):
            return due_of(line.members[line.at])
        return line.after if line.after > self.now_ms else math.inf

    def _serve(self, turn: Turn, most: int, count: int) -> int:
        for had in range(most):
            due = self._head(turn.lines.get("lines"), count) if self.slots > 0 else math.inf
            other_due = self._head(turn.lines.get("job_lines"), count)
            if due > self.now_ms and other_due > self.now_ms:
                return had
            line = turn.lines["lines" if due <= other_due else "job_lines"]
            self.slots -= due <= other_due
            self.taken.append(line.names[line.at])
            self.gone.append((line.lane, line.members[line.at]))
            line.at += 1
            turn.served = len(self.taken)
        return most

    def _join(self) -> None:
        turns: dict[str, Turn] = {}
        for lane in LANES if self.slots > 0 else LANES[1:]:
            ring: Scores = getattr(self.parts, RINGS[lane])
            due = sorted((at, group) for group, at in ring.items() if at < self.now_ms + 1)[: self.allowed]
            for at, group in due:
                turn = turns.setdefault(group, Turn(group, at))
                turn.since = min(turn.since, at)
                turn.lines[lane] = Line(lane, line_of(self.parts, lane, group))
            if len(due) == self.allowed:
                self.cut.add(lane)
        self.turns = sorted(turns.values(), key=lambda turn: (turn.since, turn.group))

    def _next_turns(self) -> None:
        if not self.turns:
            return
        rings: dict[Lane, Scores] = {lane: getattr(self.parts, RINGS[lane]) for lane in LANES}
        waiting = [at for ring in rings.values() for at in ring.values() if at < self.now_ms + 1]
        last = max(self.now_ms, *waiting)
        for lane, ring in rings.items():
            for turn in self.turns:
                line = turn.lines.get(lane)
                behind = last + turn.served / 4096 if turn.served else None
                due = math.inf
                if line:
                    due = due_of(line.members[line.at]) if line.at < len(line.members) else line.after
                at = due if self.now_ms < due < math.inf else behind
                if line and due == math.inf:
                    ring.pop(turn.group, None)
                elif at is not None and (line or ring.get(turn.group, math.inf) < self.now_ms + 1):
                    ring[turn.group] = at


def oldest(scores: Scores, *, above: float = -math.inf, most: int) -> list[str]:
    """The members with the lowest scores above that, in order."""
    found = sorted(((score, name) for name, score in scores.items() if score > above), key=itemgetter(0, 1))
    return [name for _, name in found[:most]]
