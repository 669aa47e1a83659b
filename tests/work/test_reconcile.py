"""Reconcile brings back what Redis has lost, late enough to be in nobody's way, and drops what ended elsewhere."""

import logging
from collections.abc import Callable
from random import Random
from typing import Any, Literal

import pytest
from msgspec import structs

from shared.errors import StoreUnavailable
from shared.queue import Add, Place
from shared.queue.queue import LAYOUT
from shared.record import Record
from shared.store import LEAP, Holder, Item, Store
from shared.task import Task
from shared.work import reconcile
from shared.work.keeper import record_of
from shared.work.reconcile import STOP_SECONDS, Reconciler
from tests.support.backend import Backend
from tests.support.damage import DAMAGES, SECRET, damage_item
from tests.support.keys import key_of
from tests.support.redis_servers import ALONE_AND_CLUSTER
from tests.support.simulator import EXAMPLE, provider_at

LEASE_SECONDS = 30.0
MAX_DELAY = 100.0
URL = "http://127.0.0.1:1"

FAILURE = {"reason": "upstream", "error": None, "refused": False}


class Repairs(Backend):
    """Tasks as their items tell, and reconcile."""

    def begun(
        self, name: str = "a", *, provider: str = "example", generations: int = 1, age_seconds: float = 3600
    ) -> Item:
        """Begins generation after generation of a task; the last is open and, unless told otherwise, an hour old."""
        item = self.begin(Task(provider, name), {"customer": 42})
        for _ in range(generations - 1):
            self.store.cancel(item.task, item.generation, self.clock())
            item = self.begin(item.task, {"customer": 42})
        self.clock.advance(age_seconds)
        return item

    def run(self, remaining: Callable[[], float] = lambda: 60, **limits: int) -> dict[str, dict[str, int]]:
        """One run; what counted above 0, for each provider."""
        rules = provider_at(URL, EXAMPLE | {"polling": {"maxDelay": MAX_DELAY}, "limits": limits}).rules
        both = {"coin": rules, "example": rules}
        reconciler = Reconciler(self.store, self.queue, both, LEASE_SECONDS, self.clock, Random(1))
        return {name: dict(+counter) for name, counter in reconciler.run(remaining).items()}

    def place(self, item: Item) -> Place:
        """Where its task is."""
        return self.queue.look([item.task], records=True)[0]


@pytest.fixture(params=ALONE_AND_CLUSTER)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """A cluster of several nodes too."""
    kind: str = request.param
    return kind


@pytest.fixture
def repairs(backend: Backend) -> Repairs:
    return Repairs(**vars(backend))


# --- what Redis has lost


@pytest.mark.promise("ends", "when Redis has lost everything, the tasks come back with their jobs")
def test_after_redis_lost_everything_each_open_task_comes_back_as_its_item_knows_it(repairs: Repairs) -> None:
    item = repairs.begun("a")
    learned = structs.replace(record_of(item), outputs={"id": "j"}, partial={"x": 1}, submitted_at=5, resubmits=1)
    repairs.store.save(item.task, learned, repairs.clock())
    repairs.begun("b")
    assert repairs.run() == {"coin": {}, "example": {"seen": 2, "requeued": 2}}
    assert {where for where, _ in repairs.state().values()} == {"waiting"}
    found = repairs.place(item)
    record = Record.from_text(found.record)
    assert found.generation == item.generation
    assert (record.input, record.outputs, record.partial) == ({"customer": 42}, {"id": "j"}, {"x": 1})
    assert (record.submitted_at, record.resubmits, record.saved) == (5, 1, record.digest)


def test_what_comes_back_has_a_turn_above_all_that_redis_may_have_given(repairs: Repairs) -> None:
    """Most claims are written nowhere else: a worker that stalls with one of them is an earlier holder."""
    record = structs.replace(record_of(repairs.begun("a")), partial={"x": 1})
    repairs.store.save(Task("example", "a"), record, repairs.clock(), by=Holder(7, "somebody"))
    repairs.clock.advance(3600)
    repairs.run()
    assert repairs.bench.parts()["state"]["a"].endswith(f".{7 + LEAP}:1")


def test_a_job_that_is_open_counts_from_the_moment_its_task_is_back(repairs: Repairs) -> None:
    for name, outputs in (("started", {"id": "j"}), ("not started", None)):
        record = record_of(repairs.begun(name, age_seconds=0))
        learned = structs.replace(record, outputs=outputs, submitted_at=5)
        repairs.store.save(Task("example", name), learned, repairs.clock())
    repairs.clock.advance(3600)
    repairs.run(openJobs=5)
    assert repairs.bench.parts()["queue"].keys() == {"started", "not started"}
    assert repairs.bench.parts()["jobs"].keys() == {"started"}


