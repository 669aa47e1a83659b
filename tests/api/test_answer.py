"""Answers are text with their headers; what cannot be served is told as RFC 9457 problem details."""

import json
from typing import Any

import pytest

from shared.api.answer import MAX_ANSWER_BYTES, Answer, problem
from shared.codec import carried, dumps
from shared.errors import (
    BadRequest,
    Conflict,
    NotFound,
    SecretUnavailable,
    SettingsError,
    StoreUnavailable,
    Unavailable,
)
from shared.task import Task

TASK = Task("example", "a b/ü&?")


def test_an_answer_is_json_text_that_nobody_may_store() -> None:
    answer = Answer(status=200, body={"total": 3, "name": "Łódź", "rate": 1.5})
    assert json.loads(answer.text) == answer.body
    assert answer.content_type == "application/json"
    assert answer.headers() == {"Cache-Control": "no-store"}


def test_an_answer_that_lambda_would_not_carry_leaves_its_data_out_and_says_so() -> None:
    rows = ["0123456789"] * 450_000
    assert len(dumps(rows)) < MAX_ANSWER_BYTES  # too large only as the text within Lambda's own JSON
    answer = Answer(status=200, body={"name": "a", "data": rows, "partial": False})
    assert json.loads(answer.text) == answer.body == {"name": "a", "data": None, "partial": False, "data_url": None}


def test_the_largest_answer_is_one_that_lambda_carries() -> None:
    for text in ('{"a": "\\\\ \\" \\u0000 名"}', '"\\ud800"', "[]", dumps({"x": ['"'] * 3})):
        assert carried(text) == len(json.dumps(text, ensure_ascii=False).encode()) - 2
    body = {"data": "x" * (MAX_ANSWER_BYTES - len('{"data":""}') - 4)}
    assert Answer(status=200, body=body).body == body
    assert MAX_ANSWER_BYTES + 200_000 < 6 * 1024 * 1024


def test_headers_are_text_even_where_they_are_numbers() -> None:
    assert Answer(status=202, body={}, retry_after_seconds=7).headers()["Retry-After"] == "7"


@pytest.mark.parametrize("base", ["", "/v1", "/shop/api"])
def test_location_has_the_stage_and_names_the_task_in_the_query(base: str) -> None:
    location = Answer(status=202, body={}, location=TASK).headers(base)["Location"]
    assert location == f"{base}/tasks?provider=example&name=a+b%2F%C3%BC%26%3F"


def test_an_answer_says_which_preference_it_follows() -> None:
    answer = Answer(status=202, body={}, preference_applied="wait=7")
    assert answer.headers()["Preference-Applied"] == "wait=7"


TAGGED = Answer(status=200, body={"a": 1}, etag='W/"one"')


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ('W/"one"', True), ('"one"', True),  # weak comparison
        ('"zero", W/"one"', True), ('"ze,ro",W/"one"', True), ("*", True), (" * ", True), ('W/"two"', False),
        ('"two, one"', False), ('"two", *', False), ("one", False), ("W/one", False), ('w/"on"', False), ("", False),
    ],
)  # fmt: skip
def test_who_has_the_answer_already_gets_304_without_a_body(asked: str, known: bool) -> None:
    answer = TAGGED.unless_known(asked)
    assert (answer.status, answer.text) == ((304, "") if known else (200, TAGGED.text))
    assert answer.headers() == {"Cache-Control": "private, no-cache", "ETag": 'W/"one"'}


def test_an_answer_without_an_etag_is_always_told() -> None:
    answer = Answer(status=200, body={"a": 1})
    assert answer.unless_known("*") == answer
    assert TAGGED.unless_known("") == TAGGED


def test_a_problem_names_what_is_wrong_and_where() -> None:
    answer = problem(BadRequest("the name is empty", field="name"))
    assert answer.status == 400
    assert answer.content_type == "application/problem+json"
    told = {"type": "about:blank", "title": "Bad Request", "status": 400}
    assert answer.body == told | {"detail": "the name is empty", "field": "name"}
    assert "Retry-After" not in answer.headers()


@pytest.mark.parametrize("error", [NotFound("none"), Conflict("no")])
def test_a_problem_that_no_field_is_at_fault_for_names_none(error: Any) -> None:
    assert "field" not in problem(error).body
    assert problem(error).status == error.status


@pytest.mark.parametrize(
    "error", [StoreUnavailable("DynamoDB: ThrottlingException"), SecretUnavailable("ssm:/redis"), Unavailable("later")]
)
def test_what_may_work_later_is_503_and_says_when(error: Any) -> None:
    answer = problem(error)
    assert (answer.status, answer.headers()["Retry-After"]) == (503, "5")
    assert "DynamoDB" not in answer.text


@pytest.mark.parametrize("error", [KeyError("S3CRET"), SettingsError("REDIS_URL must be S3CRET")])
def test_what_broke_here_is_500_and_nothing_of_it_is_told(error: Exception) -> None:
    answer = problem(error)
    assert (answer.status, answer.body["title"]) == (500, "Internal Server Error")
    assert "field" not in answer.body
    assert "S3CRET" not in answer.text
