"""Turns: of the holders of one generation none overtakes a later one, and only a turn that ended its worker is a crash.

The same promises on moto's DynamoDB and on the in-memory double. The cases' numbers: C1, C2, C3.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs

from shared.codec import Json
from shared.errors import ItemUnreadable, StoreUnavailable
from shared.record import Record
from shared.store import LEAP, Ended, Holder, Item, Store, Superseded, Table
from shared.store.turns import ROUNDS
from shared.task import Task
from shared.work.keeper import record_of
from tests.conftest import RETENTION_SECONDS, TABLE
from tests.support.clock import Clock
from tests.support.memory_store import MemoryStore
from tests.support.outage import DynamoDBOutage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TASK = Task("example", "a")
ERROR: dict[str, Json] = {"reason": "upstream", "error": None, "refused": False}


@dataclasses.dataclass
class Line:
    """One task whose holders take turns."""

    store: Store
    clock: Clock
    generation: int = 0

    def __post_init__(self) -> None:
        item = self.store.begin(TASK, None, {}, self.clock())
        assert item
        self.generation = item.generation

    @property
    def item(self) -> Item:
        item = self.store.get(TASK, self.clock())
        assert item
        return item

    @property
    def record(self) -> Record:
        return record_of(self.item)

    def take_over(self, by: Holder, came_back: int = 1) -> Item:
        taken = self.store.take_over(TASK, self.generation, by, came_back)
        assert isinstance(taken, Item)
        assert taken == self.item
        return taken

    def save(self, by: Holder | None, told: Json = None, **options: Any) -> Superseded | None:
        told = self.record if told is None else structs.replace(self.record, **told)
        return self.store.save(TASK, told, self.clock(), by=by, **options)

    def fail(self, by: Holder | None, **options: Any) -> Ended:
        return self.store.fail(TASK, self.generation, ERROR, self.clock(), by=by, **options)

    def finished(self, by: Holder) -> Superseded | None:
        return self.store.finished(TASK, self.generation, by)


def holder(turn: int, letter: str = "a") -> Holder:
    return Holder(turn, letter * 8)


@pytest.fixture
def line(store: Store, clock: Clock) -> Line:
    return Line(store, clock)


@pytest.fixture
def real(dynamodb: "DynamoDBClient", clock: Clock) -> Line:
    """Over DynamoDB, for what the double has no part in."""
    return Line(Store(Table(dynamodb, TABLE), RETENTION_SECONDS), clock)


# --- C1: an earlier holder changes nothing


def writes(line: Line, by: Holder) -> list[Callable[[], object]]:
    """All that a holder may find, but data."""
    return [
        lambda: line.save(by, {"outputs": {"id": "old"}, "partial": {"n": 1}}),
        lambda: line.save(by, {"outputs": None, "resubmits": 1}, resubmit=True),
        lambda: line.fail(by),
        lambda: line.finished(by),
    ]


@pytest.mark.promise("once", "within a generation, too, an earlier holder's save or failure changes nothing")
@pytest.mark.parametrize("after", ["take-over", "save", "word"])
@pytest.mark.parametrize("late", [holder(4), holder(5, "z")], ids=["an earlier turn", "another one of the same turn"])
def test_after_a_holder_has_written_no_earlier_one_changes_anything(line: Line, late: Holder, after: str) -> None:
    """C1: run 1 stalls beyond its lease, run 2 is told pending with a new link, run 1 wakes with the old one."""
    writing: dict[str, Callable[[], object]] = {
        "take-over": lambda: line.take_over(holder(5)),
        "save": lambda: line.save(holder(5), {"outputs": {"id": "new"}, "partial": {"n": 2}}),
        "word": lambda: line.finished(holder(5)),
    }
    writing[after]()
    before = line.item
    line.clock.advance(5)
    for write in writes(line, late):
        assert write() == Superseded(before)
    assert line.item == before


@pytest.mark.promise("once", "data is stored while its task is pending, whoever has it and however late")
def test_data_is_stored_whoever_has_it(line: Line) -> None:
    """C1: completed needs no turn, but a task that has failed or was cancelled stays so."""
    line.take_over(holder(9))
    done = line.store.complete(TASK, line.generation, {"whole": 1}, line.clock())
    assert isinstance(done, Item)
    assert (done.status, done.data) == ("completed", {"whole": 1})
    for write in writes(line, holder(9)):
        assert write() == Superseded(done)
    assert line.store.take_over(TASK, line.generation, holder(10), 1) == Superseded(done)


@pytest.mark.parametrize("by", [holder(5), holder(6, "b"), holder(60, "b")], ids=["again", "the next", "much later"])
def test_a_holder_may_write_again_and_so_may_each_later_one(line: Line, by: Holder) -> None:
    assert line.save(holder(5), {"partial": 1}) is None
    assert line.save(by, {"partial": 2}) is None
    item = line.item
    assert (item.partial, item.turn, item.holder) == (2, by.turn, by.holder)
    failed = line.fail(by)
    assert isinstance(failed, Item)
    assert (failed.status, failed.turn, failed.holder) == ("failed", by.turn, by.holder)


def test_a_request_s_own_attempt_without_redis_comes_before_every_claim(line: Line) -> None:
    """It has turn 0."""
    assert line.save(holder(0), {"partial": 1}) is None
    assert line.save(holder(0, "b"), {"partial": 2}) == Superseded(line.item)
    assert line.take_over(holder(1, "c")).crashes == 0
    assert line.save(holder(0), {"partial": 3}) == Superseded(line.item)


def test_who_holds_nothing_needs_no_turn_and_leaves_it(line: Line) -> None:
    """A callback, a cancellation, a workflow that waits."""
    line.take_over(holder(5), 1)
    before = line.item
    line.store.learn(TASK, structs.replace(line.record, partial={"p": 1}), line.clock())
    line.store.notify(TASK, line.generation, "k:0")
    item = line.item
    assert item.partial == {"p": 1}
    assert item.notify == {"k:0"}
    line.store.cancel(TASK, line.generation, line.clock())
    for one in (item, line.item):
        assert (one.turn, one.holder, one.finished, one.crashes) == (5, before.holder, None, 1)


def test_the_next_generation_knows_nothing_of_turns(line: Line) -> None:
    line.take_over(holder(5))
    line.save(holder(5))
    line.take_over(holder(7))
    line.store.learn(TASK, structs.replace(line.record, partial=1), line.clock())
    line.fail(holder(7))
    begun = line.store.begin(TASK, line.item, {}, line.clock())
    assert begun == line.item
    assert (begun.turn, begun.holder, begun.finished, begun.crashes, begun.news) == (0, "", None, 0, 0)
    line.generation = begun.generation
    assert line.save(holder(1, "b")) is None


# --- C2: taking over


def test_taking_over_gives_the_item_as_it_is_and_does_not_make_it_young(line: Line) -> None:
    """C2: the take-over is the read, before anybody is asked."""
    line.save(holder(3), {"outputs": {"id": "j"}, "partial": {"n": 2}})
    before = line.item
    line.clock.advance(60)
    taken = line.take_over(holder(5, "b"))
    assert taken == dataclasses.replace(before, turn=5, holder="bbbbbbbb", crashes=1)
    assert list(line.store.open_since("example", line.clock())) == [(TASK, line.generation)]


def test_where_redis_went_back_the_turn_taken_is_above_the_one_that_stands_there(line: Line) -> None:
    line.take_over(holder(7, "a"))
    for turn, letter, taken in [(7, "b", 8), (3, "c", 9), (9, "d", 10), (20, "e", 20)]:
        assert line.take_over(holder(turn, letter)).turn == taken
        assert line.save(holder(taken, letter)) is None


def test_what_has_ended_or_begun_again_is_not_taken_over_but_told(line: Line) -> None:
    """C2: the item answers, the provider is not asked again."""
    assert line.store.take_over(Task("example", "none"), line.generation, holder(1), 1) == Superseded(None)
    assert line.store.take_over(TASK, line.generation - 1, holder(5), 1) == Superseded(line.item)
    line.store.cancel(TASK, line.generation, line.clock())
    assert line.store.take_over(TASK, line.generation, holder(5), 1) == Superseded(line.item)
    assert line.item.turn == 0


def repeated(
    client: "DynamoDBClient", patch: pytest.MonkeyPatch, meanwhile: Callable[[], object] | None = None
) -> None:
    """From now on botocore sends each update twice, as after a lost reply."""
    update = client.update_item

    def twice(**arguments: Any) -> Any:
        update(**arguments)
        if meanwhile:
            meanwhile()
        return update(**arguments)

    patch.setattr(client, "update_item", twice)


@pytest.mark.parametrize("turn", [8, 5, 3], ids=["above", "the same", "below"])
def test_a_repeated_take_over_finds_its_own_and_counts_once(
    real: Line, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """C3: nothing crashed between the two."""
    real.take_over(holder(5), 1)
    repeated(dynamodb, monkeypatch)
    taken = real.take_over(holder(turn, "b"), 2)
    monkeypatch.undo()
    assert (taken.turn, taken.crashes) == (max(turn, 6), 2)
    assert real.take_over(holder(turn, "b"), 2) == taken


def test_a_repeated_save_is_well(real: Line, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch) -> None:
    repeated(dynamodb, monkeypatch)
    assert real.save(holder(3), {"partial": 1}) is None
    assert real.finished(holder(3)) is None


def test_an_update_is_enough_and_two_where_the_item_says_otherwise(real: Line, dynamodb: "DynamoDBClient") -> None:
    outage = DynamoDBOutage(dynamodb)
    for by, calls in [(holder(1), 1), (holder(3), 1), (holder(2, "b"), 2)]:
        outage.calls.clear()
        real.store.take_over(TASK, real.generation, by, 1)
        assert outage.calls == ["UpdateItem"] * calls
    real.save(holder(4, "b"))
    outage.calls.clear()
    real.store.take_over(TASK, real.generation, holder(5), 1)
    assert outage.calls == ["UpdateItem"] * 2


def test_others_that_are_always_quicker_are_not_raced_for_ever(
    real: Line, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    update, calls = dynamodb.update_item, []

    def second(**arguments: Any) -> Any:
        calls.append(arguments)
        quicker = arguments["ExpressionAttributeValues"] | {":holder": {"S": f"{len(calls):08x}"}}
        update(**arguments | {"ExpressionAttributeValues": quicker})
        return update(**arguments)

    monkeypatch.setattr(dynamodb, "update_item", second)
    with pytest.raises(StoreUnavailable):
        real.store.take_over(TASK, real.generation, holder(5), 1)
    assert len(calls) == ROUNDS


def test_a_take_over_that_dynamodb_does_not_serve_is_unavailable(
    real: Line, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = DynamoDBOutage(dynamodb)
    outage.away = {"UpdateItem"}
    for call in (lambda: real.take_over(holder(5)), lambda: real.finished(holder(5))):
        with pytest.raises(StoreUnavailable):
            call()


# --- C3: a crash is the death of a worker


@pytest.mark.promise("once", "a crash is counted only where a worker died, not where Redis could not be told")
@pytest.mark.parametrize("told", ["save", "word"])
def test_a_turn_whose_attempt_is_known_to_have_ended_is_no_crash(line: Line, told: str) -> None:
    """C3: four ticks in a row in which the provider answers pending and only the settle call fails."""
    for turn in range(1, 5):
        assert line.take_over(holder(turn), turn - 1).crashes == 0
        line.save(holder(turn), {"partial": turn}) if told == "save" else line.finished(holder(turn))
        assert line.item.finished == turn


def test_each_turn_that_nobody_ended_is_a_crash(line: Line) -> None:
    line.save(holder(1))
    crashes = [line.take_over(holder(turn), turn - 2).crashes for turn in range(3, 7)]
    assert crashes == [1, 2, 3, 4]


def test_a_leased_add_that_died_is_a_crash_and_a_task_that_nobody_held_is_none(line: Line) -> None:
    """The add of a request that asks at once is turn 1; reconcile queues what Redis never had."""
    assert line.take_over(holder(1), 1).crashes == 0
    assert line.take_over(holder(2, "b"), 1).crashes == 1


def test_an_attempt_that_ended_ends_the_row_of_crashes(line: Line) -> None:
    line.take_over(holder(3), 1)
    line.take_over(holder(4), 2)
    assert line.item.crashes == 2
    line.finished(holder(4))
    assert line.item.crashes == 0
    line.take_over(holder(5), 3)
    assert line.take_over(holder(6), 4).crashes == 1


def test_a_save_ends_the_row_of_crashes(line: Line) -> None:
    line.take_over(holder(4), 2)
    line.save(holder(4))
    assert line.item.crashes == 0


@pytest.mark.parametrize("came_back", [0, 1])
def test_crashes_before_an_outcome_that_changed_nothing_do_not_count(line: Line, came_back: int) -> None:
    """Turn 6 was settled in Redis alone; only Redis' count of how often it came back since tells that."""
    for turn in (3, 4, 5):
        line.take_over(holder(turn), turn - 2)
    assert line.item.crashes == 3
    assert line.take_over(holder(8), came_back).crashes == 1