@pytest.mark.promise(
    "submits", "reconcile queues a task no earlier than a lease from now, so its worker can store first"
)
def test_it_is_due_no_earlier_than_a_lease_from_now_and_spread_over_the_longest_delay(repairs: Repairs) -> None:
    items = [repairs.begun(f"task {i}") for i in range(40)]
    repairs.run()
    dues = [repairs.place(item).due_seconds or 0 for item in items]
    assert min(dues) > LEASE_SECONDS - 2  # seconds that this test may take
    assert max(dues) <= LEASE_SECONDS + MAX_DELAY
    assert max(dues) - min(dues) > MAX_DELAY / 2


@pytest.mark.parametrize(("age_seconds", "requeued"), [(LEASE_SECONDS - 0.001, 0), (LEASE_SECONDS + 0.001, 1)])
def test_an_item_written_less_than_a_lease_ago_is_left_to_whoever_works_on_it(
    repairs: Repairs, age_seconds: float, requeued: int
) -> None:
    repairs.begun(age_seconds=age_seconds)
    assert repairs.run()["example"].get("requeued", 0) == requeued


def test_what_an_attempt_has_just_written_counts_as_young(repairs: Repairs) -> None:
    item = repairs.begun()
    repairs.store.save(item.task, record_of(item), repairs.clock())
    assert repairs.run()["example"] == {}


WAITING: dict[str, Any] = {"due_seconds": 9}
LEASED: dict[str, Any] = {"lease_seconds": 9}
DEAD: dict[str, Any] = {"dead": True}


@pytest.mark.parametrize("where", [WAITING, LEASED, DEAD], ids=["waiting", "leased", "dead"])
@pytest.mark.parametrize("ahead", [0, 1])
def test_what_redis_holds_in_this_generation_or_a_higher_one_is_left_as_it_is(
    repairs: Repairs, where: dict[str, Any], ahead: int
) -> None:
    item = repairs.begun()
    repairs.seed("a", generation=item.generation + ahead, **where)
    if ahead:
        repairs.store.cancel(item.task, item.generation, repairs.clock())
        repairs.begin(item.task)
        stale = [(item.task, item.generation)]
        repairs.patch.setattr(repairs.store, "open_since", lambda name, _: iter(stale if name == "example" else []))
    if where is DEAD:  # else the dead letter would be taken for one of an earlier failure
        repairs.store.fail(item.task, item.generation + ahead, FAILURE, repairs.clock())
    before = repairs.bench.parts()
    assert "requeued" not in repairs.run()["example"]
    assert repairs.bench.parts() == before


@pytest.mark.parametrize("where", [WAITING, LEASED, DEAD], ids=["waiting", "leased", "dead"])
def test_a_lower_generation_in_redis_is_replaced(repairs: Repairs, where: dict[str, Any]) -> None:
    item = repairs.begun(generations=2)
    repairs.seed("a", generation=item.generation - 1, **where)
    assert repairs.run()["example"] == {"seen": 1, "requeued": 1}
    assert repairs.state() == {"a": ("waiting", item.generation)}


def test_a_task_at_0_without_a_lease_comes_back(repairs: Repairs) -> None:
    item = repairs.begun()
    repairs.seed("a", generation=item.generation, lease_seconds=9)
    repairs.bench.keys.write("{queue:example}", "a", 0)
    repairs.bench.keys._client.zrem("{queue:example}:leases", "a")  # type: ignore[attr-defined]
    assert repairs.state() == {"a": ("stranded", item.generation)}
    assert repairs.run()["example"] == {"seen": 1, "requeued": 1}
    assert repairs.state() == {"a": ("waiting", item.generation)}


# --- the index is behind the items


def complete(store: Store, item: Item, now: int) -> None:
    store.complete(item.task, item.generation, {}, now)


def supersede(store: Store, item: Item, now: int) -> None:
    store.cancel(item.task, item.generation, now)
    store.begin(item.task, store.get(item.task, now), {}, now)


def delete(store: Store, item: Item, now: int) -> None:
    store.table.client.delete_item(TableName="meanwhile", Key={"task_id": {"S": item.task.id}})


