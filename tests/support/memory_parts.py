"""What the queue's double keeps of one provider, and whom its limits let pass: as gate.lua does."""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from shared.limits import Limits

STATE = re.compile(r"(\d+):([^:]*):(\d+)")
GROUPS = 10_000
AGAIN_MS = 1000
Scores: TypeAlias = dict[str, float]


class Parts:
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

    def copy(self) -> "Parts":
        twin = Parts()
        for part in self.__slots__:
            setattr(twin, part, dict(getattr(self, part)))
        return twin

    def parsed(self, name: str) -> tuple[int, str, int]:
        """Generation, token and crashes; of junk 0, nobody's, none."""
        found = STATE.fullmatch(self.state.get(name, ""))
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


class Pass:
    """What the gate lets through at `now_ms`: so many attempts, else `wait_ms`."""

    def __init__(self, parts: Parts, limits: Limits, now_ms: float, wanted: int) -> None:
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


def whole_ms(seconds: float) -> int:
    return -int(-max(seconds, 0) * 1000 // 1)