def test_the_word_of_a_turn_that_a_later_one_followed_is_no_excuse(line: Line) -> None:
    line.finished(holder(3))
    assert line.take_over(holder(5), 1).crashes == 1
    line.save(holder(6))
    assert line.take_over(holder(8), 1).crashes == 1


def test_of_what_came_back_only_a_turn_that_was_taken_over_can_be_a_crash(line: Line) -> None:
    """Before that nobody is asked: the reply to the claim was lost, or the task was given back at once."""
    assert line.take_over(holder(5), 4).crashes == 0
    line.finished(holder(5))
    assert line.take_over(holder(9), 8).crashes == 0
    assert line.take_over(holder(13), 12).crashes == 1


def test_what_redis_had_lost_is_above_every_turn_that_it_gave_and_is_no_crash(line: Line) -> None:
    """A worker that stalled with turn 9, unwritten, is an earlier holder."""
    line.save(holder(2))
    assert line.take_over(holder(2 + LEAP + 1, "b"), 1).crashes == 0
    assert isinstance(line.save(holder(9)), Superseded)
    assert line.take_over(holder(2 + LEAP + 2), 1).crashes == 1
    assert line.take_over(holder(2 + 2 * LEAP + 3), 1).crashes == 1


def test_an_ordinary_death_long_after_a_loss_of_redis_is_a_crash(line: Line) -> None:
    line.save(holder(LEAP + 5))
    assert line.take_over(holder(LEAP + 7), 1).crashes == 1


