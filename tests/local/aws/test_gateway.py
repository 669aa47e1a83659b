"""The gateway makes API Gateway's events, gives API Gateway's answers, and serves the template's routes."""

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
import requests

from local import ROOT
from local.aws.function import Function, ThrottledError
from local.aws.gateway import HTTP, REST, Gateway
from local.aws.message import Event, Shape

HANDLER = """
    import json, os, time

    def handler(event, context):
        body = event.get("body") or ""
        if not body.startswith("answer:"):
            return {"statusCode": 200, "body": json.dumps(event)}
        if body == "answer:raise":
            raise ValueError("no such luck")
        if body == "answer:sleep":
            time.sleep(60)
        if body == "answer:exit":
            os._exit(1)
        return json.loads(body.removeprefix("answer:"))
"""

Make = Callable[..., Gateway]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Makes a gateway before a handler that echoes its event, or answers what the body tells it to."""
    folder = tmp_path_factory.mktemp("handler")
    (folder / "echo_handler.py").write_text(dedent(HANDLER))
    made: dict[tuple[Shape, float], Gateway] = {}
    with ExitStack() as stack, (folder / "log").open("w") as log:
        environment = {"PYTHONPATH": str(folder)}
        function = stack.enter_context(Function("Echo", "echo_handler.handler", 3, environment, log=log))

        def make(shape: Shape, seconds: float = 29) -> Gateway:
            if (shape, seconds) not in made:
                functions = {"EnqueueFunction": function, "StatusFunction": function}
                gateway = Gateway(functions, shape, integration_seconds=seconds)
                made[shape, seconds] = stack.enter_context(gateway)
            return made[shape, seconds]

        yield make


def ask(gateway: Gateway, method: str, target: str, body: bytes | str | None = None, **headers: str) -> Event:
    """The event that the function gets for a request."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = requests.request(method, gateway.url + target, data=body, headers=named, timeout=30)
    assert answer.status_code == 200, answer.text
    event: Event = answer.json()
    return event


def answered(gateway: Gateway, answer: object) -> requests.Response:
    """What a client gets for a function's answer."""
    body = "answer:" + (answer if isinstance(answer, str) else json.dumps(answer))
    return requests.post(f"{gateway.url}/tasks", body, headers={"Content-Type": "text/plain"}, timeout=30)


SAMPLES = sorted((ROOT / "events").glob("enqueue-*.json"))
CHANGING = {"x-amzn-trace-id", "x-forwarded-for", "x-forwarded-port", "x-forwarded-proto", "host", "content-length"}
ADDED = {"accept-encoding", "content-length"}  # by this client


def request_of(sample: Event) -> tuple[str, str, dict[str, str], str | None]:
    """The HTTP request that a sample event comes from."""
    headers = {name: value for name, value in sample["headers"].items() if name.lower() not in CHANGING}
    if sample.get("version") == "2.0":
        method, path, query = sample["requestContext"]["http"]["method"], sample["rawPath"], sample["rawQueryString"]
    else:
        method, path = sample["httpMethod"], sample["path"]
        query = urlencode(sample["multiValueQueryStringParameters"] or {}, doseq=True)
    return method, path + ("?" + query if query else ""), headers, sample.get("body")


def settled(event: Event) -> Event:
    """An event without what differs from request to request."""
    event = json.loads(json.dumps(event))
    for name in ("headers", "multiValueHeaders"):
        fixed = {key: value for key, value in event.get(name, {}).items() if key.lower() not in CHANGING | ADDED}
        event[name] = fixed
    context: dict[str, Any] = event["requestContext"]
    for name in ("requestId", "requestTime", "requestTimeEpoch", "time", "timeEpoch", "domainName", "path"):
        context.pop(name, None)
    (context.get("identity") or context["http"]).pop("sourceIp")
    return event


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_request_of_a_sample_event_arrives_as_that_sample_event(make: Make, path: Path) -> None:
    sample = json.loads(path.read_text())
    gateway = make(HTTP if sample.get("version") == "2.0" else REST)
    method, target, headers, body = request_of(sample)
    assert settled(ask(gateway, method, target, body, **headers)) == settled(sample)


