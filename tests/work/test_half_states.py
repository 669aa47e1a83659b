"""Whatever Redis has of a task, one run of reconcile makes it what its item says; a second finds nothing (C8, C9)."""

from random import Random
from typing import Any

import pytest

from shared.provider.language.rules import Rules
from shared.record import Record
from shared.store import Item
from shared.task import Task
from shared.work.reconcile import Reconciler
from tests.support.backend import Backend
from tests.support.keys import PROVIDER, key_of
from tests.support.redis_servers import SERVERS
from tests.support.simulator import EXAMPLE, provider_at

LEASE_SECONDS = 30.0
HOUR_MS = 3_600_000
"""No test takes so long, on a server whose time goes on."""
FAILURE: dict[str, Any] = {"reason": "upstream", "error": None, "refused": False}
STATUSES = ("pending", "completed", "cancelled", "failed", "refused", "gone")
BEHIND, SAME, AHEAD = -1, 0, 1

WAITS = {"queue": HOUR_MS}
AT_0 = {"queue": None}
OVER = {"leases": -HOUR_MS}
LIVE = {"leases": HOUR_MS}
KNOWN: dict[str, Any] = {"state": None, "tasks": None}
DEAD = {"dead": -HOUR_MS}
HALVES: dict[str, dict[str, Any]] = {
    "waiting": WAITS | KNOWN,
    "waiting with a job and a group": WAITS | KNOWN | {"jobs": None, "groups": None},
    "waiting, not known": WAITS,
    "waiting, no state": WAITS | {"tasks": None},
    "at 0 without a lease": AT_0 | KNOWN,
    "at 0 without a lease, with a job": AT_0 | KNOWN | {"jobs": None},
    "at 0, not known": AT_0,
    "at 0, the lease over": AT_0 | OVER | KNOWN,
    "in process": AT_0 | LIVE | KNOWN,
    "lease alone": OVER,
    "lease without member": OVER | KNOWN,
    "state alone": {"state": None},
    "record alone": {"tasks": None},
    "job alone": {"jobs": None},
    "group alone": {"groups": None},
    "state and record": KNOWN,
    "dead": DEAD | {"state": None},
    "dead, not known": DEAD,
    "dead and waiting": DEAD | WAITS | KNOWN,
    "dead and at 0 without a lease": DEAD | AT_0 | KNOWN,
    "dead and at 0, the lease over": DEAD | AT_0 | OVER | KNOWN,
    "nothing": {},
}
"""What Redis has of a task: key -> how far the score is from now, in ms."""
SOUND = {"waiting", "waiting with a job and a group", "at 0, the lease over", "in process"}
"""What an open task may be in Redis, if it is of its generation."""


class Halves(Backend):
    """Tasks of which Redis has this and that."""

    def item(self, name: str, status: str) -> Item:
        """A task that has come to that status."""
        task = Task(PROVIDER, name)
        item = self.begin(task)
        match status:
            case "completed":
                self.store.complete(task, item.generation, {}, self.clock())
            case "cancelled":
                self.store.cancel(task, item.generation, self.clock())
            case "failed" | "refused":
                failure = FAILURE | {"refused": status == "refused"}
                self.store.fail(task, item.generation, failure, self.clock())
            case "gone":
                self.dynamodb_client.delete_item(TableName="meanwhile", Key={"task_id": {"S": task.id}})
        return item

    def have(self, name: str, half: dict[str, Any], generation: int) -> None:
        """Redis has these parts of a task."""
        now = self.bench.keys.now()
        held = "token" if "leases" in half else ""
        record = Record(generation=generation, created_at=now, input={}).to_text()
        texts = {"state": f"{generation}:{held}:0", "tasks": record, "jobs": "", "groups": "A"}
        for part, distance in half.items():
            value = texts[part] if part in texts else 0 if distance is None else now + distance
            self.bench.keys.write(key_of(PROVIDER, part), name, value)

    def kept(self, name: str) -> list[Any]:
        """All that Redis has of a task."""
        return [part.get(name) for part in self.bench.parts().values()]

    def run(self) -> dict[str, int]:
        """One run; what counted above 0."""
        rules: Rules = provider_at("http://127.0.0.1:1", EXAMPLE).rules
        reconciler = Reconciler(self.store, self.queue, {PROVIDER: rules}, LEASE_SECONDS, self.clock, Random(1))
        return dict(+reconciler.run(lambda: 60)[PROVIDER])


@pytest.fixture
def halves(backend: Backend) -> Halves:
    return Halves(**vars(backend))


