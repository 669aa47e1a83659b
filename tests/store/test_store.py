"""The store's contract: the same promises on moto's DynamoDB and on the in-memory double."""

import dataclasses
import gzip
import math
import random
import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError
from botocore.stub import ANY, Stubber
from msgspec import structs

from shared import wiring
from shared.bounds import BOUNDS, cut
from shared.codec import Json
from shared.errors import StoreTooLarge, StoreUnavailable
from shared.record import Record
from shared.store import Item, Store, Superseded, Table, read_whole
from shared.store.item import GZIP_ABOVE_BYTES, MAX_NOTIFY, MAX_VALUE_BYTES, digest
from shared.task import Task
from tests.conftest import RETENTION_SECONDS, TABLE
from tests.support.clock import Clock
from tests.support.damage import damage_item
from tests.support.memory_store import MemoryStore

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TASK = Task("example", "a")
EXACT: tuple[Json, ...] = (
    *(30.40, 0.1 + 0.2, 1e-7, 1e200, 5e-324, int("9" * 39), -(2**63), 0, 3, 1.5, 1e22),
    *([], {}, "", {"": ""}, {"empty": {"text": "", "list": [], "object": {}}}, None, True, False),
    *("Ünïcødé 名前 \u0000 \ud800", [[1, [2.5, [None, {"a": [{}]}]]]]),
)


def nested(depth: int) -> Json:
    value: Json = 1.5
    for _ in range(depth):
        value = [value]
    return value


