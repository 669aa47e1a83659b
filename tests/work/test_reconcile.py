"""Reconcile brings back what Redis has lost, late enough to be in nobody's way, and drops what ended elsewhere."""

import dataclasses
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from shared.queue import Add, Place, Queue
from shared.record import Record
from shared.store import Item, Store
from shared.task import Task
from shared.work import reconcile
from shared.work.reconcile import STOP_SECONDS, Reconciler
from shared.work.worker import record_of
from tests.support.clock import Clock
from tests.support.keys import Bench
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.simulator import EXAMPLE, provider_at

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from redis import Redis

LEASE_SECONDS = 30.0
MAX_DELAY = 100.0
URL = "http://127.0.0.1:1"

Begun = Callable[..., Item]
Tally = dict[str, dict[str, int]]
Run = Callable[..., Tally]


@pytest.fixture
def redis_kind() -> str:
    """The scripts' own contract is held elsewhere, on every kind."""
    return "fakeredis"


@pytest.fixture
def begun(store: Store, clock: Clock) -> Begun:
    """Begins generation after generation of a task; the last is open and, unless told otherwise, an hour old."""

    def begun(name: str = "a", *, provider: str = "example", generations: int = 1, age_seconds: float = 3600) -> Item:
        task, item = Task(provider, name), None
        for _ in range(generations):
            if item:
                store.cancel(task, item.generation, clock())
                item = store.get(task, clock())
            item = store.begin(task, item, {"customer": 42}, clock())
        assert item
        clock.advance(age_seconds)
        return item

    return begun


@pytest.fixture
def run(store: Store, queue: Queue, clock: Clock) -> Run:
    """One run; what counted above 0, for each provider."""
    file = EXAMPLE | {"polling": {"maxDelay": MAX_DELAY}}
    rules = {"coin": provider_at(URL, file).rules, "example": provider_at(URL, file).rules}

    def run(remaining: Callable[[], float] = lambda: 60) -> Tally:
        reconciler = Reconciler(store, queue, rules, LEASE_SECONDS, clock, Random(1))
        return {name: dict(+counter) for name, counter in reconciler.run(remaining).items()}

    return run


def place(queue: Queue, item: Item) -> Place:
    return queue.look([item.task], records=True)[0]


# --- what Redis has lost


@pytest.mark.promise("ends", "when Redis has lost everything, the tasks come back with their jobs")
def test_after_redis_lost_everything_each_open_task_comes_back_as_its_item_knows_it(
    run: Run, begun: Begun, store: Store, queue: Queue, clock: Clock, state: Any
) -> None:
    item = begun("a")
    learned = dataclasses.replace(record_of(item), outputs={"id": "j"}, partial={"x": 1}, submitted_at=5, resubmits=1)
    store.save(item.task, learned, clock())
    begun("b")
    assert run() == {"coin": {}, "example": {"seen": 2, "requeued": 2}}
    assert {where for where, _ in state().values()} == {"waiting"}
    found = place(queue, item)
    record = Record.from_text(found.record)
    assert found.generation == item.generation
    assert (record.input, record.outputs, record.partial) == ({"customer": 42}, {"id": "j"}, {"x": 1})
    assert (record.submitted_at, record.resubmits, record.saved) == (5, 1, record.digest)


def test_a_job_that_is_open_counts_from_the_moment_its_task_is_back(
    store: Store, queue: Queue, clock: Clock, begun: Begun, bench: Bench
) -> None:
    for name, outputs in (("started", {"id": "j"}), ("not started", None)):
        item = begun(name, age_seconds=0)
        store.save(item.task, dataclasses.replace(record_of(item), outputs=outputs, submitted_at=5), clock())
    clock.advance(3600)
    limited = {"example": provider_at(URL, EXAMPLE | {"limits": {"openJobs": 5}}).rules}
    Reconciler(store, queue, limited, LEASE_SECONDS, clock, Random(1)).run(lambda: 60)
    assert bench.parts()["queue"].keys() == {"started", "not started"}
    assert bench.parts()["jobs"].keys() == {"started"}


@pytest.mark.promise(
    "submits", "reconcile queues a task no earlier than a lease from now, so its worker can store first"
)
def test_it_is_due_no_earlier_than_a_lease_from_now_and_spread_over_the_longest_delay(
    run: Run, begun: Begun, queue: Queue
) -> None:
    items = [begun(f"task {i}") for i in range(40)]
    run()
    dues = [place(queue, item).due_seconds or 0 for item in items]
    assert min(dues) > LEASE_SECONDS - 2  # seconds that this test may take
    assert max(dues) <= LEASE_SECONDS + MAX_DELAY
    assert max(dues) - min(dues) > MAX_DELAY / 2