def expected(status: str, generation: int, half: str, relation: int) -> tuple[str, int] | None:
    """Where Redis is to have a task, and in which generation."""
    parts = HALVES[half]
    if half == "in process" and not (status == "pending" and relation == BEHIND):
        return "processing", generation + relation  # its worker settles it as the item says
    if status == "pending":
        is_claimed = half == "at 0, the lease over" and relation == SAME  # the next claim returns it
        return "processing" if is_claimed else "waiting", generation
    if status == "failed" and relation == SAME and "state" in parts and ("queue" in parts or "dead" in parts):
        return "dead", generation
    return None


@pytest.mark.promise("faults", "every half of a task that Redis may have, in one run of reconcile")
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("relation", [BEHIND, SAME, AHEAD], ids=["behind", "same", "ahead"])
@pytest.mark.parametrize("status", STATUSES)
def test_one_run_makes_of_every_half_what_the_item_says_and_a_second_counts_nothing(
    halves: Halves, status: str, relation: int
) -> None:
    items = {half: halves.item(half, status) for half in HALVES}
    for half, item in items.items():
        halves.have(half, HALVES[half], item.generation + relation)
    halves.clock.advance(3600)
    before = {half: halves.kept(half) for half in HALVES}
    tally = halves.run()
    wanted = {half: expected(status, item.generation, half, relation) for half, item in items.items()}
    assert halves.state() == {half: where for half, where in wanted.items() if where}
    assert halves.bench.leaks() == []
    kept = {half for half in SOUND if relation == SAME} if status == "pending" else set()
    for half in kept:
        assert halves.kept(half) == before[half]
    if status == "pending":
        in_hand = 1 if relation == AHEAD else 0
        assert tally == {"seen": len(HALVES), "requeued": len(HALVES) - len(kept) - in_hand}
    after = halves.bench.parts()
    assert halves.run() == ({"seen": len(HALVES)} if status == "pending" else {})
    assert halves.bench.parts() == after


@pytest.mark.parametrize("half", ["dead", "dead and waiting", "dead and at 0 without a lease", "at 0 without a lease"])
@pytest.mark.parametrize("relation", [SAME, AHEAD])
def test_a_half_of_an_item_that_was_written_just_now_is_made_whole_if_redis_had_it_before(
    halves: Halves, half: str, relation: int
) -> None:
    item = halves.item(half, "pending")
    halves.have(half, HALVES[half], item.generation + relation)
    assert halves.run() == {"requeued": 1}
    assert halves.state() == {half: ("waiting", item.generation)}
    assert halves.run() == {}


@pytest.mark.parametrize("half", ["waiting", "state alone", "at 0 without a lease"])
def test_what_may_be_on_its_way_to_redis_is_left_to_who_brings_it(halves: Halves, half: str) -> None:
    item = halves.item(half, "pending")
    halves.have(half, HALVES[half], item.generation + BEHIND)
    before = halves.bench.parts()
    assert halves.run() == {}
    mended = {"lines", "ring"}  # in which a task of the main set stands, however it came there
    assert {name: part for name, part in halves.bench.parts().items() if name not in mended} == {
        name: part for name, part in before.items() if name not in mended
    }
    halves.bench.keys._client.flushall()  # type: ignore[attr-defined]


# --- members that are no tasks (C9)

STRANGE = {
    "not UTF-8": b"\xff\xfe", "half a letter": b"a\xc3", "empty": b"", "a control character": b"a\x07b", "a dot": b".",
    "too long": b"x" * 3000, "another way to write it": "e\u0301".encode(), "a line end": b"a\n",
}  # fmt: skip


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
@pytest.mark.parametrize("part", ["queue", "dead", "state", "jobs"])
def test_members_that_are_no_names_neither_stop_a_run_nor_are_counted_again(halves: Halves, part: str) -> None:
    client: Any = halves.redis_client
    key = key_of(PROVIDER, part)
    for member in STRANGE.values():
        match part:
            case "state":
                client.hset(key, member, "1::0")
            case "jobs":
                client.sadd(key, member)
            case _:
                client.zadd(key, {member: 1})
    item = halves.item("a", "pending")
    halves.clock.advance(3600)
    first = halves.run()
    assert (first["seen"], first["requeued"]) == (1, 1)
    assert "unreachable" not in first
    assert halves.run() == {"seen": 1}
    assert halves.state()["a"] == ("waiting", item.generation)


def test_no_item_is_read_for_what_is_no_name(halves: Halves) -> None:
    halves.redis_client.zadd(key_of(PROVIDER, "queue"), {"x" * 3000: 1, "a\x07b": 1})
    assert halves.run() == {"forgotten": 2}
    assert halves.dynamodb.calls.count("GetItem") == 0