def test_after_redis_lost_its_claims_the_last_turn_of_the_item_is_the_one_before(line: Line) -> None:
    line.take_over(holder(7))
    line.finished(holder(7))
    assert line.take_over(holder(5, "b"), 2).crashes == 0
    assert line.take_over(holder(5, "c"), 2).crashes == 1


def test_the_word_leaves_all_but_the_turn_as_it_is(line: Line) -> None:
    line.save(holder(1), {"outputs": {"id": "j"}})
    before = line.item
    line.clock.advance(60)
    assert line.finished(holder(2, "b")) is None
    assert line.item == dataclasses.replace(before, turn=2, holder="bbbbbbbb", finished=2)


# --- a job's failure, and news of it


def test_a_failure_is_not_of_a_job_that_came_later(line: Line) -> None:
    line.save(None, {"outputs": None, "resubmits": 1}, resubmit=True)
    before = line.item
    assert line.fail(None, resubmits=0) == Superseded(before)
    assert line.item == before
    assert isinstance(line.fail(None, resubmits=1), Item)


def test_a_failure_before_any_attempt_was_saved_is_of_the_first_job(line: Line) -> None:
    assert isinstance(line.fail(None, resubmits=0), Item)


@pytest.mark.promise("once", "what a callback told stays, whatever a worker saves that does not know of it")
@pytest.mark.parametrize("news", [{"outputs": {"id": "told"}}, {"partial": {"told": 1}}])
def test_what_a_callback_told_survives_the_save_of_a_worker_that_does_not_know_it(line: Line, news: Any) -> None:
    """And the worker is told of it: from then on it may save."""
    known = line.record
    line.store.learn(TASK, structs.replace(known, **news), line.clock())
    there = line.item
    old = structs.replace(known, outputs={"id": "polled"}, partial={"polled": 1})
    lost = structs.replace(known, outputs=None, resubmits=1)
    assert line.store.save(TASK, old, line.clock(), by=holder(5)) == Superseded(there)
    assert line.store.save(TASK, lost, line.clock(), by=holder(5), resubmit=True) == Superseded(there)
    assert line.item == there
    assert line.store.save(TASK, structs.replace(old, news=there.news), line.clock(), by=holder(5)) is None
    assert (line.item.outputs, line.item.news) == ({"id": "polled"}, 1)


