"""The queue: one sorted set per provider in Redis, as the scripts under `scripts/` keep it.

LAYOUT names its keys; all of a provider P are in one cluster slot, by the braces of `{queue:P}`. Members are task
names. Time is the server's alone. A completed task leaves nothing; no key carries a TTL. Every method is one round trip
for up to 200 tasks, and raises QueueUnavailable when Redis does not serve it.
"""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from shared.errors import QueueUnavailable
from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.logs import log
from shared.queue.client import TROUBLE, Client, Script, reason
from shared.queue.values import Add, Added, Claim, Claimed, End, Hold, Place, Release
from shared.task import Task

BATCH = 200
_SCRIPTS = Path(__file__).parent / "scripts"
Row: TypeAlias = tuple[Any, ...]  # what a script is told of a task: the task first
LAYOUT = {
    "queue": ("sorted set", "task -> when it is due, epoch milliseconds; 0 while it is being processed"),
    "leases": ("sorted set", "task -> when its lease expires"),
    "state": ("hash", "task -> `generation:token:crashes`, what the scripts need"),
    "tasks": ("hash", "task -> its record (`record.py`), opaque to the scripts"),
    "dead": ("sorted set", "task -> when it was buried"),
    "gate": ("hash", "the provider's shared pause, and what is left of its rate"),
    "jobs": ("set", "tasks with a job open at the provider, where the provider limits those"),
    "groups": ("hash", "task -> its group, where requests name groups"),
    "served": ("sorted set", "group -> when it last had a turn"),
}
"""Each key as the scripts know it, its type and what it holds: `{queue:P}`, then `{queue:P}:leases` and so on."""


def new_token() -> str:
    """128 random bits, made once per claim or add call."""
    return secrets.token_hex(16)


@contextmanager
def without_redis(then: str) -> Iterator[None]:
    """Go on if Redis does not serve what is done here; `then` says what makes up for it."""
    try:
        yield
    except QueueUnavailable as error:
        log.warning("queue unavailable", extra={"reason": str(error), "then": then})


