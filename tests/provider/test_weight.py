"""What a body takes in memory is estimated before it is decoded (C33): rather too much than too little."""

import tracemalloc

import pytest

from shared.provider.decode import decode
from shared.provider.weight import weight
from shared.provider.wire.message import Reply

CSV, JSON, JSONL = "text/csv", "application/json", "application/x-ndjson"
NESTED = '{"":' * 100 + "0" + "}" * 100


@pytest.mark.parametrize(("content_type", "text"), [
    (CSV, "a\n" + "\n" * 9_000), (CSV, ",".join(f"c{n}" for n in range(500)) + "\n" + "1\n" * 90),
    (CSV, '"\n",' + ",".join(f"c{n}" for n in range(500)) + "\n" + "1\n" * 90), (CSV, "a,b\n" + "xy,zz\n" * 5_000),
    (CSV, "a\r" * 9_000), (CSV, 'a"b,"\n",' + ",".join(f"c{n}" for n in range(500)) + "\n" + "1\n" * 90),
    (CSV, '"""a"",b"\n' + "x,y\n" * 5_000),
    (JSON, "[" + "[]," * 9_000 + "0]"), (JSON, "[" + "[0]," * 9_000 + "0]"), (JSON, "[" + '{"":0},' * 9_000 + "0]"),
    (JSON, "[" + f"{NESTED}," * 90 + "0]"), (JSON, "[" + '"ab",' * 9_000 + "0]"), (JSON, "[" + "300," * 9_000 + "0]"),
    (JSON, '["\\ud83d\\ude00' + "x" * 50_000 + '"]'), (JSON, '["😀' + "x" * 50_000 + '"]'),
    (JSON, '"' + "x" * 50_000 + '"'),
    (JSONL, '{"a":1}\n' * 5_000), (JSONL, "1\n" * 9_000), ("text/plain", "😀" + "x" * 50_000),
])  # fmt: skip
def test_no_value_takes_more_than_its_weight(content_type: str, text: str) -> None:
    reply = Reply(200, {"content-type": content_type}, text.encode(), "http://a.example")
    tracemalloc.start()
    try:
        value = decode(reply, "auto")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert held < weight(reply, "auto") < 12 * held


def test_a_body_is_weighed_as_what_it_is_read_as() -> None:
    body = b"a\n" + b"\n" * 1000
    table, text = (Reply(200, {"content-type": one}, body, "http://a.example") for one in (CSV, "text/plain"))
    assert weight(text, "csv") == weight(table, "auto") > weight(text, "auto")
