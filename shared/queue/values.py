"""What the queue's verbs take and give."""

from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from shared.task import Task

Becomes: TypeAlias = Literal["completed", "waiting", "buried", "forgotten"]
"""What becomes of a task in hand."""
Which: TypeAlias = Literal["ordinary", "once", "often"]
"""Which tasks `claim` takes: those that did not come back; that came back once; one that came back more often."""
Added: TypeAlias = Literal["created", "waiting", "exists", "stale"]
"""What `add` did: took the task in as asked, or for later since the provider is paused or at a limit; found this
generation there already, or found a higher one."""


HeldUp: TypeAlias = Literal["", "paused", "slow start", "limited"]
"""What puts off an attempt: a pause or its probe, the slow start after that, or a limit."""


class Hold(Struct, frozen=True):
    """The right to settle one generation of a task; void once the lease has expired.

    `turn` counts the claims of this generation: who holds a later one comes after whoever held an earlier one.
    """

    task: Task
    generation: int
    token: str
    turn: int = 0

    @property
    def holder(self) -> str:
        """What tells two holders of one turn apart in the item: the token's first 8 hex digits."""
        return self.token[:8]


class Add(NamedTuple):
    """A task to put in: due after `delay_seconds`; `group`: whose it is; `has_job`: its job is open already.

    `turn` is the one that its item knows; `came_back`: somebody may have worked on it before.
    """

    task: Task
    generation: int
    record: str
    delay_seconds: float = 0
    group: str = ""
    has_job: bool = False
    turn: int = 0
    came_back: bool = False


class Settle(NamedTuple):
    """What becomes of a task in hand: it waits for `delay_seconds`, becomes a dead letter, or leaves the queue.

    One that waits has a new `record` or the old one; `has_job`: one may be open; `attempted`: an attempt was made,
    after which it has not come back any more; `turn`: that of its item, where a later holder has written there.
    """

    hold: Hold
    becomes: Becomes
    delay_seconds: float = 0
    record: str | None = None
    has_job: bool = True
    attempted: bool = True
    turn: int = 0


class End(NamedTuple):
    """A task that ended elsewhere: a dead letter; or nothing that Redis needs to know of, once its worker has settled
    it, or (`dropped`) at once."""

    task: Task
    generation: int
    becomes: Literal["buried", "forgotten", "dropped"]


Way: TypeAlias = Literal["never", "in time", "always"]
"""When a run leaves alone a provider that another serves: if nothing there is late, or even so."""


class Run(Struct, frozen=True):
    """A run of process that claims: its name, and for how long it is alive after each claim, while anything waits.

    `gives_way`: when it leaves alone a provider that another run serves.
    """

    name: str
    alive_seconds: float
    gives_way: Way = "never"


NO_RUN = Run("", 0)


class Claimed(Struct, frozen=True):
    """A task handed out by `claim`. `record` is what was added, or None if Redis has lost it.

    `came_back`: how often its lease has expired since the last attempt.
    """

    hold: Hold
    came_back: int
    record: bytes | None


class Claim(Struct, frozen=True):
    """What one claim call gave. `wait_seconds` is until the next task may begin, None if there is none.

    `once`, `often`: whether tasks are due that came back once, or more often; `expired`: how many leases had.
    """

    tasks: tuple[Claimed, ...]
    wait_seconds: float | None
    once: bool
    often: bool
    expired: int


class Place(Struct, frozen=True):
    """Where Redis has a task; `generation` 0 and all else None when it has not. Spans in seconds; below 0 is past.

    `wait_seconds`: the soonest that an attempt may begin of a task that waits, or whose lease is over, never below 0;
    `held_up`: what puts that off beyond its due time.
    """

    generation: int
    due_seconds: float | None
    lease_seconds: float | None
    buried_seconds: float | None
    record: bytes | None
    wait_seconds: float | None = None
    held_up: HeldUp = ""

    @property
    def held_generation(self) -> int:
        """The generation that is waiting, leased or dead; 0 if none is: then no worker would ever claim it."""
        places = (self.due_seconds, self.lease_seconds, self.buried_seconds)
        return 0 if places == (None, None, None) else self.generation


class Wake(Protocol):
    """Starts runs of process."""

    @property
    def is_open(self) -> bool:
        """Whether it would try to start one now."""

    @property
    def works(self) -> bool:
        """Whether one may be counted on, as far as is known: the last was started."""

    def send(self, provider: str, seconds: float) -> None:
        """Start one for a provider in so many seconds, if it can; raises nothing."""