def test_each_news_counts(line: Line) -> None:
    for count in range(1, 4):
        line.store.learn(TASK, structs.replace(line.record, partial=count), line.clock())
        assert line.item.news == line.record.news == count


# --- the double does as DynamoDB does

HOLDERS = st.builds(holder, st.integers(0, 6), st.sampled_from("ab"))
STEPS = st.one_of(
    st.tuples(st.just("take over"), HOLDERS, st.integers(0, 3)),
    st.tuples(st.just("save"), st.none() | HOLDERS, st.integers(0, 2)),
    st.tuples(st.just("resubmit"), st.none() | HOLDERS, st.integers(1, 2)),
    st.tuples(st.just("learn"), st.none(), st.integers(0, 2)),
    st.tuples(st.just("finished"), HOLDERS, st.none()),
    st.tuples(st.just("fail"), st.none() | HOLDERS, st.none() | st.integers(0, 2)),
)


def done(line: Line, name: str, by: Any, number: Any) -> Any:
    store, now, record = line.store, line.clock(), line.record
    match name:
        case "take over":
            return store.take_over(TASK, line.generation, by, number)
        case "save" | "resubmit" | "learn":
            told = structs.replace(record, partial=number, resubmits=number, news=number)
            if name == "learn":
                return store.learn(TASK, told, now)
            return store.save(TASK, told, now, by=by, resubmit=name == "resubmit")
        case "finished":
            return store.finished(TASK, line.generation, by)
    return store.fail(TASK, line.generation, ERROR, now, by=by, resubmits=number)


