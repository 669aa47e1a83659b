"""Completed is only what is whole, of the kind that the file declares, and has data; everything else is tried again."""

import gzip
import logging
from typing import Any

import pytest

from shared.provider.wire.message import Reply
from tests.support.asking import DONE, POLLED, TASK, ask, outcome, provider, rules, submitted
from tests.support.clock import START_MS
from tests.support.servers import Answering, Says, Seen, Site

RESULT = {"result": {"url": "/result"}, "acceptors": [DONE]}
BY_STATUS = {"acceptors": [{"state": "success", "matcher": "status", "expected": "2XX"}]}
TABLE = b"a,b\n1,2\n"


def answering(result: Says) -> Answering:
    """The job is done, and its result answers so."""
    return lambda seen: result if seen.path == "/result" else Says(200, {"status": "completed"})


def fetched(said: Says, decode: str = "auto", **parts: Any) -> dict[str, Any]:
    """The outcome of an attempt whose result is this."""
    result = {"result": {"url": "/result", "decode": decode}}
    with Site(answering(said)) as site:
        return outcome(ask(provider(rules(site.url, **POLLED, **(RESULT | result | parts))), submitted()))


def polled(said: Says, **parts: Any) -> dict[str, Any]:
    """The outcome of a poll that is answered with this."""
    with Site(said) as site:
        return outcome(ask(provider(rules(site.url, **POLLED, **parts)), submitted()))


def told(found: dict[str, Any]) -> tuple[str, Any]:
    return found["is"], found.get("reason", found.get("data"))


# --- C14, C18: the status of an answer that is there


@pytest.mark.parametrize("status", [507, 509, 520, 522, 524, 527, 530, 598, 599, 421, 499, 302, 304])
def test_an_edge_is_not_the_api(status: int) -> None:
    assert told(polled(Says(status))) == told(fetched(Says(status, "<html>"))) == ("retry", "http")


def test_a_file_may_say_that_such_a_status_is_the_end() -> None:
    ends = {"state": "failure", "matcher": "status", "expected": 530, "on": ["poll", "result"]}
    assert told(polled(Says(530), acceptors=[ends])) == ("failed", "upstream")


def test_a_202_in_the_result_stage_is_pending_unless_an_acceptor_says_else() -> None:
    building = Says(202, {"status": "building"}, {"Retry-After": "7"})
    found = fetched(building)
    assert (found["is"], found["delay_seconds"] >= 7) == ("pending", True)
    done = {"state": "success", "matcher": "status", "expected": 202, "on": ["result"]}
    assert told(fetched(building, acceptors=[DONE, done])) == ("completed", {"status": "building"})


@pytest.mark.parametrize("expected", ["2XX", "20X", [200, "2XX"]])
def test_a_range_that_is_a_success_takes_no_202_of_a_poll_or_result(expected: Any) -> None:
    """C18."""
    building = Says(202, {"status": "building"})
    done = {"state": "success", "matcher": "status", "expected": expected}
    assert fetched(building, acceptors=[DONE, done | {"on": ["result"]}])["is"] == "pending"
    assert polled(building, acceptors=[done])["is"] == "pending"
    assert told(polled(Says(200, {"data": 1}), acceptors=[done])) == ("completed", {"data": 1})


@pytest.mark.parametrize("decode", ["csv", "text", "jsonl"])
def test_a_202_may_be_another_kind_of_body_than_the_data_but_is_not_completed_with_it(decode: str) -> None:
    building = Says(202, {"status": "building"}, {"Content-Type": "application/json"})
    assert fetched(building, decode)["is"] == "pending"
    named = [DONE, {"state": "success", "matcher": "status", "expected": 202, "on": ["result"]}]
    assert told(fetched(building, decode, acceptors=named)) == ("retry", "undecodable")
    assert told(fetched(Says(202, "<html>", {"Content-Type": "text/html"}), decode)) == ("retry", "undecodable")


@pytest.mark.parametrize("status", [206, 226])
def test_a_part_is_never_completed_whatever_acceptors_say(status: int) -> None:
    part = Says(status, TABLE, {"Content-Range": "bytes 0-8/99", "Content-Type": "text/csv"})
    assert told(fetched(part)) == told(polled(part, **BY_STATUS)) == ("retry", "undecodable")


# --- C15, C17: a whole body of the kind that is declared


@pytest.mark.parametrize("decode", ["auto", "csv", "text", "jsonl", "json"])
@pytest.mark.parametrize("body", [gzip.compress(TABLE, mtime=0)[:-3], b"\x0bplain"])
def test_a_body_that_cannot_be_unpacked_is_never_completed(decode: str, body: bytes) -> None:
    coding = "gzip" if body[:1] == b"\x1f" else "br"
    said = Says(200, body, {"Content-Encoding": coding, "Content-Type": "text/csv"})
    assert told(fetched(said, decode)) == ("retry", "undecodable")


def test_a_body_that_cannot_be_unpacked_leaves_an_error_its_status() -> None:
    gone = Says(410, b"x", {"Content-Encoding": "br"})
    assert told(polled(gone)) == ("failed", "upstream")


