"""Bodies are decoded as declared, strictly, and no small one becomes a huge value."""

import csv
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.codec import MAX_DEPTH
from shared.provider import table
from shared.provider.decode import decode
from shared.provider.wire.message import Reply


def decoded(body: bytes, content_type: str = "application/json", decoding: Any = "auto", status: int = 200) -> Any:
    return decode(Reply(status, {"content-type": content_type} if content_type else {}, body, "http://a/b"), decoding)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/hal+json", "text/json", "", "text/plain", "text/html"]
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
@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson", "text/plain", "text/html"])
@pytest.mark.parametrize("body", [b"", b" \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_an_empty_body_is_null(decoding: str, content_type: str, body: bytes) -> None:
    is_table = decoding == "csv" and content_type in ("application/x-ndjson", "text/plain")
    assert decoded(body, content_type, decoding) == ([] if is_table and content_type == "text/plain" else None)


def test_an_empty_table_has_no_rows() -> None:
    assert decoded(b"", "text/csv") == decoded(b"\r\n", "text/csv; charset=utf-8") == decoded(b"", "", "csv") == []
    assert decoded(b"\xef\xbb\xbf", "text/csv") == decoded(b"\xff\xfe", "text/csv; charset=utf-16") == []
    assert decoded(b"", "text/csv", status=204) is None
    assert decoded(b"", "multipart/mixed", "csv") is None
    assert decoded(b"", "text/csv", status=404) is None


@pytest.mark.parametrize("status", [204, 205])
def test_what_comes_with_a_status_that_has_no_content_is_none(status: int) -> None:
    assert decoded(b'{"a": 1}', status=status) is decoded(b"a,b\n1,2\n", "text/csv", status=status) is None


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
    (b"\xef\xbb\xbfa\n\xc3\xa4\n", [{"a": "ä"}]), (b'\xef\xbb\xbf"a",b\n1,2\n', [{"a": "1", "b": "2"}]),
    (b"a,_rest\n1,2,3\n", [{"a": "1", "_rest": "2", "__rest": ["3"]}]), (b"\n\na,b\n1,2\n", [{"a": "1", "b": "2"}]),
    (b"_rest,__rest\n1,2,3\n", [{"_rest": "1", "__rest": "2", "___rest": ["3"]}]),
    (b"a,b\n\n1,2\n\n", [{"a": "1", "b": "2"}]), (b"a\n1\n\n2", [{"a": "1"}, {"a": ""}, {"a": "2"}]),
    (b"a,b\r1,2\r3,4", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]), (b'a,b\n"x\ry",2\n', [{"a": "x\ry", "b": "2"}]),
    (b"a,b\r\r\n1,2\r\r\n", [{"a": "1", "b": "2"}]), (b"a,b\n1\x00,\xc2\x85\n", [{"a": "1\0", "b": "\x85"}]),
    (b"a,b\n" + b"x" * 140_000 + b",2\n", [{"a": "x" * 140_000, "b": "2"}]), (b'a,\n5"3,2\n', [{"a": '5"3', "": "2"}]),
    (b"[a],[b]\n1,2\n", [{"[a]": "1", "[b]": "2"}]),
])  # fmt: skip
def test_csv_is_an_object_per_line(body: bytes, rows: Any) -> None:
    assert decoded(body, "text/csv") == rows
    assert decoded(body, "", "csv") == rows


@pytest.mark.parametrize(("body", "line"), [
    (b'a\n"open', 2), (b'a\n"x"y', 2), (b"a,b\n1\r2,3\n", 2), (b"a,b\n1,2\n3", 3), (b'a\n1\n"x\\"y"\n', 3),
    (b"name,age,name\n1,2,3\n", 1), (b"a,,\n1,2,3\n", 1), (b"\n\na,a\n", 3), (b"a,A,a\n", 1),
])  # fmt: skip
def test_a_table_that_cannot_be_read_whole_is_refused_with_its_line(body: bytes, line: int) -> None:
    """C16."""
    for content_type, decoding in (("text/csv", "auto"), ("application/octet-stream", "csv")):
        with pytest.raises(ValueError, match=f"line {line}: "):
            decoded(body, content_type, decoding)


def test_a_table_in_no_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        decoded(b"a\n\xff", "text/csv")


@pytest.mark.parametrize(
    "content_type", ["text/csv; header=absent", "text/csv; header = absent", 'text/csv;charset=utf-8; Header="Absent"']
)
def test_a_table_without_names_loses_no_line(content_type: str) -> None:
    assert decoded(b"1,2\n3,3\n4", content_type) == [["1", "2"], ["3", "3"], ["4"]]
    assert decoded(b"1,2\n", "text/csv; header=present") == []


