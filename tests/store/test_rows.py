"""No attribute of a stored item is trusted: what is damaged is named, and never told (C4)."""

import gzip
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from shared.bounds import BOUNDS
from shared.errors import ItemUnreadable
from shared.record import Record
from shared.store import Store, Table, rows
from shared.store.item import MAX_TEXT_BYTES, digest
from shared.store.mend import mend
from shared.store.rows import inflated, parse, parse_row, read, wired
from shared.task import Task
from shared.work.keeper import record_of
from tests.conftest import RETENTION_SECONDS, TABLE
from tests.store.test_item import ATTRIBUTES
from tests.support.clock import Clock
from tests.support.damage import DAMAGES, POINTER, SECRET, damage_item, damaged, every_damage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TASK = Task("example", "a")


@every_damage
def test_what_is_damaged_is_named_and_not_told(damage: str) -> None:
    with pytest.raises(ItemUnreadable, match="the stored task example/a") as caught:
        parse(damaged(ATTRIBUTES, damage))
    assert caught.value.attribute == DAMAGES[damage][0]
    assert SECRET not in f"{caught.value!r} {caught.value.facts}"


@every_damage
def test_what_else_stands_there_is_read_all_the_same(damage: str) -> None:
    known, faulty = read(damaged(ATTRIBUTES | {"outputs": {"S": '{"id":"j"}'}}, damage))
    assert faulty == [DAMAGES[damage][0]]
    assert known["task_id"] == TASK
    assert faulty == ["outputs"] or known["outputs"] == {"id": "j"}


def test_attributes_that_a_later_version_may_write_are_let_be() -> None:
    assert parse(ATTRIBUTES | {"later": {"L": []}, "submitted_at": {"S": "not ours"}}) == parse(ATTRIBUTES)
    assert parse(ATTRIBUTES | {"data": {"M": POINTER}})
    assert parse(ATTRIBUTES | {"attempt": {"M": {"resubmits": {"N": "1"}, "later": {"S": ""}}}})


def test_values_are_written_as_dynamodb_wants_them() -> None:
    values = {"S": "é", "N": "253402300799999", "B": b"\x1f\x8b"}
    assert [wired("é"), wired(253_402_300_799_999), wired(b"\x1f\x8b")] == [{name: values[name]} for name in values]
    assert wired({"b", "a"}) == {"SS": ["a", "b"]}
    assert wired({"resubmits": 1, "submitted_at": 2}) == {"M": {"resubmits": {"N": "1"}, "submitted_at": {"N": "2"}}}


@pytest.mark.parametrize("value", [None, 1.5, [], set(), {1}, {"a": None}])
def test_a_value_of_no_kind_that_an_item_has_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match="no attribute is"):
        wired(value)


@pytest.fixture
def store(dynamodb: "DynamoDBClient") -> Store:
    """The double has no wire form that could be damaged."""
    return Store(Table(dynamodb, TABLE), RETENTION_SECONDS)


@pytest.mark.parametrize(
    "task_id",
    ["", "example", "example/", "/a", "EXAMPLE/a", "a b/c", "example/.", "example/\x07", "example/" + "x" * 257,
     "example/e\u0301"],
)  # fmt: skip
def test_a_key_that_no_request_can_name_is_no_task(task_id: str) -> None:
    for reads in (parse, lambda row: parse_row(row, "example")):
        with pytest.raises(ItemUnreadable) as caught:
            reads(ATTRIBUTES | {"task_id": {"S": task_id}})
        assert caught.value.facts == {"task_id": task_id, "attribute": "task_id"}


@pytest.mark.parametrize("key", [{"N": "1"}, {"L": []}, 7, None, {}])
def test_a_key_of_another_type_is_named_by_nothing(key: Any) -> None:
    with pytest.raises(ItemUnreadable) as caught:
        parse(ATTRIBUTES | {"task_id": key})
    assert caught.value.facts == {"task_id": "?", "attribute": "task_id"}


@pytest.mark.parametrize("attribute", [None, [], "S", 7, {}, {"S": "x", "N": "1"}, {"S": 7}, {"B": "x"}, {"SS": 7}])
@pytest.mark.parametrize("name", ["status", "group", "notify", "partial", "generation", "attempt", "open"])
def test_what_is_not_even_an_attribute_is_damaged_too(name: str, attribute: Any) -> None:
    with pytest.raises(ItemUnreadable) as caught:
        parse(ATTRIBUTES | {name: attribute})
    assert caught.value.attribute == name


