"""Bodies are decoded as declared, strictly, and no small one becomes a huge value."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.codec import MAX_DEPTH
from shared.provider import decode as decode_module
from shared.provider.decode import decode
from shared.provider.wire.message import Reply


def decoded(body: bytes, content_type: str = "application/json", decoding: Any = "auto") -> Any:
    return decode(Reply(200, {"content-type": content_type} if content_type else {}, body, "http://a/b"), decoding)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/problem+json", "text/json", "", "text/plain"]
)
def test_json_is_recognised_whatever_it_is_called(content_type: str) -> None:
    assert decoded(b' {"a": [1, 2.5, null]}', content_type) == {"a": [1, 2.5, None]}
    assert decoded(b"\n[]", content_type) == []


@pytest.mark.parametrize("body", [
    b"<html><body>Bad gateway</body></html>", b'{"a": 1', b'{"a": 1}}', b"NaN", b'{"a": Infinity}', b"-Infinity",
    b"1e999", b"{'a': 1}", b'"\xff"', b'"\xed\xa0\x80"', '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-16-le"),
    '{"a": 1}'.encode("utf-32"), '{"a": "ä"}'.encode("latin-1"), b"[" * (MAX_DEPTH + 1) + b"1" + b"]" * (MAX_DEPTH + 1),
    b"[" * 200_000, b'{"a":' * 200_000, b"9" * 5000, b"\x00", b"\x1f\x8b\x08\x00",
])  # fmt: skip
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-16", "text/html"])
def test_what_is_no_json_is_refused_whatever_it_says_of_itself(body: bytes, content_type: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(body, content_type)


@pytest.mark.parametrize(("body", "value"), [
    (b'\xef\xbb\xbf{"a": 1}', {"a": 1}), (b'{"a": 1, "a": 2}', {"a": 2}), (b'"\\ud800"', "\ud800"),
    (b"123456789012345678901234567890", 123456789012345678901234567890), (b"1" * 4000, int("1" * 4000)), (b"0.1", 0.1),
    (b"-0.0", -0.0), (b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)),
    (b"  \r\n\t ", None), (b"null", None),
])  # fmt: skip
def test_what_is_json_comes_out_exactly(body: bytes, value: Any) -> None:
    found = decoded(body)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("decoding", ["auto", "json", "jsonl", "csv", "text"])
@pytest.mark.parametrize("content_type", ["application/json", "text/csv", "application/x-ndjson", "text/plain"])
def test_an_empty_body_is_null(decoding: str, content_type: str) -> None:
    assert decoded(b"", content_type, decoding) is None


def test_a_url_is_the_value_where_the_operation_wants_no_more() -> None:
    assert decoded(b"<html>", decoding="url") == "http://a/b"


@pytest.mark.parametrize(
    "content_type", ["application/x-ndjson", "application/jsonl; charset=utf-8", "Application/JSONLines"]
)
def test_json_lines_are_a_list_without_the_blank_ones(content_type: str) -> None:
    assert decoded(b'{"a": 1}\n\n  \r\n[2]\r\n"\xe2\x80\xa8"', content_type) == [{"a": 1}, [2], "\u2028"]


@pytest.mark.parametrize("body", [b'{"a": 1}\n{"a"', b"1\nNaN", b"[1,\n2]", b'1\n"\xff"'])
def test_one_faulty_line_makes_all_of_them_undecodable(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(body, decoding="jsonl")


@pytest.mark.parametrize(("body", "rows"), [
    (b"a,b\r\n1,2\r\n", [{"a": "1", "b": "2"}]), (b'a,b\n"x, ""y""\nz",2\n', [{"a": 'x, "y"\nz', "b": "2"}]),
    (b"a,b\n1\n1,2,3,4\n", [{"a": "1", "b": None}, {"a": "1", "b": "2", "_rest": ["3", "4"]}]), (b"a,b\n", []),
    (b"\xef\xbb\xbfa\n\xc3\xa4\n", [{"a": "ä"}]),
])  # fmt: skip
def test_csv_is_an_object_per_line(body: bytes, rows: Any) -> None:
    assert decoded(body, "text/csv") == rows
    assert decoded(body, "", "csv") == rows


@pytest.mark.parametrize("body", [b'a\n"open', b'a\n"x"y', b"a\n" + b"x" * 200_000, b"a\n\xff"])
def test_what_is_no_csv_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(body, "text/csv")


@pytest.mark.parametrize(("body", "decoding"), [
    (b"a," * 99 + b"\n" + b"x\n" * 11, "csv"), (b"," * 99 + b"\n" + b"x\n" * 11, "csv"), (b"a\n" * 1002, "csv"),
    (b"1\n" * 1001, "jsonl"),
])  # fmt: skip
def test_a_small_body_does_not_become_a_huge_table(body: bytes, decoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "MAX_CELLS", 1000)
    with pytest.raises(ValueError, match="more than 1000 "):
        decoded(body, decoding=decoding)


@pytest.mark.parametrize("over", [0, 1])
def test_names_that_each_row_repeats_do_not_make_a_small_body_a_huge_value(
    over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C12: 5 MB of a name above 5 MB of rows would be 10 TB of JSON."""
    monkeypatch.setattr(decode_module, "MAX_NAMES", 5000)
    body = b"a" * 100 + b"\n" + b"x\n" * (50 + over)
    if over:
        with pytest.raises(ValueError, match="or 5000 characters of names"):
            decoded(body, decoding="csv")
    else:
        assert len(decoded(body, decoding="csv")) == 50