@pytest.mark.parametrize(("age_seconds", "requeued"), [(LEASE_SECONDS - 0.001, 0), (LEASE_SECONDS + 0.001, 1)])
def test_an_item_written_less_than_a_lease_ago_is_left_to_whoever_works_on_it(
    run: Run, begun: Begun, age_seconds: float, requeued: int
) -> None:
    begun(age_seconds=age_seconds)
    assert run()["example"].get("requeued", 0) == requeued


def test_what_an_attempt_has_just_written_counts_as_young(run: Run, begun: Begun, store: Store, clock: Clock) -> None:
    item = begun()
    store.save(item.task, record_of(item), clock())
    assert run()["example"] == {}


WAITING: dict[str, Any] = {"due_seconds": 9}
LEASED: dict[str, Any] = {"lease_seconds": 9}
DEAD: dict[str, Any] = {"dead": True}


@pytest.mark.parametrize("where", [WAITING, LEASED, DEAD], ids=["waiting", "leased", "dead"])
@pytest.mark.parametrize("ahead", [0, 1])
def test_what_redis_holds_in_this_generation_or_a_higher_one_is_left_as_it_is(
    run: Run, begun: Begun, seed: Any, bench: Bench, store: Store, clock: Clock, where: dict[str, Any], ahead: int
) -> None:
    item = begun()
    seed("a", generation=item.generation + ahead, **where)
    if where is DEAD:  # else the dead letter would be taken for one of an earlier failure
        error = {"reason": "upstream", "error": None, "refused": False}
        if ahead:
            store.cancel(item.task, item.generation, clock())
            store.begin(item.task, store.get(item.task, clock()), {}, clock())
        store.fail(item.task, item.generation + ahead, error, clock())
    before = bench.parts()
    assert "requeued" not in run()["example"]
    assert bench.parts() == before


@pytest.mark.parametrize("where", [WAITING, LEASED, DEAD], ids=["waiting", "leased", "dead"])
def test_a_lower_generation_in_redis_is_replaced(
    run: Run, begun: Begun, seed: Any, state: Any, where: dict[str, Any]
) -> None:
    item = begun(generations=2)
    seed("a", generation=item.generation - 1, **where)
    assert run()["example"] == {"seen": 1, "requeued": 1}
    assert state() == {"a": ("waiting", item.generation)}


def test_a_task_at_0_without_a_lease_comes_back(run: Run, begun: Begun, seed: Any, bench: Bench, state: Any) -> None:
    item = begun()
    seed("a", generation=item.generation, lease_seconds=9)
    bench.keys.write("{queue:example}", "a", 0)
    bench.keys._client.zrem("{queue:example}:leases", "a")  # type: ignore[attr-defined]
    assert state() == {"a": ("stranded", item.generation)}
    assert run()["example"] == {"seen": 1, "requeued": 1}
    assert state() == {"a": ("waiting", item.generation)}


# --- the index is behind the items


def complete(store: Store, item: Item, now: int) -> None:
    store.complete(item.task, item.generation, {}, now)


def supersede(store: Store, item: Item, now: int) -> None:
    store.cancel(item.task, item.generation, now)
    store.begin(item.task, store.get(item.task, now), {}, now)


def delete(store: Store, item: Item, now: int) -> None:
    store._table._client.delete_item(TableName="meanwhile", Key={"task_id": {"S": item.task.id}})


@pytest.mark.parametrize("meanwhile", [complete, supersede, delete])
def test_what_the_index_still_lists_is_queued_only_if_its_item_says_the_same(
    run: Run,
    begun: Begun,
    store: Store,
    clock: Clock,
    state: Any,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Store, Item, int], None],
) -> None:
    item = begun()
    meanwhile(store, item, clock())
    stale = [(item.task, item.generation)]
    monkeypatch.setattr(store, "open_since", lambda name, _: iter(stale if name == "example" else []))
    assert run()["example"] == {"seen": 1}
    assert state() == {}


