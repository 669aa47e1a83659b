"""Events of both shapes become one call; what API Gateway says of the route decides, whatever stands in the path."""

from collections.abc import Callable
from typing import Any

import pytest

from handlers import enqueue
from local.sam_template import routes
from shared.api.event import MAX_URL_CHARACTERS, ApiCall
from shared.api.request import named_in_url
from shared.errors import BadRequest, ContentTooLarge, NotFound
from shared.task import Task
from tests.support.api_events import Event, http, rest

BASES = [
    "",
    "/shop",
    "/tasks",
    "/v1/tasks",
    "/tasks/batch",
    "/tasks/revive",
    "/erase",
    "/callbacks",
    "/tasks/example/x",
    "/a b/ü",
]
STAGES = ["v1", "tasks", "callbacks"]


@pytest.fixture(params=[rest, http], ids=["rest", "http"])
def shape(request: pytest.FixtureRequest) -> Callable[..., Event]:
    """Each test that makes its event with this runs for both shapes."""
    shape: Callable[..., Event] = request.param
    return shape


def test_every_route_of_the_template_is_answered_and_no_other() -> None:
    deployed = {f"{one.method} {one.path}" for one in routes()}
    hooks = {f"{method} /callbacks/{{provider}}/{{token}}" for method in ("GET", "POST")}
    assert deployed == enqueue.ROUTES.keys() | hooks


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("method", "target", "route"),
    [
        ("GET", "/", "GET /"), ("GET", "/?task-name=tasks", "GET /"), ("POST", "/tasks", "POST /tasks"),
        ("POST", "/tasks/", "POST /tasks"), ("POST", "/tasks/batch", "POST /tasks/batch"),
        ("POST", "/tasks/revive", "POST /tasks/revive"), ("GET", "/tasks?name=a", "GET /tasks"),
        ("DELETE", "/tasks/tasks/tasks", "DELETE /tasks/{provider}/{name}"),
        ("DELETE", "/erase?name=a", "DELETE /erase"),
        ("DELETE", "/erase/tasks/erase", "DELETE /erase/{provider}/{name}"),
        ("DELETE", "/tasks/erase/erase%2Fa", "DELETE /tasks/{provider}/{name}"),
        ("GET", "/tasks/callbacks/tasks%2Frevive", "GET /tasks/{provider}/{name}"),
        ("POST", "/callbacks/tasks/batch", "POST /callbacks/{provider}/{token}"),
    ],
)  # fmt: skip
def test_a_base_path_that_looks_like_a_route_is_none(
    shape: Callable[..., Event], base: str, method: str, target: str, route: str
) -> None:
    event = shape(method, target, base=base)
    if target == "/tasks/":  # API Gateway takes it for /tasks
        event |= {"resource": "/tasks"} if shape is rest else {"routeKey": "POST /tasks"}
    call = ApiCall.of(event)
    assert (call.route, call.base) == (route, base if base or shape is http else "/v1")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", ["x", "a%2Fb", "tasks", "tasks%2Fcoin%2Fb", "%2F", "a%20b", "100%25", "%E5%90%8D"])
def test_a_name_in_the_path_is_found_behind_any_base_path(shape: Callable[..., Event], base: str, name: str) -> None:
    plain = {"a%2Fb": "a/b", "tasks%2Fcoin%2Fb": "tasks/coin/b", "%2F": "/", "a%20b": "a b", "100%25": "100%"}
    call = ApiCall.of(shape("GET", f"/tasks/example/{name}", base=base))
    assert named_in_url(call, "coin") == Task("example", plain.get(name, name.replace("%E5%90%8D", "名")))


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_before_the_route_makes_no_difference(shape: Callable[..., Event], stage: str) -> None:
    call = ApiCall.of(shape("GET", "/tasks/example/x", stage=stage))
    assert (named_in_url(call, "coin"), call.base) == (Task("example", "x"), f"/{stage}")


@pytest.mark.parametrize("stage", ["$default", "prod", "tasks"])
@pytest.mark.parametrize("key", ["$default", "ANY /{proxy+}"])
def test_where_api_gateway_has_not_decided_the_path_does(stage: str, key: str) -> None:
    for method, target, route in [
        ("POST", "/tasks", "POST /tasks"), ("GET", "/tasks/example/a%2Fb", "GET /tasks/{provider}/{name}"),
        ("GET", "/", "GET /"), ("GET", "/elsewhere", "GET /elsewhere"),
    ]:  # fmt: skip
        event: Event = http(method, target, stage=stage) | {"routeKey": key, "pathParameters": {"proxy": target[1:]}}
        call = ApiCall.of(event)
        assert (call.route, call.base) == (route, "" if stage == "$default" else f"/{stage}")
    event = rest("GET", "/tasks/example/a%2Fb", stage=stage) | {"resource": "/{proxy+}"}
    assert named_in_url(ApiCall.of(event), "coin") == Task("example", "a/b")