def test_rest_keeps_the_path_encoded_and_http_decodes_it_once(make: Make) -> None:
    target = "/tasks/example/a%20b%2Fc%2525%C5%81"
    rest, http = ask(make(REST), "GET", target), ask(make(HTTP), "GET", target)
    assert rest["path"] == rest["requestContext"]["path"] == target
    assert rest["pathParameters"] == {"provider": "example", "name": "a%20b%2Fc%2525%C5%81"}
    assert rest["resource"] == "/tasks/{provider}/{name}"
    assert http["rawPath"] == http["requestContext"]["http"]["path"] == "/tasks/example/a b/c%25Ł"
    assert http["pathParameters"] == {"provider": "example", "name": "a b/c%25Ł"}
    assert http["routeKey"] == "GET /tasks/{provider}/{name}"


def test_repeated_parameters_are_listed_in_rest_and_joined_in_http(make: Make) -> None:
    target = "/?task-name=a&task-name=%C5%81+b&empty="
    rest, http = ask(make(REST), "GET", target), ask(make(HTTP), "GET", target)
    assert rest["queryStringParameters"] == {"task-name": "Ł b", "empty": ""}
    assert rest["multiValueQueryStringParameters"] == {"task-name": ["a", "Ł b"], "empty": [""]}
    assert http["queryStringParameters"] == {"task-name": "a,Ł b", "empty": ""}
    assert http["rawQueryString"] == "task-name=a&task-name=%C5%81+b&empty="


def test_absent_parts_are_null_in_rest_and_missing_in_http(make: Make) -> None:
    rest, http = ask(make(REST), "GET", "/"), ask(make(HTTP), "GET", "/")
    absent = ("queryStringParameters", "multiValueQueryStringParameters", "pathParameters", "body")
    assert [rest[name] for name in absent] == [None] * 4
    assert [name for name in (*absent, "cookies") if name in http] == []
    assert http["rawQueryString"] == ""


def raw(gateway: Gateway, *lines: str) -> Event:
    """The event for a request written by hand."""
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        with connection.makefile("rb") as stream:
            event: Event = json.loads(stream.read().partition(b"\r\n\r\n")[2])
            return event


def test_repeated_headers_are_listed_as_sent_in_rest_and_joined_in_lower_case_in_http(make: Make) -> None:
    lines = ("GET / HTTP/1.1", "Host: here:80", "X-Twice: a", "X-Twice: b", "Cookie: c=1; d=2", "Connection: close")
    rest, http = raw(make(REST), *lines), raw(make(HTTP), *lines)
    assert rest["headers"]["X-Twice"] == "b"
    assert rest["multiValueHeaders"]["X-Twice"] == ["a", "b"]
    assert rest["headers"]["Cookie"] == "c=1; d=2"
    assert http["headers"]["x-twice"] == "a,b"
    assert http["cookies"] == ["c=1", "d=2"]
    assert "cookie" not in http["headers"]
    assert "Connection" not in rest["headers"]


@pytest.mark.parametrize("kind", ["application/json", "text/csv; charset=utf-8"])
def test_a_text_body_arrives_as_text(make: Make, kind: str) -> None:
    for shape in (REST, HTTP):
        event = ask(make(shape), "POST", "/tasks", '{"name": "Ł"}'.encode(), Content_Type=kind)
        assert (event["body"], event["isBase64Encoded"]) == ('{"name": "Ł"}', False)


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/x-www-form-urlencoded", ""])
def test_any_other_body_arrives_as_base64_in_http(make: Make, kind: str) -> None:
    event = ask(make(HTTP), "POST", "/tasks", b"\xff{}", **({"Content_Type": kind} if kind else {}))
    assert event["isBase64Encoded"] is True
    assert base64.b64decode(event["body"]) == b"\xff{}"


def test_the_identity_and_ids_are_of_this_request(make: Make) -> None:
    first, second = (ask(make(REST), "GET", "/", User_Agent="mine")["requestContext"] for _ in range(2))
    assert first["identity"]["sourceIp"] == "127.0.0.1"
    assert first["identity"]["userAgent"] == "mine"
    assert first["requestId"] != second["requestId"]
    assert first["requestTimeEpoch"] <= second["requestTimeEpoch"]


def test_an_answer_becomes_http(make: Make) -> None:
    rest = {"statusCode": 202, "headers": {"Location": "/x"}, "multiValueHeaders": {"X-A": ["1"]}, "body": '"Ł"'}
    reply = answered(make(REST), rest)
    assert (reply.status_code, reply.json(), reply.headers["Location"], reply.headers["X-A"]) == (202, "Ł", "/x", "1")
    assert reply.headers["Content-Type"] == "application/json"
    encoded = base64.b64encode(b"\xff").decode()
    http = {"statusCode": "201", "body": encoded, "isBase64Encoded": True, "cookies": ["a=1"]}
    reply = answered(make(HTTP), http)
    assert (reply.status_code, reply.content, reply.headers["Set-Cookie"]) == (201, b"\xff", "a=1")
    reply = answered(make(HTTP), {"no": "statusCode"})
    assert (reply.status_code, reply.json()) == (200, {"no": "statusCode"})