@pytest.mark.parametrize("meanwhile", [complete, supersede, delete])
def test_what_the_index_still_lists_is_queued_only_if_its_item_says_the_same(
    repairs: Repairs, meanwhile: Callable[[Store, Item, int], None]
) -> None:
    item = repairs.begun()
    meanwhile(repairs.store, item, repairs.clock())
    stale = [(item.task, item.generation)]
    repairs.patch.setattr(repairs.store, "open_since", lambda name, _: iter(stale if name == "example" else []))
    assert repairs.run()["example"] == {"seen": 1}
    assert repairs.state() == {}


def test_the_generation_that_the_index_gives_is_compared_first_so_that_a_sound_task_costs_no_read(
    repairs: Repairs,
) -> None:
    item = repairs.begun()
    repairs.seed("a", generation=item.generation, due_seconds=9)
    repairs.dynamodb.calls.clear()
    repairs.run()
    assert set(repairs.dynamodb.calls) == {"Query"}


# --- dead letters


def test_a_dead_letter_whose_failure_stands_in_its_item_is_kept(repairs: Repairs) -> None:
    item = repairs.begun()
    repairs.store.fail(item.task, item.generation, FAILURE, repairs.clock())
    repairs.seed("a", generation=item.generation, dead=True)
    assert repairs.run()["example"] == {}
    assert repairs.state() == {"a": ("dead", item.generation)}


@pytest.mark.parametrize("meanwhile", [complete, supersede, delete])
def test_a_dead_letter_whose_item_is_gone_or_tells_otherwise_is_forgotten(
    repairs: Repairs, meanwhile: Callable[[Store, Item, int], None]
) -> None:
    item = repairs.begun()
    meanwhile(repairs.store, item, repairs.clock())
    repairs.seed("a", generation=item.generation, dead=True)
    assert repairs.run()["example"] == {"forgotten": 1}
    assert repairs.state() == {}


def test_a_dead_letter_of_an_earlier_failure_is_forgotten(repairs: Repairs) -> None:
    item = repairs.begun(generations=2)
    repairs.store.fail(item.task, item.generation, FAILURE | {"refused": True}, repairs.clock())
    repairs.seed("a", generation=item.generation - 1, dead=True)
    assert repairs.run()["example"] == {"forgotten": 1}
    assert repairs.state() == {}


def test_a_dead_letter_that_is_revived_while_it_is_looked_at_stays_in_the_queue(repairs: Repairs) -> None:
    item = repairs.begun()
    repairs.store.fail(item.task, item.generation, FAILURE, repairs.clock())
    repairs.seed("a", generation=item.generation, dead=True)
    members = repairs.queue.members

    def revived_just_after(provider: str, key: Literal["queue", "dead"]) -> list[Task]:
        found = members(provider, key)
        if found and key == "dead":
            again = repairs.begin(item.task)
            repairs.queue.add([Add(item.task, again.generation, record_of(again).to_text())], token="mine")
        return found

    repairs.patch.setattr(repairs.queue, "members", revived_just_after)
    assert repairs.run()["example"] == {}
    assert repairs.state() == {"a": ("waiting", item.generation + 1)}