def test_a_limit_that_somebody_else_sets_refuses_a_table_and_cuts_none() -> None:
    most = csv.field_size_limit(10)
    try:
        with pytest.raises(ValueError, match="line 2: not CSV"):
            decoded(b"a\n" + b"x" * 11, "text/csv")
    finally:
        csv.field_size_limit(most)


# --- what contradicts its declaration

HTML = b"<!DOCTYPE html>\n<html><body>Sign in, please</body></html>"
XML = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'
ERROR = b'{"error": {"code": 17, "message": "busy, come back"}}'
PROBLEM = b'{"type": "about:blank", "title": "Busy", "status": 503}'


@pytest.mark.parametrize("decoding", ["csv", "text", "jsonl", "json", "auto"])
@pytest.mark.parametrize(("content_type", "body"), [
    ("text/html", HTML), ("text/html; charset=utf-8", HTML[:40]), ("text/plain", HTML), ("", HTML), ("text/csv", HTML),
    ("application/octet-stream", b"\xef\xbb\xbf\n " + HTML),
    ("text/html", b"Sign in, please\nhere\n"), ("text/html", b"404"),
    ("application/xml", XML), ("text/plain", XML), ("text/xml", b"<a>1,2\n</a>"),
    ("text/plain", b"<Error>a, b</Error>\n"),
    ("application/xhtml+xml", b"a,b\n1,2\n"), ("application/problem+json", PROBLEM),
    ("text/plain", b"<!-- x --><html>"),
    ("application/problem+json; charset=utf-8", b"a,b\n1,2\n"), ("text/plain", b"<html><head"),
])  # fmt: skip
def test_an_answer_that_is_evidently_something_else_is_undecodable(
    decoding: str, content_type: str, body: bytes
) -> None:
    """C17, C19."""
    with pytest.raises(ValueError, match=r"."):
        decoded(body, content_type, decoding)


@pytest.mark.parametrize(("content_type", "body", "decoding"), [
    *[("application/json", ERROR, decoding) for decoding in ("csv", "text", "jsonl")],
    *[("application/vnd.api+json; charset=utf-8", b'{"a": 1}', decoding) for decoding in ("csv", "text", "jsonl")],
    *[(kind, ERROR, "csv") for kind in ("text/plain", "text/csv", "", "application/octet-stream")],
    ("text/plain", ERROR, "text"), ("", PROBLEM, "text"), ("text/html", ERROR, "text"),
    ("", b'{"detail": "no"}', "text"),
    ("text/csv", b'{"error": "half, of', "auto"), ("text/csv", b"[1, 2]", "auto"),
    ("text/plain", b"Internal error\n", "csv"),
    *[(kind, body, "csv") for kind in ("text/csv", "application/octet-stream") for body in (
        b"Error: rate limit exceeded, try later\n", b"Error, try later", b"null", b"null\n", b"404\n", b"id,na", b"id",
        b"Error:\n", b"Rate limit exceeded\r\n", b'"Internal server error"\n', b"Sorry, please come back later.\n",
    )],
    *[(kind, b"a,b\n1,2\n", "csv") for kind in (
        "text/event-stream", "multipart/mixed; boundary=x", "text/tab-separated-values", "application/pdf", "image/png",
        "application/x-ndjson", "application/csv+json",
    )],
    ("text/event-stream", b"event: x\ndata: 1\n\n", "csv"),
    ("application/json", b'{\n  "error": "busy"\n}', "jsonl"), ("application/json", b'"queued"', "text"),
])  # fmt: skip
def test_json_that_comes_instead_of_what_is_declared_is_undecodable(
    content_type: str, body: bytes, decoding: str
) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(body, content_type, decoding)


@pytest.mark.parametrize(("content_type", "body", "decoding", "value"), [
    ("text/plain", b"<think>so</think> yes", "text", "<think>so</think> yes"),
    ("text/plain", b"<v Bob> hi", "auto", "<v Bob> hi"),
    ("text/plain", b'{"a": 1}', "text", '{"a": 1}'), ("text/html", b'{"a": 1}', "json", {"a": 1}),
    ("application/json", b'{"a": 1}\n{"a": 2}\n', "jsonl", [{"a": 1}, {"a": 2}]),
    ("", b'{"error": 1}', "jsonl", [{"error": 1}]),
    ("application/octet-stream", b"a,b\n", "csv", []), ("text/csv", b"id\n", "auto", []),
    ("text/plain", b"a < b", "auto", "a < b"), ("text/csv", b"error,count\r\n", "auto", []),
    ("text/csv", b"Error code,First name,No.\n", "auto", []), ("text/csv", b'"Date: UTC",b\n', "auto", []),
    ("text/csv", b"null,a\n", "auto", []),
    ("text/csv; header=absent", b"1,Error: busy", "auto", [["1", "Error: busy"]]),
    *[(kind, b"a,b\n1,2", "csv", [{"a": "1", "b": "2"}]) for kind in (
        "", "text/plain", "text/csv", "application/csv", "text/x-csv", "application/octet-stream; charset=utf-8",
        "application/vnd.ms-excel", "binary/octet-stream", "application/x-gzip", "TEXT/CSV, text/csv",
    )],
])  # fmt: skip
def test_what_only_looks_odd_is_believed(content_type: str, body: bytes, decoding: str, value: Any) -> None:
    assert decoded(body, content_type, decoding) == value