def test_the_generation_that_the_index_gives_is_compared_first_so_that_a_sound_task_costs_no_read(
    run: Run, begun: Begun, seed: Any, dynamodb: "DynamoDBClient"
) -> None:
    item = begun()
    seed("a", generation=item.generation, due_seconds=9)
    outage = DynamoDBOutage(dynamodb)
    run()
    assert set(outage.calls) == {"Query"}


# --- dead letters


def test_a_dead_letter_whose_failure_stands_in_its_item_is_kept(
    run: Run, begun: Begun, store: Store, seed: Any, state: Any, clock: Clock
) -> None:
    item = begun()
    store.fail(item.task, item.generation, {"reason": "upstream", "error": None, "refused": False}, clock())
    seed("a", generation=item.generation, dead=True)
    assert run()["example"] == {}
    assert state() == {"a": ("dead", item.generation)}


@pytest.mark.parametrize("meanwhile", [complete, supersede, delete])
def test_a_dead_letter_whose_item_is_gone_or_tells_otherwise_is_forgotten(
    run: Run,
    begun: Begun,
    store: Store,
    seed: Any,
    state: Any,
    clock: Clock,
    meanwhile: Callable[[Store, Item, int], None],
) -> None:
    item = begun()
    meanwhile(store, item, clock())
    seed("a", generation=item.generation, dead=True)
    assert run()["example"] == {"forgotten": 1}
    assert state() == {}


def test_a_dead_letter_of_an_earlier_failure_is_forgotten(
    run: Run, begun: Begun, store: Store, seed: Any, state: Any, clock: Clock
) -> None:
    item = begun(generations=2)
    store.fail(item.task, item.generation, {"reason": "upstream", "error": None, "refused": True}, clock())
    seed("a", generation=item.generation - 1, dead=True)
    assert run()["example"] == {"forgotten": 1}
    assert state() == {}


