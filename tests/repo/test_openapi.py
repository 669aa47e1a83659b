"""docs/openapi.json is sound, tells of every route, and holds answers to what it says."""

import json
from typing import Any

import pytest
from jsonschema import ValidationError
from openapi_spec_validator import OpenAPIV31SpecValidator

from local.openapi import description
from local.sam_template import Route, routes
from shared.api.answer import problem
from shared.errors import Problem
from tests.support.described import DESCRIPTION, conform

TASK = {
    "task_id": "example/a", "provider": "example", "name": "a", "status": "pending", "data": None, "partial": True,
    "deduplicated": False, "generation": 1, "created_at": "2026-11-30T22:23:55.563Z",
    "updated_at": "2026-11-30T22:23:55.563Z", "age_seconds": 0,
}  # fmt: skip
JSON = {"Content-Type": "application/json"}
ACCEPTED = JSON | {"Location": "/tasks", "Retry-After": "1"}


def test_the_description_is_sound() -> None:
    OpenAPIV31SpecValidator(DESCRIPTION).validate()
    assert json.loads(json.dumps(description())) == DESCRIPTION


def test_it_tells_of_every_route_of_the_template_and_no_other() -> None:
    described = {(method.upper(), path) for path, methods in DESCRIPTION["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in routes()}


def test_a_route_that_nobody_describes_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local.openapi.routes", lambda: [Route("GET", "/new", "EnqueueFunction")])
    with pytest.raises(KeyError):
        description()


def test_every_status_of_a_problem_is_described_somewhere() -> None:
    told = {
        status for methods in DESCRIPTION["paths"].values() for one in methods.values() for status in one["responses"]
    }
    assert {str(kind.status) for kind in Problem.__subclasses__()} <= told


@pytest.mark.parametrize(
    ("status", "headers", "change"),
    [
        (418, ACCEPTED, {}), (202, JSON, {}), (202, ACCEPTED | {"X-New": "1"}, {}), (202, ACCEPTED, {"new": 1}),
        (202, ACCEPTED, {"status": "done"}), (202, ACCEPTED, {"generation": "1"}), (202, ACCEPTED, {"name": None}),
        (202, ACCEPTED | {"Content-Type": "text/html"}, {}),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_described_is_found(status: int, headers: dict[str, str], change: Any) -> None:
    conform("POST /tasks", 202, ACCEPTED, json.dumps(TASK))
    with pytest.raises((AssertionError, ValidationError, KeyError)):
        conform("POST /tasks", status, headers, json.dumps(TASK | change))


def test_a_problem_is_described_wherever_it_may_be_met() -> None:
    answer = problem(ZeroDivisionError())
    for route in routes():
        conform(f"{route.method} {route.path}", 500, JSON | {"Content-Type": answer.content_type}, answer.text)