@pytest.mark.parametrize(("body", "decoding"), [(b"1\n" * 1000, "jsonl"), (b"a,b\n" + b"1,2\n" * 500, "csv")])
def test_a_table_may_have_as_many_cells_as_the_limit(
    body: bytes, decoding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_module, "MAX_CELLS", 1000)
    assert len(decoded(body, decoding=decoding)) == (1000 if decoding == "jsonl" else 500)


@pytest.mark.parametrize(("content_type", "body", "text"), [
    ("text/plain", "ä".encode(), "ä"), ("text/plain; charset=latin-1", b"\xe4", "ä"),
    ('text/plain; charset="UTF-16"', "ä".encode("utf-16"), "ä"), ("text/plain;charset=windows-1252", b"\x80", "€"),
    ("text/plain", b"\xef\xbb\xbfx", "x"), ("text/plain", b" \n", " \n"), ("text/plain", b'"queued"', '"queued"'),
])  # fmt: skip
def test_text_is_read_in_its_charset(content_type: str, body: bytes, text: str) -> None:
    assert decoded(body, content_type) == text
    assert decoded(body, content_type, "text") == text


@pytest.mark.parametrize("charset", [
    "nonsense", "hex", "rot13", "zlib", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined",
])  # fmt: skip
def test_a_charset_that_is_none_is_refused(charset: str) -> None:
    with pytest.raises(ValueError, match="unknown charset"):
        decoded(b"x", f"text/plain; charset={charset}")


CONTENT_TYPES = st.sampled_from(
    ["application/json", "text/plain", "text/csv", "application/jsonl", "text/html", "", "\x00", "a/b; charset="]
) | st.from_regex(r"text/(plain|csv); charset=[\w.:-]{0,20}", fullmatch=True)


@settings(deadline=None)
@given(
    st.binary(max_size=200) | st.text(max_size=50).map(str.encode) | st.sampled_from([b'"\\ud800"', b"a,b\n1"]),
    CONTENT_TYPES,
    st.sampled_from(["auto", "json", "jsonl", "csv", "text", "url"]),
)
def test_any_body_is_a_value_or_undecodable(body: bytes, content_type: str, decoding: str) -> None:
    try:
        value = decoded(body, content_type, decoding)
    except ValueError:
        return
    json.dumps(value, allow_nan=False)
