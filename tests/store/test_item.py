"""The item's attributes, and JSON values in them that come back exactly."""

import dataclasses
import random
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer

from shared.bounds import BOUNDS
from shared.codec import MAX_DEPTH, dumps
from shared.errors import StoreTooLarge
from shared.store import Item
from shared.store.item import MAX_NOTIFY, MAX_VALUE_BYTES, SHARDS, compressed, digest, open_key, open_keys, packed
from shared.store.rows import parse
from shared.task import Task
from tests.support.items import pending_item

TASK = Task("example", "a")
ATTRIBUTES: dict[str, Any] = {
    "task_id": {"S": "example/a"},
    "status": {"S": "pending"},
    "generation": {"N": "7"},
    "created_at": {"N": "1000"},
    "updated_at": {"N": "2000"},
    "input_digest": {"S": "d"},
    "input": {"S": "{}"},
    "open": {"S": "example#0"},
}


def item(**attributes: Any) -> Item:
    parsed = parse(ATTRIBUTES | {name: TypeSerializer().serialize(value) for name, value in attributes.items()})
    assert parsed is not None
    return parsed


def test_no_attributes_are_no_item() -> None:
    assert parse(None) is parse({}) is None


def test_what_the_item_lacks_is_none() -> None:
    assert item() == pending_item(TASK, 1000, generation=7, updated_at=2000, input_digest="d")


def test_numbers_and_the_attempt_are_read() -> None:
    read = item(completed_at=3, expires_at=4, attempt={"submitted_at": 5, "resubmits": 6})
    assert (read.completed_at, read.expires_at, read.submitted_at, read.resubmits) == (3, 4, 5, 6)
    assert item(attempt={"resubmits": 1}).submitted_at is None


def test_data_as_deep_as_is_taken_from_outside_come_back() -> None:
    value: Any = "x"
    for _ in range(MAX_DEPTH):
        value = [value]
    assert item(data=packed(value, "data")).data == value


def test_the_same_value_is_packed_to_the_same_bytes() -> None:
    assert packed("y" * 9000, "data") == packed("y" * 9000, "data")


@pytest.mark.parametrize("name", sorted(MAX_VALUE_BYTES))
def test_a_value_over_its_limit_is_refused_before_anything_is_sent(name: str) -> None:
    incompressible = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(200_000))
    with pytest.raises(StoreTooLarge, match=f"{name} takes .* bytes.*, the limit is {MAX_VALUE_BYTES[name]}"):
        packed(incompressible, name)


@pytest.mark.parametrize("name", sorted(MAX_VALUE_BYTES))
def test_a_value_that_would_compress_well_is_measured_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C12: nine megabytes of one letter compress to nine kilobytes; nothing is compressed to find that out."""
    quotes = 4 if name == "data" else 2  # as an answer carries it
    fits = "d" * (BOUNDS[name].most - quotes)
    assert len(packed(fits, name)) < MAX_VALUE_BYTES[name]
    monkeypatch.setattr("shared.store.item.gzip", None)
    for too_large in (fits + "d", "d" * 9_000_000):
        with pytest.raises(StoreTooLarge, match=f"{name} takes .* bytes uncompressed, the limit is"):
            packed(too_large, name)


@pytest.mark.parametrize("high", [127, 0x7FF, 0xD7FF, 0x10FFFF])
def test_even_noise_is_smaller_compressed_so_no_value_takes_more_than_its_bound(high: int) -> None:
    noise = random.Random(1)
    text = dumps("".join(chr(noise.randint(high // 2, high)) for _ in range(2500))).encode()
    assert len(compressed(text)) <= len(text)


def test_all_bounds_together_fit_into_an_item() -> None:
    """C12: DynamoDB counts names and values of attributes, 3 bytes and one for each entry more for a map."""
    largest = {
        "task_id": 64 + 1 + BOUNDS["name"].most, "status": 9, "open": 64 + 3, "input_digest": 64, "begun_by": 16,
        "group": BOUNDS["group"].most, "notify": BOUNDS["notify"].most * MAX_NOTIFY, "holder": 8, "attempt": 100,
        **dict.fromkeys(("generation", "created_at", "updated_at", "completed_at", "expires_at", "erased_at"), 21),
        **dict.fromkeys(("turn", "finished", "crashes", "news", "told_at"), 21), **MAX_VALUE_BYTES,
    }  # fmt: skip
    assert set(Item.__slots__) - {"task", "submitted_at", "resubmits", "replied_at"} <= largest.keys()
    assert sum(len(name) + size for name, size in largest.items()) < 400 * 1024


def test_the_size_is_counted_in_bytes_not_characters() -> None:
    three_bytes_each = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(150_000))
    with pytest.raises(StoreTooLarge):
        packed(three_bytes_each, "data")
    packed("名" * (BOUNDS["partial"].most // 3 - 1), "partial")
    with pytest.raises(StoreTooLarge):
        packed("名" * (BOUNDS["partial"].most // 3), "partial")


@pytest.mark.parametrize(("now", "expired"), [(9_999, False), (10_000, True), (10_999, True)])
def test_an_item_is_expired_from_its_second_on(now: int, expired: bool) -> None:
    assert item(expires_at=10).expired(now) is expired
    assert item().expired(now) is False


def test_only_a_failure_of_the_first_attempt_counts_as_refused() -> None:
    failed = dataclasses.replace(item(), status="failed", error={"reason": "upstream", "refused": True})
    assert failed.refused is True
    for error in ({"reason": "upstream", "refused": False}, {"reason": "upstream"}, None):
        assert dataclasses.replace(failed, error=error).refused is False
    assert dataclasses.replace(failed, status="cancelled").refused is False


def test_the_digest_of_an_input_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest({"a": 1}) != digest({"a": 1.0})


def test_open_items_are_spread_over_the_shards_of_their_provider() -> None:
    keys = {open_key(Task("example", f"task {i}")) for i in range(500)}
    assert keys == set(open_keys("example"))
    assert len(keys) == SHARDS
    assert open_key(TASK) == open_key(Task("example", "a"))
    assert keys.isdisjoint(open_keys("coin"))