def test_a_dead_letter_that_another_run_has_just_forgotten_is_counted_and_said_there(
    repairs: Repairs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    repairs.seed("a", dead=True)
    end = repairs.queue.end

    def beaten(ends: Any, *_: Any) -> list[bool]:
        end(ends)
        return end(ends)

    with repairs.patch.context() as patch:
        patch.setattr(repairs.queue, "end", beaten)
        assert repairs.run()["example"] == {}
    assert caplog.records == []
    repairs.seed("b", dead=True)
    assert repairs.run()["example"] == {"forgotten": 1}
    assert [(line.message, vars(line)["task"]) for line in caplog.records] == [("forgotten", "b")]


# --- items that are damaged


@pytest.mark.promise("faults", "an item that is damaged: reported by its key, and nobody else's trouble")
def test_an_item_that_is_damaged_is_reported_and_all_others_come_back(
    repairs: Repairs, caplog: pytest.LogCaptureFixture
) -> None:
    """C4."""
    damaged_ones = {f"{number}": damage for number, damage in enumerate(DAMAGES)}
    for name in (*damaged_ones, *"abcdefghij"):
        repairs.begun(name, age_seconds=0)
    for name, damage in damaged_ones.items():
        damage_item(repairs.dynamodb_client, Task("example", name), damage)
    repairs.clock.advance(3600)
    tally = repairs.run()
    unlisted = {name for name, damage in damaged_ones.items() if DAMAGES[damage][1].keys() & {"open", "updated_at"}}
    listed = damaged_ones.keys() - unlisted
    assert tally["example"] == {"seen": 10 + len(listed), "unreadable": len(listed), "requeued": 10}
    assert tally["coin"] == {"seen": 1, "unreadable": 1}  # its index has a task of the other
    assert repairs.state().keys() == set("abcdefghij")
    said = {vars(line)["task_id"]: vars(line)["attribute"] for line in caplog.records if line.levelname == "ERROR"}
    keys = {f"example/{name}": DAMAGES[damaged_ones[name]][0] for name in listed}
    foreign = f"example/{list(DAMAGES).index('open of another provider')}"
    assert said == keys | {foreign: "open"}
    assert {line.message for line in caplog.records if line.levelname == "ERROR"} == {"item unreadable"}
    assert SECRET not in repr([vars(line) for line in caplog.records])


@pytest.mark.parametrize("where", [{"due_seconds": 60}, {"dead": True}], ids=["waiting", "dead"])
def test_what_redis_has_of_a_damaged_item_is_left_and_reported_once_a_run(
    repairs: Repairs, where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    item = repairs.begun()
    damage_item(repairs.dynamodb_client, item.task, "partial cut")
    repairs.seed("a", generation=item.generation, **where)
    before = repairs.bench.parts()
    unread = 1 if "dead" in where else 0  # what Redis has just as the index lists it costs no read
    assert repairs.run()["example"].get("unreadable", 0) == unread == len(caplog.records)
    assert repairs.bench.parts() == before


def test_a_row_that_names_no_task_is_reported_too(repairs: Repairs, caplog: pytest.LogCaptureFixture) -> None:
    row: Any = {"open": {"S": "example#3"}, "updated_at": {"N": "1"}, "generation": {"N": "7"}}
    for task_id in ("example/a\x07", "no task", "coin/a"):
        repairs.dynamodb_client.put_item(TableName="meanwhile", Item=row | {"task_id": {"S": task_id}})
    repairs.begun("sound")
    assert repairs.run() == {"coin": {}, "example": {"seen": 4, "unreadable": 3, "requeued": 1}}
    assert {vars(line).get("task_id") for line in caplog.records} >= {"example/a\x07", "no task", "coin/a"}


# --- again, at once, in time, and when others are away


def test_a_second_run_changes_nothing(repairs: Repairs) -> None:
    repairs.begun("a")
    repairs.begun("b", generations=2)
    assert repairs.run()["example"]["requeued"] == 2
    before = repairs.bench.parts()
    assert repairs.run()["example"] == {"seen": 2}
    assert repairs.bench.parts() == before


def test_what_another_run_queues_at_the_same_time_is_counted_there(repairs: Repairs) -> None:
    item = repairs.begun()
    look = repairs.queue.look

    def beaten(tasks: Any, **options: Any) -> Any:
        places = look(tasks, **options)
        repairs.queue.add([Add(item.task, item.generation, record_of(item).to_text())], token="another run's")
        return places

    repairs.patch.setattr(repairs.queue, "look", beaten)
    assert repairs.run()["example"] == {"seen": 1}
    assert repairs.state() == {"a": ("waiting", item.generation)}


def test_it_stops_when_the_time_is_nearly_over_and_the_next_run_goes_on(repairs: Repairs) -> None:
    repairs.patch.setattr(reconcile, "BATCH", 2)
    for i in range(5):
        repairs.begun(f"task {i}")
    left = iter([60.0] * 6)  # before each batch, and before each of its reads
    assert repairs.run(lambda: next(left, STOP_SECONDS - 0.1))["example"] == {"seen": 4, "requeued": 4, "unfinished": 1}
    assert len(repairs.state()) == 4
    assert repairs.run()["example"] == {"seen": 5, "requeued": 1}


def test_dead_letters_are_left_to_the_next_run_too(repairs: Repairs) -> None:
    repairs.patch.setattr(reconcile, "BATCH", 2)
    for i in range(3):
        repairs.seed(f"task {i}", dead=True)
    left = iter([60.0] * 3)
    assert repairs.run(lambda: next(left, STOP_SECONDS - 0.1))["example"] == {"forgotten": 2, "unfinished": 1}
    assert len(repairs.state()) == 1
    assert repairs.run()["example"] == {"forgotten": 1}


def test_redis_away_is_counted_and_nothing_is_lost(repairs: Repairs, caplog: pytest.LogCaptureFixture) -> None:
    repairs.begun()
    repairs.redis.away = True
    tally = repairs.run()  # C10: what all providers share is met once
    assert sum(one.get("unreachable", 0) for one in tally.values()) == 1
    assert [line.message for line in caplog.records] == ["reconcile stopped"]
    repairs.redis.away = False
    assert repairs.run()["example"]["requeued"] == 1


@pytest.mark.parametrize("operation", ["Query", "GetItem"])
def test_dynamodb_away_is_counted_and_nothing_is_changed(repairs: Repairs, operation: str) -> None:
    repairs.begun()
    repairs.dynamodb.away = {operation}
    tally = repairs.run()
    assert sum(one.get("unreachable", 0) for one in tally.values()) == 1
    assert repairs.dynamodb.calls.count(operation) == 1
    assert repairs.state() == {}


def test_one_provider_with_errors_does_not_keep_another_waiting(repairs: Repairs) -> None:
    repairs.seed("x", provider="coin", dead=True)
    item = repairs.begun()
    repairs.seed("a", generation=item.generation, due_seconds=9)
    get = repairs.store.get

    def throttled(task: Task, now: int) -> Item | None:
        if task.provider == "coin":
            raise StoreUnavailable("DynamoDB: ThrottlingException")
        return get(task, now)

    repairs.patch.setattr(repairs.store, "get", throttled)
    assert repairs.run() == {"coin": {"unreachable": 1}, "example": {"seen": 1}}


def test_each_task_that_comes_back_is_one_line_and_one_that_does_not_is_none(
    repairs: Repairs, caplog: pytest.LogCaptureFixture
) -> None:
    item = repairs.begun()
    caplog.set_level(logging.INFO, logger="meanwhile")
    with repairs.patch.context() as patch:
        patch.setattr(repairs.queue, "add", lambda *_, **__: ["exists"])
        repairs.run()
    assert [line.message for line in caplog.records] == []
    repairs.run()
    [line] = caplog.records
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "requeued", "provider": "example", "task": "a", "generation": item.generation}


# --- much to do


def test_no_provider_waits_for_the_dead_letters_of_another(repairs: Repairs) -> None:
    for i in range(250):
        repairs.seed(f"dead {i}", provider="coin", dead=True)
    repairs.begun("a")
    looks = iter([60.0] * 2 + [0.0] * 50)
    assert repairs.run(lambda: next(looks))["example"]["requeued"] == 1


def test_of_many_dead_letters_each_run_looks_at_other_ones(repairs: Repairs) -> None:
    repairs.patch.setattr(reconcile, "LOOKS_A_RUN", 3)
    for i in range(5):
        repairs.seed(f"dead {i}", dead=True)
    assert [repairs.run()["example"].get("forgotten", 0) for _ in range(3)] == [3, 2, 0]


def test_runs_that_do_not_reach_the_end_begin_elsewhere_each_time(repairs: Repairs) -> None:
    asked: list[str] = []

    def query(_call: Any, **arguments: Any) -> Any:
        asked.append(arguments["ExpressionAttributeValues"][":open"]["S"])
        return {"Items": []}

    repairs.patch.setattr(repairs.store.table, "_guarded", query)
    firsts = set()
    for _ in range(16):
        asked.clear()
        assert list(repairs.store.open_since("example", repairs.clock())) == []
        assert len(set(asked)) == len(asked) == 16
        firsts.add(asked[0])
        repairs.clock.advance(300)  # reconcile's rhythm
    assert len(firsts) == 16


def test_with_a_slow_dynamodb_each_run_gets_as_far_as_its_time_allows(repairs: Repairs) -> None:
    def slow(task: Task, now: int) -> Item | None:
        left[0] -= 1.5
        return get(task, now)

    for i in range(5):
        repairs.begun(f"task {i}")
    get, left = repairs.store.get, [STOP_SECONDS + 3]
    repairs.patch.setattr(repairs.store, "get", slow)
    assert repairs.run(lambda: left[0])["example"]["requeued"] == 3
    assert len(repairs.state()) == 3


@pytest.mark.junk
@pytest.mark.parametrize("part", LAYOUT)
def test_a_key_of_another_type_stops_its_provider_for_one_run_at_most(repairs: Repairs, part: str) -> None:
    """C9."""
    repairs.begun()
    repairs.run()
    key = key_of("example", part)
    repairs.redis_client.delete(key)
    repairs.redis_client.set(key, "junk")
    repairs.run()
    assert [where for where, _ in repairs.state("example").values()] == ["waiting"]
    assert repairs.run()["example"] == {"seen": 1}


def test_the_stores_time_is_known_before_any_age_is_judged(repairs: Repairs) -> None:
    """C13."""
    known: list[int] = []
    repairs.patch.setattr(repairs.store, "know_time", lambda: known.append(len(repairs.dynamodb.calls)))
    repairs.run()
    assert known[0] == 0
