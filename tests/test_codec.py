"""JSON comes in strictly and goes out exactly."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codec import MAX_DEPTH, canonical, dumps, loads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


@given(JSON)
def test_what_goes_out_comes_back_equal(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps(value).encode()) == value


@pytest.mark.parametrize("number", [3, 30.40, 0.1 + 0.2, 1e-7, 1e22, 1e200, 5e-324, 10**38 + 7, -0.0, 2**63])
def test_a_number_keeps_its_value_and_its_kind(number: float) -> None:
    back = loads(dumps(number))
    assert (back, type(back), math.copysign(1, back)) == (number, type(number), math.copysign(1, number))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("{'a': 1}", "Expecting"),
        ("1 2", "Extra data"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("1e400", "outside the range of a double"),
        ("-1e400", "outside the range of a double"),
        ("9" * 5000, "limit"),
        (b'"\xff"', "utf-8"),
        (b"\xff\xfe1\x00", "utf-8"),
    ],
)
def test_what_is_not_json_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        loads(text)


def test_a_byte_order_mark_is_read_over() -> None:
    assert loads(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_nesting_is_taken_up_to_the_limit_and_no_deeper() -> None:
    assert loads(nested(MAX_DEPTH)) is not None
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH} levels"):
            loads(nested(depth))


def test_objects_count_as_levels_too_and_scalars_do_not() -> None:
    text = '{"a":' * 3 + "1" + "}" * 3
    assert loads(text, max_depth=3) == {"a": {"a": {"a": 1}}}
    with pytest.raises(ValueError, match="nested deeper than 2 levels"):
        loads(text, max_depth=2)


def test_a_key_that_stands_twice_is_refused_only_where_asked() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}}'
    assert loads(text) == {"a": 1, "b": {"c": 2}}
    with pytest.raises(ValueError, match="the key 'c' stands twice"):
        loads(text, unique_keys=True)
    assert loads('{"a": {"b": 1}, "b": 1}', unique_keys=True) == {"a": {"b": 1}, "b": 1}


def test_the_key_that_stands_twice_among_a_hundred_thousand_is_found_in_one_pass() -> None:
    text = "{" + ",".join(f'"k{i}":{i}' for i in range(100_000)) + ',"k99999":0}'
    with pytest.raises(ValueError, match="the key 'k99999' stands twice"):  # comparing each with each takes minutes
        loads(text, unique_keys=True)


def test_text_is_compact_and_readable() -> None:
    assert dumps({"a": [1, "Łódź"]}) == '{"a":[1,"Łódź"]}'


def test_a_lone_surrogate_goes_out_as_an_escape_that_utf_8_can_carry() -> None:
    text = dumps({"a": "\ud800é"})
    assert text.encode() == b'{"a":"\\ud800\\u00e9"}'
    assert loads(text) == {"a": "\ud800é"}


@pytest.mark.parametrize("write", [dumps, canonical])
@pytest.mark.parametrize("value", [math.nan, math.inf, ["\ud800", -math.inf]])
def test_what_is_no_number_does_not_go_out(write: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(value)


@given(st.dictionaries(st.text(), JSON))
def test_the_canonical_text_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)
    assert json.loads(canonical(value)) == value


def test_the_canonical_text_tells_an_integer_from_a_float_and_is_ascii() -> None:
    assert canonical({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'
    assert canonical(1) != canonical(1.0)
