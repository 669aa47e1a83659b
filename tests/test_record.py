"""A record comes back from Redis as it was written, or is not taken for one."""

import dataclasses
import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from shared.codec import MAX_DEPTH, OWN_DEPTH, Json, loads
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


OF_BEFORE = (
    '{"version":1,"generation":1764533000001,"created_at":1764533000000,"input":{"id":"r-7"},"group":"A",'
    '"outputs":{"id":"j-1"},"partial":{"a":1},"progress":0.5,"submitted_at":1764533000120,"job_at":1764533000130,'
    '"asked_at":1764533000140,"resubmits":1,"polls":3,"errors":2,"attempts":6,"reason":"http","unauthorized_at":null,'
    '"saved":"0123456789abcdef","confirmed_at":1764533000150}'
)


def test_a_record_of_the_release_before_is_read() -> None:
    """While functions are updated, and with what waits in Redis after that. What is changed here breaks deployments."""
    assert (
        json.loads(Record.from_text(OF_BEFORE).to_text()).items()
        >= {name: value for name, value in json.loads(OF_BEFORE).items() if value is not None}.items()
    )


def test_the_text_says_which_version_wrote_it() -> None:
    assert json.loads(RECORD.to_text())["version"] == VERSION


def test_data_as_deep_as_is_taken_from_outside_comes_back_too() -> None:
    deep: Any = "x"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    record = structs.replace(RECORD, partial=deep, outputs={"all": deep})
    assert Record.from_text(record.to_text()) == record


def leaves() -> st.SearchStrategy[Json]:
    floats = st.floats(allow_nan=False, allow_infinity=False)
    return st.none() | st.booleans() | st.integers() | floats | st.text(st.characters())  # lone surrogates, too


ANY = st.recursive(
    leaves(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(st.characters()), children, max_size=4),
    max_leaves=20,
)


@given(ANY, st.dictionaries(st.text(), ANY, max_size=3), ANY)
def test_whatever_json_can_say_comes_back_as_the_same_value_and_kind(
    input_: Json, outputs: dict[str, Json], partial: Json
) -> None:
    record = structs.replace(RECORD, input=input_, outputs=outputs, partial=partial)
    assert repr(Record.from_text(record.to_text())) == repr(record)  # which tells 1 from 1.0 and True


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**400, -0.0, 5e-324, math.pi, 1e22, 1.0, 0.1 + 0.2])
def test_a_number_beyond_64_bits_or_a_float_keeps_its_value_and_kind(number: float) -> None:
    back = Record.from_text(structs.replace(RECORD, partial=[number]).to_text()).partial
    assert (repr(back), type(back[0])) == (repr([number]), type(number))


@pytest.mark.parametrize("number", [-1, 10**18, 10**400])
@pytest.mark.parametrize(
    "field", ["created_at", "submitted_at", "job_at", "asked_at", "unauthorized_at", "confirmed_at"]
)
def test_an_instant_that_no_calendar_has_is_none_of_ours(field: str, number: Any) -> None:
    with pytest.raises(RecordError):
        Record.from_text(structs.replace(RECORD, **{field: number}).to_text())


@pytest.mark.parametrize("number", [-1, 10**14, 10**400])
@pytest.mark.parametrize("field", ["resubmits", "news", "polls", "errors", "attempts"])
def test_a_count_that_nobody_counts_to_is_none_of_ours(field: str, number: Any) -> None:
    with pytest.raises(RecordError):
        Record.from_text(structs.replace(RECORD, **{field: number}).to_text())


# --- what has its default is left out


def test_a_record_that_has_learned_nothing_takes_little_room() -> None:
    bare = Record(generation=1_750_000_000_000, created_at=1_750_000_000_000, input={}).confirmed(1_750_000_000_000)
    assert set(json.loads(bare.to_text())) == {"version", "generation", "created_at", "input", "saved", "confirmed_at"}
    assert len(bare.to_text()) <= 154


@pytest.mark.parametrize("change", [{"partial": []}, {"outputs": {}}, {"progress": 0}, {"progress": False}], ids=str)
def test_what_is_empty_but_not_the_default_is_not_left_out(change: dict[str, Any]) -> None:
    record = structs.replace(RECORD, **change)
    assert repr(Record.from_text(record.to_text())) == repr(record)