@pytest.mark.parametrize("answer", [None, "text", {"body": "x"}, {"statusCode": 200, "multiValueHeaders": {"a": "b"}}])
def test_rest_refuses_an_answer_without_form(make: Make, answer: object) -> None:
    reply = answered(make(REST), json.dumps(answer))
    assert (reply.status_code, reply.json()) == (502, {"message": "Internal server error"})


@pytest.mark.parametrize("malformed", [{"statusCode": "many"}, {"body": {"an": "object"}}, {"headers": ["a"]}])
def test_both_refuse_a_malformed_answer(make: Make, malformed: dict[str, object]) -> None:
    answer = {"statusCode": 200} | malformed
    assert answered(make(REST), answer).status_code == 502
    reply = answered(make(HTTP), answer)
    assert (reply.status_code, reply.json()) == (500, {"message": "Internal Server Error"})
    assert answered(make(HTTP), {"statusCode": 200, "body": "!", "isBase64Encoded": True}).status_code == 500


@pytest.mark.parametrize("error", ["raise", "exit"])
def test_a_failing_function_is_an_internal_error_and_the_next_request_works(make: Make, error: str) -> None:
    assert answered(make(REST), error).json() == {"message": "Internal server error"}
    assert answered(make(HTTP), error).json() == {"message": "Internal Server Error"}
    assert ask(make(REST), "GET", "/")["resource"] == "/"


def test_a_function_slower_than_the_gateway_waits_is_a_timeout(make: Make) -> None:
    reply = answered(make(REST, 0.05), "sleep")
    assert (reply.status_code, reply.json()) == (504, {"message": "Endpoint request timed out"})
    reply = answered(make(HTTP, 0.05), "sleep")
    assert (reply.status_code, reply.json()) == (503, {"message": "Service Unavailable"})


def test_a_function_that_runs_into_its_own_timeout_is_an_internal_error(make: Make) -> None:
    assert answered(make(REST), "sleep").json() == {"message": "Internal server error"}


@pytest.mark.parametrize(("shape", "status", "after"), [(REST, 503, "1"), (HTTP, 500, None)])
def test_a_function_without_room_is_answered_as_the_template_says_where_it_can_say(
    shape: Shape, status: int, after: str | None
) -> None:
    function = Mock(**{"start.return_value.result.side_effect": ThrottledError()})
    with Gateway({"StatusFunction": function}, shape) as gateway:
        reply = requests.get(f"{gateway.url}/tasks/example/a", timeout=30)
    assert (reply.status_code, reply.headers.get("Retry-After")) == (status, after)
    if shape is REST:
        assert (reply.json()["status"], reply.json()["title"]) == (503, "Service Unavailable")


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/nowhere"), ("PUT", "/tasks"), ("TRACE", "/tasks"), ("QUERY", "/"), ("GET", "/tasks/example/")],
)
def test_a_route_that_is_not_there_has_api_gateways_own_answer(make: Make, method: str, target: str) -> None:
    rest = requests.request(method, make(REST).url + target, timeout=30)
    assert (rest.status_code, rest.json()) == (403, {"message": "Missing Authentication Token"})
    http = requests.request(method, make(HTTP).url + target, timeout=30)
    assert (http.status_code, http.json()) == (404, {"message": "Not Found"})


def test_a_body_beyond_ten_megabytes_is_refused(make: Make) -> None:
    body = b"x" * (10 * 1024 * 1024 + 1)
    assert requests.post(f"{make(REST).url}/tasks", body, timeout=30).status_code == 413
    assert requests.post(f"{make(HTTP).url}/tasks", body, timeout=30).status_code == 413


def test_requests_are_served_at_the_same_time(make: Make) -> None:
    gateway = make(REST)
    ready = threading.Barrier(4, timeout=30)

    def one(number: int) -> Event:
        ready.wait()
        return ask(gateway, "GET", f"/?task-name={number}")

    with ThreadPoolExecutor(4) as pool:
        events = list(pool.map(one, range(4)))
    assert {event["queryStringParameters"]["task-name"] for event in events} == {"0", "1", "2", "3"}
