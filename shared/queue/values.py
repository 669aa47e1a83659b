"""What the queue's verbs take and give."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from shared.task import Task

Added: TypeAlias = Literal["created", "waiting", "exists", "stale"]
"""What `add` did: took the task in as asked, or for later since the provider is paused or at a limit; found this
generation there already, or found a higher one."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The right to settle one generation of a task; void once the lease has expired."""

    task: Task
    generation: int
    token: str


class Add(NamedTuple):
    """A task to put in: due after `delay_seconds`; `group`: whose it is; `has_job`: its job is open already."""

    task: Task
    generation: int
    record: str
    delay_seconds: float = 0
    group: str = ""
    has_job: bool = False


class Release(NamedTuple):
    """A task to give back: due after `delay_seconds`, with a new record or the old one; `has_job`: one may be open."""

    hold: Hold
    delay_seconds: float = 0
    record: str | None = None
    has_job: bool = True


class End(NamedTuple):
    """A task whose generation has ended, as its item says: a dead letter, or nothing that Redis needs to know of."""

    task: Task
    generation: int
    becomes: Literal["buried", "forgotten"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task handed out by `claim`. `record` is text as it was added, or None if Redis has lost it."""

    hold: Hold
    crashes: int
    record: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim call gave. `wait_seconds` is until the next task may begin, None if there is none."""

    tasks: tuple[Claimed, ...]
    wait_seconds: float | None
    suspects: bool
    expired: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where Redis has a task; `generation` 0 and all else None when it has not. Spans in seconds; below 0 is past.

    `wait_seconds`: the soonest that an attempt of a waiting task may begin, never below 0; `held_up`: what puts that
    off beyond its due time.
    """

    generation: int
    due_seconds: float | None
    lease_seconds: float | None
    buried_seconds: float | None
    record: str | None
    wait_seconds: float | None = None
    held_up: Literal["", "paused", "limited"] = ""

    @property
    def held_generation(self) -> int:
        """The generation that is waiting, leased or dead; 0 if none is: then no worker would ever claim it."""
        places = (self.due_seconds, self.lease_seconds, self.buried_seconds)
        return 0 if places == (None, None, None) else self.generation
