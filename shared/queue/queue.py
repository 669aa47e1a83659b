"""The queue: one sorted set per provider in Redis, as the scripts under `scripts/` keep it.

LAYOUT names its keys; all of a provider P are in one cluster slot, by the braces of `{queue:P}`. Members are task
names. Time is the server's alone. A completed task leaves nothing; no key carries a TTL. Every method is one round trip
for up to 200 tasks, and raises QueueUnavailable when Redis does not serve it.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from shared.errors import QueueUnavailable
from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.logs import log
from shared.queue.client import TROUBLE, Client, Script, scan, unavailable
from shared.queue.rows import Row, added, heard, ms, place, settled, told
from shared.queue.values import NO_RUN, Add, Added, Claim, Claimed, End, Hold, Place, Run, Settle, Wake, Which
from shared.task import Task

BATCH = 200
_SCRIPTS = Path(__file__).parent / "scripts"
_PARTS = {  # what stands before each verb's own script
    "add": ("prelude", "lines", "gate", "wake", "place"),
    "claim": ("prelude", "lines", "gate", "wake", "ends", "catch_up", "ring"),
    "settle": ("prelude", "lines", "gate", "wake", "ends", "heard", "place"),
    "rest": ("prelude", "lines", "gate", "wake"),
    "end": ("prelude", "lines", "gate", "wake", "ends"),
    "hasten": ("prelude", "lines", "gate", "wake"),
    "look": ("prelude", "lines", "gate", "place"),
    "mend": ("prelude", "lines", "catch_up"),
}
_ANY_GENERATION = 2**53
LAYOUT = {
    "queue": ("sorted set", "task -> when it is due, epoch milliseconds; 0 while it is being processed: the truth"),
    "leases": ("sorted set", "task -> when its lease expires"),
    "state": ("hash", "task -> `generation:token.turn:came back`, what the scripts need"),
    "tasks": ("hash", "task -> its record (`record.py`), opaque to the scripts"),
    "dead": ("sorted set", "task -> when it was buried"),
    "gate": ("hash", "the provider's shared pause, and what is left of its rate"),
    "jobs": ("set", "tasks with a job open at the provider, where the provider limits those"),
    "groups": ("hash", "task -> its group, where requests name groups"),
    "lines": ("sorted set", "`group`, due time and task, by text: who waits without an open job"),
    "ring": ("sorted set", "group -> its next turn, for `lines`"),
    "job_lines": ("sorted set", "like `lines`: who waits with an open job"),
    "job_ring": ("sorted set", "group -> its next turn, for `job_lines`"),
    "once": ("sorted set", "task -> when it is due, of those that came back once"),
    "often": ("sorted set", "task -> when it is due, of those that came back more often"),
    "plans": ("sorted set", "when messages come that start runs of process, epoch milliseconds"),
    "runs": ("sorted set", "run of process -> until when it is alive, where anything waits"),
}
"""Each key as the scripts know it, its type and what it holds: `{queue:P}`, then `{queue:P}:leases` and so on."""
_TYPES = ["zset" if kind == "sorted set" else kind for kind, _ in LAYOUT.values()]  # as Redis calls them


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
    """The queue's verbs. All tasks of one call belong to one provider.

    `wake`, where there is one, is told by whatever leaves tasks waiting that no run is there for.
    """

    def __init__(self, client: Client, prefix: str, wake: Wake | None = None) -> None:
        self._client = client
        self._prefix = prefix
        self._wake = wake
        text = {path.stem: path.read_text() for path in _SCRIPTS.glob("*.lua")}
        whole = {verb: "".join(text[part] for part in (*parts, verb)) for verb, parts in _PARTS.items()}
        self._scripts = {verb: Script(client, script) for verb, script in whole.items()}
        self._keys: dict[str, tuple[str, ...]] = {}

    @property
    def wakes(self) -> bool:
        """Whether a run is started when an attempt may begin, as far as is known here; else by schedule alone."""
        return self._wake is not None and self._wake.works

    def add(
        self, adds: Sequence[Add], *, token: str, lease_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[Added]:
        """Put tasks in: due after their delays, or held under `token`, in their first turn, as far as the provider's
        pause and limits allow.

        A repeated call with the same token is answered "created" again. Raises ValueError for a task named twice.
        """
        head = (token, ms(lease_seconds), *self._limits(limits), 0)
        return [cast("Added", answer.decode()) for answer in self._plan("add", added(adds), head)]

    def add_and_look(
        self, adds: Sequence[Add], *, token: str, lease_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[tuple[Added, Place]]:
        """Add, and tell where each task stands then, without its record."""
        head = (token, ms(lease_seconds), *self._limits(limits), 1)
        return [(cast("Added", said.decode()), place(where)) for said, where in self._plan("add", added(adds), head)]

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
        """Take up to `limit` due tasks of a provider, or one that came back more often than once, under one lease.

        Not repeated when the reply is lost: what it took goes back with the next claim that names it as `lost_token`,
        else when the lease expires. Members that are no names, or whose state is junk, are removed and logged once.
        """
        serves = (run.name, ms(run.alive_seconds), run.gives_way)
        arguments = (token, ms(lease_seconds), min(limit, BATCH), which, lost_token, *self._limits(limits), *serves)
        wait_ms, once, often, expired, junk, *rest = self._call("claim", provider, arguments)
        tasks = [
            Claimed(Hold(task, int(generation), token, turn), int(came_back), record)
            for name, generation, turn, came_back, record in zip(*[iter(rest)] * 5, strict=True)
            if (task := self._task(provider, name))
        ]
        for name in junk:
            log.error("state unreadable", extra={"provider": provider, "task": repr(name)})
        return Claim(tuple(tasks), None if wait_ms < 0 else wait_ms / 1000, bool(once), bool(often), expired)

    def settle(self, rows: Sequence[Settle], health: Health = UNKNOWN, limits: Limits = UNLIMITED) -> list[bool]:
        """Say what becomes of tasks in hand, and how the provider is. False: lost, somebody else has the task now."""
        head = (*heard(health), *self._limits(limits), 0)
        return [bool(done) for done in self._plan("settle", settled(rows, health), head)]

    def settle_and_look(self, rows: Sequence[Settle], health: Health, limits: Limits) -> list[tuple[bool, Place]]:
        """Settle, and tell where each task stands then, without its record."""
        head = (*heard(health), *self._limits(limits), 1)
        return [(bool(done), place(where)) for done, where in self._plan("settle", settled(rows, health), head)]

    def rest(
        self, provider: str, run: Run, limits: Limits, *, may_stay: bool = True, least_seconds: float = 0
    ) -> float | None:
        """Let a run leave a provider, and wake the next one when an attempt may begin, in `least_seconds` or later.

        If it may, it stays where an attempt may begin within a second: then the seconds until that, else None.
        """
        arguments = (*self._limits(limits), run.name, int(may_stay), ms(least_seconds))
        wake_ms, stay_ms = self._call("rest", provider, arguments)
        self._wake_in(provider, wake_ms)
        return None if stay_ms < 0 else stay_ms / 1000

    def end(self, ends: Sequence[End], limits: Limits = UNLIMITED) -> list[bool]:
        """Drop this generation or a lower one of tasks that ended elsewhere, or bury this one alone.

        Leaves a task that is in process to its worker, unless it is `dropped`: it ends, and counts against the limits
        until its worker settles. True where there was something to end.
        """
        return [bool(done) for done in self._plan("end", ends, self._limits(limits))]

    def hasten(
        self, waiting: Sequence[tuple[Task, int]], delay_seconds: float = 0, limits: Limits = UNLIMITED
    ) -> list[bool]:
        """Make this generation of each task due after the delay if it waits for longer. True where it did."""
        rows = [(task, generation, ms(delay_seconds)) for task, generation in waiting]
        return [bool(done) for done in self._plan("hasten", rows, self._limits(limits))]

    def look(self, tasks: Sequence[Task], *, records: bool = False, limits: Limits = UNLIMITED) -> list[Place]:
        """Where each task stands, with its record if asked for; changes nothing."""
        places = self._run("look", [(task,) for task in tasks], (int(records), *self._limits(limits)))
        return [place(told_of) for told_of in places]

    def backlog(self, provider: str) -> tuple[int, int]:
        """How many tasks are due and not in process, and how many runs are alive, by this host's clock: estimates."""
        now_ms, (queue, *_, runs) = time.time_ns() // 1_000_000, self._names(provider)
        counts = [self._guarded(self._client.zcount, *of) for of in ((queue, 1, now_ms), (runs, f"({now_ms}", "+inf"))]
        return int(counts[0]), int(counts[1])

    def members(self, provider: str, key: Literal["queue", "dead"]) -> list[Task]:
        """Every task that waits or is being processed (`queue`), or that is a dead letter (`dead`), in no order."""
        name = self._names(provider)[list(LAYOUT).index(key)]
        return self._tasks(provider, self._guarded(scan, self._client, name, BATCH))

    def mend(self, provider: str) -> list[Task]:
        """Put right what a server lost, or another release left, of where tasks wait; changes nothing else.

        Tells tasks of which something is left although they are neither in the queue nor dead, or dead without a state.
        """
        strays: set[bytes] = set()
        served = f"{self._names(provider)[0]}:served"  # the release before kept turns there
        self._guarded(self._client.execute_command, "DEL", served)
        for number, key in enumerate(LAYOUT, 1):
            if key in ("gate", "plans", "runs"):
                continue
            cursor: bytes | None = None
            while cursor != b"0":
                cursor, found, removed = self._call("mend", provider, (number, cursor or 0, *_TYPES))
                strays.update(found)
                for name in removed:
                    log.error("key removed", extra={"provider": provider, "key": name.decode()})
        return self._tasks(provider, strays)

    def _tasks(self, provider: str, names: Iterable[bytes]) -> list[Task]:
        return [task for name in sorted(names) if (task := self._task(provider, name))]

    def _task(self, provider: str, name: bytes) -> Task | None:
        """The task of this name; what is no name is removed and logged."""
        try:
            return Task(provider, name.decode())
        except UnicodeDecodeError:
            log.error("name unreadable", extra={"provider": provider, "task": repr(name)})
            self._call("end", provider, (*self._limits(UNLIMITED), 1, "", name, _ANY_GENERATION, "dropped"))
            return None

    def _plan(self, verb: str, rows: Sequence[Row], head: tuple[Any, ...]) -> list[Any]:
        """What a verb tells of each task that may leave tasks waiting; somebody is woken for them."""
        for wake_ms in (replies := self._run(verb, rows, head))[::2]:
            self._wake_in(rows[0][0].provider, wake_ms)
        return list(chain.from_iterable(replies[1::2]))

    def _wake_in(self, provider: str, wake_ms: int) -> None:
        if self._wake and wake_ms >= 0:
            self._wake.send(provider, wake_ms / 1000)

    def _limits(self, limits: Limits) -> tuple[int | float, ...]:
        attempt_ms = 0 if limits.rate_seconds is None else limits.rate_seconds * 1000
        plans = self._wake is not None and self._wake.is_open
        return limits.parallel or 0, limits.open_jobs or 0, attempt_ms, limits.burst, int(plans)

    def _run(self, verb: str, rows: Sequence[Row], head: tuple[Any, ...] = ()) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            answers += self._call(verb, batch[0][0].provider, head + told(batch))
        return answers

    def _call(self, verb: str, provider: str, arguments: tuple[Any, ...]) -> Any:
        return self._guarded(self._scripts[verb], self._names(provider), arguments)

    def _names(self, provider: str) -> tuple[str, ...]:
        """A provider's keys, as LAYOUT has them."""
        if provider not in self._keys:
            base = f"{{{self._prefix}:{provider}}}"
            self._keys[provider] = (base, *(f"{base}:{key}" for key in LAYOUT if key != "queue"))
        return self._keys[provider]

    def _guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except TROUBLE as error:
            raise unavailable(error, self._client) from error
