"""What the queue's double keeps of one provider: its keys, as `LAYOUT` has them, each a dict."""

import re
from contextlib import suppress
from typing import NamedTuple, TypeAlias

HORIZON_MS = 366 * 86_400_000
STATE = re.compile(r"([0-9]+):([^:.]*)\.?([0-9]*)([a-z]?):([0-9]+)")
Scores: TypeAlias = dict[str, float]
DROPPED = ("leases", "queue", "dead", "state", "tasks", "jobs", "groups")


class State(NamedTuple):
    """A task's state; of none or junk, generation 0 and nobody's."""

    generation: int = 0
    token: str = ""
    turn: int = 0
    mark: str = ""
    came_back: int = 0

    def text(self) -> str:
        return f"{self.generation}:{self.token}.{self.turn}{self.mark}:{self.came_back}"


class Parts:
    """One provider's keys."""

    __slots__ = (
        *("queue", "leases", "state", "tasks", "dead", "gate", "jobs", "groups"),
        *("lines", "ring", "job_lines", "job_ring", "once", "often", "served", "plans", "runs"),
    )

    def __init__(self) -> None:
        self.queue: Scores = {}
        self.leases: Scores = {}
        self.state: dict[str, str] = {}
        self.tasks: dict[str, str] = {}
        self.dead: Scores = {}
        self.gate: dict[str, str] = {}
        self.jobs: dict[str, str] = {}
        self.groups: dict[str, str] = {}
        self.lines: Scores = {}
        self.ring: Scores = {}
        self.job_lines: Scores = {}
        self.job_ring: Scores = {}
        self.once: Scores = {}
        self.often: Scores = {}
        self.served: Scores = {}
        self.plans: Scores = {}
        self.runs: Scores = {}

    def copy(self) -> "Parts":
        twin = Parts()
        for part in self.__slots__:
            setattr(twin, part, dict(getattr(self, part)))
        return twin

    def parsed(self, name: str) -> State:
        found = STATE.fullmatch(self.state.get(name, ""))
        return State(int(found[1]), found[2], int(found[3] or 0), found[4], int(found[5])) if found else State()

    def is_held(self, name: str) -> bool:
        if name in self.queue:
            return self.queue[name] > 0 or name in self.leases
        return name in self.dead

    def drop(self, name: str) -> bool:
        """Leave nothing of a task that stands in no line; whether there was something."""
        gone = [getattr(self, part).pop(name, None) for part in DROPPED]
        return any(value is not None for value in gone)

    def number(self, field: str) -> float | None:
        """A number in the gate; junk is none."""
        with suppress(KeyError, ValueError):
            value = float(self.gate[field])
            return value if 0 <= value <= 2**53 else None
        return None

    def pause_end(self, now_ms: float) -> float | None:
        """When the pause ends or ended; one that is longer than any file may say is none."""
        at = self.number("until")
        return at if at is not None and at <= now_ms + HORIZON_MS else None

    def set_number(self, field: str, value: float) -> None:
        self.gate[field] = f"{value:.17g}"


def whole_ms(seconds: float) -> int:
    return -int(-max(seconds, 0) * 1000 // 1)