def test_why_a_body_is_not_believed_is_in_the_log_and_in_the_end_without_what_was_attached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = Says(200, b"name,age,name\n1,2,3\n", {"Content-Type": "text/csv"})
    with caplog.at_level(logging.WARNING):
        found = fetched(said, polling={"maxErrors": 0})
    assert (found["reason"], found["error"]) == ("too-many-errors", "line 1: the name 'name' stands twice")
    [record] = [one for one in caplog.records if one.message == "undecodable"]
    assert vars(record) | {"provider": "example", "task": "a", "status": 200, "reason": found["error"]} == vars(record)


def test_an_error_is_read_as_json_where_the_data_are_a_table() -> None:
    refused = Says(400, {"error": "no such report"}, {"Content-Type": "application/json"})
    assert fetched(refused, "csv")["error"] == "no such report"


# --- C19: data


@pytest.mark.parametrize("said", [
    Says(200), Says(200, b"null"), Says(200, b" \n", {"Content-Type": "text/plain"}), Says(204), Says(205),
    Says(200, b"", {"Content-Type": "application/x-ndjson"}),
])  # fmt: skip
def test_a_success_with_nothing_is_tried_again(said: Says) -> None:
    assert told(fetched(said)) == told(polled(said, **BY_STATUS)) == ("retry", "no-data")


@pytest.mark.parametrize("data", [
    "body.rows", "body.rows[].id", "{rows: body.rows, sum: body.sum}", "[body.rows]", "body.{rows: rows, sum: sum}",
    "body | {rows: rows}", "{all: {rows: body.rows}, sum: body.sum}", "merge({a: body.rows}, {b: body.sum})",
    "to_array(body.rows)", "to_string(body.rows)",
])  # fmt: skip
def test_a_success_whose_data_finds_nothing_is_tried_again(data: str) -> None:
    for body in ({"status": "completed"}, {"status": "completed", "rows": None}):
        assert told(polled(Says(200, body), data=data)) == ("retry", "no-data")


@pytest.mark.parametrize(("data", "body", "value"), [
    ("body.rows", {"rows": []}, []), ("body.rows", {"rows": 0}, 0), ("body.rows", {"rows": ""}, ""),
    ("body.rows", {"rows": False}, False), ("body.rows", {"rows": {"a": None}}, {"a": None}),
    ("body.{a: a, b: b}", {"a": 1}, {"a": 1, "b": None}), ("null", {}, None), ("`null`", {}, None),
])  # fmt: skip
def test_data_that_are_there_are_data_however_little(data: str, body: dict[str, Any], value: Any) -> None:
    assert told(polled(Says(200, {"status": "completed"} | body), data=data)) == ("completed", value)


@pytest.mark.parametrize("data", ["{rows: body.rows, n: body.n}", "body.{rows: rows, n: n}"])
def test_what_is_known_so_far_is_not_lost_to_nothing(data: str) -> None:
    running = {"status": "running", "rows": [1], "n": 5}
    with Site(lambda _: Says(200, running)) as site:
        asked = provider(rules(site.url, **POLLED, data=data))
        first = ask(asked, submitted())
        running = {"status": "running"}
        assert ask(asked, first.record).record.partial == first.record.partial == {"rows": [1], "n": 5}


def test_a_file_says_what_a_success_must_have() -> None:
    required = {"require": "body.rows", "data": "body"}
    assert told(fetched(Says(200, {"message": "busy"}), **required)) == ("retry", "no-data")
    assert told(fetched(Says(200, {"rows": False}), **required)) == ("retry", "no-data")
    assert told(fetched(Says(200, {"rows": []}), **required)) == ("completed", {"rows": []})
    assert told(polled(Says(200, "Sorry", {"Content-Type": "text/plain"}), **BY_STATUS, **required))[0] == "retry"


def test_a_file_says_that_nothing_is_fine() -> None:
    assert told(fetched(Says(200), require="`true`")) == ("completed", None)
    assert told(fetched(Says(200), data="null")) == ("completed", None)
    named = {"acceptors": [{"state": "success", "matcher": "status", "expected": [200, 204]}]}
    assert told(polled(Says(204), **named)) == ("completed", None)
    assert told(polled(Says(200), **named)) == ("retry", "no-data")


def test_each_page_must_have_what_a_success_must_have() -> None:
    def answer(seen: Seen) -> Says:
        pages = {"/result": {"rows": [1], "next": "/two"}, "/two": {"message": "busy"}}
        return Says(200, pages.get(seen.path, {"status": "completed"}))

    with Site(answer) as site:
        result = {"url": "/result", "next": "body.next"}
        asked = provider(rules(site.url, **POLLED, result=result, data="body.rows || `[]`", require="body.rows"))
        assert told(outcome(ask(asked, submitted()))) == ("retry", "no-data")


def test_a_callback_without_data_completes_nothing() -> None:
    with Site() as site:
        asked = provider(rules(site.url, **POLLED, data="body.rows"))
        headers = {"content-type": "application/json"}

        def hears(body: bytes) -> Any:
            return asked.hear(TASK, submitted(), Reply(200, headers, body, ""), now=START_MS)

        assert hears(b'{"status": "completed"}') is None
        assert outcome(hears(b'{"status": "completed", "rows": [1]}'))["data"] == [1]