class Queue:
    """The queue's verbs. All tasks of one call belong to one provider."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        prelude = (_SCRIPTS / "prelude.lua").read_text()
        verbs = {path.stem: prelude + path.read_text() for path in _SCRIPTS.glob("*.lua") if path.stem != "prelude"}
        self._scripts = {verb: Script(client, text) for verb, text in verbs.items()}

    def add(
        self, adds: Sequence[Add], *, token: str, lease_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[Added]:
        """Put tasks in: due after their delays, or held under `token` as far as the provider's pause and limits allow.

        A repeated call with the same token is answered "created" again.
        """
        rows = [
            (one.task, one.generation, _ms(one.delay_seconds), one.record, one.group, int(one.has_job)) for one in adds
        ]
        return cast(list[Added], self._run("add", rows, (token, _ms(lease_seconds), *_limits(limits))))

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
        """Take up to `limit` due tasks of a provider, or one that has ended its worker before, under one lease.

        Not repeated when the reply is lost: those tasks come back when the lease expires.
        """
        arguments = (token, _ms(lease_seconds), min(limit, BATCH), int(suspect), *_limits(limits))
        wait_ms, suspects, expired, *rest = self._call("claim", provider, arguments)
        tasks = tuple(
            Claimed(Hold(Task(provider, name), int(generation), token), crashes, record)
            for name, generation, crashes, record in zip(*[iter(rest)] * 4, strict=True)
        )
        return Claim(tasks, None if wait_ms < 0 else wait_ms / 1000, bool(suspects), expired)

    def complete(self, holds: Sequence[Hold], health: Health = UNKNOWN) -> list[bool]:
        """Drop tasks whose data is stored, and say how the provider is. False: lost, somebody else has the task now."""
        return self._settle("complete", [_held(hold) for hold in holds], health)

    def release(self, releases: Sequence[Release], health: Health = UNKNOWN) -> list[bool]:
        """Give tasks back, and say how the provider is. False: lost."""
        rows = [(*_held(one.hold), _ms(one.delay_seconds), one.record or "", int(one.has_job)) for one in releases]
        return self._settle("release", rows, health)

    def bury(self, holds: Sequence[Hold], health: Health = UNKNOWN) -> list[bool]:
        """Make dead letters of tasks whose failure is stored, and say how the provider is. False: lost."""
        return self._settle("bury", [_held(hold) for hold in holds], health)

    def forget(self, ends: Sequence[tuple[Task, int]], health: Health = UNKNOWN) -> list[bool]:
        """Drop this generation or a lower one of each task at once, even from the worker that holds it: cancel does.

        Says how the provider is, too. True where something was dropped.
        """
        return self._settle("forget", ends, health)

    def end(self, ends: Sequence[End]) -> list[bool]:
        """Drop this generation or a lower one of tasks that ended elsewhere, or bury this one alone.

        Unlike `forget` it leaves a task that is in process to its worker: it ends, and counts against the limits until
        its worker settles. True where there was something to end.
        """
        return [bool(done) for done in self._run("end", ends)]

    def hasten(self, waiting: Sequence[tuple[Task, int]], delay_seconds: float = 0) -> list[bool]:
        """Make this generation of each task due after the delay if it waits for longer. True where it did."""
        rows = [(task, generation, _ms(delay_seconds)) for task, generation in waiting]
        return [bool(done) for done in self._run("hasten", rows)]

    def look(self, tasks: Sequence[Task], *, records: bool = False, limits: Limits = UNLIMITED) -> list[Place]:
        """Where each task stands, with its record if asked for; changes nothing."""
        places = self._run("look", [(task,) for task in tasks], (int(records), *_limits(limits)))
        return [
            Place(int(generation), _seconds(due), _seconds(lease), _seconds(buried), record, _seconds(wait), why)
            for generation, due, lease, buried, record, wait, why in places
        ]

    def backlog(self, provider: str) -> int:
        """How many tasks are due and not in process, by this host's clock: an estimate."""
        now_ms = time.time_ns() // 1_000_000
        return int(self._guarded(lambda: self._client.zcount(self._key(provider, "queue"), 1, now_ms)))

    def members(self, provider: str, key: Literal["queue", "dead"]) -> list[Task]:
        """Every task that waits or is being processed (`queue`), or that is a dead letter (`dead`), in no order."""
        found = self._guarded(lambda: dict(self._client.zscan_iter(self._key(provider, key), count=BATCH)))
        return [Task(provider, name) for name in found]

    def strays(self, provider: str) -> list[Task]:
        """Tasks of which something is left although they are neither in the queue nor dead: a server lost the rest."""
        names: set[str] = set()
        for key in ("leases", "state", "tasks", "jobs", "groups"):
            cursor: str | None = None
            while cursor != "0":
                cursor, found = self._call("strays", provider, (list(LAYOUT).index(key) + 1, cursor or "0"))
                names.update(found)
        return [Task(provider, name) for name in sorted(names)]

    def _settle(self, verb: str, rows: Sequence[Row], health: Health) -> list[bool]:
        answered = [(*row, int(row[0].name in health.well) - int(row[0].name in health.unwell)) for row in rows]
        spans = (_ms(health.shortest_seconds), _ms(health.longest_seconds))
        heard = (_ms(health.pause_seconds), -1 if health.well else health.errors, health.errors_to_pause, *spans)
        return [bool(done) for done in self._run(verb, answered, heard)]

    def _run(self, verb: str, rows: Sequence[Row], head: tuple[Any, ...] = ()) -> list[Any]:
        answers: list[Any] = []
        for batch in (rows[start : start + BATCH] for start in range(0, len(rows), BATCH)):
            values = chain.from_iterable((task.name, *more) for task, *more in batch)
            answers += self._call(verb, rows[0][0].provider, (*head, *values))
        return answers

    def _call(self, verb: str, provider: str, arguments: tuple[Any, ...]) -> Any:
        names = [self._key(provider, key) for key in LAYOUT]
        return self._guarded(lambda: self._scripts[verb](keys=names, args=arguments))

    def _key(self, provider: str, key: str) -> str:
        base = f"{{{self._prefix}:{provider}}}"
        return base if key == "queue" else f"{base}:{key}"

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except TROUBLE as error:
            raise QueueUnavailable(reason(error, self._client)) from error


def _held(hold: Hold) -> Row:
    return hold.task, hold.token, hold.generation


def _limits(limits: Limits) -> tuple[int | float, ...]:
    attempt_ms = 0 if limits.rate_seconds is None else limits.rate_seconds * 1000
    return limits.parallel or 0, limits.open_jobs or 0, attempt_ms, limits.burst


def _ms(seconds: float) -> int:
    return math.ceil(max(seconds, 0) * 1000)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