@pytest.mark.parametrize("path", ["/tasks/example", "/elsewhere", "/callbacks/example/x"])
def test_another_route_names_no_task(shape: Callable[..., Event], path: str) -> None:
    with pytest.raises(NotFound):
        named_in_url(ApiCall.of(shape("GET", path)), "coin")


def test_a_path_or_query_that_is_not_utf_8_is_refused_rather_than_mangled() -> None:
    events = {"name": rest("GET", "/tasks/example/%FF"), "provider": rest("GET", "/tasks/%FF/a")}
    for field, event in (events | {"query": http("GET", "/tasks?name=%FF")}).items():
        with pytest.raises(BadRequest) as caught:
            ApiCall.of(event)
        assert caught.value.field == field


# --- what API Gateway never sends


def without(event: Event, name: str) -> Event:
    return {key: value for key, value in event.items() if key != name}


BOTH: list[dict[str, Any]] = [
    {"headers": []}, {"headers": "a"}, {"headers": {"a": 1}}, {"headers": {"a": ["b"]}}, {"body": 7}, {"body": {}},
    {"body": b"x"}, {"isBase64Encoded": "yes"}, {"isBase64Encoded": 1}, {"requestContext": None},
    {"requestContext": []},
    {"version": "3.0"}, {"version": 2.0}, {"version": []}, {"version": {}}, {"version": ""},
]  # fmt: skip
REST: list[dict[str, Any]] = [
    {"path": None}, {"path": 7}, {"path": ["/"]}, {"httpMethod": None}, {"httpMethod": {}}, {"resource": None},
    {"queryStringParameters": []}, {"queryStringParameters": {"task-name": ["a", "b"]}}, {"version": "2.0"},
    {"multiValueHeaders": {"a": "b"}}, {"multiValueHeaders": []}, {"resource": "/tasks/{provider}/{name}", "path": "/"},
    {"resource": "/tasks", "path": "/elsewhere"}, {"requestContext": {"path": 7}},
    {"path": "/" + "x" * MAX_URL_CHARACTERS},
]  # fmt: skip
HTTP: list[dict[str, Any]] = [
    {"rawPath": None}, {"rawPath": 7}, {"rawQueryString": None}, {"rawQueryString": {}}, {"routeKey": None},
    {"requestContext": {}}, {"requestContext": {"http": {}}}, {"requestContext": {"http": {"method": 7}}},
    {"requestContext": {"http": {"method": "GET"}, "stage": None}}, {"version": None}, {"pathParameters": []},
    {"pathParameters": {"name": 7}}, {"rawQueryString": "x" * (MAX_URL_CHARACTERS + 1)},
    {"routeKey": "GET /tasks/{provider}/{name}"},
]  # fmt: skip
ODD: list[Any] = [
    None, [], 7, "x", True, {}, {"Records": []}, {"version": "2.0"}, {"version": "1.0"},
    *(rest("GET", "/?task-name=a") | one for one in BOTH + REST),
    *(http("GET", "/?task-name=a") | one for one in BOTH + HTTP),
    *(without(rest(), name) for name in ("path", "httpMethod", "requestContext")),
    *(without(http(), name) for name in ("rawPath", "requestContext")),
]  # fmt: skip
"""Events that nobody sends but a person, or another service."""


@pytest.mark.parametrize("event", ODD)
def test_what_api_gateway_never_sends_is_refused(event: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        ApiCall.of(event)
    assert len(caught.value.detail) < 200


# --- the body


@pytest.mark.parametrize("text", ["x" * 100, "é" * 100, "=" * 100, "\ud800" * 100])
@pytest.mark.parametrize("as_base64", [False, True])
def test_a_body_far_beyond_the_limit_is_not_even_decoded(text: str, as_base64: bool) -> None:
    call = ApiCall.of(rest("POST", "/tasks", text) | {"isBase64Encoded": as_base64})
    with pytest.raises(ContentTooLarge):
        call.content(10)


def test_a_call_tells_who_signed_it_where_api_gateway_does(shape: Callable[..., Event]) -> None:
    event = shape("DELETE", "/erase?name=a")
    assert ApiCall.of(event).caller == "arn:aws:iam::123456789012:user/caller"
    for name in ("identity", "authorizer"):
        event["requestContext"].pop(name, None)
    assert ApiCall.of(event).caller is None
