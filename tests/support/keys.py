"""The queue's keys, seen and touched from outside: what makes a queue test three lines, and the check for leaks."""

from collections.abc import Mapping
from typing import Any, Protocol

from redis import Redis

from shared.queue import Hold
from shared.record import Record
from shared.task import Task

PROVIDER = "example"
PREFIX = "queue"
PLACES = ("lines", "job_lines", "once", "often")
"""Where waiting tasks stand, one of these each."""
JOB = 2**51
"""What the score of one that came back has more, if its job is open."""
RINGS = {"lines": "ring", "job_lines": "job_ring"}
SORTED_SETS = ("queue", "leases", "dead", *PLACES, *RINGS.values(), "served", "plans", "runs")
HASHES = ("state", "tasks", "gate", "groups")
SETS = ("jobs",)
PARTS = (*SORTED_SETS, *HASHES, *SETS)
INSTANTS = ("until", "full_at")
"""Fields of the gate that time moves towards."""

Dump = dict[str, dict[str, Any]]
"""Key -> member -> its score (a float) or value (text; "" in a set)."""


class Keys(Protocol):
    """Raw access to everything that a queue keeps."""

    def now(self) -> int:
        """The server's time, epoch milliseconds."""

    def dump(self) -> Dump:
        """All there is."""

    def write(self, key: str, member: str, value: float | str) -> None:
        """Set a score (a number) or a hash field (text), or put a member into a set ("")."""

    def remove(self, key: str, member: str) -> None:
        """Remove a member of a sorted set."""

    def score(self, key: str, member: str) -> float | None:
        """The score of a member of a sorted set."""

    def lasting(self) -> bool:
        """Whether no key carries a TTL."""


class RedisKeys:
    """The keys of a Redis server, real or fake."""

    def __init__(self, client: "Redis") -> None:
        self._client: Any = client  # what its methods return depends on how it was made

    def now(self) -> int:
        seconds, microseconds = self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def dump(self) -> Dump:
        return {key: self._members(key) for key in self._client.scan_iter()}

    def write(self, key: str, member: str, value: float | str) -> None:
        if key.rpartition(":")[2] in SETS:
            self._client.sadd(key, member)
        elif isinstance(value, str):
            self._client.hset(key, member, value)
        else:
            self._client.zadd(key, {member: value})

    def remove(self, key: str, member: str) -> None:
        self._client.zrem(key, member)

    def score(self, key: str, member: str) -> float | None:
        score: float | None = self._client.zscore(key, member)
        return score

    def lasting(self) -> bool:
        return all(self._client.ttl(key) == -1 for key in self._client.scan_iter())

    def _members(self, key: str) -> dict[str, Any]:
        kind = self._client.type(key)
        if kind == "zset":
            return dict(self._client.zrange(key, 0, -1, withscores=True))
        if kind == "set":
            return dict.fromkeys(self._client.smembers(key), "")
        return dict(self._client.hgetall(key)) if kind == "hash" else {}  # else it is gone by now


def key_of(provider: str, part: str) -> str:
    """The name of one of a provider's keys; `part` is one of PARTS."""
    base = f"{{{PREFIX}:{provider}}}"
    return base if part == "queue" else f"{base}:{part}"


def line_member(group: str, due: float, name: str) -> str:
    """A waiting task in the line of its group."""
    return f"{group}\0{due:013.0f}\0{name}"


