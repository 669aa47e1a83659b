"""The queue's keys, seen and touched from outside: what makes a queue test three lines, and the check for leaks."""

from collections.abc import Mapping
from typing import Any, Protocol

from redis import Redis

from shared.queue import Hold
from shared.record import Record
from shared.task import Task

PROVIDER = "example"
PREFIX = "queue"
SORTED_SETS = ("queue", "leases", "dead", "served")
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
        crashes: int = 0,
        record: str | None = None,
        lease_seconds: float | None = None,
        token: str = "seeded",
        dead: bool = False,
        group: str = "",
        has_job: bool = False,
        provider: str = PROVIDER,
    ) -> Hold:
        """Put a task there: due in so many seconds (below 0: overdue), or leased for so long, or dead."""
        now = self.keys.now()
        if record is None:
            record = Record(generation=generation, created_at=now, input={}).to_text()
        held = lease_seconds is not None
        self.keys.write(key_of(provider, "state"), name, f"{generation}:{token if held else ''}:{crashes}")
        if dead:
            self.keys.write(key_of(provider, "dead"), name, now)
            return Hold(Task(provider, name), generation, token)
        self.keys.write(key_of(provider, "tasks"), name, record)
        if group:
            self.keys.write(key_of(provider, "groups"), name, group)
        if has_job:
            self.keys.write(key_of(provider, "jobs"), name, "")
        self.keys.write(key_of(provider, "queue"), name, 0 if held else max(1, now + round(due_seconds * 1000)))
        if lease_seconds is not None:
            self.keys.write(key_of(provider, "leases"), name, max(1, now + round(lease_seconds * 1000)))
        return Hold(Task(provider, name), generation, token)

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
        """Let so much time pass: every score above 0 and every instant of a gate moves down, never below 1."""
        passed_ms = round(seconds * 1000)
        for key, members in self.keys.dump().items():
            for member, score in members.items():
                if not isinstance(score, str) and score > 0:
                    self.keys.write(key, member, max(1, score - passed_ms))
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
            found += [f"{provider}: {fault}" for fault in _faults(_parts(dump, provider))]
        return found


def _parts(dump: Dump, provider: str) -> dict[str, dict[str, Any]]:
    return {part: dump.get(key_of(provider, part), {}) for part in PARTS}


def _faults(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    queue, dead = set(parts["queue"]), set(parts["dead"])
    processing = {name for name, score in parts["queue"].items() if score == 0}
    pairs = {
        "in the queue and dead": queue & dead, "state without a task": set(parts["state"]) - queue - dead,
        "record without a task": set(parts["tasks"]) - queue,
        "task without state": (queue | dead) - set(parts["state"]), "task without record": queue - set(parts["tasks"]),
        "job of no task": set(parts["jobs"]) - queue, "group of no task": set(parts["groups"]) - queue,
        "turns of groups without a group": set(parts["served"]) if not parts["groups"] else set(),
        "lease without a task at 0": set(parts["leases"]) - processing,
        "task at 0 without a lease": processing - set(parts["leases"]),
    }  # fmt: skip
    return [f"{fault}: {sorted(names)}" for fault, names in pairs.items() if names]