COMPRESSED: Json = [math.pi, 5e-324, {"": [[]]}] * (GZIP_ABOVE_BYTES // 20)
VALUES = (*EXACT, nested(40), COMPRESSED)


@pytest.fixture
def raw(dynamodb: "DynamoDBClient") -> Callable[[], dict[str, Any]]:
    """The item's attributes as DynamoDB has them."""
    return lambda: dynamodb.get_item(TableName=TABLE, Key={"task_id": {"S": TASK.id}})["Item"]


@pytest.fixture
def real(dynamodb: "DynamoDBClient") -> Store:
    """The real store, for what the double has no part in."""
    return Store(Table(dynamodb, TABLE), RETENTION_SECONDS)


def begin(store: Store, clock: Clock, task: Task = TASK, **options: Any) -> Item:
    item = store.begin(task, store.get(task, clock()), options.pop("input_", {}), clock(), **options)
    assert item
    return item


def get(store: Store, clock: Clock) -> Item:
    item = store.get(TASK, clock())
    assert item
    return item


def record(item: Item, **learned: Any) -> Record:
    return Record(generation=item.generation, created_at=item.created_at, input=item.input, **learned)


def failed(reason: str = "upstream", error: Json = None, *, refused: bool = False) -> dict[str, Json]:
    return {"reason": reason, "error": error, "refused": refused}


def incompressible(size: int) -> str:
    return "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=size))


# --- begin


def test_there_is_nothing_at_first(store: Store, clock: Clock) -> None:
    assert store.get(TASK, clock()) is None
    assert list(store.open_since("example", clock())) == []


def test_beginning_makes_a_pending_item_of_a_generation_above_the_clock(store: Store, clock: Clock) -> None:
    item = begin(store, clock, input_={"q": 1})
    assert (item.task, item.status, item.generation) == (TASK, "pending", clock() + 1)
    assert (item.created_at, item.updated_at) == (clock(), clock())
    assert (item.input, item.input_digest) == ({"q": 1}, digest({"q": 1}))
    assert (item.completed_at, item.expires_at, item.data, item.error) == (None,) * 4
    assert (item.outputs, item.partial, item.submitted_at, item.resubmits) == (None, None, None, 0)
    assert store.get(TASK, clock()) == item


def test_of_two_who_saw_nothing_one_begins_and_an_open_item_cannot_be_begun_again(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    for seen in (None, item):
        assert store.begin(TASK, seen, {}, clock()) is None
    assert store.get(TASK, clock()) == item


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_of_two_who_saw_the_same_end_one_begins_the_next_generation(store: Store, clock: Clock, end: str) -> None:
    item = begin(store, clock, input_={"old": True})
    store.save(TASK, record(item, outputs={"job": 1}, partial={"p": 1}, submitted_at=clock(), resubmits=1), clock())
    {
        "complete": lambda: store.complete(TASK, item.generation, {"kept": True}, clock()),
        "fail": lambda: store.fail(TASK, item.generation, failed(), clock()),
        "cancel": lambda: store.cancel(TASK, item.generation, clock()),
    }[end]()
    seen = store.get(TASK, clock())
    clock.advance(5)
    following = store.begin(TASK, seen, {"new": True}, clock())
    assert store.begin(TASK, seen, {}, clock()) is None
    assert following
    assert (following.generation, following.status) == (item.generation + 1, "pending")
    assert (following.input, following.input_digest) == ({"new": True}, digest({"new": True}))
    assert (following.created_at, following.updated_at) == (clock(), clock())
    assert (following.completed_at, following.expires_at, following.error) == (None,) * 3
    assert (following.outputs, following.partial, following.submitted_at, following.resubmits) == (None, None, None, 0)
    assert following.data == ({"kept": True} if end == "complete" else None)


def test_a_generation_that_somebody_else_has_begun_and_ended_is_not_the_one_seen(store: Store, clock: Clock) -> None:
    first = begin(store, clock)
    store.cancel(TASK, first.generation, clock())
    seen = store.get(TASK, clock())
    second = begin(store, clock)
    store.cancel(TASK, second.generation, clock())
    assert store.begin(TASK, seen, {}, clock()) is None


def test_beginning_can_keep_the_job(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.save(TASK, record(item, outputs={"job": 1}), clock())
    store.fail(TASK, item.generation, failed(), clock())
    assert begin(store, clock, keep_outputs=True).outputs == {"job": 1}


# --- TTL


def test_finished_items_expire_in_seconds_and_open_ones_never(real: Store, clock: Clock, raw: Any) -> None:
    item = begin(real, clock)
    assert "expires_at" not in raw()
    real.complete(TASK, item.generation, {}, clock())
    assert raw()["expires_at"] == {"N": str(clock() // 1000 + RETENTION_SECONDS)}
    begin(real, clock)
    assert "expires_at" not in raw()


def test_an_expired_item_that_is_still_there_is_absent_and_its_data_does_not_come_back(
    store: Store, clock: Clock
) -> None:
    item = begin(store, clock)
    store.complete(TASK, item.generation, {"old": 1}, clock())
    clock.advance(RETENTION_SECONDS - 1)
    assert store.get(TASK, clock())
    clock.advance(1)
    assert store.get(TASK, clock()) is None
    following = begin(store, clock)
    assert following.data is None
    assert following.generation == item.generation + 1


def test_an_item_that_is_not_expired_is_not_taken_for_absent(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.complete(TASK, item.generation, {}, clock())
    assert store.begin(TASK, None, {}, clock()) is None


# --- save and the ends


def test_saving_keeps_what_was_learned(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    clock.advance(3)
    learned = record(item, outputs={"job": "j"}, partial={"p": [1]}, submitted_at=clock(), resubmits=2)
    assert store.save(TASK, learned, clock()) is None
    known = {name: getattr(learned, name) for name in ("outputs", "partial", "submitted_at", "resubmits")}
    assert store.get(TASK, clock()) == dataclasses.replace(item, updated_at=clock(), replied_at=clock(), **known)


def test_a_record_without_a_job_leaves_the_one_that_is_there(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.save(TASK, record(item, outputs={"job": "j"}), clock())
    store.save(TASK, record(item, partial={"p": 1}), clock())
    saved = get(store, clock)
    assert (saved.outputs, saved.partial) == ({"job": "j"}, {"p": 1})


def test_a_resubmit_removes_the_job(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.save(TASK, record(item, outputs={"job": "j"}, partial={"p": 1}), clock())
    store.save(TASK, record(item, outputs=None, partial={"p": 1}, resubmits=1), clock(), resubmit=True)
    saved = get(store, clock)
    assert (saved.outputs, saved.resubmits, saved.partial) == (None, 1, {"p": 1})


def lost_and_begun_again(store: Store, clock: Clock) -> Item:
    """An item whose first job was lost, and whose second one is open."""
    item = begin(store, clock)
    store.save(TASK, record(item, outputs={"job": 1}), clock())
    store.save(TASK, record(item, resubmits=1), clock(), resubmit=True)
    store.save(TASK, record(item, outputs={"job": 2}, resubmits=1), clock())
    return get(store, clock)


@pytest.mark.promise("once", "a late worker does not write a lost job over the one that followed")
@pytest.mark.parametrize("resubmits", [0, 1])
def test_who_still_knows_a_lost_job_overwrites_nothing_of_the_next_one(
    store: Store, clock: Clock, resubmits: int
) -> None:
    there = lost_and_begun_again(store, clock)
    stale = record(there, outputs={"job": 1} if resubmits == 0 else None, partial={"p": 1}, resubmits=resubmits)
    assert store.save(TASK, stale, clock(), resubmit=resubmits == 1) == Superseded(there)
    assert store.get(TASK, clock()) == there


def test_what_is_learned_of_the_next_job_is_kept(store: Store, clock: Clock) -> None:
    there = lost_and_begun_again(store, clock)
    assert store.save(TASK, record(there, partial={"p": 2}, resubmits=1), clock()) is None
    assert store.save(TASK, record(there, resubmits=2), clock(), resubmit=True) is None
    saved = get(store, clock)
    assert (saved.outputs, saved.resubmits) == (None, 2)


def test_outputs_that_are_empty_are_a_job_all_the_same(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.save(TASK, record(item, outputs={}), clock())
    assert get(store, clock).outputs == {}


def test_completing_stores_the_data_as_it_is_and_drops_what_led_there(store: Store, clock: Clock) -> None:
    item = begin(store, clock, input_={"q": 1})
    store.save(TASK, record(item, outputs={"job": 1}, partial={"p": 1}, submitted_at=clock()), clock())
    clock.advance(60)
    done = store.complete(TASK, item.generation, {"d": 1}, clock())
    assert isinstance(done, Item)
    assert done == store.get(TASK, clock())
    assert (done.status, done.data, done.input) == ("completed", {"d": 1}, {"q": 1})
    assert (done.completed_at, done.updated_at) == (clock(), clock())
    assert done.expires_at == clock() // 1000 + RETENTION_SECONDS
    assert (done.partial, done.outputs, done.error) == (None, None, None)


def test_failing_stores_the_error_and_keeps_job_partial_and_older_data(store: Store, clock: Clock) -> None:
    first = begin(store, clock)
    store.complete(TASK, first.generation, {"old": 1}, clock())
    item = begin(store, clock)
    store.save(TASK, record(item, outputs={"job": 1}, partial={"p": 1}), clock())
    refusal = failed(error={"code": 7}, refused=True)
    ended = store.fail(TASK, item.generation, refusal, clock())
    assert isinstance(ended, Item)
    assert ended == store.get(TASK, clock())
    assert (ended.status, ended.error, ended.refused) == ("failed", refusal, True)
    assert (ended.outputs, ended.partial, ended.data) == ({"job": 1}, {"p": 1}, {"old": 1})
    assert (ended.completed_at, ended.expires_at) == (clock(), clock() // 1000 + RETENTION_SECONDS)


def test_cancelling_ends_the_generation(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    ended = store.cancel(TASK, item.generation, clock())
    assert isinstance(ended, Item)
    assert ended == store.get(TASK, clock())
    assert (ended.status, ended.completed_at) == ("cancelled", clock())
    assert ended.expires_at == clock() // 1000 + RETENTION_SECONDS


# --- the first writer wins


def writes(store: Store, item: Item, generation: int, now: int) -> list[Callable[[], Item | Superseded | None]]:
    late = structs.replace(record(item, outputs={"late": 1}), generation=generation)
    return [
        lambda: store.save(TASK, late, now),
        lambda: store.complete(TASK, generation, {"late": 1}, now),
        lambda: store.fail(TASK, generation, failed("late"), now),
        lambda: store.cancel(TASK, generation, now),
    ]


@pytest.mark.promise("once", "the first end that is stored stays; a late write changes nothing")
@pytest.mark.parametrize("first", [1, 2, 3])
def test_after_an_end_no_write_changes_anything_and_each_is_told_what_stands_there(
    store: Store, clock: Clock, first: int
) -> None:
    item = begin(store, clock)
    assert isinstance(writes(store, item, item.generation, clock())[first](), Item)
    ended = store.get(TASK, clock())
    clock.advance(5)
    for write in writes(store, item, item.generation, clock()):
        assert write() == Superseded(ended)
    assert store.get(TASK, clock()) == ended


@pytest.mark.parametrize("offset", [-1, 1])
def test_no_write_of_another_generation_changes_anything(store: Store, clock: Clock, offset: int) -> None:
    item = begin(store, clock)
    for write in writes(store, item, item.generation + offset, clock()):
        assert write() == Superseded(item)
    assert store.get(TASK, clock()) == item


def test_no_write_makes_an_item(store: Store, clock: Clock) -> None:
    other = begin(store, clock, Task("example", "other"))
    for write in writes(store, other, other.generation, clock()):
        assert write() == Superseded(None)
    assert store.get(TASK, clock()) is None


# --- numbers survive, on every path


def paths(store: Store, clock: Clock, value: Json) -> dict[str, Json]:
    """The value sent through every write path, as each gives it back."""
    found = {}
    item = begin(store, clock, input_={"v": value})
    found["begin"] = item.input["v"]
    store.save(TASK, record(item, outputs={"v": value}, partial=value), clock())
    saved = get(store, clock)
    assert saved.outputs
    found |= {"input": saved.input["v"], "outputs": saved.outputs["v"], "partial": saved.partial}
    store.fail(TASK, item.generation, failed(error=value), clock())
    ended = get(store, clock)
    found["error"] = ended.error["error"]
    following = begin(store, clock)
    store.complete(TASK, following.generation, value, clock())
    done = get(store, clock)
    found["data"] = done.data
    superseded = store.cancel(TASK, following.generation, clock())
    assert isinstance(superseded, Superseded)
    assert superseded.item
    found["superseded"] = superseded.item.data
    return found


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_every_value_comes_back_as_it_was_on_every_path_compressed_or_not(
    store: Store, clock: Clock, value: Json
) -> None:
    for path, found in paths(store, clock, value).items():
        assert repr(found) == repr(value), path  # which tells 1 from 1.0 and True, as `==` does not


def test_json_texts_stand_in_the_item_and_above_4_kb_they_are_compressed(real: Store, clock: Clock, raw: Any) -> None:
    item = begin(real, clock, input_={"x": 30.40})
    assert raw()["input"] == {"S": '{"x":30.4}'}
    small, large = "a" * (GZIP_ABOVE_BYTES - 2), "a" * (GZIP_ABOVE_BYTES - 1)
    real.save(TASK, record(item, partial=small), clock())
    assert raw()["partial"] == {"S": f'"{small}"'}
    real.save(TASK, record(item, partial=large), clock())
    assert gzip.decompress(raw()["partial"]["B"]).decode() == f'"{large}"'
    assert len(raw()["partial"]["B"]) < 100


# --- too large


def test_bytes_count_not_characters_and_compressed_they_may_fit(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    three_bytes_each = "名" * 150_000
    store.complete(TASK, item.generation, three_bytes_each, clock())
    assert read_whole(get(store, clock)).data == three_bytes_each


def test_values_that_do_not_fit_are_refused_and_nothing_is_written(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    large = {name: incompressible(2 * size) for name, size in MAX_VALUE_BYTES.items()}
    with pytest.raises(StoreTooLarge):
        store.complete(TASK, item.generation, large["data"], clock())
    for learned in ({"partial": large["partial"]}, {"outputs": {"job": large["outputs"]}}):
        with pytest.raises(StoreTooLarge):
            store.save(TASK, record(item, **learned), clock())
    with pytest.raises(StoreTooLarge):
        store.begin(Task("example", "b"), None, {"x": large["input"]}, clock())
    assert store.get(TASK, clock()) == item


def test_an_oversized_error_is_cut_but_the_failure_is_stored(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.fail(TASK, item.generation, failed("upstream", incompressible(2 * MAX_VALUE_BYTES["error"])), clock())
    ended = get(store, clock)
    assert ended.status == "failed"
    assert ended.error == failed("upstream", cut(incompressible(2 * MAX_VALUE_BYTES["error"]), "detail"))


@pytest.mark.parametrize("over", [0, 1])
def test_an_error_is_stored_whole_up_to_its_bound(
    store: Store, clock: Clock, over: int, caplog: pytest.LogCaptureFixture
) -> None:
    item, said = begin(store, clock), "d" * (BOUNDS["detail"].most - 2 + over)
    store.fail(TASK, item.generation, failed("too-many-resubmits", said), clock())
    assert (get(store, clock).error["error"] == said) is not bool(over)


# --- what is open


def test_open_items_are_listed_by_age_until_they_end(store: Store, clock: Clock) -> None:
    begun = {}
    for name in "abcd":
        begun[name] = begin(store, clock, Task("example", name))
        clock.advance(10)
    begin(store, clock, Task("coin", "other"))
    store.complete(Task("example", "b"), begun["b"].generation, {}, clock())
    found = list(store.open_since("example", begun["d"].updated_at))
    assert set(found) == {(Task("example", name), begun[name].generation) for name in ("a", "c")}


def test_a_write_makes_an_open_item_young_again(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    clock.advance(60)
    assert list(store.open_since("example", clock())) == [(TASK, item.generation)]
    store.save(TASK, record(item, partial=1), clock())
    assert list(store.open_since("example", clock())) == []


def test_a_revived_item_is_listed_under_its_new_generation(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.fail(TASK, item.generation, failed(), clock())
    assert list(store.open_since("example", clock() + 1)) == []
    begin(store, clock)
    assert list(store.open_since("example", clock() + 1)) == [(TASK, item.generation + 1)]


def test_every_page_of_open_items_is_read(
    dynamodb: "DynamoDBClient", real: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        begin(real, clock, Task("example", f"{number}"))
    monkeypatch.setattr(dynamodb, "query", partial(dynamodb.query, Limit=2))
    found = [one[0].name for one in real.open_since("example", clock() + 1) if isinstance(one, tuple)]
    assert sorted(found) == sorted(f"{number}" for number in range(40))


# --- errors


@pytest.fixture
def stubbed(dynamodb: "DynamoDBClient", real: Store) -> Any:
    with Stubber(dynamodb) as stubber:
        yield stubber


def test_an_item_that_dynamodb_refuses_for_its_size_is_too_large(real: Store, clock: Clock, stubbed: Stubber) -> None:
    message = "Item size to update has exceeded the maximum allowed size"
    stubbed.add_client_error("update_item", "ValidationException", message)
    with pytest.raises(StoreTooLarge):
        real.complete(TASK, 1, {}, clock())


ERRORS = ("ProvisionedThroughputExceeded", "Throttling", "ResourceNotFound", "Validation", "AccessDenied")


@pytest.mark.parametrize("code", ["InternalServerError", *(f"{error}Exception" for error in ERRORS)])
def test_what_dynamodb_answers_with_an_error_is_unavailable(
    real: Store, clock: Clock, stubbed: Stubber, code: str
) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("get_item", lambda: real.get(TASK, clock())),
        ("update_item", lambda: real.begin(TASK, None, {}, clock())),
        ("update_item", lambda: real.complete(TASK, 1, {}, clock())),
        ("query", lambda: list(real.open_since("example", clock()))),
    ]
    for operation, call in calls:
        stubbed.add_client_error(operation, code, "something else")
        if code == "ValidationException" and operation == "update_item":  # perhaps the item is damaged: it is looked at
            stubbed.add_response("get_item", {})
        with pytest.raises(StoreUnavailable, match=code):
            call()


@pytest.mark.parametrize("error", [EndpointConnectionError, ConnectTimeoutError])
def test_a_dynamodb_that_cannot_be_reached_is_unavailable(
    dynamodb: "DynamoDBClient", real: Store, clock: Clock, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb, "get_item", Mock(side_effect=error(endpoint_url="http://dynamodb")))
    with pytest.raises(StoreUnavailable):
        real.get(TASK, clock())


def test_a_copy_of_the_double_goes_its_own_way(clock: Clock) -> None:
    store = MemoryStore(RETENTION_SECONDS)
    item = begin(store, clock)  # type: ignore[arg-type]
    twin = store.copy()
    twin.cancel(TASK, item.generation, clock())
    assert store.get(TASK, clock()) == item


# --- consistency and threads


def test_many_are_read_by_one_consistent_call_and_each_is_as_if_it_was_read_by_itself(
    real: Store, clock: Clock, dynamodb: "DynamoDBClient"
) -> None:
    tasks = [Task("example", name) for name in ("open", "expired", "damaged", "absent")]
    begun = [begin(real, clock, task) for task in tasks[:3]]
    real.cancel(tasks[1], begun[1].generation, clock())
    damage_item(dynamodb, tasks[2], "group a map")
    clock.advance(RETENTION_SECONDS + 1)
    asked: list[Any] = []
    dynamodb.meta.events.register("before-parameter-build.dynamodb", lambda params, **_: asked.append(params))
    found = real.get_many(tasks, clock())
    [call] = asked
    assert call["RequestItems"][TABLE]["ConsistentRead"] is True
    assert found == {task: real.get(task, clock()) for task in (tasks[0], tasks[1], tasks[3])}
    assert [one and one.status for one in found.values()] == ["pending", None, None]


def test_what_a_read_of_many_has_no_room_for_is_left_out(real: Store, clock: Clock, dynamodb: "DynamoDBClient") -> None:
    here, later = Task("example", "here"), Task("example", "later")
    begin(real, clock, here)

    def full(parsed: Any, **_: Any) -> None:
        parsed["UnprocessedKeys"] = {TABLE: {"Keys": [{"task_id": {"S": later.id}}], "ConsistentRead": True}}

    dynamodb.meta.events.register("after-call.dynamodb.BatchGetItem", full)
    assert real.get_many([here, later], clock()) == {here: real.get(here, clock())}


def test_get_reads_consistently_and_writes_ask_for_what_stands_there(
    real: Store, clock: Clock, stubbed: Stubber
) -> None:
    stubbed.add_response("get_item", {}, {"TableName": TABLE, "Key": ANY, "ConsistentRead": True})
    assert real.get(TASK, clock()) is None


def test_the_client_is_made_once_and_serves_32_threads_from_a_cold_start(
    dynamodb: "DynamoDBClient", clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLE_NAME", TABLE)
    store = wiring.store()
    assert wiring.store() is store
    assert wiring.dynamodb() is wiring.dynamodb()
    with ThreadPoolExecutor(32) as pool:
        begun = list(pool.map(lambda number: begin(store, clock, Task("example", f"{number}")), range(32)))
    assert all(item.status == "pending" for item in begun)
    assert len(list(store.open_since("example", clock() + 1))) == 32


def test_a_call_that_botocore_repeats_knows_the_generation_that_it_has_begun(
    real: Store, dynamodb: "DynamoDBClient", clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(**arguments: Any) -> Any:
        update(**arguments)  # whose reply was lost
        return update(**arguments)

    update = dynamodb.update_item
    monkeypatch.setattr(dynamodb, "update_item", twice)
    begun = real.begin(TASK, None, {"a": 1}, clock())
    monkeypatch.undo()
    assert begun is not None
    assert begun == real.get(TASK, clock())
    assert real.begin(TASK, None, {"a": 1}, clock()) is None


# --- what comes by itself


@pytest.mark.parametrize("resubmits", [0, 1])
def test_what_came_by_itself_is_kept_beside_the_attempt(store: Store, clock: Clock, resubmits: int) -> None:
    item = begin(store, clock)
    asked = record(item, resubmits=resubmits, submitted_at=5)
    if resubmits:
        store.save(TASK, asked, clock())
    known = structs.replace(asked, outputs={"id": "j"}, partial={"a": 1}, submitted_at=9)
    assert store.learn(TASK, known, clock()) is None
    after = get(store, clock)
    assert (after.outputs, after.partial, after.resubmits) == ({"id": "j"}, {"a": 1}, resubmits)
    assert after.submitted_at == (5 if resubmits else None)


def test_what_came_by_itself_and_says_nothing_removes_nothing(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    asked = record(item, outputs={"id": "j"}, partial=1)
    store.save(TASK, asked, clock())
    store.learn(TASK, structs.replace(asked, outputs=None, partial=None), clock())
    assert (get(store, clock).outputs, get(store, clock).partial) == ({"id": "j"}, 1)


def test_what_came_of_a_job_that_is_lost_by_now_changes_nothing(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    asked = record(item, submitted_at=5, resubmits=1)
    store.save(TASK, asked, clock(), resubmit=True)
    before = get(store, clock)
    for resubmits in (0, 2):
        late = structs.replace(asked, resubmits=resubmits, outputs={"id": "old"}, partial=1)
        assert store.learn(TASK, late, clock()) == Superseded(before)
    assert get(store, clock) == before


NEWER, OLDER = 1_000, -1_000


@pytest.mark.parametrize("known", ["a reply", "news"])
def test_news_that_was_signed_before_what_is_known_changes_nothing(store: Store, clock: Clock, known: str) -> None:
    """C30: whatever it was that is known, and whichever of the two came first."""
    asked = record(begin(store, clock), submitted_at=5)
    now = clock()
    if known == "a reply":
        store.save(TASK, structs.replace(asked, partial=2), now)
    else:
        store.learn(TASK, structs.replace(asked, partial=2), now + 5_000, told_at=now)
    before = get(store, clock)
    for signed_at in (now + OLDER, now):
        assert store.learn(TASK, structs.replace(asked, partial=1), now, told_at=signed_at) == Superseded(before)
    assert get(store, clock) == before
    assert store.learn(TASK, structs.replace(asked, partial=3), now, told_at=now + NEWER) is None
    assert (get(store, clock).partial, get(store, clock).told_at) == (3, now + NEWER)


@pytest.mark.parametrize(("seen", "there"), [({}, {}), ({}, {"partial": None}), ({"outputs": {"id": "j"}}, None)])
def test_news_replaces_only_what_was_seen(store: Store, clock: Clock, seen: Any, there: Any) -> None:
    asked = record(begin(store, clock), submitted_at=5)
    if there != {}:
        store.save(TASK, structs.replace(asked, **(seen if there is None else there)), clock())
    known, told = structs.replace(asked, **seen), structs.replace(asked, outputs={"id": "told"}, partial={"told": 1})
    other = structs.replace(known, partial="another")
    before = get(store, clock)
    assert store.learn(TASK, told, clock(), seen=other) == Superseded(before)
    assert store.learn(TASK, told, clock(), seen=known) is None
    assert (get(store, clock).outputs, get(store, clock).partial) == ({"id": "told"}, {"told": 1})


def test_the_next_generation_knows_no_news(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    store.learn(TASK, record(item, partial=1), clock(), told_at=clock() + NEWER)
    store.complete(TASK, item.generation, 1, clock())
    following = store.begin(TASK, get(store, clock), {}, clock())
    assert following
    assert (following.told_at, following.replied_at) == (None, None)


# --- whom to tell


def test_each_workflow_is_kept_once_until_the_task_ends(store: Store, clock: Clock) -> None:
    item = begin(store, clock, notify="k:0")
    assert item.notify == {"k:0"}
    for target in ("k:1", "k:1", "k:0"):
        assert store.notify(TASK, item.generation, target) is None
    assert get(store, clock).notify == {"k:0", "k:1"}
    store.cancel(TASK, item.generation, clock())
    assert get(store, clock).notify == frozenset()


def test_no_more_workflows_than_fit_are_kept(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    for number in range(MAX_NOTIFY):
        assert store.notify(TASK, item.generation, f"k:{number}") is None
    full = get(store, clock)
    assert store.notify(TASK, item.generation, "k:one more") == Superseded(full)
    assert store.notify(TASK, item.generation, "k:0") is None
    assert get(store, clock) == full


def test_nobody_is_added_to_a_task_that_has_ended_or_begun_again(store: Store, clock: Clock) -> None:
    item = begin(store, clock)
    assert store.notify(TASK, item.generation + 1, "k:0") == Superseded(item)
    store.complete(TASK, item.generation, 1, clock())
    done = get(store, clock)
    assert store.notify(TASK, item.generation, "k:0") == Superseded(done)
    assert store.learn(TASK, record(item), clock()) == Superseded(done)
    assert get(store, clock) == done