@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, max_size=10))
def test_the_double_answers_as_dynamodb_does_whatever_the_holders_do(
    dynamodb: "DynamoDBClient", clock: Clock, steps: list[Any]
) -> None:
    dynamodb.delete_item(TableName=TABLE, Key={"task_id": {"S": TASK.id}})
    lines = [
        Line(Store(Table(dynamodb, TABLE), RETENTION_SECONDS), clock),
        Line(MemoryStore(RETENTION_SECONDS), clock),  # type: ignore[arg-type]
    ]
    for step in steps:
        real, double = (done(line, *step) for line in lines)
        assert real == double
        assert lines[0].item == lines[1].item


@pytest.mark.parametrize("value", [{"S": "SECRET"}, {"L": []}, {"M": {}}], ids=["S", "L", "M"])
@pytest.mark.parametrize("attribute", ["crashes", "news", "notify"])
def test_a_count_of_another_type_is_named_by_whoever_would_add_to_it(
    real: Line, dynamodb: "DynamoDBClient", attribute: str, value: Any
) -> None:
    """C4."""
    real.take_over(holder(5))
    known = structs.replace(real.record, partial={"n": 1})
    writes: dict[str, Callable[[], object]] = {
        "crashes": lambda: real.store.take_over(TASK, real.generation, holder(7), 3),
        "news": lambda: real.store.learn(TASK, known, real.clock()),
        "notify": lambda: real.store.notify(TASK, real.generation, "stepFunctionsToken:x"),
    }
    dynamodb.update_item(
        TableName=TABLE,
        Key={"task_id": {"S": TASK.id}},
        UpdateExpression="SET #damaged = :value",
        ExpressionAttributeNames={"#damaged": attribute},
        ExpressionAttributeValues={":value": value},
    )
    with pytest.raises(ItemUnreadable) as found:
        writes[attribute]()
    assert (found.value.attribute, "SECRET" in str(found.value)) == (attribute, False)