# --- yesterday's functions read what today's write, and the other way round


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Yesterday:
    """The record of the release before, and how it read and wrote one: it knows no other field."""

    generation: int
    created_at: int
    input: Json
    group: str = ""
    outputs: dict[str, Json] | None = None
    partial: Json = None
    progress: Json = None
    submitted_at: int | None = None
    job_at: int | None = None
    asked_at: int | None = None
    resubmits: int = 0
    polls: int = 0
    errors: int = 0
    attempts: int = 0
    reason: str | None = None
    unauthorized_at: int | None = None
    saved: str | None = None
    confirmed_at: int = 0

    def to_text(self) -> str:
        return json.dumps({"version": 1} | dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Yesterday":
        fields = loads(text, max_depth=OWN_DEPTH)
        assert fields.pop("version") == 1
        assert not fields.keys() - set(cls.__slots__)
        return msgspec.convert(fields, cls)


@pytest.mark.parametrize("record", [RECORD, Record(generation=1, created_at=0, input={})])
def test_yesterdays_code_reads_todays_record_and_today_yesterdays(record: Record) -> None:
    as_yesterday = Yesterday(**{name: getattr(record, name) for name in Yesterday.__slots__})
    assert Yesterday.from_text(record.to_text()) == as_yesterday
    assert Record.from_text(as_yesterday.to_text()) == record


# --- junk


@pytest.mark.parametrize("depth", [OWN_DEPTH + 1, 5_000, 200_000])
@pytest.mark.parametrize("open_", ["[", '{"a":'])
def test_a_text_nested_too_deep_is_junk_and_ends_no_worker(depth: int, open_: str) -> None:
    close = "]" if open_ == "[" else "}"
    text = '{"version":1,"generation":1,"created_at":0,"input":%s1%s}' % (open_ * depth, close * depth)  # noqa: UP031
    for junk in (text, open_ * depth):
        with pytest.raises(RecordError):
            Record.from_text(junk)


def test_a_depth_that_is_ours_but_of_many_values_comes_back() -> None:
    record = structs.replace(RECORD, partial=[[]] * (OWN_DEPTH + 1))
    assert Record.from_text(record.to_text()) == record


@pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity", "9" * 5000], ids=lambda text: text[:9])
def test_a_number_that_nobody_can_write_is_junk(number: str) -> None:
    with pytest.raises(RecordError):
        Record.from_text(f'{{"version":1,"generation":1,"created_at":0,"input":{number}}}')


@pytest.mark.parametrize("text", [None, "", "junk", "{", "[]", "1", "null", '"x"', "{}", '{"version": 1}'])
def test_anything_else_is_junk(text: str | None) -> None:
    with pytest.raises(RecordError) as caught:
        Record.from_text(text)
    assert not caught.value.newer


@pytest.mark.parametrize(
    "junk",
    [
        {"errors": None},
        {"created_at": "now"},
        {"generation": 1.5},
        {"job_at": True},
        {"outputs": []},
        {"group": None},
        {"result": 1},
    ],
    ids=str,
)
def test_a_field_of_another_type_is_junk(junk: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="other types"):
        Record.from_text(json.dumps(json.loads(RECORD.to_text()) | junk))


@pytest.mark.parametrize("version", ["", '"version":"1",', '"version":1.0,', '"version":true,', '"version":0,'])
@pytest.mark.parametrize("input_", ["1", '"\\ud800"'], ids=["plain", "lone surrogate"])
def test_a_record_without_a_version_of_ours_is_junk(version: str, input_: str) -> None:
    whole = f'{{"version":1,"generation":1,"created_at":0,"input":{input_}}}'
    assert Record.from_text(whole).generation == 1
    with pytest.raises(RecordError) as caught:
        Record.from_text(whole.replace('"version":1,', version))
    assert not caught.value.newer


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
    assert structs.replace(RECORD, **change).digest != RECORD.digest


@pytest.mark.parametrize(
    "change",
    [{"polls": 9}, {"errors": 9}, {"attempts": 9}, {"reason": None}, {"progress": 1}, {"saved": None}],
    ids=str,
)
def test_the_digest_does_not_change_with_what_redis_alone_keeps(change: dict[str, Any]) -> None:
    assert structs.replace(RECORD, **change).digest == RECORD.digest


def test_a_confirmed_record_knows_that_the_item_has_it_and_since_when() -> None:
    assert RECORD.saved != RECORD.digest
    confirmed = RECORD.confirmed(42)
    assert (confirmed.saved, confirmed.confirmed_at) == (RECORD.digest, 42)
    assert structs.replace(confirmed, saved=RECORD.saved, confirmed_at=RECORD.confirmed_at) == RECORD