@pytest.mark.parametrize(
    ("changes", "attribute"),
    [({"generation": {"S": "7"}}, "generation"), ({"generation": None}, "generation"),
     ({"generation": {"N": "0.5"}}, "generation"), ({"task_id": {"S": "coin/a"}}, "open")],
)  # fmt: skip
def test_a_row_of_the_index_is_trusted_no_more(changes: dict[str, Any], attribute: str) -> None:
    assert parse_row(ATTRIBUTES, "example") == (TASK, 7)
    with pytest.raises(ItemUnreadable) as caught:
        parse_row({name: value for name, value in (ATTRIBUTES | changes).items() if value}, "example")
    assert caught.value.attribute == attribute


def test_a_text_is_unpacked_up_to_a_limit_above_all_that_is_stored() -> None:
    text = b" " * MAX_TEXT_BYTES
    assert inflated(gzip.compress(text)) == text
    with pytest.raises(ValueError, match="too long"):
        inflated(gzip.compress(text + b" "))
    assert max(bound.most for bound in BOUNDS.values()) < MAX_TEXT_BYTES


def test_no_more_than_that_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_TEXT_BYTES", 1_000_000)
    body = gzip.compress(b" " * 50_000_000)
    tracemalloc.start()
    with pytest.raises(ValueError, match="too long"):
        inflated(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


# --- its owner does without it


def begun(store: Store, clock: Clock) -> int:
    """The generation of a task that has a job."""
    item = store.begin(TASK, None, {"customer": 42}, clock(), group="A", notify="stepFunctionsToken:A")
    assert item
    known: dict[str, Any] = {"outputs": {"id": "j-1"}, "submitted_at": 5, "partial": {"old": 1}}
    store.save(TASK, Record(**vars_of(record_of(item)) | known), clock())
    clock.advance(60)
    return item.generation


def vars_of(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@every_damage
def test_a_damaged_item_is_mended_into_a_cancelled_one_that_keeps_what_can_be_read(
    store: Store, clock: Clock, dynamodb: "DynamoDBClient", damage: str
) -> None:
    generation, attribute = begun(store, clock), DAMAGES[damage][0]
    damage_item(dynamodb, TASK, damage)
    with pytest.raises(ItemUnreadable):
        store.get(TASK, clock())
    item = mend(store, TASK, clock())
    assert item
    assert item == store.get(TASK, clock())
    assert (item.status, item.notify, item.completed_at, item.updated_at) == ("cancelled", frozenset(), *[clock()] * 2)
    assert item.generation == (generation if attribute != "generation" else clock())
    assert item.input == ({"customer": 42} if attribute != "input" else {})
    assert item.input_digest == digest(item.input)
    assert item.outputs == ({"id": "j-1"} if attribute != "outputs" else None)
    assert item.partial == ({"old": 1} if attribute != "partial" else None)
    assert item.submitted_at == (5 if attribute != "attempt" else None)
    assert list(store.open_since("example", clock() + 1)) == []
    again = store.begin(TASK, item, {}, clock())
    assert again
    assert again.generation > generation


def test_a_sound_item_is_not_mended(store: Store, clock: Clock) -> None:
    begun(store, clock)
    assert mend(store, TASK, clock()) == store.get(TASK, clock())
    assert mend(store, Task("example", "unknown"), clock()) is None


@pytest.mark.parametrize("damage", ["partial cut", "generation missing", "status a list"])
def test_what_changes_meanwhile_is_left_as_it_is(
    store: Store, clock: Clock, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    begun(store, clock)
    damage_item(dynamodb, TASK, damage)
    update = store.table.update

    def beaten(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(store.table, "update", update)
        assert mend(store, TASK, clock())
        again = store.begin(TASK, store.get(TASK, clock()), {}, clock())
        assert again
        return update(*arguments, **options)

    monkeypatch.setattr(store.table, "update", beaten)
    assert mend(store, TASK, clock() + 1) is None
    item = store.get(TASK, clock())
    assert item
    assert item.status == "pending"
