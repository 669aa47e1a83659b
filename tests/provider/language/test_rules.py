"""A provider file as production reads it: what is absent, and what may stand where."""

from typing import Any

import pytest

from shared.codec import Json
from shared.errors import ProviderFileError
from tests.support.asking import DONE, POLLED, rules

SERVER = "http://a.example"
READS = {"url": "/b/${response.body.id}"}


@pytest.mark.parametrize(("parts", "partial"), [
    ({}, "body"), ({"data": "body.a"}, "body.a"), ({"data": "body.a", "result": {"url": "/r"}}, "null"),
    ({"data": "body.a", "partial": "body.b"}, "body.b"), ({"data": "body.a", "partial": "null"}, "null"),
    ({"data": "body.a", "partial": "body.b", "result": {"url": "/r"}}, "body.b"),
    (POLLED, "null"), (POLLED | {"data": "body"}, "body"), (POLLED | {"data": "body.a"}, "body.a"),
    (POLLED | {"partial": "body"}, "body"), (POLLED | {"result": {"url": "/r"}}, "null"),
], ids=str)  # fmt: skip
def test_what_is_partial_data_where_the_file_does_not_say(parts: Any, partial: str) -> None:
    assert rules(SERVER, **parts).partial.text == partial


@pytest.mark.parametrize(("body", "error"), [
    ({"error": {"code": 7, "message": "m"}, "message": "x"}, {"code": 7, "message": "m"}),
    ({"error": "invalid_grant", "error_description": "d"}, "d"), ({"error": "Bad Request", "message": "m"}, "m"),
    ({"error": True, "message": "m"}, "m"), ({"error": "e", "message": ""}, "e"), ({"errorMessage": "m"}, "m"),
    ({"error": {}, "message": "m"}, "m"), ({"title": "t", "detail": "d"}, "d"), ({"title": "t", "status": 400}, "t"),
    ({"error_message": "m"}, "m"), ({"message": "m", "detail": "d"}, "m"), ({"errors": [{"message": "m"}, 5]}, "m"),
    ({"errors": [{"detail": "d", "title": "t"}]}, "d"), ({"errors": [{"title": "t"}]}, "t"),
    ({"errors": {"name": ["too long"]}}, {"name": ["too long"]}), ([{"message": "m"}], "m"), ("no id", "no id"),
    (["a", "b"], "a"), ({"status": "failed"}, None), ([], None), (None, None), (5, None),
], ids=str)  # fmt: skip
def test_what_a_reply_says_of_a_failure_where_the_file_does_not_say_where(body: Json, error: Json) -> None:
    assert rules(SERVER).error.of({"body": body}) == error


def test_an_acceptor_compares_what_the_file_calls_its_status_unless_it_says_otherwise() -> None:
    own = DONE | {"argument": "body.b"}
    found = rules(SERVER, status="body.a", acceptors=[DONE, own]).acceptors
    assert [one.argument.text for one in found] == ["body.a", "body.b"]


def test_the_wait_for_the_first_answer_is_the_file_s_or_the_usual() -> None:
    assert rules(SERVER).first_answer_seconds(5) == 5
    assert rules(SERVER, firstAnswer=0).first_answer_seconds(5) == 0


@pytest.mark.parametrize("parts", [
    {"submit": [{"url": "/a"}, READS], "poll": {"url": "/p"}}, {"submit": [{"url": "/a"}, READS, {"url": "/c"}]},
    {"result": READS}, {"result": [READS, READS]},
], ids=str)  # fmt: skip
def test_response_is_the_reply_before(parts: Any) -> None:
    assert rules(SERVER, **parts).submit_steps


@pytest.mark.parametrize(
    ("parts", "location"),
    [
        ({"submit": READS}, "$.submit"),
        ({"submit": [READS, {"url": "/b"}], "poll": {"url": "/p"}}, "$.submit[0]"),
        ({"submit": [{"url": "/a"}, READS]}, "$.submit[1]"),  # it is sent alone when it asks again
        ({"poll": READS}, "$.poll"),
        ({"cancel": READS}, "$.cancel"),
    ],
    ids=str,
)
def test_an_operation_that_is_sent_first_has_no_response(parts: Any, location: str) -> None:
    with pytest.raises(ProviderFileError) as caught:
        rules(SERVER, **parts)
    assert str(caught.value).startswith(
        f"{location}.url: ${{response.body.id}} uses response, but no reply goes before"
    )
