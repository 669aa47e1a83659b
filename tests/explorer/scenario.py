"""What an exploration is about: who is at work, what may go wrong, and the state of everything."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from shared.settings import Settings
from shared.task import Task
from shared.work.tick_queue import REST_SECONDS
from tests.support.clock import START_MS

Kind: TypeAlias = Literal["enqueue", "process", "reconcile", "cancel", "revive", "callback", "scheduled"]
Payload: TypeAlias = Literal["done", "failed", "running", "unsigned"]
Trouble: TypeAlias = Literal["done at once", "refused", "error", "cut off", "still running", "failed", "lost job"]
Fate: TypeAlias = Literal["on the way", "in Redis", "stored", "lost"]
Start: TypeAlias = Literal["nothing", "waiting", "completed", "dead letter"]


PROVIDER = "slow"
TASK = Task(PROVIDER, "t")
SETTINGS = Settings(parallel_tasks=1, idle_seconds=REST_SECONDS)
WOKEN = replace(SETTINGS, wake_queue_url="https://sqs/wake")
LEASE_SECONDS = SETTINGS.lease_seconds
OLD_MS = START_MS - int(LEASE_SECONDS * 1000) - 1000
FUNCTION_SECONDS = {"enqueue": 25.0, "process": 80.0, "reconcile": 60.0}
KEYED = {"headers": {"Idempotency-Key": "${task.id}"}, "outputs": {"job": "body.job"}}
FILE = {
    "servers": ["http://provider.example"],
    "submit": {"method": "POST", "url": "/jobs"} | KEYED,
    "poll": {"url": "/jobs/${outputs.job}"},
    "cancel": {"method": "DELETE", "url": "/jobs/${outputs.job}"},
    "acceptors": [
        {"state": "pending", "expected": "running", "on": ["submit", "poll"]},
        {"state": "success", "expected": "done", "on": ["submit", "poll"]},
        {"state": "failure", "expected": "failed", "on": ["submit", "poll"]},
        {"state": "resubmit", "expected": "lost"},
    ],
    "data": "body.data",
    "partial": "body.partial",
    "polling": {"minDelay": 0, "initialDelay": 0, "maxDelay": 0, "jitter": "none"},
    "freshness": 0,
    "freshnessFailed": 0,
}
SIGNED = {"callback": {"signature": {"header": "X-Signature", "secret": "env:KEY"}}}
ENDED = -1
ROUNDS = 12
"""How many ticks a task may need to end once all faults are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who is at work, from which state of the task, and what may go wrong; the numbers are budgets.

    `trouble`: of the provider; `crashes`: deaths and stalls; `flushes`: Redis loses everything; `outages`: it is away
    for a while; `failovers`: it goes back to before its last one to `lost_calls` calls that changed something;
    `timeouts`: a write to DynamoDB whose caller gives up lands later or never; `jumps`: a worker's clock says that its
    lease is over. `stalling`: who may stall; `in_company`: no worker dies that holds a task alone; `woken`: runs of
    process tell of themselves and plan the next ones, and a scheduled one gives way. No message comes: a run that
    starts at any time is there as it is.
    """

    actors: tuple[Kind, ...]
    start: Start = "nothing"
    troubles: tuple[Trouble, ...] = ()
    trouble: int = 1
    crashes: int = 1
    flushes: int = 1
    outages: int = 1
    failovers: int = 0
    lost_calls: int = 3
    timeouts: int = 0
    jumps: int = 0
    stalling: tuple[Kind, ...] = ("process",)
    in_company: bool = False
    first_answer_seconds: float = 5
    payload: Payload = "done"
    woken: bool = False

    @property
    def generation(self) -> int:
        """The one that a callback is about: that of the start, else the first to come."""
        return (START_MS if self.start == "nothing" else OLD_MS) + 1


class Violation(Exception):
    """A promise broken, and the shortest way there."""


class Replica(NamedTuple):
    """What Redis will go back to: an earlier state of it, whom its timer waits for, how many more calls it may lose."""

    queue: int
    timer: int | None
    calls: int


class Holders(NamedTuple):
    """Who holds the task, by what Redis, the item and the actors did, whatever marks they left; bits are actors.

    `order`: who holds it by their own account, the latest last; a take-over makes its actor the latest. `deposed`: a
    later one has written in the item. `excused`: Redis has lost that it gave them the task. `warned`: when they were
    given the task, it had come back, and its generation had ended. `is_back`: it has come back since the last attempt.
    `unheard`: the answer to a claim was lost, once: that cannot be told from a death.
    """

    order: tuple[int, ...] = ()
    deposed: int = 0
    excused: int = 0
    warned: int = 0
    is_back: bool = False
    unheard: bool = False


class Budgets(NamedTuple):
    """What of each kind may still go wrong: see Scenario."""

    crashes: int
    flushes: int
    outages: int
    failovers: int
    timeouts: int
    jumps: int


class World(NamedTuple):
    """One state of everything. `queue_timer` and `item_timer`: whom the timer waits for (bits), None without one.

    `replica`: what Redis goes back to soon, `late_write`: the node of an actor whose write may still land.
    """

    queue: int
    store: int
    provider: int
    places: tuple[int, ...]
    stalled: int
    queue_timer: int | None
    item_timer: int | None
    is_down: bool
    left: Budgets
    holders: Holders
    replica: Replica | None
    late_write: int | None


class Submit(NamedTuple):
    """A job that the provider has begun. `answer`: what became of what it said; in Redis it may be lost any time."""

    generation: int
    resubmits: int
    key: str
    actor: int
    answer: Fate
    is_refused: bool = False


class ProviderState(NamedTuple):
    submits: tuple[Submit, ...]
    trouble: int


def generation_of(job: str) -> int:
    return int(job.partition(".")[0])


def last(kinds: tuple[Kind, ...], kind: Kind) -> int | None:
    return max((actor for actor, one in enumerate(kinds) if one == kind), default=None)


def replaced(places: tuple[int, ...], actor: int, place: int) -> tuple[int, ...]:
    return (*places[:actor], place, *places[actor + 1 :])