class Bench:
    """A queue's keys on the test bench."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def seed(
        self,
        name: str,
        *,
        generation: int = 1,
        due_seconds: float = 0,
        came_back: int = 0,
        turn: int | None = None,
        record: str | None = None,
        lease_seconds: float | None = None,
        token: str = "seeded",
        dead: bool = False,
        group: str = "",
        has_job: bool = False,
        in_line: bool = True,
        provider: str = PROVIDER,
    ) -> Hold:
        """Put a task there: due in so many seconds (below 0: overdue) and in its line, or leased for so long, or dead.

        Its turn is 1 where it is leased, else 0, unless told; `in_line`: False leaves it in the main set alone.
        """
        now = self.keys.now()
        if record is None:
            record = Record(generation=generation, created_at=now, input={}).to_text()
        held = lease_seconds is not None
        turn = int(held) if turn is None else turn
        state, hold = (
            f"{generation}:{token if held else ''}.{turn}:{came_back}",
            Hold(Task(provider, name), generation, token, turn),
        )
        self.keys.write(key_of(provider, "state"), name, state)
        if dead:
            self.keys.write(key_of(provider, "dead"), name, now)
            return hold
        self.keys.write(key_of(provider, "tasks"), name, record)
        if group:
            self.keys.write(key_of(provider, "groups"), name, group)
        if has_job:
            self.keys.write(key_of(provider, "jobs"), name, "")
        due = 0 if held else max(1, now + round(due_seconds * 1000))
        self.keys.write(key_of(provider, "queue"), name, due)
        if lease_seconds is not None:
            self.keys.write(key_of(provider, "leases"), name, max(1, now + round(lease_seconds * 1000)))
        elif in_line:
            self._line_up(provider, place_of(has_job, came_back), group, name, due + JOB * (has_job and came_back > 0))
        return hold

    def _line_up(self, provider: str, place: str, group: str, name: str, due: float) -> None:
        """Let a task stand there; its group has a turn when it is due, or the one that it waits for."""
        if place not in RINGS:
            self.keys.write(key_of(provider, place), name, due)
            return
        self.keys.write(key_of(provider, place), line_member(group, due, name), 0)
        ring, now = key_of(provider, RINGS[place]), self.keys.now()
        at = self.keys.score(ring, group)
        if at is None or (at >= now + 1 and at > max(due, now)):
            self.keys.write(ring, group, max(due, now))

    def state(self, provider: str = PROVIDER) -> dict[str, tuple[str, int]]:
        """Task name -> where it is (waiting, processing, dead, stranded: at 0 without a lease) and its generation."""
        parts = self.parts(provider)
        found = {}
        for name in (*parts["queue"], *parts["dead"]):
            generation = int(parts["state"].get(name, "0").partition(":")[0])
            if name in parts["dead"]:
                found[name] = ("dead", generation)
            elif parts["queue"][name] > 0:
                found[name] = ("waiting", generation)
            else:
                found[name] = ("processing" if name in parts["leases"] else "stranded", generation)
        return found

    def score(self, name: str, provider: str = PROVIDER) -> float | None:
        score: float | None = self.parts(provider)["queue"].get(name)
        return score

    def parts(self, provider: str = PROVIDER) -> dict[str, dict[str, Any]]:
        """Everything of one provider: scores of SORTED_SETS, texts of HASHES, members of SETS."""
        return _parts(self.keys.dump(), provider)

    def rewind(self, seconds: float) -> None:
        """Let so much time pass: every score above 0, every due time in a line and every instant of a gate moves down,
        never below 1."""
        passed_ms = round(seconds * 1000)
        for key, members in self.keys.dump().items():
            for member, score in members.items():
                if key.rpartition(":")[2] in RINGS and member.count("\0") == 2:
                    group, due, name = member.split("\0")
                    self.keys.remove(key, member)
                    self.keys.write(key, line_member(group, max(1, int(due) - passed_ms), name), 0)
                elif not isinstance(score, str) and score > 0:
                    base = JOB if score >= JOB else 0
                    self.keys.write(key, member, base + max(1, score - base - passed_ms))
                elif key.endswith(":gate") and member in INSTANTS:
                    self.keys.write(key, member, repr(max(1, float(score) - passed_ms)))

    def leaks(self) -> list[str]:
        """What is there and should not be, or is missing; empty for a sound queue."""
        dump = self.keys.dump()
        providers = {key[1:].partition("}")[0].removeprefix(f"{PREFIX}:") for key in dump}
        known = {key_of(provider, part) for provider in providers for part in PARTS}
        found = [f"unknown key {key}" for key in dump if key not in known]
        if not self.keys.lasting():
            found.append("a key has a TTL")
        for provider in providers:
            parts = _parts(dump, provider)
            faults = _faults(parts) + _faults_in_line(parts, self.keys.now())
            found += [f"{provider}: {fault}" for fault in faults]
        return found


def _parts(dump: Dump, provider: str) -> dict[str, dict[str, Any]]:
    return {part: dump.get(key_of(provider, part), {}) for part in PARTS}


def place_of(has_job: bool, came_back: int) -> str:
    """Which of PLACES a waiting task stands in."""
    if came_back:
        return "once" if came_back == 1 else "often"
    return "job_lines" if has_job else "lines"


def _faults_in_line(parts: Mapping[str, Mapping[str, Any]], now: int) -> list[str]:
    """Each task of the main set stands in one place, unless it is in process; each group of a lane has its turn."""
    expected: dict[str, set[str]] = {place: set() for place in PLACES}
    heads: dict[str, dict[str, float]] = {lane: {} for lane in RINGS}
    for name, due in parts["queue"].items():
        if due > 0:
            place = place_of(name in parts["jobs"], int(parts["state"].get(name, "0").rpartition(":")[2] or 0))
            group = parts["groups"].get(name, "")
            expected[place].add(line_member(group, due, name) if place in RINGS else name)
            if place in RINGS:
                heads[place][group] = min(due, heads[place].get(group, due))
    found = [
        f"{place} {what}: {sorted(members)}"
        for place, wanted in expected.items()
        for what, members in (("lacks", wanted - set(parts[place])), ("has too many", set(parts[place]) - wanted))
        if members
    ]
    found += [
        f"{ring} differs from {lane}: {sorted(parts[ring].keys() ^ heads[lane].keys())}"
        for lane, ring in RINGS.items()
        if parts[ring].keys() != heads[lane].keys()
    ]
    found += [
        f"{ring}: the turn of {group!r} comes too late"
        for lane, ring in RINGS.items()
        for group, at in parts[ring].items()
        if now + 1 <= at and at > heads[lane].get(group, at)
    ]
    return found + [
        "scores differ from due times"
        for place in ("once", "often")
        for name, due in parts[place].items()
        if due - JOB * (name in parts["jobs"]) != parts["queue"].get(name)
    ]


def _faults(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    queue, dead = set(parts["queue"]), set(parts["dead"])
    processing = {name for name, score in parts["queue"].items() if score == 0}
    pairs = {
        "in the queue and dead": queue & dead, "state without a task": set(parts["state"]) - queue - dead,
        "record without a task": set(parts["tasks"]) - queue,
        "task without state": (queue | dead) - set(parts["state"]), "task without record": queue - set(parts["tasks"]),
        "job of no task": set(parts["jobs"]) - queue, "group of no task": set(parts["groups"]) - queue,
        "turns as the release before kept them": set(parts["served"]),
        "lease without a task at 0": set(parts["leases"]) - processing,
        "task at 0 without a lease": processing - set(parts["leases"]),
    }  # fmt: skip
    return [f"{fault}: {sorted(names)}" for fault, names in pairs.items() if names]