@pytest.mark.parametrize("decoding", ["csv", "text", "jsonl", "json", "auto"])
def test_an_error_is_read_as_what_it_says_whatever_the_data_are_declared_to_be(decoding: str) -> None:
    assert decoded(ERROR, "application/json", decoding, 400)["error"]["code"] == 17
    assert decoded(PROBLEM, "application/problem+json", decoding, 503)["title"] == "Busy"


@pytest.mark.parametrize(("status", "headers", "is_whole"), [
    (206, {}, False), (206, {"content-range": "bytes 0-6/8"}, False), (206, {"content-range": "bytes 1-7/8"}, False),
    (206, {"content-range": "bytes 0-7/*"}, False), (206, {"content-range": "bytes 0-7/8"}, True), (226, {}, False),
    (203, {}, True), (206, {"content-range": "bytes 0-6/7"}, False), (206, {"content-range": "bytes 0-8/9"}, False),
    (206, {"content-range": "bytes 0-3/4", "content-encoding": "gzip"}, False),
    (206, {"content-range": "bytes 0-3/4", "content-encoding": "gzip", "content-length": "4"}, True),
])  # fmt: skip
def test_a_part_is_never_the_whole(status: int, headers: dict[str, str], is_whole: bool) -> None:
    reply = Reply(status, headers | {"content-type": "application/json"}, b'{"a": 1}', "http://a/b")
    if is_whole:
        assert decode(reply, "auto") == {"a": 1}
    else:
        with pytest.raises(ValueError, match="a part of the whole"):
            decode(reply, "auto")


@pytest.mark.parametrize(("body", "decoding"), [
    (b",".join(b"a%d" % i for i in range(99)) + b"\n" + b"x\n" * 11, "csv"), (b"a\n" * 1002, "csv"),
    (b"a\n" + b"," * 1001 + b"\n", "csv"),
    (b"1\n" * 1001, "jsonl"),
])  # fmt: skip
def test_a_small_body_does_not_become_a_huge_table(body: bytes, decoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_CELLS", 1000)
    monkeypatch.setattr("shared.provider.decode.MAX_CELLS", 1000)
    with pytest.raises(ValueError, match="more than 1000 "):
        decoded(body, "", decoding)


@pytest.mark.parametrize("over", [0, 1])
def test_names_that_each_row_repeats_do_not_make_a_small_body_a_huge_value(
    over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C12: 5 MB of a name above 5 MB of rows would be 10 TB of JSON."""
    monkeypatch.setattr(table, "MAX_NAMES", 5000)
    body = b"a" * 100 + b"\n" + b"x\n" * (50 + over)
    if over:
        with pytest.raises(ValueError, match="or 5000 characters of names"):
            decoded(body, "", "csv")
    else:
        assert len(decoded(body, "", "csv")) == 50


@pytest.mark.parametrize(("body", "decoding"), [(b"1\n" * 1000, "jsonl"), (b"a,b\n" + b"1,2\n" * 500, "csv")])
def test_a_table_may_have_as_many_cells_as_the_limit(
    body: bytes, decoding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MAX_CELLS", 1000)
    monkeypatch.setattr("shared.provider.decode.MAX_CELLS", 1000)
    assert len(decoded(body, "", decoding)) == (1000 if decoding == "jsonl" else 500)


@pytest.mark.parametrize(("content_type", "body", "text"), [
    ("text/plain", "ä".encode(), "ä"), ("text/plain; charset=latin-1", b"\xe4", "ä"),
    ('text/plain; charset="UTF-16"', "ä".encode("utf-16"), "ä"), ("text/plain;charset=windows-1252", b"\x80", "€"),
    *[(f"text/plain; {said}", "ab".encode("utf-16-le"), "ab") for said in (
        "charset = utf-16-le", "charset='utf-16-le'", 'charset = "UTF-16-LE"', "format=flowed;charset =utf-16-le ; a=b",
        'a="; charset=x"; charset=utf-16-le', "charset=utf-16-le; charset=utf-8", "xcharset=x; charset=utf-16-le",
    )],
    ("text/plain; charset=", b"x", "x"), ("text/plain; charset", b"x", "x"),
    ("text/plain", b"\xef\xbb\xbfx", "x"), ("text/plain", b" x\n", " x\n"), ("text/plain", b'"queued"', '"queued"'),
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