def test_a_dead_letter_that_is_revived_while_it_is_looked_at_stays_in_the_queue(
    run: Run,
    begun: Begun,
    store: Store,
    queue: Queue,
    seed: Any,
    state: Any,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = begun()
    store.fail(item.task, item.generation, {"reason": "upstream", "error": None, "refused": False}, clock())
    seed("a", generation=item.generation, dead=True)
    dead = queue.dead

    def revived_just_after(provider: str) -> list[Task]:
        found = dead(provider)
        if found:
            again = store.begin(item.task, store.get(item.task, clock()), {}, clock())
            assert again
            queue.add([Add(item.task, again.generation, record_of(again).to_text())], token="mine")
        return found

    monkeypatch.setattr(queue, "dead", revived_just_after)
    assert run()["example"] == {}
    assert state() == {"a": ("waiting", item.generation + 1)}


def test_a_dead_letter_that_another_run_has_just_forgotten_is_counted_and_said_there(
    run: Run, queue: Queue, seed: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    seed("a", dead=True)
    end = queue.end

    def beaten(ends: Any) -> list[bool]:
        end(ends)
        return end(ends)

    with monkeypatch.context() as patch:
        patch.setattr(queue, "end", beaten)
        assert run()["example"] == {}
    assert caplog.records == []
    seed("b", dead=True)
    assert run()["example"] == {"forgotten": 1}
    assert [(line.message, vars(line)["task"]) for line in caplog.records] == [("forgotten", "b")]


# --- again, at once, in time, and when others are away


def test_a_second_run_changes_nothing(run: Run, begun: Begun, bench: Bench) -> None:
    begun("a")
    begun("b", generations=2)
    assert run()["example"]["requeued"] == 2
    before = bench.parts()
    assert run()["example"] == {"seen": 2}
    assert bench.parts() == before


def test_what_another_run_queues_at_the_same_time_is_counted_there(
    run: Run, begun: Begun, queue: Queue, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    item = begun()
    look = queue.look

    def beaten(tasks: Any, **options: Any) -> Any:
        places = look(tasks, **options)
        queue.add([Add(item.task, item.generation, record_of(item).to_text())], token="another run's")
        return places

    monkeypatch.setattr(queue, "look", beaten)
    assert run()["example"] == {"seen": 1}
    assert state() == {"a": ("waiting", item.generation)}


def test_it_stops_when_the_time_is_nearly_over_and_the_next_run_goes_on(
    run: Run, begun: Begun, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "BATCH", 2)
    for i in range(5):
        begun(f"task {i}")
    left = iter([60.0] * 6)  # before each batch, and before each of its reads
    assert run(lambda: next(left, STOP_SECONDS - 0.1))["example"] == {"seen": 4, "requeued": 4, "unfinished": 1}
    assert len(state()) == 4
    assert run()["example"] == {"seen": 5, "requeued": 1}


def test_dead_letters_are_left_to_the_next_run_too(
    run: Run, seed: Any, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "BATCH", 2)
    for i in range(3):
        seed(f"task {i}", dead=True)
    left = iter([60.0] * 3)
    assert run(lambda: next(left, STOP_SECONDS - 0.1))["example"] == {"forgotten": 2, "unfinished": 1}
    assert len(state()) == 1
    assert run()["example"] == {"forgotten": 1}


def test_redis_away_is_counted_and_nothing_is_lost(
    run: Run, begun: Begun, redis_client: "Redis", caplog: pytest.LogCaptureFixture
) -> None:
    begun()
    outage = RedisOutage(redis_client)
    outage.away = True
    assert run() == {"coin": {"unreachable": 1}, "example": {"unreachable": 1}}
    assert {line.message for line in caplog.records} == {"reconcile stopped"}
    outage.away = False
    assert run()["example"]["requeued"] == 1


@pytest.mark.parametrize("operation", ["Query", "GetItem"])
def test_dynamodb_away_is_counted_and_nothing_is_changed(
    run: Run, begun: Begun, dynamodb: "DynamoDBClient", state: Any, operation: str
) -> None:
    begun()
    outage = DynamoDBOutage(dynamodb)
    outage.away = {operation}
    assert run()["example"] == {"unreachable": 1}
    assert state() == {}


def test_one_provider_in_trouble_does_not_keep_another_waiting(
    run: Run, begun: Begun, queue: Queue, seed: Any, dynamodb: "DynamoDBClient"
) -> None:
    seed("x", provider="coin", dead=True)
    item = begun()
    seed("a", generation=item.generation, due_seconds=9)
    outage = DynamoDBOutage(dynamodb)
    outage.away = {"GetItem"}
    assert run() == {"coin": {"unreachable": 1}, "example": {"seen": 1}}


def test_each_task_that_comes_back_is_one_line_and_one_that_does_not_is_none(
    run: Run,
    begun: Begun,
    redis_client: "Redis",
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    queue: Queue,
) -> None:
    item = begun()
    caplog.set_level(logging.INFO, logger="meanwhile")
    with monkeypatch.context() as patch:
        patch.setattr(queue, "add", lambda *_, **__: ["exists"])
        run()
    assert [line.message for line in caplog.records] == []
    run()
    [line] = caplog.records
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "requeued", "provider": "example", "task": "a", "generation": item.generation}


# --- much to do


def test_no_provider_waits_for_the_dead_letters_of_another(run: Run, begun: Begun, seed: Any) -> None:
    for i in range(250):
        seed(f"dead {i}", provider="coin", dead=True)
    begun("a")
    looks = iter([60.0] * 2 + [0.0] * 50)
    assert run(lambda: next(looks))["example"]["requeued"] == 1


def test_of_many_dead_letters_each_run_looks_at_other_ones(
    run: Run, seed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "LOOKS_A_RUN", 3)
    for i in range(5):
        seed(f"dead {i}", dead=True)
    assert [run()["example"].get("forgotten", 0) for _ in range(3)] == [3, 2, 0]


def test_runs_that_do_not_reach_the_end_begin_elsewhere_each_time(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def query(_call: Any, **arguments: Any) -> Any:
        asked.append(arguments["ExpressionAttributeValues"][":open"]["S"])
        return {"Items": []}

    monkeypatch.setattr(store._table, "_guarded", query)
    firsts = set()
    for _ in range(16):
        asked.clear()
        assert list(store.open_since("example", clock())) == []
        assert len(set(asked)) == len(asked) == 16
        firsts.add(asked[0])
        clock.advance(300)  # reconcile's rhythm
    assert len(firsts) == 16


def test_with_a_slow_dynamodb_each_run_gets_as_far_as_its_time_allows(
    run: Run, begun: Begun, state: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(task: Task, now: int) -> Item | None:
        left[0] -= 1.5
        return get(task, now)

    for i in range(5):
        begun(f"task {i}")
    get, left = store.get, [STOP_SECONDS + 3]
    monkeypatch.setattr(store, "get", slow)
    assert run(lambda: left[0])["example"]["requeued"] == 3
    assert len(state()) == 3
