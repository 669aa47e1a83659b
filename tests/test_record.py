"""A record comes back from Redis as it was written, or is not taken for one."""

import dataclasses
import json
from typing import Any

import pytest

from shared.codec import MAX_DEPTH
from shared.errors import RecordError
from shared.record import VERSION, Record

RECORD = Record(
    generation=7,
    created_at=1_750_000_000_000,
    input={"total": 30.4, "empty": []},
    outputs={"id": "j-1"},
    partial={"a": None},
    progress=0.5,
    submitted_at=1_750_000_000_001,
    resubmits=1,
    polls=3,
    errors=2,
    attempts=6,
    reason="HTTP 500",
    saved="0123456789abcdef",
    confirmed_at=1_750_000_000_002,
)


@pytest.mark.parametrize("record", [RECORD, Record(generation=1, created_at=0, input={})])
def test_a_record_comes_back_as_it_was_written(record: Record) -> None:
    assert Record.from_text(record.to_text()) == record


def test_the_text_says_which_version_wrote_it() -> None:
    assert json.loads(RECORD.to_text())["version"] == VERSION


def test_data_as_deep_as_is_taken_from_outside_comes_back_too() -> None:
    deep: Any = "x"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    record = dataclasses.replace(RECORD, partial=deep, outputs={"all": deep})
    assert Record.from_text(record.to_text()) == record


@pytest.mark.parametrize("text", [None, "", "junk", "{", "[]", "1", "null", '"x"', "{}", '{"version": 1}'])
def test_anything_else_is_junk(text: str | None) -> None:
    with pytest.raises(RecordError) as caught:
        Record.from_text(text)
    assert not caught.value.newer


@pytest.mark.parametrize(
    "junk",
    [{"errors": None}, {"created_at": "now"}, {"generation": 1.5}, {"job_at": True}, {"outputs": []}, {"group": None}],
    ids=str,
)
def test_a_field_of_another_type_is_junk(junk: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="other types"):
        Record.from_text(json.dumps(json.loads(RECORD.to_text()) | junk))


def test_an_unknown_field_under_a_known_version_is_junk() -> None:
    fields = json.loads(RECORD.to_text()) | {"colour": "blue"}
    with pytest.raises(RecordError, match="other fields") as caught:
        Record.from_text(json.dumps(fields))
    assert not caught.value.newer


def test_a_later_version_is_said_to_be_one() -> None:
    fields = json.loads(RECORD.to_text()) | {"version": VERSION + 1, "colour": "blue"}
    with pytest.raises(RecordError, match=f"version {VERSION + 1}") as caught:
        Record.from_text(json.dumps(fields))
    assert caught.value.newer


@pytest.mark.parametrize(
    "change",
    [{"outputs": {"id": "j-2"}}, {"outputs": None}, {"partial": {"a": 1}}, {"submitted_at": 5}, {"resubmits": 2}],
    ids=str,
)
def test_the_digest_changes_with_what_the_item_must_hold(change: dict[str, Any]) -> None:
    assert dataclasses.replace(RECORD, **change).digest != RECORD.digest


@pytest.mark.parametrize(
    "change",
    [{"polls": 9}, {"errors": 9}, {"attempts": 9}, {"reason": None}, {"progress": 1}, {"saved": None}],
    ids=str,
)
def test_the_digest_does_not_change_with_what_redis_alone_keeps(change: dict[str, Any]) -> None:
    assert dataclasses.replace(RECORD, **change).digest == RECORD.digest


def test_a_confirmed_record_knows_that_the_item_has_it_and_since_when() -> None:
    assert RECORD.saved != RECORD.digest
    confirmed = RECORD.confirmed(42)
    assert (confirmed.saved, confirmed.confirmed_at) == (RECORD.digest, 42)
    assert dataclasses.replace(confirmed, saved=RECORD.saved, confirmed_at=RECORD.confirmed_at) == RECORD
